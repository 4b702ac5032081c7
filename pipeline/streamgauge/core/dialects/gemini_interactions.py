"""Google's Interactions API: steps of a model or an agent, as typed events; interaction.completed ends the stream.

The JSON's `event_type` identifies an event (the event's name repeats it). Streams from before May 2026 have content.* events
instead of step.*, and interaction.start and .complete. Each usage is a running total, except `step_usage`. The counts of
input and output exclude thoughts and the tokens of tool use.

Sources: https://ai.google.dev/gemini-api/docs/streaming (events), https://ai.google.dev/api/interactions-api (resource),
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1beta1/Status, and google-genai's
types.interactions (Usage, Step, StepDeltaData).
"""

from collections.abc import Mapping

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import (
    KEEP_ERROR,
    KEEP_ERRORS,
    Data,
    DialectDefaults,
    ErrorFacts,
    Sink,
    WholeCall,
    error_in,
    is_no_call,
)
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.safe_values import safe_code, whole_number
from streamgauge.core.usage import UsageRules

_KEEP_MODALITIES: Spec = [{"modality": Kind.CODE, "tokens": Kind.COUNT}]
_KEEP_USAGE: dict[str, Spec] = {
    "total_input_tokens": Kind.COUNT,
    "total_output_tokens": Kind.COUNT,
    "total_thought_tokens": Kind.COUNT,
    "total_reasoning_tokens": Kind.COUNT,
    "total_tool_use_tokens": Kind.COUNT,
    "total_cached_tokens": Kind.COUNT,
    "total_tokens": Kind.COUNT,
    "initial_input_tokens": Kind.COUNT,
    "raw_prompt_token": Kind.COUNT,
    "input_tokens_by_modality": _KEEP_MODALITIES,
    "output_tokens_by_modality": _KEEP_MODALITIES,
    "tool_use_tokens_by_modality": _KEEP_MODALITIES,
    "cached_tokens_by_modality": _KEEP_MODALITIES,
    "grounding_tool_count": [{"type": Kind.CODE, "count": Kind.COUNT, "search_query_count": Kind.COUNT}],
}
_KEEP_CONTENT: Mapping[str, Spec] = {"type": Kind.CODE, "text": Kind.TEXT, "data": Kind.TEXT}
# All members of a step, of a piece of a step, and (before there were steps) of a piece of content.
_KEEP_STEP: Spec = {
    **_KEEP_CONTENT,
    "id": Kind.ID,
    "name": Kind.ID,
    "arguments": Kind.ARGUMENTS,
    "content": (_KEEP_CONTENT, [_KEEP_CONTENT]),
    "summary": (_KEEP_CONTENT, [_KEEP_CONTENT]),
    "error": KEEP_ERROR,
}
_KEEP_INTERACTION: dict[str, Spec] = {
    "object": Kind.CODE,
    "id": Kind.ID,
    "status": Kind.CODE,
    "model": Kind.ID,
    "service_tier": Kind.CODE,
    "usage": _KEEP_USAGE,
    "errors": [KEEP_ERROR],
    "steps": [_KEEP_STEP],
    "outputs": [_KEEP_STEP],
}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    "event_type": Kind.CODE,
    "event_id": Kind.ID,
    "interaction": _KEEP_INTERACTION,
    "interaction_id": Kind.ID,
    "status": Kind.CODE,
    "index": Kind.COUNT,
    "step": _KEEP_STEP,
    "content": _KEEP_STEP,
    "delta": _KEEP_STEP,
    "usage": _KEEP_USAGE,
    "metadata": {"total_usage": _KEEP_USAGE},
}
KEEP_BODY: dict[str, Spec] = {**KEEP_ERRORS, **_KEEP_INTERACTION}

_TERMINALS = {"interaction.completed", "interaction.complete"}
_STEPS = {"step.start": "step", "step.delta": "delta", "content.start": "content", "content.delta": "delta"}
_EVENTS = {
    "interaction.created",
    "interaction.start",
    "interaction.status_update",
    "step.stop",
    "content.stop",
    *_STEPS,
    *_TERMINALS,
}

