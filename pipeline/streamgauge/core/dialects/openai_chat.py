"""OpenAI chat completions, and the many servers that implement it (`object: chat.completion.chunk`).

Servers differ in their data: reasoning and usage have several names (`openai_chat_tables.py`), text may also be under `text`
or `message`, and tool calls are identified by index, id or position.
"""

import re
from collections.abc import Callable

from streamgauge.core.dialects.contract import Data, DialectDefaults, Sink, WholeCall, error_in, is_no_call
from streamgauge.core.dialects.deltas import ABSENT, Delta, Deltas, Output
from streamgauge.core.dialects.openai_chat_tables import (
    CHOICE_ERROR,
    CHOICE_USAGE,
    CLOSING,
    ERRORS,
    KEEP,
    MODELS,
    PROVIDER_TIMING,
    REASONING,
    REASONING_PART,
    REASONING_PARTS,
    REASONING_SUMMARY,
    ROUTED_MODELS,
    USAGES,
    WRAPPERS,
)
from streamgauge.core.dialects.openai_usage import USAGE
from streamgauge.core.formats.cut_json import element_of, first_members, last_members
from streamgauge.core.outcome import normal_reason, reason_label
from streamgauge.core.safe_values import MAX_SAFE_INTEGER, finite_number, safe_code, whole_number

_DECIMAL = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")

# The key of the one call in the deprecated `function_call` member. The index of a tool call is never negative.
FUNCTION_CALL_KEY = -1
# The key of calls whose members lie in the delta itself; their ids identify them.
FLAT_CALL_KEY = -2
# The members of an entry that hold a call, the member of these with its arguments, and whether these are JSON: a custom
# tool's input is free text (platform.openai.com/docs, custom tools).
_KINDS_OF_CALLS = (("function", "arguments", True), ("custom", "input", False))

# The members of a choice that hold its output, without output.
_NO_OUTPUT: Data = {"delta": {}, "message": {}, "text": ""}

# The object of a whole response.
_WHOLE = "chat.completion"

_DELTA = "choices.delta"
_CALL = f"{_DELTA}.tool_calls"
_REASONING_NAMES = (*REASONING, REASONING_PARTS)

_DELTAS = Deltas(
    kinds=(
        Delta(Output.TEXT, f"{_DELTA}.content"),
        # The first of several names counts.
        *(
            Delta(
                Output.REASONING,
                f"{_DELTA}.{name}",
                unread=frozenset(
                    [f"{_DELTA}.{other}" for other in _REASONING_NAMES[_REASONING_NAMES.index(name) + 1 :]]
                ),
            )
            for name in REASONING
        ),
        Delta(Output.REFUSAL, f"{_DELTA}.refusal"),
        Delta(
            Output.ARGUMENTS,
            f"{_CALL}.function.arguments",
            when={f"{_CALL}.id": ("", None, ABSENT), f"{_CALL}.function.name": ("", None, ABSENT)},
            unread=frozenset((f"{_CALL}.type",)),
            client=True,
        ),
    ),
    when={"object": ("chat.completion.chunk", ABSENT)},
    # Beside a delta, the other members of a choice that may hold output are not read.
    unread=frozenset(("created", "system_fingerprint"))
    | {f"{_DELTA}.role", "choices.message", "choices.text", *(f"choices.{name}" for name in _REASONING_NAMES)}
    | {f"{_DELTA}.name", f"{_DELTA}.tool_use_id", f"{_DELTA}.input"},  # of a call, which has a `type`
    choice="choices.index",
    key=f"{_CALL}.index",
    response_id=("id",),
    model=MODELS,
    tier=("service_tier",),
    usage="usage",
    timed=frozenset([path for dotted, *_ in PROVIDER_TIMING for path in dotted.split() if path.startswith("usage.")]),
)


