"""Calls of JSON-RPC through the relay: they have no record, and nothing of their request leaves the relay."""

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call
from streamgauge.recorder.loop_client import FLUSH_S
from streamgauge.recorder.protocol import CallData, CallEnded, CallOpened, Message
from streamgauge.spool.read_counters import read_balance
from streamgauge.spool.response_counters import read_responses
from streamgauge.taps.proxy.capture_gate import MAX_HELD_BODY
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawRecorder,
    RunningRelay,
    answering,
    chunked,
    exchange_rig,
    kinds,
    only,
    receive,
    receive_all,
    receive_head,
    receive_request,
    settings_for,
)
from tests.taps.proxy.test_capture_gate import JSON, SSE, post

TYPE, MCP = b"Content-Type: application/json; charset=utf-8", b"MCP-Protocol-Version: 2025-11-25"
ASKED = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": "CANARY"}}}
).encode()
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(RESULT) + RESULT
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(
    b"event: message\ndata: " + RESULT + b"\n\n"
)
CALL = Call("mcp", "tools/call", "add")


def data(messages: list[Message]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, CallData))


def uncaptured(folder: Path) -> dict[str, dict[str, int]]:
    """The responses without a record, by upstream and reason."""
    found = read_responses(folder / "counters").items()
    return {name: {reason.value: count for reason, count in one.not_captured.items() if count} for name, one in found}


