"""Calls of JSON-RPC 2.0: of tools (Model Context Protocol, MCP) and of other agents (Agent2Agent, A2A).

Of a request its method and the name of its tool are read, of an answer whether it is an error; never a prompt, an argument or
a result.

Sources: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports and its schema;
https://a2a-protocol.org/v0.3.0/specification and https://a2a-protocol.org/latest/specification, JSON-RPC binding;
https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md, for the values of `error_type`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal, TypeGuard

import msgspec

from streamgauge.core.formats.json_text import parse

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

# States of a task of A2A that are failures, in lower case; version 1.0 writes TASK_STATE_FAILED.
_FAILED = frozenset(("failed", "rejected"))

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

    BEHIND = "recorder_behind"  # a part of the answer found no room on its way to the recorder
    TOO_LARGE = "too_large"  # the answer, or one of its events, is over the limit
    UNDECODABLE = "undecodable"
    ELSEWHERE = "answered_elsewhere"  # status 202: the answer comes in another response
    LIMIT = "limit"  # more calls at once than a recorder reads
    STOPPED = "tap_stopped"  # before the call had ended
    FAULT = "capture_fault"  # a bug of ours


class CallResult(msgspec.Struct, frozen=True):
    """A call that has ended. `duration_s`: from the request's first byte to the answer's last read.

    `error_type`: `tool_error` for a tool's own error (`isError`), the code of a JSON-RPC error, the state of a failed task,
    the status of an HTTP error, or how the exchange ended without an answer; None if the call succeeded.
    """

    upstream: str | None
    call: Call
    duration_s: float | None
    error_type: str | None = None
    unmeasured: Unmeasured | None = None


def call_of(body: bytes, *, is_mcp: bool) -> Call | None:
    """The call that a request's body makes; None if it makes none, or one of another service. `is_mcp`: the request has one
    of MCP_HEADERS.
    """
    value = parse(body) if RPC_MARK in body else None
    if isinstance(value, list):
        return _batch([one for one in value if _is_request(one)], is_mcp=is_mcp)
    if not _is_request(value):
        return None
    method, params = value["method"], value.get("params")
    protocol = _protocol_of(method, is_mcp=is_mcp)
    if protocol is None:
        return None
    if method not in (_MCP if protocol == "mcp" else _A2A):
        method = OTHER
    tool = params.get("name") if method == "tools/call" and isinstance(params, dict) else None
    return Call(protocol, method, tool[:_TOOL_CHARS] if isinstance(tool, str) else None, "id" not in value)


def call_of_headers(method: str | None, name: str | None) -> Call:
    """The call of MCP whose body is not known, by the values of Mcp-Method and Mcp-Name."""
    if method is None:
        return Call("mcp", UNKNOWN)
    known = method if method in _MCP else OTHER
    # A name that is not plain is coded.
    tool = name if method == "tools/call" and name is not None and not name.startswith("=?base64?") else None
    return Call("mcp", known, tool and tool[:_TOOL_CHARS], method.startswith("notifications/"))


def _is_request(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a request or a notification."""
    return isinstance(value, dict) and "jsonrpc" in value and isinstance(value.get("method"), str)


def _batch(requests: list[dict[str, Any]], *, is_mcp: bool) -> Call | None:
    """The call of several requests at once: version 2025-03-26 of MCP allows them."""
    protocols = {_protocol_of(request["method"], is_mcp=is_mcp) for request in requests}
    protocol: Protocol | None = "mcp" if "mcp" in protocols else "a2a" if "a2a" in protocols else None
    return None if protocol is None else Call(protocol, BATCH, None, all("id" not in request for request in requests))


def _protocol_of(method: str, *, is_mcp: bool) -> Protocol | None:
    if is_mcp:
        return "mcp"
    return "a2a" if method in _A2A else "mcp" if method in _MCP else None


def errors_of(message: bytes) -> Iterator[str | None]:
    """Of each answer in a message, its `error_type`. A message that is no answer has none: a notification, a request of the
    server, and what is not JSON-RPC.
    """
    value = parse(message)
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict) and "jsonrpc" in one and "method" not in one:
            if isinstance(error := one.get("error"), dict):
                code = error.get("code")
                yield str(code) if isinstance(code, int) else UNKNOWN
            elif "result" in one:
                yield _error_in(one["result"])


def _error_in(result: object) -> str | None:
    """The error that a result reports."""
    if not isinstance(result, dict):
        return None
    if result.get("isError") is True:
        return "tool_error"
    for holder in (result, result.get("task"), result.get("statusUpdate")):
        status = holder.get("status") if isinstance(holder, dict) else None
        state = status.get("state") if isinstance(status, dict) else None
        if isinstance(state, str) and (short := state.lower().removeprefix("task_state_")) in _FAILED:
            return f"task_{short}"
    return None