class OpenAIChat(DialectDefaults):
    """OpenAI's chat completions, and the servers that imitate them."""

    name = "openai-chat"
    endpoint = "/chat/completions"
    paths = ("/chat/completions",)
    keep = KEEP
    keep_body = KEEP
    usage = USAGE
    finish_is_terminal = True
    done_is_terminal = True
    deltas = _DELTAS

    def recognises(self, event: str, data: Data) -> bool:
        """By `object`; without it by an unnamed event with empty `choices`, or by a choice with a delta or a message.

        The same inside of a wrapper, of which `choices` suffice.
        """
        kind = data.get("object")
        if kind == "chat.completion.chunk" or (safe_code(kind) or "").startswith("chat.completion"):
            return True
        if kind == "text_completion":
            return False  # a legacy completion, even if it has a delta
        choices = data.get("choices")
        if choices == [] and not event:
            return True  # usage alone, or filter results for the prompt (Azure): no other dialect sends it
        if choices is None:
            chunk = _chunk_of(data)
            return chunk is not data and (isinstance(chunk.get("choices"), list) or self.recognises(event, chunk))
        return any("delta" in choice or "message" in choice for choice in choices_of(data))

    def recognises_body(self, data: Data) -> bool:
        """Recognises it as an unnamed event: a choice has a message."""
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink, *, whole: bool = False) -> None:
        """Reports a chunk, or a whole response; its finish reasons and a [DONE] end the stream."""
        if "choices" not in data and (chunk := _chunk_of(data)) is not data:
            if facts := error_in("", {"error": chunk.get("error")}):
                sink.error(facts)
            data = chunk
        usage, model, tier = data.get(_USAGE), data.get(_MODEL), data.get("service_tier")
        has_more = not _MORE.isdisjoint(data)
        if has_more:
            usage, model = _first_present(data, _USAGES), _first_present(data, _MODELS)
        if tier is None and type(usage) is dict:
            tier = usage.get("service_tier")  # Mistral
        sink.identify(data.get("id"), model, tier)
        closes = not whole and data.get("object") in CLOSING and _is_closing(data)
        if closes:
            sink.closes()
        choices = data.get("choices")
        for position, choice in enumerate(choices if type(choices) is list else ()):
            if type(choice) is dict:
                _read_choice(position, choice, sink, whole or closes, closes)
                if usage is None:
                    usage = choice.get(CHOICE_USAGE)
        if usage is not None:
            sink.usage(usage)
        if has_more or (type(usage) is dict and not _OWN_IN_USAGE.isdisjoint(usage)):
            _read_provider({**data, _USAGE: usage}, sink)

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the message of each choice, and ends the stream."""
        self.read("", data, sink, whole=True)
        sink.terminal()

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A chunk by the finish reason of its choice, before the output or after it; usage comes after the choice."""
        first = first_members(head)
        last = last_members(tail, b'{"choices":[{', "finish_reason") or last_members(tail, b"{", "usage")
        choice = element_of(first, last, "choices")
        if "finish_reason" not in choice:
            return None
        empty = {name: nothing for name, nothing in _NO_OUTPUT.items() if name in choice}
        return {**first, **last, "choices": [{**choice, **empty}]}

    def usage_after_done(self, data: Data) -> object:
        """The usage of a chunk without output. A chunk with output begins another response, which is not of this stream."""
        chunk = data if "choices" in data else _chunk_of(data)
        choices = choices_of(chunk)
        if any(_has_output(choice) for choice in choices):
            return None
        usage = _first_present(chunk, _USAGES)
        return usage or next((reported for choice in choices if (reported := choice.get(CHOICE_USAGE))), usage)