@pytest.mark.parametrize("answer", [WHOLE, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("pump", [True, False])
def test_a_call_is_reported_without_its_request(tmp_path: Path, answer: bytes, pump: bool) -> None:
    def handler(one: socket.socket) -> None:
        for _ in range(2):
            receive_request(one)
            for piece in (answer[at : at + 30] for at in range(0, len(answer), 30)):
                one.sendall(piece)
                time.sleep(0.005)

    with exchange_rig(tmp_path, handler, pump=pump) as (relay, _, recorder):
        with relay.connect() as client:
            for _ in range(2):
                began = time.monotonic_ns()
                client.sendall(post(b"/mcp", ASKED, TYPE))
                assert receive(client, len(answer)) == answer
        messages = recorder.ended(2)
        balance = read_balance(tmp_path / "counters")
    assert kinds(messages)[0] == "CallOpened" and kinds(messages)[-1] == "CallEnded"
    assert {type(message) for message in messages} == {CallOpened, CallData, CallEnded}
    calls = [message for message in messages if isinstance(message, CallOpened)]
    assert [(one.upstream, one.call) for one in calls] == [("u0", CALL)] * 2
    assert began <= calls[-1].at_ns <= time.monotonic_ns()
    assert data(messages) == answer * 2
    assert b"CANARY" not in repr(messages).encode()
    assert balance.seen == 0
    assert uncaptured(tmp_path) == {"u0": {"not_llm": 2}}


@pytest.mark.parametrize(
    ("target", "body", "fields", "call"),
    [
        (b"/any/path", ASKED, (TYPE,), CALL),
        (b"/agent", ASKED.replace(b"tools/call", b"message/send"), (TYPE,), Call("a2a", "message/send")),
        (b"/mcp", ASKED.replace(b"tools/call", b"x/y"), (TYPE, MCP), Call("mcp", "other")),
        (b"/mcp", ASKED + b" " * (MAX_HELD_BODY - len(ASKED)), (TYPE,), CALL),
        (b"/mcp", ASKED + b" " * MAX_HELD_BODY, (TYPE, MCP), None),
        (b"/mcp", ASKED + b" " * MAX_HELD_BODY, (TYPE, MCP, b"Mcp-Method: tools/call", b"Mcp-Name: add"), CALL),
        (b"/mcp", ASKED + b" " * MAX_HELD_BODY, (TYPE,), None),
        (b"/mcp", ASKED.replace(b"tools/call", b"eth_call"), (TYPE,), None),
        (b"/mcp", ASKED, (), None),
        (b"/mcp", b'{"input":"jsonrpc"}', (TYPE, MCP), None),
    ],
)
def test_which_requests_are_calls(
    tmp_path: Path, target: bytes, body: bytes, fields: tuple[bytes, ...], call: Call | None
) -> None:
    with exchange_rig(tmp_path, answering(WHOLE, JSON)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(target, body, *fields))
            assert receive(client, len(WHOLE)) == WHOLE
            client.sendall(post(b"/v1/messages", b"{}"))
            assert receive(client, len(JSON)) == JSON
        messages = recorder.ended(1 if call is None else 2)
    opened = [message.call for message in messages if isinstance(message, CallOpened)]
    assert opened == ([] if call is None else [call])
    assert uncaptured(tmp_path) == {"u0": {"not_llm": 1}}


def test_what_a_server_sends_by_itself_is_not_captured(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(STREAM)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(b"GET /mcp HTTP/1.1\r\nHost: c\r\nMcp-Session-Id: 1\r\n\r\n")
            assert receive(client, len(STREAM)) == STREAM
        time.sleep(3 * FLUSH_S)
        assert recorder.messages == []
    assert uncaptured(tmp_path) == {"u0": {"not_llm": 1}}


@pytest.mark.parametrize(
    "body", [ASKED[:-20] + b" " * MAX_HELD_BODY, ASKED[:-5]], ids=["too long to be kept", "answered early"]
)
def test_a_stream_whose_request_is_not_known_is_captured_without_its_body(tmp_path: Path, body: bytes) -> None:
    asked = post(b"/gen/stream", body + b"CANARY", TYPE, b"Mcp-Session-Id: 1")

    def handler(one: socket.socket) -> None:
        receive(one, len(asked) - 6)
        one.sendall(SSE[:-5])
        receive(one, 6)
        one.sendall(SSE[-5:])

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(asked[:-6])
            assert receive(client, len(SSE) - 5) == SSE[:-5]
            client.sendall(asked[-6:])
            assert receive(client, 5) == SSE[-5:]
        messages = recorder.ended()
    assert kinds(messages)[0] == "RequestStarted"
    assert "RequestBody" not in kinds(messages)
    assert uncaptured(tmp_path) == {"u0": {}}


def test_a_bug_in_the_search_for_a_call_does_not_reach_the_traffic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Call:
        raise RuntimeError("a bug")

    monkeypatch.setattr("streamgauge.taps.proxy.capture_gate.call_of", broken)
    with exchange_rig(tmp_path, answering(WHOLE)) as (relay, _, _recorder), relay.connect() as client:
        client.sendall(post(b"/mcp", ASKED, TYPE))
        assert receive(client, len(WHOLE)) == WHOLE
    assert uncaptured(tmp_path) == {"u0": {"not_llm": 1}}


def test_the_path_of_a_model_has_a_record_whatever_its_request_says(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(SSE)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(b"/v1/chat/completions", ASKED, TYPE, MCP))
            assert receive(client, len(SSE)) == SSE
        assert kinds(recorder.ended())[0] == "RequestStarted"
    assert uncaptured(tmp_path) == {"u0": {}}


def test_a_call_that_reaches_no_upstream_has_its_fault(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with (
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RunningRelay(settings_for(tmp_path, url)) as relay,
        relay.connect() as client,
    ):
        client.sendall(post(b"/mcp", ASKED, TYPE))
        assert receive_all(client).startswith(b"HTTP/1.1 502 ")
        messages = recorder.ended()
    assert only(messages, CallOpened).call == CALL
    ended = only(messages, CallEnded)
    assert (ended.ending, ended.fault) == (Ending.RESET, TransportFault.REFUSED)
    assert uncaptured(tmp_path) == {"u0": {"refused": 1}}


def test_an_answer_that_is_cut_has_its_fault(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(STREAM[:-7], end="fin")) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(b"/mcp", ASKED, TYPE))
            receive_all(client)
        messages = recorder.ended()
    assert data(messages) == STREAM[:-7]
    assert only(messages, CallEnded).ending is Ending.RESET


def test_a_client_that_leaves_before_the_answer(tmp_path: Path) -> None:
    asked = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_request(one)
        asked.set()
        receive_all(one)

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(b"/mcp", ASKED, TYPE))
            assert asked.wait(PATIENCE_S)
        messages = recorder.ended()
    assert kinds(messages) == ["CallOpened", "CallEnded"]
    assert only(messages, CallEnded).ending is Ending.CLIENT
    assert uncaptured(tmp_path) == {}


def test_an_answer_before_the_whole_request_is_not_measured(tmp_path: Path) -> None:
    early = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(early)

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(b"/mcp", ASKED, TYPE)[:-5])
            assert receive(client, len(early)) == early
            time.sleep(3 * FLUSH_S)
        assert recorder.messages == []
    assert uncaptured(tmp_path) == {"u0": {"not_llm": 1}}
