"""Calls of tools and of other agents through `up`: their metrics, and that no record and no content is kept of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamgauge_demo.provider import Exchange, Provider, whole
from tests.running import PATIENCE_S, start_up, wait_for

JSON, SSE = "application/json", "text/event-stream"
CANARY = "CANARY of a tool"
PART = {"type": "text", "text": CANARY}


def answer(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode()


def event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


def status(state: str) -> bytes:
    return answer(result={"kind": "status-update", "status": {"state": state, "message": {"parts": [PART]}}})


PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
# By method and the name in its parameters: status, type and body of the answer.
ANSWERS = {
    ("tools/call", "level"): (200, SSE, event(PROGRESS) + event(answer(result={"content": [PART]}))),
    ("tools/call", "broken"): (200, JSON, answer(result={"content": [PART], "isError": True})),
    ("tools/call", "none"): (200, JSON, answer(error={"code": -32602, "message": CANARY})),
    ("tools/list", ""): (503, "text/plain", CANARY.encode()),
    ("notifications/initialized", ""): (202, "text/plain", b""),
    ("message/stream", ""): (200, SSE, b"".join(event(status(state)) for state in ("working", "failed"))),
}
SERIES = {
    'call_method="tools/call",call_protocol="mcp",call_tool="level"',
    'call_error="tool_error",call_method="tools/call",call_protocol="mcp",call_tool="broken"',
    'call_error="-32602",call_method="tools/call",call_protocol="mcp",call_tool="none"',
    'call_error="503",call_method="tools/list",call_protocol="mcp"',
    'call_method="notifications/initialized",call_protocol="mcp"',
    'call_error="task_failed",call_method="message/stream",call_protocol="a2a"',
}


async def play(exchange: Exchange) -> None:
    asked: dict[str, Any] = json.loads(await exchange.read_body())
    status, kind, body = ANSWERS[asked["method"], asked["params"].get("name", "")]
    await whole(body, status, kind)(exchange)


@pytest.fixture
def upstream() -> Iterator[str]:
    with Provider(play) as server:
        yield server.url


def test_calls_are_measured_and_nothing_of_them_is_kept(tmp_path: Path, upstream: str) -> None:
    with start_up({"tools": upstream}, tmp_path, "--capture", "full", "--otel-names", "latest") as up:
        with httpx.Client(timeout=PATIENCE_S) as client:
            for (method, name), expected in ANSWERS.items():
                params = {"name": name, "arguments": {"a": CANARY}} if name else {"a": CANARY}
                note = {} if method.startswith("notifications/") else {"id": 1}
                asked = {"jsonrpc": "2.0", "method": method, "params": params, **note}
                given = client.post(f"{up.url}/tools/mcp", json=asked)
                assert (given.status_code, given.content) == (expected[0], expected[2])

        def counted() -> dict[str, float]:
            begin = "streamgauge_call_duration_seconds_count{"
            return {name: value for name, value in up.metrics().items() if name.startswith(begin)}

        wait_for(lambda: len(counted()) == len(SERIES), "the calls in the metrics")
        assert counted() == {
            f'streamgauge_call_duration_seconds_count{{{labels},upstream="tools"}}': 1.0 for labels in SERIES
        }
        metrics = up.metrics()
        otel = {name: value for name, value in metrics.items() if name.startswith("mcp_client_operation_duration")}
        assert (
            otel['mcp_client_operation_duration_seconds_count{gen_ai_tool_name="level",mcp_method_name="tools/call"}']
            == 1
        )
        assert sum(value for name, value in otel.items() if "_seconds_count{" in name) == len(SERIES) - 1
        uncaptured = 'streamgauge_tap_responses_not_captured_total{reason="not_llm",upstream="tools"}'
        assert metrics[uncaptured] == len(ANSWERS)
        assert metrics["streamgauge_tap_reads_seen_total"] == 0
        assert up.records() == []
        assert up.stop() == 0
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY.encode() not in kept