# Statuses of an interaction that has not ended.
_RUNNING = {"in_progress", "queued"}
# Statuses with a normal reason in this dialect only: an OpenAI response can be `incomplete` as well, but gives the
# reason elsewhere.
_NORMAL = {"incomplete": "length"}

# What a step or a piece of a step carries, by its type. Other types are results, signatures and the user's own input.
_REASONING = {"thought", "thought_summary"}
_OUTPUT = {"text", "model_output", "audio", "image", "video", "document"} | _REASONING
_ARGUMENTS = "arguments_delta"
# The server executes every other call; such a call may have no name but its type.
_CLIENT_CALL = "function_call"
_JSON_CALLS = {_CLIENT_CALL, "mcp_server_tool_call"}


class GeminiInteractions(DialectDefaults):
    """Gemini's Interactions API."""

    name = "gemini-interactions"
    endpoint = "/interactions"
    paths = ("/interactions",)
    keep = KEEP
    keep_body = KEEP_BODY
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("total_input_tokens",),
        input_parts=("total_tool_use_tokens",),
        output=("total_output_tokens",),
        total=("total_tokens",),
        cached=("total_cached_tokens",),
        reasoning=("total_thought_tokens", "total_reasoning_tokens"),
        reasoning_outside=True,
        audio_input=("input_tokens_by_modality.modality=audio.tokens",),
        audio_output=("output_tokens_by_modality.modality=audio.tokens",),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By `event_type`, which may be `error`, or by the name of an event without one."""
        kind = data.get("event_type")
        if kind is None:
            return event in _EVENTS and bool(data)
        return isinstance(kind, str) and (kind in _EVENTS or kind == "error")

    def recognises_body(self, data: Data) -> bool:
        """By `object: interaction`, or by a `status` beside a list of steps or outputs."""
        if data.get("object") == "interaction":
            return True
        return isinstance(data.get("status"), str) and any(isinstance(data.get(n), list) for n in ("steps", "outputs"))

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports a step, the state of the interaction and its usage; one event may carry all three."""
        event_type = data.get("event_type")
        kind = event_type if isinstance(event_type, str) else event
        if kind in _STEPS:
            _read_step(whole_number(data.get("index")) or 0, data.get(_STEPS[kind]), sink)
        elif kind == "error":
            sink.error(ErrorFacts())  # even without details; `error_in` reads the details
        interaction = data.get("interaction")
        if isinstance(interaction, dict):
            if kind in _TERMINALS:
                _read_whole(interaction, sink)
            _read_interaction(interaction, sink, ended=kind in _TERMINALS)
        elif kind == "interaction.status_update":
            sink.identify(data.get("interaction_id"))
            _read_status(data, sink)
        if kind in _TERMINALS:
            sink.terminal()
        _read_usage(data, interaction, sink)

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A terminal by its type, with what comes before the steps, and with the usage after them."""
        first = first_members(head)
        last = last_members(tail, b'{"interaction":{', "usage") or last_members(tail, b"{", "event_type")
        kind = {**first, **last}.get("event_type", event)
        if not isinstance(kind, str) or kind not in _TERMINALS:
            return {} if self.recognises(event, {**first, **last}) else None
        parts = [part for members in (first, last) if isinstance(part := members.get("interaction"), dict)]
        interaction = {
            name: value for part in parts for name, value in part.items() if name not in ("steps", "outputs")
        }
        return {**first, **last, "event_type": kind, "interaction": interaction}

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports all steps, or the `outputs` of versions before steps existed."""
        for index, step in enumerate(_steps_of(data)):
            _read_step(index, step, sink)
        _read_interaction(data, sink, ended=True)
        sink.terminal()
        sink.usage(data.get("usage"))


def _steps_of(interaction: Data) -> list[object]:
    listed = interaction.get("steps")
    steps = listed if isinstance(listed, list) else interaction.get("outputs")
    return steps if isinstance(steps, list) else []


