"""A canary in every place of a request and a response: in no file, record, metric or log. And what does not depend on
the capture mode: masked, full and replayed give the same record.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from streamgauge_demo.provider import stream, whole
from tests.blackbox.errors import SECRET
from tests.blackbox.expect import read_body
from tests.blackbox.rig import Rig, judged
from tests.events import DONE, STREAMS, anthropic, chat_chunk, chat_tools, data, named, responses
from tests.running import command

HEADERS = f"Authorization: Bearer sk-{SECRET}\r\nx-api-key: {SECRET}\r\nCookie: a={SECRET}\r\nX-{SECRET}: {SECRET}\r\n"
ANSWERED = {"Set-Cookie": SECRET, "X-Any": SECRET}
BODY = json.dumps(
    {"model": "gpt-ask", "stream": True, "stop": [SECRET], "user": SECRET, "metadata": {SECRET: SECRET},
     "messages": [{"role": "user", "content": SECRET}], "tools": [{"name": SECRET}]}
).encode()  # fmt: skip
ARGUMENTS = json.dumps({SECRET: SECRET})
CALL = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}]
LOGPROBS = {"content": [{"token": SECRET, "bytes": [1], "logprob": -1}]}
ERROR = {"error": {"message": SECRET, "type": f"{SECRET} is no type", "param": SECRET, "metadata": {"raw": SECRET}}}
EVENTS = {
    "openai-chat": [
        chat_chunk("t", content=SECRET), chat_chunk("t", reasoning_content=SECRET), chat_chunk("t", refusal=SECRET),
        chat_chunk("t", tool_calls=CALL), data({"choices": [{"index": 0, "delta": {SECRET: SECRET}}]}),
        data({"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": LOGPROBS}], SECRET: {SECRET: SECRET}}),
        f": {SECRET}\nevent: {SECRET}\n".encode() + chat_chunk("t", content="y"), chat_chunk("t", finish="stop"),
        data(ERROR), f"data: {SECRET}\n\n{SECRET}: {SECRET}\n\n".encode(), DONE,
    ],
    "anthropic-messages": [
        *(event.replace(b"llo", SECRET.encode()).replace(b"hm", SECRET.encode()) for event in anthropic("t")),
        named({"type": "error", **ERROR}),
    ],
    "openai-responses": [event.replace(b"llo", SECRET.encode()) for event in responses("t")],
    "openai-completions": [f'data: {{"choices":[{{"index":0,"text":"{SECRET}'.encode()],
}  # fmt: skip
ANSWERS = {"application/json": json.dumps(ERROR), "text/html": f"<html>{SECRET}</html>", "text/plain": SECRET}
# What may differ: ids, times, transport, and what is known only from the text or from a request.
LEFT_OUT = {
    "stream_id", "tap", "tap_instance", "tap_version", "trace_id", "parent_span_id", "started_at", "timing", "request",
    "upstream", "status_code", "request_digest", "capture", "endpoint", "cost",
}  # fmt: skip
LEFT_OUT_COUNTS = {"reads", "segments", "client_bytes"}


def test_s1_no_canary_anywhere_with_masking(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        query = f"?api-key={SECRET}&key={SECRET}&api-version=2024-01-01"
        path = {"openai-chat": f"/v1/chat/completions{query}"}
        ran = [
            rig.run(dialect, dialect, stream(*events, headers=ANSWERED, pause_s=0.003), headers=HEADERS, body=BODY,
                    path=path.get(dialect))
            for dialect, events in EVENTS.items()
        ]  # fmt: skip
        for kind, text in ANSWERS.items():
            answer = whole(text.encode(), 400, kind, ANSWERED)
            ran.append(rig.run(kind, "openai-chat", answer, headers=HEADERS, body=BODY))
        await asyncio.gather(*ran)
        records = await rig.records()
        assert len(records) == len(EVENTS) + len(ANSWERS)
        assert [trace for trace, found in records.items() if SECRET in json.dumps(found)] == []
        files = [path for path in rig.running.data_dir.rglob("*") if path.is_file()]
        assert len(files) > 3
        assert [path.name for path in files if SECRET.lower().encode() in path.read_bytes().lower()] == []
        assert SECRET not in rig.running.get("/metrics")[1]
        assert SECRET not in rig.running.log

    judged(tmp_path, work)


def bare(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what may differ."""
    kept = {name: value for name, value in json.loads(json.dumps(record)).items() if name not in LEFT_OUT}
    kept["counts"] = {name: value for name, value in kept["counts"].items() if name not in LEFT_OUT_COUNTS}
    for choice in kept["choices"]:
        del choice["first_token_s"]
        for call in choice["tool_calls"]:
            del call["arguments_valid"]
    return kept


async def cuts(rig: Rig) -> None:
    """Streams from the first whole event on, cut at many places: before it, only the path indicates the dialect."""
    ran = [rig.run("tools", "openai-chat", stream(*chat_tools("t")))]
    for dialect, make in STREAMS.items():
        events = make("t")
        whole = b"".join(events)
        for at in [*range(len(events[0]), len(whole), 61), len(whole)]:
            ran.append(rig.run(f"{dialect} {at}", dialect, stream(whole[:at])))
    await asyncio.gather(*ran)


def test_masked_full_and_replayed_records_are_equal(tmp_path: Path) -> None:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    recordings = tmp_path / "recordings"
    recordings.mkdir()

    def run(capture: str) -> None:
        async def work(rig: Rig) -> None:
            await cuts(rig)
            by = await rig.records()
            found[capture] = {case: by[one.trace][0] for case, one in rig.exchanges.items()}
            for case, one in rig.exchanges.items():
                assert one.played is not None
                body = b"".join(piece.data for piece in read_body(one.played.sent).pieces)
                (recordings / f"{case}.sse").write_bytes(body)

        (tmp_path / capture).mkdir()
        judged(tmp_path / capture, work, "--capture", capture)

    run("masked")
    run("full")
    done = command("replay", str(recordings), "--output", "jsonl")
    names = [path.stem for path in sorted(recordings.iterdir())]
    found["replay"] = dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))
    assert found["full"]["tools"]["choices"][0]["tool_calls"][0]["arguments_valid"] is True
    assert found["masked"]["tools"]["choices"][0]["tool_calls"][0]["arguments_valid"] is None
    hosts = {
        run: {(record["request"] or {}).get("host") for record in records.values()} for run, records in found.items()
    }
    assert hosts == {"masked": {"127.0.0.1"}, "full": {"127.0.0.1"}, "replay": {None}}
    for other in ("full", "replay"):
        assert {case: bare(record) for case, record in found[other].items()} == {
            case: bare(record) for case, record in found["masked"].items()
        }
