"""Calls of JSON-RPC: what is read of a request and of an answer, and that nothing else is."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.json_rpc import Call, call_of, call_of_headers, errors_of


def request(method: str, *, params: object = None, **more: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **more}).encode()


@pytest.mark.parametrize(
    ("body", "is_mcp", "call"),
    [
        (request("tools/call", params={"name": "add", "arguments": {"a": 1}}, id=1), True, Call("mcp", "tools/call", "add")),
        (request("tools/call", params={"name": "add"}, id="x"), False, Call("mcp", "tools/call", "add")),
        (request("tools/call", params={"name": "t" * 200}, id=1), True, Call("mcp", "tools/call", "t" * 128)),
        (request("tools/call", params={"name": 7}, id=1), True, Call("mcp", "tools/call")),
        (request("tools/call", params=[1], id=1), True, Call("mcp", "tools/call")),
        (request("prompts/get", params={"name": "secret"}, id=1), True, Call("mcp", "prompts/get")),
        (request("notifications/initialized"), True, Call("mcp", "notifications/initialized", None, True)),
        (request("mine/secret", id=1), True, Call("mcp", "other")),
        (request("eth_getBalance", id=1), False, None),
        (request("tasks/get", id=1), True, Call("mcp", "tasks/get")),
        (request("tasks/get", id=1), False, Call("a2a", "tasks/get")),
        (request("message/stream", id=1), False, Call("a2a", "message/stream")),
        (request("SendStreamingMessage", id=1), False, Call("a2a", "SendStreamingMessage")),
        (b"[" + request("ping", id=1) + b"," + request("tools/list", id=2) + b"]", True, Call("mcp", "batch")),
        (b"[" + request("notifications/cancelled") + b"]", True, Call("mcp", "batch", None, True)),
        (b"[" + request("message/send", id=1) + b"]", False, Call("a2a", "batch")),
        (b"\xef\xbb\xbf [" + request("ping", id=1) + b"," + request("ping", id=2) + b"]", True, Call("mcp", "batch")),
        (b"\xef\xbb\xbf" + request("ping", id=1), True, Call("mcp", "ping")),
        (b"[" + request("eth_call", id=1) + b"]", False, None),
        (b"[]", True, None),
        # The client's answer to a request of the server is no call.
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', True, None),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', True, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', True, None),
        (b'{"id":1,"method":"ping"}', True, None),
        # A prompt about JSON-RPC.
        (json.dumps({"input": '{"jsonrpc":"2.0","method":"ping"}'}).encode(), False, None),
        (b"", True, None),
    ],
)  # fmt: skip
def test_the_call_that_a_body_makes(body: bytes, is_mcp: bool, call: Call | None) -> None:
    assert call_of(body, is_mcp=is_mcp) == call


@pytest.mark.parametrize(
    ("method", "name", "call"),
    [
        ("tools/call", "add", Call("mcp", "tools/call", "add")),
        ("tools/call", "=?base64?YWRk?=", Call("mcp", "tools/call")),
        ("tools/call", None, Call("mcp", "tools/call")),
        ("prompts/get", "secret", Call("mcp", "prompts/get")),
        ("notifications/cancelled", None, Call("mcp", "notifications/cancelled", None, True)),
        ("secret", "secret", Call("mcp", "other")),
    ],
)
def test_the_call_that_headers_name(method: str, name: str | None, call: Call) -> None:
    assert call_of_headers(method, name) == call


def answer(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode()


TOOL, AGENT, STATE = Call("mcp", "tools/call"), Call("a2a", "message/stream"), Call("a2a", "tasks/get")


@pytest.mark.parametrize(
    ("message", "call", "errors"),
    [
        (answer(result={"content": [{"type": "text", "text": "isError"}]}), TOOL, [None]),
        (answer(result={"content": [], "isError": True}), TOOL, ["tool_error"]),
        (answer(result={"isError": "true"}), TOOL, [None]),
        (answer(result={"isError": True}), AGENT, [None]),
        (answer(result=None), TOOL, [None]),
        (answer(error={"code": -32602, "message": "secret"}), TOOL, ["-32602"]),
        (answer(error={"code": -32042}), TOOL, ["-32042"]),
        (answer(error={"code": 4711}), TOOL, ["application_error"]),
        (answer(error={"code": 10**39}), TOOL, ["application_error"]),
        (answer(error={"code": True}), TOOL, ["unknown"]),
        (answer(error={"code": "secret"}), TOOL, ["unknown"]),
        (answer(result={"kind": "status-update", "status": {"state": "working"}}), AGENT, [None]),
        (answer(result={"kind": "task", "status": {"state": "failed"}}), AGENT, ["task_failed"]),
        (answer(result={"kind": "task", "status": {"state": "failed"}}), STATE, [None]),
        (answer(result={"kind": "task", "status": {"state": "failed"}}), TOOL, [None]),
        (answer(result={"statusUpdate": {"status": {"state": "TASK_STATE_REJECTED"}}}), AGENT, ["task_rejected"]),
        (answer(result={"task": {"status": {"state": "TASK_STATE_COMPLETED"}}}), AGENT, [None]),
        (answer(result={"status": {"state": 7}}), AGENT, [None]),
        (answer(method="sampling/createMessage", params={}), TOOL, []),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}', TOOL, []),
        (b" [" + answer(result={}) + b"," + answer(error={"code": -32000}) + b"]", TOOL, [None, "-32000"]),
        (b"\xef\xbb\xbf" + answer(result={}), TOOL, [None]),
        (b'{"id":1,"result":{}}', TOOL, []),
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":["\\ud800", "\\\\ud800"]}}', TOOL, [None]),
        (b'{"jsonrpc":"2.0","result":' + b"[" * 100_000, TOOL, None),
        (b'{"jsonrpc":"2.0","id":1,"result":{"n":NaN}}', TOOL, None),
        (b"not JSON", TOOL, None),
        (b"[1]", TOOL, []),
        (b"7", TOOL, []),
        (b"", TOOL, None),
    ],
)
def test_the_errors_in_a_message(message: bytes, call: Call, errors: list[str | None] | None) -> None:
    assert errors_of(message, call) == errors


@pytest.mark.parametrize("name", ["\\ud800bad", "a\\u0000b", "\\ud83d\\ude00"])
def test_the_name_of_a_tool_can_be_written(name: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"' + name.encode() + b'"}}'
    call = call_of(body, is_mcp=True)
    assert call is not None
    (call.tool or "").encode()


@pytest.mark.parametrize("inner", [b"[],", b"{},", b'"\\ud800",', b"[{},[]],"])
def test_what_is_skipped_takes_little_time(inner: bytes) -> None:
    """The relay reads requests of 64 KiB, and the recorder answers of 1 MiB."""
    filler = inner * (1_000_000 // len(inner)) + b"7"
    began = time.process_time()
    assert call_of(b'{"jsonrpc":"2.0","x":[' + filler + b'],"method":"ping","id":1}', is_mcp=True) is not None
    assert errors_of(b'{"jsonrpc":"2.0","x":[' + filler + b'],"result":{}}', TOOL) == [None]
    assert time.process_time() - began < 0.5  # to decode them takes seconds


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["jsonrpc", "id", "method", "params", "name", "result", "error", "code", "status", "state", "task"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans(), st.sampled_from([b"", b" ", b"\xef\xbb\xbf"]))
def test_any_json_is_read(value: Any, is_mcp: bool, beginning: bytes) -> None:
    body = beginning + json.dumps(value).encode()
    call = call_of(body, is_mcp=is_mcp)
    assert call is None or call.method
    for one in (TOOL, AGENT):
        assert all(error is None or isinstance(error, str) for error in errors_of(body, one) or ())


@given(st.binary(max_size=60))
def test_any_bytes_are_read(tail: bytes) -> None:
    assert call_of(b'{"jsonrpc"' + tail, is_mcp=True) in (None, call_of(b'{"jsonrpc"' + tail, is_mcp=True))
    errors_of(b'{"jsonrpc"' + tail, TOOL)
