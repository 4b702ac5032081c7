"""What a client received of a stream: the official clients' objects, added up.

The clients do not check what they parse, and some servers leave members out: any member may be absent.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from streamgauge_demo.scenario import ClientEnd, Endpoint


@dataclass(slots=True)
class Seen:
    """One request as its client saw it. `items`: events, or 1 for a whole response; `first_s`: when the first one arrived
    (seconds).

    `error`: class name and text of the client's error; `error_body`: the provider's error in it.
    """

    model: str
    end: ClientEnd = ClientEnd.WHOLE
    request_id: str | None = None
    items: int = 0
    text: str = ""
    reasoning: str = ""
    arguments: str = ""
    finish_raw: list[str] = field(default_factory=list)
    error: tuple[str, str] | None = None
    error_body: object = None
    first_s: float | None = None
    total_s: float = 0.0


def add(seen: Seen, endpoint: Endpoint, item: object) -> None:
    """Adds one of the client's objects: an event of a stream, or a whole response."""
    seen.items += 1
    if endpoint is Endpoint.MESSAGES:
        _add_message_event(seen, item)
    elif endpoint is Endpoint.RESPONSES:
        _add_response_event(seen, item)
    else:
        _add_chunk(seen, item)


def _text(item: object, name: str) -> str:
    value = getattr(item, name, None)
    return value if isinstance(value, str) else ""


def _items(item: object, name: str) -> Iterable[object]:
    value = getattr(item, name, None)
    return value if isinstance(value, list) else ()


def _finish(seen: Seen, item: object, name: str) -> None:
    if reason := _text(item, name):
        seen.finish_raw.append(reason)


def _add_chunk(seen: Seen, chunk: object) -> None:
    """Adds a chunk, or a whole response, of chat or text completions."""
    for choice in _items(chunk, "choices"):
        message = getattr(choice, "delta", None) or getattr(choice, "message", None)
        seen.text += _text(choice, "text") + _text(message, "content")
        seen.reasoning += _text(message, "reasoning")
        for detail in _items(message, "reasoning_details"):
            seen.reasoning += str(detail.get("text", "")) if isinstance(detail, dict) else ""
        for call in _items(message, "tool_calls"):
            seen.arguments += _text(getattr(call, "function", None), "arguments")
        _finish(seen, choice, "finish_reason")


def _add_message_event(seen: Seen, event: object) -> None:
    """Adds an event, or a whole message, of the messages format."""
    delta = getattr(event, "delta", None)
    seen.text += _text(delta, "text")
    seen.reasoning += _text(delta, "thinking")
    seen.arguments += _text(delta, "partial_json")
    _finish(seen, delta, "stop_reason")
    if _text(event, "type") == "message":
        seen.text += "".join(_text(block, "text") for block in _items(event, "content"))
        _finish(seen, event, "stop_reason")


def _add_response_event(seen: Seen, event: object) -> None:
    """Adds an event, or a whole response, of the Responses format."""
    match _text(event, "type"):
        case "response.output_text.delta":
            seen.text += _text(event, "delta")
        case "response.reasoning_summary_text.delta":
            seen.reasoning += _text(event, "delta")
        case "response.function_call_arguments.delta":
            seen.arguments += _text(event, "delta")
        case "response.completed" | "response.failed":
            _finish(seen, getattr(event, "response", None), "status")
        case "response.incomplete":
            _finish(seen, getattr(getattr(event, "response", None), "incomplete_details", None), "reason")
        case "":  # a whole response has no type, but a status
            seen.text += _text(event, "output_text")
            _finish(seen, event, "status")
