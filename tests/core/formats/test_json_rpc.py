"""Calls of JSON-RPC: what is read of a request and of an answer, and that nothing else is."""

import json
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
        (None, "secret", Call("mcp", "unknown")),
    ],
)
def test_the_call_that_headers_name(method: str | None, name: str | None, call: Call) -> None:
    assert call_of_headers(method, name) == call


def answer(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **members}).encode()


@pytest.mark.parametrize(
    ("message", "errors"),
    [
        (answer(result={"content": [{"type": "text", "text": "isError"}]}), [None]),
        (answer(result={"content": [], "isError": True}), ["tool_error"]),
        (answer(result={"isError": "true"}), [None]),
        (answer(result=None), [None]),
        (answer(error={"code": -32602, "message": "secret"}), ["-32602"]),
        (answer(error={"code": "secret"}), ["unknown"]),
        (answer(result={"kind": "status-update", "status": {"state": "working"}}), [None]),
        (answer(result={"kind": "task", "status": {"state": "failed"}}), ["task_failed"]),
        (answer(result={"statusUpdate": {"status": {"state": "TASK_STATE_REJECTED"}}}), ["task_rejected"]),
        (answer(result={"task": {"status": {"state": "TASK_STATE_COMPLETED"}}}), [None]),
        (answer(result={"status": {"state": 7}}), [None]),
        (answer(method="sampling/createMessage", params={}), []),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}', []),
        (b"[" + answer(result={}) + b"," + answer(error={"code": 1}) + b"]", [None, "1"]),
        (b'{"id":1,"result":{}}', []),
        (b"not JSON", []),
        (b"", []),
    ],
)
def test_the_errors_in_a_message(message: bytes, errors: list[str | None]) -> None:
    assert list(errors_of(message)) == errors


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


@given(JSON, st.booleans())
def test_any_json_is_read(value: Any, is_mcp: bool) -> None:
    body = json.dumps(value).encode()
    call = call_of(body, is_mcp=is_mcp)
    assert call is None or call.method
    assert all(error is None or isinstance(error, str) for error in errors_of(body))


@given(st.binary(max_size=60))
def test_any_bytes_are_read(tail: bytes) -> None:
    assert call_of(b'{"jsonrpc"' + tail, is_mcp=True) in (None, call_of(b'{"jsonrpc"' + tail, is_mcp=True))
    list(errors_of(b'{"jsonrpc"' + tail))
