"""OpenAI Responses: typed events, identified by their JSON `type` (some servers send no `event:` line), else by their name.

The terminals are response.completed, .incomplete, .failed and .cancelled. Some servers send a [DONE] after them, which is no
terminal. Items are keyed by output_index, since some gateways give an item another id in each event. Output that only the
closing event of a part, of an item or of the response carries counts there (repeated_output.py).
"""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import (
    KEEP_ERRORS,
    Data,
    DialectDefaults,
    Sink,
    Source,
    WholeCall,
    error_in,
    is_no_call,
    is_realtime,
    type_of,
)
from streamgauge.core.dialects.deltas import Delta, Deltas, Output
from streamgauge.core.dialects.openai_usage import KEEP_USAGE, USAGE
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.outcome import reason_label
from streamgauge.core.safe_values import safe_code, whole_number
from streamgauge.core.usage_parts import KEEP_TOOL_USAGE

_KEEP_CONTENT: Spec = {
    "type": Kind.CODE,
    "text": Kind.TEXT,
    "refusal": Kind.TEXT,
    "data": Kind.TEXT,
    "transcript": Kind.TEXT,
}
_KEEP_ITEM: Spec = {
    "type": Kind.CODE,
    "id": Kind.ID,
    "call_id": Kind.ID,
    "name": Kind.ID,
    "status": Kind.CODE,
    "role": Kind.CODE,
    "arguments": Kind.ARGUMENTS,
    "input": Kind.ARGUMENTS,
    "code": Kind.ARGUMENTS,
    "action": {"commands": [Kind.TEXT]},
    "operation": {"diff": Kind.ARGUMENTS},
    "result": Kind.TEXT,
    "content": [_KEEP_CONTENT],
    "summary": [_KEEP_CONTENT],
}
# Calls whose input is JSON by contract. A custom tool's input is free text and is not validated.
_JSON_CALLS = {"function_call", "mcp_call"}
# Calls without a name whose input the model writes.
_NAMELESS_CALLS = {"code_interpreter_call", "shell_call", "apply_patch_call"}
# Calls of the client's own functions: a completed response with such a call has the normal finish reason `tool_calls`.
# A shell call or a patch is not listed, because the server may execute it in the same response.
_CLIENT_CALLS = {"function_call", "custom_tool_call"}
# Tools of xAI's own search: xAI sends their calls as custom calls and executes them itself
# (vercel/ai, xai-responses-language-model.ts).
_SERVERS_TOOLS = {
    "browse_page",
    "view_image",
    "view_x_video",
    "web_search",
    "web_search_with_snippets",
    "x_keyword_search",
    "x_semantic_search",
    "x_thread_fetch",
    "x_user_search",
}
KEEP_RESPONSE: dict[str, Spec] = {
    "id": Kind.ID,
    "object": Kind.CODE,
    "created_at": Kind.NUMBER,
    "status": Kind.CODE,
    "model": Kind.ID,
    "service_tier": Kind.CODE,
    "background": Kind.FLAG,
    "incomplete_details": {"reason": Kind.REASON},
    "error": KEEP_ERRORS["error"],
    "output": [_KEEP_ITEM],
    "usage": KEEP_USAGE,
    "tool_usage": KEEP_TOOL_USAGE,
}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "sequence_number": Kind.COUNT,
    "output_index": Kind.COUNT,
    "content_index": Kind.COUNT,
    "summary_index": Kind.COUNT,
    "item_id": Kind.ID,
    "item": _KEEP_ITEM,
    "part": _KEEP_CONTENT,
    "delta": Kind.TEXT,
    "text": Kind.TEXT,
    "refusal": Kind.TEXT,
    "arguments": Kind.TEXT,
    "input": Kind.TEXT,
    "diff": Kind.TEXT,
    "command": Kind.TEXT,
    "transcript": Kind.TEXT,
    "partial_image_b64": Kind.TEXT,
    "response": KEEP_RESPONSE,
    "usage": KEEP_USAGE,  # after [DONE]
}

