"""A scripted model: in every dialect it calls a tool until it has enough results, then responds with text.

The name of the requested model decides about errors: `refused` gets status 400, `busy` status 503 each time. Each response
depends on its request only, so that two ways to the model can be compared.
"""

import json
from collections.abc import Iterator
from typing import Any

from streamgauge_demo.formats import messages
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage
from streamgauge_demo.formats.responses import ResponsesFormat, responses_usage
from streamgauge_demo.frames import Frame
from streamgauge_demo.provider import LAST_CHUNK, Exchange, Script, answer, chunk, head, stream, whole
from tests.core.formats import aws_messages
from tests.events import DONE, data

WORDS = ("The ", "level ", "is ", "4 m", ".")
# The tools that a client may offer, each with the arguments of its call, which say how many calls came before.
CALLS: dict[str, str] = {
    "level": '{"river":"Seine"}',
    "Bash": '{"command":"echo step %d","description":"Print a number"}',
    "exec_command": '{"cmd":"echo step %d"}',
    "shell_command": '{"command":"echo step %d"}',
    "shell": '{"command":["bash","-lc","echo step %d"]}',
}
# The errors by the name of the requested model.
STATUS = {"refused": 400, "busy": 503}
# Clients that wait before they try again wait for this long.
RETRY = {"retry-after-ms": "20", "retry-after": "0"}
_RESULT_TYPES = frozenset({"tool_result", "function_call_output", "custom_tool_call_output"})
_RESULT_MEMBERS = frozenset({"functionResponse", "toolResult"})
INPUT_TOKENS, OUTPUT_TOKENS = 11, 7


def results_in(value: Any) -> int:
    """How many results of tools a request has."""
    if isinstance(value, list):
        return sum(map(results_in, value))
    if not isinstance(value, dict):
        return 0
    if value.get("role") == "tool" or value.get("type") in _RESULT_TYPES or _RESULT_MEMBERS & value.keys():
        return 1
    return sum(map(results_in, value.values()))


def offered(value: Any) -> Iterator[str]:
    """The names of all tools in the `tools` of a request."""
    if isinstance(value, list):
        for item in value:
            yield from offered(item)
    elif isinstance(value, dict):
        if isinstance(name := value.get("name"), str):
            yield name
        for member in ("function", "functionDeclarations", "toolSpec", "tools"):
            yield from offered(value.get(member))


class Step:
    """What the model does with one request: `call` is the tool's name and its arguments, or None for text."""

    def __init__(self, body: dict[str, Any], turns: int, before: int = 0) -> None:
        self.number = before + results_in(body.get("input") or body.get("messages") or body.get("contents"))
        tools = set(offered(body.get("tools") or body.get("toolConfig")))
        name = next((name for name in CALLS if name in tools), None)
        self.call: tuple[str, str] | None = None
        if name and self.number < turns:
            arguments = CALLS[name]
            self.call = name, arguments % self.number if "%d" in arguments else arguments

    @property
    def call_id(self) -> str:
        return f"call_{self.number}"


def chat(step: Step, model: str, *, usage: bool) -> list[bytes]:
    fixed = {"id": f"c-{step.number}", "object": "chat.completion.chunk", "created": CREATED, "model": model}
    format_ = ChatFormat(head=fixed)
    frames = [format_.role()]
    if step.call:
        name, arguments = step.call
        frames += [*format_.call(step.call_id, name, halves(arguments)), format_.finish("tool_calls")]
        if not usage:
            return [frames[0].data, _whole_call(step, fixed), frames[-1].data, DONE]
    else:
        frames += [*format_.text(WORDS), format_.finish("stop")]
    if usage:
        frames.append(format_.usage(chat_usage(INPUT_TOKENS, OUTPUT_TOKENS)))
    return [*_bytes(frames), DONE]


