"""The items of an OpenAI Responses answer: messages, reasoning, images and calls, whole as `output_item.done` has them."""

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import Data, Sink, WholeCall, is_no_call

KEEP_CONTENT: Spec = {
    "type": Kind.CODE,
    "text": Kind.TEXT,
    "refusal": Kind.TEXT,
    "data": Kind.TEXT,
    "transcript": Kind.TEXT,
}
KEEP_ITEM: Spec = {
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
    "content": [KEEP_CONTENT],
    "summary": [KEEP_CONTENT],
}
# Calls whose input is JSON by contract. A custom tool's input is free text and is not validated.
JSON_CALLS = {"function_call", "mcp_call"}
# Calls without a name whose input the model writes.
_NAMELESS_CALLS = {"code_interpreter_call", "shell_call", "apply_patch_call"}
# Calls of the client's own functions: a completed response with such a call has the normal finish reason `tool_calls`.
# A shell call or a patch is not listed, because the server may execute it in the same response.
CLIENT_CALLS = {"function_call", "custom_tool_call"}
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


def call_of(item: Data) -> WholeCall | None:
    """The call that an item is; None if it is none."""
    kind, name, call_id = item.get("type"), item.get("name"), item.get("call_id")
    if not isinstance(kind, str) or not (isinstance(name, str) or kind in _NAMELESS_CALLS):
        return None
    arguments = _arguments_of(item)
    if kind not in _NAMELESS_CALLS and is_no_call(name, call_id, arguments):
        return None
    return WholeCall(name, arguments, call_id, is_clients(item), kind in JSON_CALLS)


def _arguments_of(item: Data) -> object:
    """The input that the model wrote for a call, from the member that the type of the item uses."""
    given = item.get("arguments") or item.get("input") or item.get("code")
    action, operation = item.get("action"), item.get("operation")
    if not given and isinstance(operation, dict):
        given = operation.get("diff")
    if not given and isinstance(action, dict) and isinstance(action.get("commands"), list):
        given = "".join([command for command in action["commands"] if isinstance(command, str)])
    return given


def read_content(item: object, sink: Sink) -> None:
    """Reads the text of a whole item, or its image. The summary of reasoning counts, as in a stream, else its content."""
    if not isinstance(item, dict):
        return
    summary = parts_of(item.get("summary"))
    for part in summary or parts_of(item.get("content")):
        read_part(part, sink, reasons=item.get("type") == "reasoning", summary=bool(summary))
    if item.get("type") == "image_generation_call":
        sink.media(0, item.get("result"))


def read_part(part: Data, sink: Sink, *, reasons: bool, summary: bool) -> None:
    """Reads a part of an item's content: text, a refusal, or audio. `reasons`: its text is reasoning, or a summary of it."""
    if reasons:
        sink.reasoning(0, part.get("text"), summary=summary)
    else:
        sink.text(0, part.get("text"))
        sink.refusal(0, part.get("refusal"))
        sink.media(0, part.get("data") or part.get("transcript"))  # output_audio


def parts_of(given: object) -> list[Data]:
    """The objects of a list: parts of a content, or items of an output."""
    return [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []


def is_clients(item: Data) -> bool:
    """Whether the client has to execute this call."""
    kind, name = item.get("type"), item.get("name")
    if not isinstance(kind, str) or kind not in CLIENT_CALLS:
        return False
    return kind != "custom_tool_call" or not isinstance(name, str) or name not in _SERVERS_TOOLS
