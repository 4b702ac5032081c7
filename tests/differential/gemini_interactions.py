"""The Google client: the events of `interactions.create(stream=True)`, put together by what its types say."""

from typing import Any

import msgspec
from google.genai._gaos.lib.compat_errors import APIConnectionError, APIError, APIStatusError

from tests.differential.answer import UNREADABLE, Answer, Call, Ended, Said, Used
from tests.differential.gemini import BROKEN, client
from tests.vectors.load import Vector

_RUNNING = ("queued", "in_progress")
_FAILURES = ("failed", "cancelled")


def _ended(error: Exception) -> Ended:
    if isinstance(error, (APIConnectionError, *BROKEN)):
        return "broken"
    return "error" if isinstance(error, APIStatusError) else "unreadable"


class Events:
    """The events as the client hands them out: steps by index. What it says of thoughts and tool use comes on top."""

    name = "google-genai interactions.create"
    dialects = ("gemini-interactions",)
    blind = frozenset({"refusal"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer, calls = Answer(), dict[int, Call]()
        try:
            with client(url) as asking:
                for event in asking.interactions.create(model="m", input="q", stream=True):
                    _add(event, answer, calls)
        except (APIError, *BROKEN, *UNREADABLE) as error:
            answer.end(_ended(error), error)
        if answer.choices or calls:
            answer.choice(0).calls = list(calls.values())
        return answer


def _add(event: Any, answer: Answer, calls: dict[int, Call]) -> None:
    match event.event_type:
        case "step.start" if getattr(event.step, "name", None):
            calls[event.index] = Call(event.step.name, _text(event.step.arguments))
        case "step.delta":
            _delta(event, answer.choice(0), calls)
        case "interaction.status_update":
            _status(answer, event.status, event.usage)
        case "interaction.completed":
            _status(answer, event.interaction.status, event.interaction.usage)
        case "error":
            answer.ended = "error"


def _status(answer: Answer, status: str, usage: Any) -> None:
    answer.usage = _used(usage) or answer.usage
    if status in _RUNNING:
        return
    answer.choice(0).finish = status
    if status in _FAILURES:
        answer.ended = "error"


def _text(arguments: dict[str, Any]) -> str:
    """Arguments that came whole, as text; none stands for "they follow"."""
    return msgspec.json.encode(arguments).decode() if arguments else ""


def _delta(event: Any, said: Said, calls: dict[int, Call]) -> None:
    delta = event.delta
    match delta.type:
        case "text":
            said.text += delta.text
        case "thought_summary" if delta.content is not None:
            said.reasoning += getattr(delta.content, "text", None) or ""
        case "arguments_delta":
            call = calls.setdefault(event.index, Call())
            call.arguments = f"{call.arguments}{delta.arguments or ''}"


def _used(usage: Any) -> Used | None:
    if usage is None:
        return None
    given, tools = usage.total_input_tokens, usage.total_tool_use_tokens
    written, thoughts = usage.total_output_tokens, usage.total_thought_tokens
    return Used(
        input=None if given is None else given + (tools or 0),
        output=None if written is None and thoughts is None else (written or 0) + (thoughts or 0),
        total=usage.total_tokens,
        cached=usage.total_cached_tokens,
        reasoning_tokens=thoughts,
    )