def choices_of(data: Data) -> list[Data]:
    """The choices of a chunk."""
    listed = data.get("choices")
    return [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []


def _chunk_of(data: Data) -> Data:
    """The chunk inside of a wrapper; the data itself if there is none."""
    return next((inner for name in WRAPPERS if isinstance(inner := data.get(name), dict)), data)


def _is_closing(data: Data) -> bool:
    """Whether an event whose object is one of CLOSING repeats the output: it has messages, and no delta with new output.

    Perplexity's event of that kind may have no message at all.
    """
    if data.get("object") != _WHOLE:
        return True
    choices = choices_of(data)
    has_message = any(isinstance(choice.get("message"), dict) for choice in choices)
    return has_message and not any(_has_output({"delta": choice.get("delta")}) for choice in choices)


def _read_choice(position: int, choice: Data, sink: Sink, is_whole: bool, closes: bool) -> None:
    """Reads a choice. Without an index it gets its position in the list. `is_whole`: as in `_message_of`.

    `closes`: earlier events may have reported the same output.
    """
    own_index = choice.get("index")
    index = own_index if type(own_index) is int and 0 <= own_index <= MAX_SAFE_INTEGER else position
    sink.choice(index)
    message = choice.get("delta")
    if is_whole or type(message) is not dict:
        message = _message_of(choice, is_whole)
    content = message.get("content")
    if type(content) is list:
        _read_parts(index, content, sink)
    elif content is not None:
        sink.text(index, content)
    if not _BESIDE_CONTENT.isdisjoint(message):
        _read_beside_content(index, message, sink, closes)
    reason, native = choice.get("finish_reason"), choice.get("native_finish_reason")
    if reason is not None:
        sink.finish(index, reason)
    if native is not None and normal_reason(reason_label(native) or "") == "error":
        sink.finish(index, native)  # OpenRouter: the reason of the server that it called, whatever its own is
    if CHOICE_ERROR in choice and (facts := error_in("", {"error": choice[CHOICE_ERROR]})):
        sink.error(facts)


def _message_of(choice: Data, is_whole: bool) -> Data:
    """The first of delta, text and message that is present: it holds the new output. Empty if there is none.

    Together sends two of them, and Perplexity's message beside a delta is a running total. `is_whole`: in a whole response
    and in a closing event the message holds all output; Perplexity sends an empty delta beside it.
    """
    delta, text, message = choice.get("delta"), choice.get("text"), choice.get("message")
    if is_whole and type(message) is dict:
        return message
    if type(delta) is dict:
        return delta
    if type(text) is str:
        return {"content": text, **{name: choice[name] for name in _REASONS & choice.keys()}}
    return message if type(message) is dict else {}


def _read_beside_content(index: int, message: Data, sink: Sink, closes: bool) -> None:
    for name, value in message.items():
        if value is not None and (read := _READERS.get(name)) is not None and not (closes and name in _CALLS):
            read(index, value, sink)
    _read_reasoning(index, message, sink)
    if closes:
        sink.whole_calls(index, _whole_calls(message))
    elif message.get("type") == "tool_use":
        _read_flat_call(index, message, sink)


def _whole_calls(message: Data) -> list[WholeCall]:
    """All calls of a message that repeats them."""
    listed = message.get("tool_calls")
    calls = [call for call in (listed if isinstance(listed, list) else (listed,)) if isinstance(call, dict)]
    whole = [
        WholeCall(called.get("name"), called.get(text), call.get("id"), json=json)
        for call in calls
        for kind, text, json in _KINDS_OF_CALLS
        if isinstance(called := call.get(kind), dict)
    ]
    function = message.get("function_call")
    if isinstance(function, dict):
        whole.append(WholeCall(function.get("name"), function.get("arguments")))
    return [call for call in whole if not is_no_call(call.name, call.call_id, call.arguments)]


def _read_parts(index: int, content: list[object], sink: Sink) -> None:
    for part in content:
        if isinstance(part, dict):
            sink.text(index, part.get("text"))
            _read_thinking(index, part.get("thinking"), sink)


def _read_thinking(index: int, thinking: object, sink: Sink) -> None:
    if not isinstance(thinking, list):
        sink.reasoning(index, thinking)
        return
    for part in thinking:
        if isinstance(part, dict):
            sink.reasoning(index, part.get("text"))


def _read_reasoning(index: int, message: Data, sink: Sink) -> None:
    """Reads the first reasoning member that holds text; the others are copies.

    The parts show whether it is a summary, also where the text stands beside them. A part without text is encrypted.
    """
    listed = message.get(REASONING_PARTS)
    parts = [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []
    for name in REASONING:
        value = message.get(name)
        if isinstance(value, str) and value:
            sink.reasoning(index, value, summary=any(map(_is_summary, parts)))
            return
    for part in parts:
        sink.reasons()
        text = next((text for name in REASONING_PART if (text := part.get(name))), None)
        sink.reasoning(index, text, summary=_is_summary(part))


def _is_summary(part: Data) -> bool:
    return part.get("type") == REASONING_SUMMARY or bool(part.get("summary"))


def _read_audio(index: int, audio: object, sink: Sink) -> None:
    if isinstance(audio, dict):
        sink.media(index, audio.get("data") or audio.get("transcript"))


def _read_refusal(index: int, refusal: object, sink: Sink) -> None:
    sink.refusal(index, refusal)


def _read_tools(index: int, calls: object, sink: Sink) -> None:
    """Reads calls or fragments of calls: identified by index, else by id, else by position in the list.

    Two entries with one index in one list may be fragments of one call (vLLM with speculative decoding:
    https://github.com/openai/openai-python/issues/3203), or two whole calls (Gemini's own chat endpoint). They are two calls
    if the first has its arguments, and the second has a name and does not repeat the id of the first.
    """
    begun: dict[int, tuple[object, bool]] = {}  # by key: the last id, and whether an entry had arguments
    for position, call in enumerate(calls if isinstance(calls, list) else (calls,)):
        if not isinstance(call, dict):
            continue
        own_index, call_id = whole_number(call.get("index")), call.get("id")
        key = position if own_index is None else own_index
        name, arguments = _name_and_arguments(call)
        if is_no_call(name, call_id, arguments):
            continue
        known_id, is_whole = begun.get(key, (None, False))
        is_another = bool(name) and is_whole and (not call_id or call_id != known_id)
        _read_call(index, None if is_another else key, call, sink, indexed=own_index is not None)
        begun[key] = (call_id or known_id, is_whole or bool(arguments))


def _name_and_arguments(call: Data) -> tuple[object, object]:
    """The name and the arguments of an entry: of a function, or of a custom tool."""
    function, custom = call.get("function"), call.get("custom")
    called = function if isinstance(function, dict) else {}
    free = custom if isinstance(custom, dict) else {}
    return called.get("name") or free.get("name"), called.get("arguments") or free.get("input")


def _read_call(index: int, key: int | None, call: Data, sink: Sink, *, indexed: bool) -> None:
    call_id = call.get("id")
    for kind, text, json in _KINDS_OF_CALLS:
        called = call.get(kind)
        if isinstance(called, dict):
            name = called.get("name")
            sink.tool(index, key, name, call_id=call_id, json=json, indexed=indexed, in_pieces=indexed)
            sink.arguments(index, key, called.get(text), call_id, indexed=indexed)


def _read_deprecated(index: int, function: object, sink: Sink) -> None:
    if isinstance(function, dict) and not is_no_call(function.get("name"), None, function.get("arguments")):
        sink.tool(index, FUNCTION_CALL_KEY, function.get("name"), in_pieces=True)
        sink.arguments(index, FUNCTION_CALL_KEY, function.get("arguments"))


def _read_images(index: int, images: object, sink: Sink) -> None:
    for image in images if isinstance(images, list) else ():
        sink.media(index, _member(image, ("image_url", "url")))


def _read_flat_call(index: int, delta: Data, sink: Sink) -> None:
    """Reads a call whose members lie in the delta itself (Snowflake Cortex, docs.snowflake.com, complete: tool calling)."""
    name, call_id, arguments = delta.get("name"), delta.get("tool_use_id"), delta.get("input")
    if not is_no_call(name, call_id, arguments):
        sink.tool(index, FLAT_CALL_KEY, name, call_id=call_id)
        sink.arguments(index, FLAT_CALL_KEY, arguments, call_id)


# The members of a delta that carry output beside its content. Reasoning is not listed, because only one of its several
# names counts.
_READERS: dict[str, Callable[[int, object, Sink], None]] = {
    "refusal": _read_refusal,
    "audio": _read_audio,
    "tool_calls": _read_tools,
    "function_call": _read_deprecated,
    "images": _read_images,  # OpenRouter (openrouter.ai/docs, image generation)
}
_CALLS = frozenset(("tool_calls", "function_call"))
_REASONS = frozenset((*REASONING, REASONING_PARTS))
# The members of a delta that may carry output beside its content; `type`: of a call in the delta itself.
_BESIDE_CONTENT = _REASONS | {*_READERS, "type"}


def _has_output(choice: Data) -> bool:
    messages = [message for message in (choice.get("delta"), choice.get("message")) if isinstance(message, dict)]
    has_member = any(message.get(name) for message in messages for name in ("content", *_READERS, *_REASONS))
    return has_member or bool(choice.get("text"))


def _paths(*dotted: str) -> tuple[tuple[str, ...], ...]:
    """Dotted paths as tuples of keys."""
    return tuple(tuple(path.split(".")) for path in dotted)


def _member(data: object, path: tuple[str, ...]) -> object:
    """The value at a path of nested objects; None if there is none."""
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _first_present(data: object, paths: tuple[tuple[str, ...], ...]) -> object:
    """The first value at these paths that is not None; None if all are."""
    for path in paths:
        value = _member(data, path)
        if value is not None:
            return value
    return None


_MODELS, _USAGES, _ROUTED_MODELS, _ERRORS = _paths(*MODELS), _paths(*USAGES), _paths(*ROUTED_MODELS), _paths(*ERRORS)
_TIMING = [(_paths(*dotted.split()), name, unit) for dotted, name, unit in PROVIDER_TIMING]
_OWN = (*_ROUTED_MODELS, *_ERRORS, *(path for row in _TIMING for path in row[0]))
# The usual places of model and usage.
_MODEL, _USAGE = MODELS[0], USAGES[0]
# Members that most chunks do not have: other places of model and usage; routing, errors and times of the server.
_MORE = frozenset(path[0] for path in (*_MODELS, *_USAGES, *_OWN)) - {_MODEL, _USAGE}
# The same in usage.
_OWN_IN_USAGE = frozenset(path[1] for path in _OWN if path[0] == "usage")


def _read_provider(data: Data, sink: Sink) -> None:
    """Reads what the provider reports about its own routing and timing."""
    sink.identify(routed_model=_first_present(data, _ROUTED_MODELS))
    facts = error_in("", {"error": _first_present(data, _ERRORS)})
    if facts is not None:
        sink.error(facts)
    for paths, name, unit in _TIMING:
        claims = [claim for path in paths if (claim := _measure(_member(data, path))) is not None]
        if len(claims) == len(paths):
            sink.provider_timing(**{name: sum(claims) * unit})


def _measure(value: object) -> float | None:
    """A number, also one that is sent as text (Fireworks copies the values of its headers)."""
    return finite_number(float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value)