def _read_whole(interaction: Data, sink: Sink) -> None:
    """Reads the steps of a completed interaction: what no earlier event brought of them is output."""
    steps = [step for step in _steps_of(interaction) if isinstance(step, dict)]
    if not steps:
        return
    sink.closes()
    for step in steps:
        if isinstance(kind := step.get("type", "text"), str) and kind in _OUTPUT:
            _read_output(kind, step, sink)
    calls = [step for step in steps if _is_call(step.get("type"))]
    sink.whole_calls(0, [_whole_call(step) for step in calls if not _is_empty_call(step)])


def _whole_call(step: Data) -> WholeCall:
    kind = step["type"]
    json = kind in _JSON_CALLS
    return WholeCall(step.get("name"), step.get("arguments") or None, step.get("id"), kind == _CLIENT_CALL, json)


def _is_call(kind: object) -> bool:
    return isinstance(kind, str) and (safe_code(kind) or "").endswith("_call")


def _is_empty_call(step: Data) -> bool:
    """Whether a step is a client's call without name, id and arguments. A server's call needs none: its type is enough."""
    no_call = is_no_call(step.get("name"), step.get("id"), step.get("arguments"))
    return step.get("type") == _CLIENT_CALL and no_call


def _read_interaction(interaction: Data, sink: Sink, *, ended: bool) -> None:
    sink.identify(interaction.get("id"), interaction.get("model"), interaction.get("service_tier"))
    if ended:
        _read_end(interaction, sink)


def _read_usage(data: Data, interaction: object, sink: Sink) -> None:
    """Reads the running total from each place where an event may carry it."""
    metadata = data.get("metadata")
    sink.usage(metadata.get("total_usage") if isinstance(metadata, dict) else None)
    sink.usage(data.get("usage"))
    sink.usage(interaction.get("usage") if isinstance(interaction, dict) else None)


def _read_status(update: Data, sink: Sink) -> None:
    """Reads a status update; only a status that ends the interaction is reported."""
    status = update.get("status")
    if isinstance(status, str) and status not in _RUNNING:
        _read_end(update, sink)


def _read_end(interaction: Data, sink: Sink) -> None:
    status, errors = safe_code(interaction.get("status")), interaction.get("errors")
    if status == "failed" and isinstance(errors, list) and errors:
        _read_error(errors[0], sink)
    normal = None if status is None else _NORMAL.get(status)
    sink.finish(0, status, "tool_calls" if status == "completed" and sink.calls_client_tools(0) else normal)


def _read_error(error: object, sink: Sink) -> None:
    facts = error_in("", {"error": error})
    if facts is not None:
        sink.error(facts)


def _read_step(index: int, step: object, sink: Sink) -> None:
    if not isinstance(step, dict):
        return
    kind = step.get("type", "text")
    if not isinstance(kind, str):
        return
    if kind == _ARGUMENTS:
        _read_arguments(index, step.get("arguments"), sink)
    elif _is_call(kind):
        client, json = kind == _CLIENT_CALL, kind in _JSON_CALLS
        if _is_empty_call(step):
            return
        sink.tool(0, index, step.get("name"), call_id=step.get("id"), client=client, json=json)
        _read_arguments(index, step.get("arguments"), sink)
    elif kind in _OUTPUT:
        _read_output(kind, step, sink)


def _read_arguments(index: int, arguments: object, sink: Sink) -> None:
    if arguments:  # {} means that fragments follow
        sink.arguments(0, index, arguments)


def _read_output(kind: str, step: Data, sink: Sink) -> None:
    """Reads text, thoughts and media: in the step itself, in its content or, for a thought, in its summary."""
    _read_piece(kind, step, sink)
    for name in ("content", "summary"):
        pieces = step.get(name)
        for piece in pieces if isinstance(pieces, list) else (pieces,):
            if isinstance(piece, dict):
                _read_piece(kind, piece, sink)
    if isinstance(step.get("error"), dict):
        _read_error(step["error"], sink)


def _read_piece(kind: str, piece: Data, sink: Sink) -> None:
    if kind in _REASONING:
        sink.reasoning(0, piece.get("text"), summary=True)
    else:
        sink.text(0, piece.get("text"))
        sink.media(0, piece.get("data"))
