"""Calls of JSON-RPC 2.0: of tools (Model Context Protocol, MCP) and of other agents (Agent2Agent, A2A).

Of a request its method and the name of its tool are read, of an answer whether it is an error; never a prompt, an argument or
a result.

Sources: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports and its schema;
https://a2a-protocol.org/v0.3.0/specification and https://a2a-protocol.org/latest/specification, JSON-RPC binding;
https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md, for the values of `error_type`.
"""

import re
from enum import StrEnum
from typing import Literal, TypeVar

import msgspec

# The name of the member that each message has, as JSON.
RPC_MARK = b'"jsonrpc"'
# Headers of a request that only clients of MCP send. From version 2026-07-28 on, the last two repeat method and tool.
MCP_HEADERS = (b"mcp-protocol-version", b"mcp-session-id", b"mcp-method", b"mcp-name")

# Methods and notifications that a client of MCP sends: versions 2025-03-26 to 2026-07-28.
_MCP = frozenset(
    (
        "initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read",
        "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get", "completion/complete",
        "logging/setLevel", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "notifications/initialized",
        "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
        "notifications/tasks/status", "server/discover", "subscriptions/listen",
    )
)  # fmt: skip
# Methods of A2A, versions 0.3 and 1.0. Three names are MCP's as well: there its headers decide.
_A2A = frozenset(
    (
        "message/send", "message/stream", "tasks/get", "tasks/list", "tasks/cancel", "tasks/resubscribe",
        "tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get", "tasks/pushNotificationConfig/list",
        "tasks/pushNotificationConfig/delete", "agent/getAuthenticatedExtendedCard",
        "SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask",
        "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig", "GetExtendedAgentCard",
    )
)  # fmt: skip
# In place of a method that the protocol does not name, of one that could not be read, and of several in one request.
OTHER, UNKNOWN, BATCH = "other", "unknown", "batch"

_OF_TOOL = "tools/call"
# The methods of A2A that start a task or follow it. Others only ask for its state.
_FOLLOWING = frozenset(
    ("message/send", "message/stream", "tasks/resubscribe", "SendMessage", "SendStreamingMessage", "SubscribeToTask")
)
# Codes of errors that JSON-RPC defines, and the range for the protocols over it (https://www.jsonrpc.org/specification, 5.1).
_CODES = frozenset((-32700, *range(-32603, -32599), *range(-32099, -31999)))

# States of a task of A2A that are failures, in lower case; version 1.0 writes TASK_STATE_FAILED.
_FAILED = frozenset(("failed", "rejected"))

# Half of a surrogate pair. A backslash before it leaves the text as long and as valid.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_BOM = b"\xef\xbb\xbf"
# The value of a member that a message does not have.
_NONE = msgspec.Raw()

# Longer names of tools are cut (characters). Most clients allow 64.
_TOOL_CHARS = 128

Protocol = Literal["mcp", "a2a"]


class Call(msgspec.Struct, array_like=True, frozen=True):
    """A request. `tool`: of tools/call. `is_notification`: no answer but its status is expected."""

    protocol: Protocol
    method: str
    tool: str | None = None
    is_notification: bool = False


class Unmeasured(StrEnum):
    """Why a call has no duration: its end, or whether it failed, is not known."""

    BEHIND = "recorder_behind"  # a part of the answer found no room on its way to the recorder, or there
    TOO_LARGE = "too_large"  # the answer is over the limit
    UNDECODABLE = "undecodable"
    ELSEWHERE = "answered_elsewhere"  # status 202, or a stream that its client resumes
    LIMIT = "limit"  # more calls at once than a recorder reads
    STOPPED = "tap_stopped"  # before the call had ended
    GONE = "recorder_gone"  # the recorder was started again during the call
    FAULT = "capture_fault"  # a bug of ours


class CallResult(msgspec.Struct, frozen=True):
    """A call that has ended. `duration_s`: from the request's first byte to the answer's last read.

    `error_type`: `tool_error` for a tool's own error (`isError`), the code of a JSON-RPC error (`application_error` for codes
    of the server's own), the state of a failed task, the status of an HTTP error, or how the exchange ended without an
    answer; None if the call succeeded.
    """

    upstream: str | None
    call: Call
    duration_s: float | None
    error_type: str | None = None
    unmeasured: Unmeasured | None = None


class _Message(msgspec.Struct):
    """The members of a message as they are in its text; what is not needed is skipped and not decoded."""

    jsonrpc: msgspec.Raw = _NONE
    id: msgspec.Raw = _NONE
    method: msgspec.Raw = _NONE
    params: msgspec.Raw = _NONE
    result: msgspec.Raw = _NONE
    error: msgspec.Raw = _NONE


class _Named(msgspec.Struct):
    name: str


class _Error(msgspec.Struct):
    code: int


class _Status(msgspec.Struct):
    state: str


class _Task(msgspec.Struct):
    status: _Status