# The beginnings of the types of events with the code for a code interpreter: the second one is older
# (https://github.com/openai/openai-ruby, ResponseCodeInterpreterCallCodeDoneEvent).
_CODE = ("response.code_interpreter_call_code", "response.code_interpreter_call.code")
# Fragments of a call's input, and the type of the item that they belong to.
_ARGUMENTS = {
    "response.function_call_arguments.delta": "function_call",
    "response.mcp_call_arguments.delta": "mcp_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
    **{f"{code}.delta": "code_interpreter_call" for code in _CODE},
    "response.shell_call_command.delta": "shell_call",
    "response.apply_patch_call_operation_diff.delta": "apply_patch_call",
}
# Closing events of a text, and the member that holds the whole text.
_TEXTS_DONE = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning_text.done": "text",
    "response.reasoning_summary_text.done": "text",
    "response.audio.transcript.done": "transcript",
}
_PARTS_DONE = {"response.content_part.done", "response.reasoning_summary_part.done", "response.reasoning_part.done"}
# Closing events of a call's input: the member that holds the whole input, and the type of the item.
_ARGUMENTS_DONE = {
    "response.function_call_arguments.done": ("arguments", "function_call"),
    "response.mcp_call_arguments.done": ("arguments", "mcp_call"),
    "response.custom_tool_call_input.done": ("input", "custom_tool_call"),
    "response.apply_patch_call_operation_diff.done": ("diff", "apply_patch_call"),
    "response.shell_call_command.done": ("command", "shell_call"),
    **{f"{code}.done": ("code", "code_interpreter_call") for code in _CODE},
}
_PARTIAL_IMAGE = "response.image_generation_call.partial_image"
_TERMINALS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}

# Texts that are output of their own in a delta, by the beginning of the event's type.
_TEXT_DELTAS = {
    "response.output_text": Output.TEXT,
    "response.refusal": Output.REFUSAL,
    "response.reasoning_text": Output.REASONING,
    "response.reasoning_summary_text": Output.REASONING,
}
_DELTAS = Deltas(
    kinds=(
        *(Delta(output, "delta", when={"type": (f"{kind}.delta",)}) for kind, output in _TEXT_DELTAS.items()),
        *(
            Delta(
                Output.ARGUMENTS,
                "delta",
                when={"type": tuple(kind for kind, item in _ARGUMENTS.items() if (item in _CLIENT_CALLS) is client)},
                client=client,
            )
            for client in (True, False)
        ),
    ),
    # Members of other events.
    unread=frozenset(
        (
            *(
                "content_index",
                "summary_index",
                "item_id",
                "item",
                "part",
                "text",
                "refusal",
                "arguments",
                "input",
                "diff",
            ),
            *("command", "transcript"),
        )
    ),
    key="output_index",
    item="output_index",
    numbered=True,
)


class OpenAIResponses(DialectDefaults):
    """OpenAI's Responses API."""

    name = "openai-responses"
    endpoint = "/responses"
    paths: tuple[str, ...] = ("/responses", "/responses/{id}")
    keep = KEEP
    keep_body = KEEP_RESPONSE
    code_events = frozenset(f"{code}.done" for code in _CODE)
    deltas = _DELTAS
    usage = USAGE

    def recognises(self, event: str, data: Data) -> bool:
        """By a type that begins with `response.` and is none of the Realtime API, or by an error with a sequence number."""
        kind = type_of(event, data)
        if (safe_code(kind) or "").startswith("response."):
            return not is_realtime(data)
        return kind == "error" and "sequence_number" in data

    def recognises_body(self, data: Data) -> bool:
        """By `object: response`."""
        return data.get("object") == "response"

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports what the type of the event names. Any event may carry the response with its id, model and usage."""
        kind = type_of(event, data)
        response = data.get("response")
        if isinstance(response, dict):
            _read_response(response, sink)
        if not isinstance(kind, str):
            return
        index = whole_number(data.get("output_index"))
        if kind.endswith(".delta"):
            sink.part(index, Source.DELTA)
            _read_delta(kind, data, sink)
        elif kind == "response.output_item.added":
            _read_item(index or 0, data.get("item"), sink)
        elif kind.endswith(".done"):
            _read_done(kind, index, data, sink)
        elif kind == _PARTIAL_IMAGE:
            sink.part(index, Source.DELTA)
            sink.media(0, data.get("partial_image_b64"))
        elif kind in _TERMINALS:
            whole = response if isinstance(response, dict) else {}
            _read_output(_parts_of(whole.get("output")), sink)
            read_terminal(_status(kind, response), whole, sink)
        elif isinstance(response, dict):
            sink.usage(_usage_of(response))

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A terminal by its type, with what comes before the output, and with the usage after it."""
        first = first_members(head)
        last = last_members(tail, b'{"response":{', "usage") or last_members(tail, b"{", "type")
        kind = type_of(event, {**first, **last})
        if not isinstance(kind, str) or kind not in _TERMINALS:
            return {} if self.recognises(event, {**first, **last}) else None
        parts = [part for members in (first, last) if isinstance(part := members.get("response"), dict)]
        response = {name: value for part in parts for name, value in part.items() if name != "output"}
        return {**first, **last, "type": kind, "response": response}

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports all items of `output`, and ends the stream by the status of the response."""
        _read_response(data, sink)
        output = data.get("output")
        for index, item in enumerate(output if isinstance(output, list) else ()):
            _read_item(index, item, sink)
            _read_content(item, sink)
        status = data.get("status")
        read_terminal((safe_code(status) if isinstance(status, str) else None) or "completed", data, sink)

    def usage_after_done(self, data: Data) -> object:
        """The usage of a response that came again, or one without a response."""
        response = data.get("response")
        return _usage_of(response) if isinstance(response, dict) else data.get("usage")


def _status(kind: str, response: object) -> str:
    """The final status of a response: its own if that is final, else the last part of the event's name."""
    own = safe_code(response.get("status")) if isinstance(response, dict) else None
    return own if own is not None and f"response.{own}" in _TERMINALS else kind.removeprefix("response.")


