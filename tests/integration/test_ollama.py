"""Ollama's own client through `streamgauge up`, in front of a provider that sends its lines: the real framing, end to end."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from streamgauge_demo.provider import LAST_CHUNK, Provider, Script, answer, chunk, head, whole
from tests.running import Running, start_up, wait_for

CANARY = "Canary7391"
TIMES = {"load_duration": 2_000_000, "prompt_eval_duration": 3_000_000, "total_duration": 90_000_000}


def line(**members: object) -> bytes:
    return json.dumps({"model": "river-3", "created_at": "2026-11-30T08:00:00Z", **members}).encode() + b"\n"


def said(text: str, **more: object) -> bytes:
    return line(message={"role": "assistant", "content": text, **more}, done=False)


LAST = line(
    message={"role": "assistant", "content": ""},
    done=True,
    done_reason="stop",
    prompt_eval_count=9,
    eval_count=3,
    **TIMES,
)
CHAT = [said("Riv"), said("ers "), said(CANARY, thinking=CANARY), LAST]
CALL = [said("", tool_calls=[{"function": {"name": "level", "arguments": {"river": CANARY}}}]), LAST]
GENERATED = [
    line(response="Riv", done=False),
    line(response="er", done=False),
    line(response="", done=True, done_reason="length"),
]
FAILED = [said("Riv"), b'{"error":"the model runner has stopped: ' + CANARY.encode() + b'"}\n']


def lines(*sent: bytes, pause_s: float = 0.0) -> Script:
    return answer(head(kind="application/x-ndjson"), *map(chunk, sent), LAST_CHUNK, pause_s=pause_s)


SCRIPTS = {
    "chat": lines(*CHAT, pause_s=0.05),
    "call": lines(*CALL),
    "generate": lines(*GENERATED),
    "failed": lines(*FAILED),
    "cut": answer(head(kind="application/x-ndjson"), chunk(CHAT[0]), end="reset"),
    "whole": whole(LAST),
    "unknown": whole(b'{"error":"model not found"}', 404),
}
PARTS = {"chat": 4, "call": 2, "generate": 3, "whole": 1}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        Provider(SCRIPTS) as provider,
        start_up({"ollama": provider.url}, tmp_path_factory.mktemp("up") / "data") as running,
    ):
        yield running


def ask(client: ollama.Client, *, chat: bool, stream: bool) -> int:
    """The number of parts that the client saw."""
    prompt: Any = {"messages": [{"role": "user", "content": CANARY}]} if chat else {"prompt": CANARY}
    method: Any = client.chat if chat else client.generate
    asked = method("river-3", stream=stream, **prompt)
    return len(list(asked)) if stream else 1


def record_of(up: Running, case: str, *, chat: bool = True, stream: bool = True) -> dict[str, Any]:
    """Asks by the client, which must see what the provider sends; returns the record."""
    before = up.recorded()
    client = ollama.Client(host=f"{up.url}/ollama", headers={"x-case": case}, trust_env=False)
    fails = {"failed": ollama.ResponseError, "unknown": ollama.ResponseError, "cut": httpx.TransportError}
    try:
        if case in fails:
            with pytest.raises(fails[case]):
                ask(client, chat=chat, stream=stream)
        else:
            assert ask(client, chat=chat, stream=stream) == PARTS[case]
    finally:
        client.close()
    wait_for(lambda: up.recorded() > before, "record")
    return up.records()[-1]


def test_a_chat_is_a_stream_with_its_first_token(up: Running) -> None:
    record = record_of(up, "chat")
    assert (record["dialect"], record["endpoint"], record["streaming"]) == ("ollama", "/api/chat", True)
    assert (record["outcome"], record["finish_reason"], record["request_model"]) == ("completed", "stop", "river-3")
    timing, usage, claims = record["timing"], record["usage"], record["provider_timing"]
    # Four pieces, 50 ms apart. How far apart they are read is up to the machine.
    assert 0 < timing["first_token_s"] < timing["last_token_s"]
    assert (timing["gaps"]["count"], timing["burst"]) == (2, False)
    assert (usage["input_tokens"], usage["output_tokens"], usage["source"]) == (9, 3, "final")
    assert claims == {"queue_s": None, "routing_s": None, "first_token_s": 0.005, "total_s": 0.09}


def test_other_answers_have_their_records(up: Running) -> None:
    def outcome(case: str, **how: bool) -> tuple[object, ...]:
        record = record_of(up, case, **how)
        return (
            record["endpoint"],
            record["streaming"],
            record["outcome"],
            record["finish_reason"],
            record["status_code"],
        )

    assert outcome("call") == ("/api/chat", True, "completed", "tool_calls", 200)
    assert outcome("generate", chat=False) == ("/api/generate", True, "completed", "length", 200)
    assert outcome("failed") == ("/api/chat", True, "stream_error", None, 200)
    assert outcome("cut") == ("/api/chat", True, "upstream_reset", None, 200)
    assert outcome("whole", stream=False) == ("/api/chat", False, "completed", "stop", 200)
    assert outcome("unknown") == ("/api/chat", False, "http_error", None, 404)


def test_no_text_is_kept(up: Running) -> None:
    record_of(up, "chat")
    record_of(up, "failed")
    up.settled()
    stored = [file for file in up.data_dir.rglob("*") if file.is_file()]
    assert any(file.name == "ledger.sqlite" for file in stored)
    assert [file.name for file in stored if CANARY.encode() in file.read_bytes()] == []