class _Result(msgspec.Struct, rename="camel"):
    is_error: msgspec.Raw = _NONE
    task: msgspec.Raw = _NONE
    status_update: msgspec.Raw = _NONE


_MESSAGE, _MESSAGES = msgspec.json.Decoder(_Message), msgspec.json.Decoder(list[_Message])
_TEXT, _NAMED, _ERROR = msgspec.json.Decoder(str), msgspec.json.Decoder(_Named), msgspec.json.Decoder(_Error)
_ANY = msgspec.json.Decoder(msgspec.Raw)
_TASK, _RESULT = msgspec.json.Decoder(_Task), msgspec.json.Decoder(_Result)
_Decoded = TypeVar("_Decoded")


def _decoded(decoder: msgspec.json.Decoder[_Decoded], text: bytes | msgspec.Raw) -> _Decoded | None:
    """The value of a text; None if it is no JSON, or of another type."""
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors, and those of Unicode, are ValueErrors
        return None


def _is_list(text: bytes) -> bool:
    return text.lstrip()[:1] == b"["


def _messages(text: bytes) -> list[_Message] | None:
    """The messages of a text: one, or those of a list, others are left out; None if the text is not strict JSON."""
    text = _SURROGATE.sub(rb"\\ufffd", text.removeprefix(_BOM))  # msgspec refuses half a pair
    if _is_list(text):
        found = _decoded(_MESSAGES, text)
    else:
        one = _decoded(_MESSAGE, text)
        found = None if one is None else [one]
    if found is None:
        return [] if _decoded(_ANY, text) is not None else None
    return [message for message in found if message.jsonrpc is not _NONE]


def call_of(body: bytes, *, is_mcp: bool) -> Call | None:
    """The call that a request's body makes; None if it makes none, or one of another service. `is_mcp`: the request has one
    of MCP_HEADERS.
    """
    if RPC_MARK not in body:
        return None
    requests = [
        (message, method)
        for message in _messages(body) or ()
        if message.method is not _NONE and (method := _decoded(_TEXT, message.method)) is not None
    ]
    protocols = {_protocol_of(method, is_mcp=is_mcp) for _, method in requests}
    protocol: Protocol | None = "mcp" if "mcp" in protocols else "a2a" if "a2a" in protocols else None
    if protocol is None:
        return None
    is_notification = all(message.id is _NONE for message, _ in requests)
    if _is_list(body.removeprefix(_BOM)):  # version 2025-03-26 of MCP allows it
        return Call(protocol, BATCH, None, is_notification)
    [(message, method)] = requests
    named = _decoded(_NAMED, message.params) if method == _OF_TOOL else None
    known = method if method in (_MCP if protocol == "mcp" else _A2A) else OTHER
    return Call(protocol, known, None if named is None else named.name[:_TOOL_CHARS], is_notification)


def call_of_headers(method: str, name: str | None) -> Call:
    """The call of MCP whose body is not known, by the values of Mcp-Method and Mcp-Name."""
    known = method if method in _MCP else OTHER
    # A name that is not plain is coded.
    tool = name if method == _OF_TOOL and name is not None and not name.startswith("=?base64?") else None
    return Call("mcp", known, tool and tool[:_TOOL_CHARS], method.startswith("notifications/"))


def _protocol_of(method: str, *, is_mcp: bool) -> Protocol | None:
    if is_mcp:
        return "mcp"
    return "a2a" if method in _A2A else "mcp" if method in _MCP else None


def errors_of(text: bytes, call: Call) -> list[str | None] | None:
    """Of each answer to a call in a text, its `error_type`; None if the text is not strict JSON. A message that is no answer
    has none: a notification, a request of the server, and what is not JSON-RPC.
    """
    messages = _messages(text)
    if messages is None:
        return None
    return [
        _error_code(message.error) if message.error is not _NONE else _error_in(message.result, call)
        for message in messages
        if message.method is _NONE and (message.error is not _NONE or message.result is not _NONE)
    ]


def _error_code(error: msgspec.Raw) -> str:
    """The code of an error, if JSON-RPC or a protocol over it defines it: a server may put any number there."""
    decoded = _decoded(_ERROR, error)
    if decoded is None:
        return UNKNOWN
    return str(decoded.code) if decoded.code in _CODES else "application_error"


def _error_in(result: msgspec.Raw, call: Call) -> str | None:
    """The error that a result reports: of a tool, or of the task that an agent's call follows."""
    decoded = _decoded(_RESULT, result)
    if decoded is None:
        return None
    if call.protocol == "mcp":
        return "tool_error" if bytes(decoded.is_error) == b"true" else None
    if call.method not in _FOLLOWING:
        return None
    tasks = (_decoded(_TASK, one) for one in (result, decoded.task, decoded.status_update) if one is not _NONE)
    states = [task.status.state.lower().removeprefix("task_state_") for task in tasks if task is not None]
    return next((f"task_{state}" for state in states if state in _FAILED), None)