def _read_response(response: Data, sink: Sink) -> None:
    sink.identify(response.get("id"), response.get("model"), response.get("service_tier"))


def _usage_of(response: Data) -> object:
    """The usage of a response, with what its server tools used, which is beside it (https://github.com/openai/openai-python,
    types/responses)."""
    usage, tools = response.get("usage"), response.get("tool_usage")
    return {**usage, "tool_usage": tools} if isinstance(usage, dict) and isinstance(tools, dict) else usage


def _read_text(kind: str, text: object, sink: Sink) -> None:
    """Reads a text of a delta or of its closing event: the names of the two events differ only in their last part."""
    match kind.rpartition(".")[0]:
        case "response.output_text":
            sink.text(0, text)
        case "response.refusal":
            sink.refusal(0, text)
        case "response.reasoning_text":
            sink.reasoning(0, text)
        case "response.reasoning_summary_text":
            sink.reasoning(0, text, summary=True)
        case "response.audio" | "response.audio.transcript":
            sink.media(0, text)


def _read_delta(kind: str, data: Data, sink: Sink) -> None:
    delta = data.get("delta")
    if kind in _ARGUMENTS:
        index, item = whole_number(data.get("output_index")) or 0, _ARGUMENTS[kind]
        sink.tool(0, index, None, client=item in _CLIENT_CALLS, json=item in _JSON_CALLS)
        sink.arguments(0, index, delta if isinstance(delta, str) else None)  # by contract a string
    else:
        _read_text(kind, delta, sink)


def _read_done(kind: str, index: int | None, data: Data, sink: Sink) -> None:
    """Reads a closing event. It repeats the output of deltas, or carries output that no delta carried."""
    if kind in _TEXTS_DONE:
        sink.part(index, Source.TEXT_DONE)
        _read_text(kind, data.get(_TEXTS_DONE[kind]), sink)
    elif kind in _PARTS_DONE:
        sink.part(index, Source.PART_DONE)
        part = data.get("part")
        if isinstance(part, dict):
            reasons = "reasoning" in kind or part.get("type") == "reasoning_text"
            _read_part(part, sink, reasons=reasons, summary="summary" in kind)
    elif kind in _ARGUMENTS_DONE:
        member, item = _ARGUMENTS_DONE[kind]
        text = data.get(member)
        arguments = text if isinstance(text, str) else None  # by contract a string
        sink.whole_arguments(0, index or 0, arguments, client=item in _CLIENT_CALLS, json=item in _JSON_CALLS)
    elif kind == "response.output_item.done":
        sink.part(index, Source.ITEM_DONE)
        _read_item(index or 0, data.get("item"), sink, finished=True)
        _read_content(data.get("item"), sink)


