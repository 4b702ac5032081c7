"""OpenAI Responses: typed events, known by their JSON `type` (some servers send no `event:` line).

Its terminals are response.completed, response.incomplete and response.failed; a [DONE] that some add behind is none.
Items are keyed by output_index, since some gateways give an item another id in each event.
"""

from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, Sink, Usual, error_in
from streamgauge.core.keep import Kind, Spec
from streamgauge.core.labels import label_code, whole_number
from streamgauge.core.usage import UsageRules

_KEEP_USAGE: dict[str, Spec] = {
    "input_tokens": Kind.COUNT,
    "output_tokens": Kind.COUNT,
    "total_tokens": Kind.COUNT,
    "input_tokens_details": {
        "cached_tokens": Kind.COUNT,
        "cache_write_tokens": Kind.COUNT,
        "cache_read_input_tokens": Kind.COUNT,
        "cache_creation_input_tokens": Kind.COUNT,
        "audio_tokens": Kind.COUNT,
        "text_tokens": Kind.COUNT,
        "image_tokens": Kind.COUNT,
    },
    "output_tokens_details": {
        "reasoning_tokens": Kind.COUNT,
        "audio_tokens": Kind.COUNT,
        "text_tokens": Kind.COUNT,
        "image_tokens": Kind.COUNT,
    },
    "num_sources_used": Kind.COUNT,
    "num_server_side_tools_used": Kind.COUNT,
    "cost_in_usd_ticks": Kind.COUNT,
    # A number (OpenRouter), or parts of it (Perplexity's agents, docs.perplexity.ai, agent api).
    "cost": (
        Kind.NUMBER,
        dict.fromkeys(("input_cost", "output_cost", "cache_read_cost", "tool_calls_cost", "total_cost"), Kind.NUMBER),
    ),
    "is_byok": Kind.FLAG,
    "cost_details": {
        "upstream_inference_cost": Kind.NUMBER,
        "upstream_inference_input_cost": Kind.NUMBER,
        "upstream_inference_output_cost": Kind.NUMBER,
    },
}
_KEEP_CONTENT: Spec = {"type": Kind.CODE, "text": Kind.TEXT, "refusal": Kind.TEXT}
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
    "content": [_KEEP_CONTENT],
    "summary": [_KEEP_CONTENT],
}
_KEEP_RESPONSE: dict[str, Spec] = {
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
    "usage": _KEEP_USAGE,
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
    "partial_image_b64": Kind.TEXT,
    "response": _KEEP_RESPONSE,
}

_TEXT = {"response.output_text.delta"}
_REFUSAL = {"response.refusal.delta"}
_REASONING = {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
_MEDIA = {"response.audio.delta", "response.audio.transcript.delta"}
# Fragments of a call's input, and the item that they belong to.
_ARGUMENTS = {
    "response.function_call_arguments.delta": "function_call",
    "response.mcp_call_arguments.delta": "mcp_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
    "response.code_interpreter_call_code.delta": "code_interpreter_call",
    "response.shell_call_command.delta": "shell_call",
    "response.apply_patch_call_operation_diff.delta": "apply_patch_call",
}
_PARTIAL_IMAGE = "response.image_generation_call.partial_image"
_TERMINALS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}

# Calls whose input is JSON by contract; a custom tool's is free text, so there is nothing to validate.
_JSON_CALLS = {"function_call", "mcp_call"}
# Calls without a name whose input the model writes.
_NAMELESS_CALLS = {"code_interpreter_call", "shell_call", "apply_patch_call"}
# Calls of the client's own functions: with one, a completed response ended for its tool calls. A shell or a patch may be
# carried out by the server in the same response.
_CLIENT_CALLS = {"function_call", "custom_tool_call"}
# What xAI's own search sends as custom calls, and carries out itself (vercel/ai, xai-responses-language-model.ts).
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