def _whole_call(step: Step, fixed: dict[str, Any]) -> bytes:
    """A call in one chunk, as Mistral sends it. Its client refuses a part of a call, and asks for no usage."""
    assert step.call
    function = {"name": step.call[0], "arguments": step.call[1]}
    delta = {"tool_calls": [{"index": 0, "id": step.call_id, "type": "function", "function": function}]}
    return data({**fixed, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def responses(step: Step, model: str) -> list[dict[str, Any]]:
    """The events of the Responses API, as values: server-sent events and WebSocket carry the same."""
    format_ = ResponsesFormat(f"resp_{step.number}", model)
    frames = format_.start()
    if step.call:
        frames += format_.call(step.call_id, step.call[0], halves(step.call[1]))
    else:
        frames += format_.text(WORDS)
    frames.append(format_.end("completed", responses_usage(INPUT_TOKENS, OUTPUT_TOKENS)))
    return [json.loads(data.split(b"data: ", 1)[1]) for data in _bytes(frames)]


def anthropic(step: Step, model: str) -> list[bytes]:
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
    frames = [messages.start(f"msg_{step.number}", model, usage)]
    if step.call:
        frames += messages.tool_block(0, f"toolu_{step.number}", step.call[0], halves(step.call[1]))
    else:
        frames += messages.text_block(0, WORDS)
    frames += [messages.finish("tool_use" if step.call else "end_turn", {"output_tokens": OUTPUT_TOKENS})]
    return _bytes([*frames, messages.STOP])


def gemini(step: Step, model: str) -> list[bytes]:
    if step.call:
        call = {"name": step.call[0], "args": json.loads(step.call[1]), "id": step.call_id}
        parts: list[dict[str, Any]] = [{"functionCall": call}]
    else:
        parts = [{"text": word} for word in WORDS]
    usage = {
        "promptTokenCount": INPUT_TOKENS,
        "candidatesTokenCount": OUTPUT_TOKENS,
        "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    return [
        data(
            {
                "candidates": [
                    {"content": {"parts": [part], "role": "model"}, "index": 0}
                    | ({"finishReason": "STOP"} if part is parts[-1] else {})
                ],
                "usageMetadata": usage,
                "modelVersion": model,
                "responseId": f"r-{step.number}",
            }
        )
        for part in parts
    ]


def cohere(step: Step) -> list[bytes]:
    begun = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    events: list[dict[str, Any]] = [{"type": "message-start", "id": f"m-{step.number}", "delta": {"message": begun}}]

    def add(kind: str, **message: Any) -> None:
        events.append({"type": kind, "index": 0} | ({"delta": {"message": message}} if message else {}))

    if step.call:
        function = {"name": step.call[0], "arguments": ""}
        add("tool-call-start", tool_calls={"id": step.call_id, "type": "function", "function": function})
        for piece in halves(step.call[1]):
            add("tool-call-delta", tool_calls={"function": {"arguments": piece}})
        add("tool-call-end")
    else:
        add("content-start", content={"type": "text", "text": ""})
        for word in WORDS:
            add("content-delta", content={"text": word})
        add("content-end")
    tokens = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    reason = "TOOL_CALL" if step.call else "COMPLETE"
    events.append({"type": "message-end", "delta": {"finish_reason": reason, "usage": {"tokens": tokens}}})
    return [data(event, event["type"]) for event in events]


def ollama(step: Step, model: str) -> list[bytes]:
    if step.call:
        function = {"name": step.call[0], "arguments": json.loads(step.call[1])}
        said: list[dict[str, Any]] = [{"content": "", "tool_calls": [{"function": function}]}]
    else:
        said = [{"content": word} for word in WORDS]
    ended = {"done": True, "done_reason": "stop", "prompt_eval_count": INPUT_TOKENS, "eval_count": OUTPUT_TOKENS}
    lines = [{"message": {"role": "assistant", **one}, "done": False} for one in said]
    lines.append({"message": {"role": "assistant", "content": ""}, **ended})
    created = "2026-11-30T08:00:00Z"
    return [json.dumps({"model": model, "created_at": created, **line}).encode() + b"\n" for line in lines]


def bedrock(step: Step) -> list[bytes]:
    events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    if step.call:
        use = {"toolUseId": step.call_id, "name": step.call[0]}
        events.append(("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": use}}))
        pieces: list[dict[str, Any]] = [{"toolUse": {"input": piece}} for piece in halves(step.call[1])]
    else:
        pieces = [{"text": word} for word in WORDS]
    events += [("contentBlockDelta", {"contentBlockIndex": 0, "delta": piece}) for piece in pieces]
    events.append(("contentBlockStop", {"contentBlockIndex": 0}))
    events.append(("messageStop", {"stopReason": "tool_use" if step.call else "end_turn"}))
    usage = {
        "inputTokens": INPUT_TOKENS,
        "outputTokens": OUTPUT_TOKENS,
        "totalTokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    events.append(("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}))
    return [aws_messages.event(kind, json.dumps(members).encode()) for kind, members in events]


def halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _bytes(frames: list[Frame]) -> list[bytes]:
    return [frame.data for frame in frames]


def error_of(model: str) -> Script | None:
    """The error that a request for this model gets, if any."""
    name = next((name for name in STATUS if model.startswith(name)), None)
    if name is None:
        return None
    body = {"error": {"type": "scripted_error", "message": f"This model is {name}.", "code": name}}
    # The members of several vendors' errors at once.
    return whole(json.dumps(body | {"message": f"This model is {name}."}).encode(), STATUS[name], headers=RETRY)


def scripted(turns: int = 1) -> Script:
    """What a simulated provider plays for each request. `turns`: how many tool calls come before the text."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await script_of(exchange, turns)(exchange)

    return play


_REFUSED_UPGRADE = whole(b'{"error":{"message":"No WebSocket here."}}', 426, headers={"upgrade": "HTTP/2.0"})
_UNKNOWN = whole(b'{"error":{"type":"not_found_error","message":"Not here."}}', 404)


def script_of(exchange: Exchange, turns: int) -> Script:
    """The response of one request."""
    request = exchange.request
    if "upgrade" in request.headers:
        return _REFUSED_UPGRADE
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        return _UNKNOWN
    parts = request.path.split("/")
    named = parts[-1].partition(":")[0] if "models" in parts else parts[-2] if "model" in parts else ""
    model, step = str(body.get("model") or named), Step(body, turns)
    if error := error_of(model):
        return error
    match parts[-1]:
        case "completions":
            usage = (body.get("stream_options") or {}).get("include_usage") is True
            return stream(*chat(step, model, usage=usage))
        case "responses":
            return stream(*[data(event, event["type"]) for event in responses(step, model)])
        case "messages":
            return stream(*anthropic(step, model))
        case "converse-stream":
            return _answer("application/vnd.amazon.eventstream", bedrock(step))
        case "chat" if "api" in parts:
            return _answer("application/x-ndjson", ollama(step, model))
        case "chat":
            return stream(*cohere(step))
        case last if last.endswith(":streamGenerateContent"):
            return stream(*gemini(step, model))
    return _UNKNOWN


def _answer(kind: str, pieces: list[bytes]) -> Script:
    return answer(head(kind=kind), *map(chunk, pieces), LAST_CHUNK)