def _read_output(items: list[Data], sink: Sink) -> None:
    """Reads the items of a whole response at its end: what no earlier event brought of them is output."""
    if not items:
        return
    sink.closes()
    for item in items:
        _read_content(item, sink)
    sink.whole_calls(0, [call for item in items if (call := _call_of(item)) is not None])


def _read_item(index: int, item: object, sink: Sink, finished: bool = False) -> None:
    """Reads a call's item. `finished`: the item is finished; some gateways send an item only then."""
    if isinstance(item, dict) and item.get("type") == "reasoning":
        sink.reasons()
    call = _call_of(item) if isinstance(item, dict) else None
    if call is None:
        return
    name, arguments, call_id, client, json = call
    if finished:
        sink.whole_tool(0, index, name, arguments, call_id=call_id, client=client, json=json)
    else:
        sink.tool(0, index, name, call_id=call_id, client=client, json=json)
        sink.arguments(0, index, arguments)


def read_terminal(status: str, response: Data, sink: Sink) -> None:
    """Reads the end of a response: its finish reason or error by its status, and its usage."""
    if status == "failed" and (facts := error_in("", {"error": response.get("error")})):
        sink.error(facts)
    details = response.get("incomplete_details")
    if status == "incomplete":
        reason = details.get("reason") if isinstance(details, dict) else None
        sink.finish(0, status if reason_label(reason) is None else reason)
    elif status == "completed" and (sink.calls_client_tools(0) or _calls_in(response.get("output"))):
        sink.finish(0, status, "tool_calls")
    else:
        sink.finish(0, status)
    sink.usage(_usage_of(response))
    if status not in ("queued", "in_progress"):
        sink.terminal()


def _calls_in(output: object) -> bool:
    return any(_is_clients(item) for item in _parts_of(output))


# --- items: messages, reasoning, images and calls, whole as `output_item.done` has them ----------------------------


def _call_of(item: Data) -> WholeCall | None:
    """An item as a call; None if it is no call."""
    kind, name, call_id = item.get("type"), item.get("name"), item.get("call_id")
    if not isinstance(kind, str) or not (isinstance(name, str) or kind in _NAMELESS_CALLS):
        return None
    arguments = _arguments_of(item)
    if kind not in _NAMELESS_CALLS and is_no_call(name, call_id, arguments):
        return None
    return WholeCall(name, arguments, call_id, _is_clients(item), kind in _JSON_CALLS)


def _arguments_of(item: Data) -> object:
    """The input that the model wrote for a call, from the member that the type of the item uses."""
    arguments = item.get("arguments") or item.get("input") or item.get("code")
    action, operation = item.get("action"), item.get("operation")
    if not arguments and isinstance(operation, dict):
        arguments = operation.get("diff")
    if not arguments and isinstance(action, dict) and isinstance(action.get("commands"), list):
        arguments = "".join([command for command in action["commands"] if isinstance(command, str)])
    return arguments


def _read_content(item: object, sink: Sink) -> None:
    """Reads the text of a whole item, or its image. The summary of reasoning counts, as in a stream, else its content."""
    if not isinstance(item, dict):
        return
    summary = _parts_of(item.get("summary"))
    for part in summary or _parts_of(item.get("content")):
        _read_part(part, sink, reasons=item.get("type") == "reasoning", summary=bool(summary))
    if item.get("type") == "image_generation_call":
        sink.media(0, item.get("result"))


def _read_part(part: Data, sink: Sink, *, reasons: bool, summary: bool) -> None:
    """Reads a part of an item's content: text, a refusal, or audio. `reasons`: its text is reasoning, or a summary of it."""
    if reasons:
        sink.reasoning(0, part.get("text"), summary=summary)
    else:
        sink.text(0, part.get("text"))
        sink.refusal(0, part.get("refusal"))
        sink.media(0, part.get("data") or part.get("transcript"))  # output_audio


def _parts_of(listed: object) -> list[Data]:
    """The objects of a list: parts of a content, or items of an output."""
    return [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []


def _is_clients(item: Data) -> bool:
    """Whether the client has to execute this call."""
    kind, name = item.get("type"), item.get("name")
    if not isinstance(kind, str) or kind not in _CLIENT_CALLS:
        return False
    return kind != "custom_tool_call" or not isinstance(name, str) or name not in _SERVERS_TOOLS