class OpenAIResponses(Usual):
    name = "openai-responses"
    endpoint = "/responses"
    paths = ("/responses", "/responses/{id}")
    keep = KEEP
    keep_body = _KEEP_RESPONSE
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("input_tokens",),
        output=("output_tokens",),
        total=("total_tokens",),
        # The second names are Perplexity's.
        cached=("input_tokens_details.cached_tokens", "input_tokens_details.cache_read_input_tokens"),
        cache_write=(
            "input_tokens_details.cache_write_tokens",
            "input_tokens_details.cache_creation_input_tokens",
        ),
        reasoning=("output_tokens_details.reasoning_tokens",),
        audio_input=("input_tokens_details.audio_tokens",),
        audio_output=("output_tokens_details.audio_tokens",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        kind = data.get("type")
        if (label_code(kind) or "").startswith("response."):
            return True
        return kind == "error" and "sequence_number" in data

    def recognises_body(self, data: Data) -> bool:
        return data.get("object") == "response"

    def read(self, event: str, data: Data, sink: Sink) -> None:
        kind = data.get("type")
        response = data.get("response")
        if isinstance(response, dict):
            _read_response(response, sink)
        if not isinstance(kind, str):
            return
        if kind.endswith(".delta"):
            _read_delta(kind, data, sink)
        elif kind == "response.output_item.added":
            _read_item(whole_number(data.get("output_index")) or 0, data.get("item"), sink)
        elif kind == "response.output_item.done":
            _read_item(whole_number(data.get("output_index")) or 0, data.get("item"), sink, over=True)
        elif kind == _PARTIAL_IMAGE:
            sink.media(0, data.get("partial_image_b64"))
        elif kind in _TERMINALS:
            _read_terminal(_status(kind, response), response if isinstance(response, dict) else {}, sink)
        elif isinstance(response, dict):
            sink.usage(response.get("usage"))

    def read_body(self, data: Data, sink: Sink) -> None:
        _read_response(data, sink)
        output = data.get("output")
        for index, item in enumerate(output if isinstance(output, list) else ()):
            _read_item(index, item, sink)
            _read_content(item, sink)
        status = data.get("status")
        _read_terminal((label_code(status) if isinstance(status, str) else None) or "completed", data, sink)


def _status(kind: str, response: object) -> str:
    """How it ended: as the response itself says, where that is an end, else as the event is called."""
    said = label_code(response.get("status")) if isinstance(response, dict) else None
    return said if said is not None and f"response.{said}" in _TERMINALS else kind.removeprefix("response.")


def _read_response(response: Data, sink: Sink) -> None:
    sink.identify(response.get("id"), response.get("model"), response.get("service_tier"))


def _read_delta(kind: str, data: Data, sink: Sink) -> None:
    delta = data.get("delta")
    if kind in _TEXT:
        sink.text(0, delta)
    elif kind in _REASONING:
        sink.reasoning(0, delta)
    elif kind in _REFUSAL:
        sink.refusal(0, delta)
    elif kind in _MEDIA:
        sink.media(0, delta)
    elif kind in _ARGUMENTS:
        index, item = whole_number(data.get("output_index")) or 0, _ARGUMENTS[kind]
        sink.tool(0, index, None, client=item in _CLIENT_CALLS, json=item in _JSON_CALLS)
        sink.arguments(0, index, delta if isinstance(delta, str) else None)  # a text by contract


def _read_item(index: int, item: object, sink: Sink, over: bool = False) -> None:
    """A call's item. `over`: as it is once it is done, which is the first that some gateways tell of it."""
    if not isinstance(item, dict):
        return
    kind, name, call_id = item.get("type"), item.get("name"), item.get("call_id")
    if not isinstance(kind, str) or not (isinstance(name, str) or kind in _NAMELESS_CALLS):
        return
    client, json = _is_clients(item), kind in _JSON_CALLS
    arguments = item.get("arguments") or item.get("input") or item.get("code")
    if over:
        sink.whole_tool(0, index, name, arguments, call_id=call_id, client=client, json=json)
    else:
        sink.tool(0, index, name, call_id=call_id, client=client, json=json)
        sink.arguments(0, index, arguments)


def _read_content(item: object, sink: Sink) -> None:
    """Text of a whole answer's item. Of reasoning the summary counts, as it does in a stream; else what it says itself."""
    if not isinstance(item, dict):
        return
    reasons = item.get("type") == "reasoning"
    for part in _parts_of(item.get("summary")) or _parts_of(item.get("content")):
        if reasons:
            sink.reasoning(0, part.get("text"))
        else:
            sink.text(0, part.get("text"))
            sink.refusal(0, part.get("refusal"))


def _parts_of(given: object) -> list[Data]:
    return [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []


def _read_terminal(status: str, response: Data, sink: Sink) -> None:
    if status == "failed" and (facts := error_in("", {"error": response.get("error")})):
        sink.error(facts)
    details = response.get("incomplete_details")
    if status == "incomplete":
        sink.finish(0, details.get("reason") if isinstance(details, dict) else status)
    elif status == "completed" and (sink.calls_client_tools(0) or _calls_in(response.get("output"))):
        sink.finish(0, status, "tool_calls")
    else:
        sink.finish(0, status)
    sink.usage(response.get("usage"))
    if status not in ("queued", "in_progress"):
        sink.terminal()


def _calls_in(output: object) -> bool:
    return any(_is_clients(item) for item in _parts_of(output))


def _is_clients(item: Data) -> bool:
    """Whether the client has to carry out this call."""
    kind, name = item.get("type"), item.get("name")
    if not isinstance(kind, str) or kind not in _CLIENT_CALLS:
        return False
    return kind != "custom_tool_call" or not isinstance(name, str) or name not in _SERVERS_TOOLS
