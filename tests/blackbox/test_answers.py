"""Errors, status codes, responses that are not streams, silence; and which exchanges get a record."""

import asyncio
from pathlib import Path
from typing import Any

from streamgauge_demo import provider
from streamgauge_demo.provider import stream
from tests.blackbox.compare import Exchange, client_findings, dig
from tests.blackbox.errors import ANSWERS, ANY, IN_BAND, SECRET
from tests.blackbox.rig import Rig, judged
from tests.events import DONE, anthropic, chat, data, responses


async def says(rig: Rig, cases: list[tuple[Exchange, dict[str, Any]]]) -> list[str]:
    """The difference of a record from the expected one."""
    records, found = await rig.records(), []
    for one, expected in cases:
        mine = records.get(one.trace, [])
        if len(mine) != 1:
            found.append(f"{one.case}: {len(mine)} records")
            continue
        found += [
            f"{one.case}: {path} is {dig(mine[0], path)!r}, not {value!r}"
            for path, value in expected.items()
            if value != ANY and dig(mine[0], path) != value
        ]
        if SECRET in str(mine[0]):
            found.append(f"{one.case}: the error's text is in the record")
    return found


def test_u3_every_error_in_band_is_a_stream_error(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        ran = await asyncio.gather(
            *(rig.run(one.name, one.dialect, stream(*one.events, pause_s=0.003)) for one in IN_BAND)
        )
        wanted = {"outcome": "stream_error", "error.phase": "in_stream", "streaming": True}
        pairs = zip(ran, IN_BAND, strict=True)
        cases = [(ex, {**wanted, "error.type": one.kind, "error.code": one.code}) for ex, one in pairs]
        assert await says(rig, cases) == []
        assert [finding for one in ran for finding in client_findings(one)] == []

    judged(tmp_path, work)


def test_u3_responses_that_are_not_streams(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        ran = await asyncio.gather(*(rig.run(one.name, one.dialect, one.script) for one in ANSWERS))
        cases = [(ex, {**one.says, "counts.bytes": len(one.body)}) for ex, one in zip(ran, ANSWERS, strict=True)]
        assert await says(rig, cases) == []
        for one in ran:
            one.read()
        assert [finding for one in ran for finding in client_findings(one)] == []

    judged(tmp_path, work)


async def silent(rig: Rig, after: int) -> tuple[Exchange, dict[str, Any]]:
    pieces = [provider.head(), *map(provider.chunk, chat("t"))][:after]
    one = await rig.run(f"silent {after}", "openai-chat", provider.answer(*pieces, end="stay"), ended="early")
    assert one.received.status == (200 if after else 504)
    assert one.received.end == ("fin" if after else "done")
    outcome = "completed" if after == 99 else "timeout"
    status, phase = (200 if after else None), (None if after == 99 else "transport")
    return one, {"outcome": outcome, "status_code": status, "error.phase": phase}


def test_u2_silence_ends_at_the_idle_timeout(tmp_path: Path) -> None:
    """Without a head: 504. Later: the client's response breaks off. After the terminal event: completed."""

    async def work(rig: Rig) -> None:
        cases = await asyncio.gather(*(silent(rig, after) for after in (0, 1, 3, 99)))
        assert await says(rig, cases) == []

    judged(tmp_path, work, "--upstream-idle-timeout", "2")


def test_u2_no_head_is_a_502_and_an_upstream_reset(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        scripts = {
            "fin": provider.answer(end="close"),
            "rst": provider.answer(end="reset"),
            "garbage": provider.answer(b"SSH-2.0-x\r\n\r\n", end="close"),
        }
        ran = [await rig.run(name, "openai-chat", script) for name, script in scripts.items()]
        expected = {
            "outcome": "upstream_reset",
            "status_code": None,
            "error.phase": "transport",
            "timing.headers_s": None,
        }
        assert [one.received.status for one in ran] == [502] * 3
        assert await says(rig, [(one, expected) for one in ran]) == []

    judged(tmp_path, work)


def test_each_dialect_has_its_own_terminal_event(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        streams = {
            "anthropic-messages": [*anthropic("t")[:-1], DONE],
            "openai-responses": [*responses("t")[:-1], DONE],
            "openai-chat": [*chat("t")[:4], DONE],
        }
        ran = [await rig.run(dialect, dialect, stream(*events)) for dialect, events in streams.items()]
        outcomes = ["truncated", "truncated", "completed"]
        assert (
            await says(rig, [(one, {"outcome": o, "error": None}) for one, o in zip(ran, outcomes, strict=True)]) == []
        )

    judged(tmp_path, work)


RECORDED = {
    ("POST", "/weird/path"): ("openai-chat", chat("t")),
    ("GET", "/weird/path"): ("openai-chat", chat("t")),
    ("POST", "/openai/deployments/x/chat/completions?api-version=1"): ("openai-chat", chat("t")),
    ("POST", "/v1/chat/completions"): ("anthropic-messages", anthropic("t")),
    ("POST", "/v1/messages"): ("openai-chat", chat("t")),
    ("GET", "/v1/responses/resp_1?stream=true&starting_after=3"): ("openai-responses", responses("t")[4:]),
}
UNRECORDED = {
    ("GET", "/events"): [data({"tick": 1}), data({"tick": 2})],
    ("POST", "/mcp"): [data({"jsonrpc": "2.0", "id": 1, "result": {}}, "message")],
    ("POST", "/v1/threads/t/runs"): [data({"id": "run_1", "object": "thread.run"}, "thread.run.created")],
    ("GET", "/text"): [b"data: hello\n\n"],
}


def test_which_exchanges_get_a_record(tmp_path: Path) -> None:
    """An LLM's stream on any path, recognised by its content; no other event stream."""

    async def work(rig: Rig) -> None:
        cases = []
        for (method, path), (dialect, events) in RECORDED.items():
            body = b"" if method == "GET" else b"{}"
            ran = await rig.run(f"{method} {path}", dialect, stream(*events), path=path, method=method, body=body)
            cases.append((ran, {"outcome": "completed", "dialect": dialect, "streaming": True}))
        others = [
            await rig.run(f"not {path}", "openai-chat", stream(*events), path=path, method=method, body=b"")
            for (method, path), events in UNRECORDED.items()
        ]
        for other in others:
            del rig.exchanges[other.case]
            assert client_findings(other) == []
        assert await says(rig, cases) == []
        records = await rig.records()
        assert [other.case for other in others if other.trace in records] == []
        assert rig.running.metrics()["streamgauge_ignored_streams_total"] == len(UNRECORDED)

    judged(tmp_path, work)
