"""The members of a WebSocket's events by which they are routed. All others are skipped."""

import msgspec

from streamgauge.core.formats.cut_json import first_members
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import Event
from streamgauge.core.safe_values import whole_number

# Names of lanes and ids are compared up to this length (characters).
MAX_NAME = 256


class Routed(msgspec.Struct, frozen=True):
    """What an event says about its place. `lane`: its `stream_id`; `previous`: the `previous_response_id` of the event, or of
    its response; `id`: of its response. `is_numbered`: it has a sequence number. `is_warm_up`: it asks for no output.
    `event_id`: its own; `caused_by`: that of the client's event which an error is about.
    """

    type: str | None = None
    lane: str | None = None
    id: str | None = None
    previous: str | None = None
    is_numbered: bool = False
    is_warm_up: bool = False
    event_id: str | None = None
    caused_by: str | None = None


class _Error(msgspec.Struct):
    event_id: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    previous_response_id: str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    stream_id: str | None = None
    previous_response_id: str | None = None
    sequence_number: int | None = None
    generate: bool | None = None
    response: _Response | None = None
    response_id: str | None = None
    event_id: str | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Event).decode


def routed(event: Event) -> Routed:
    """The place of an event; all None for one that is no JSON object. Of an oversized event its first members count."""
    if event.data is None:
        return _of_members(first_members(event.cut[0]) if event.cut is not None else None)
    try:
        known = _decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _of_members(parse(event.data))
    response = known.response or _Response()
    return Routed(
        known.type,
        _name(known.stream_id),
        _name(response.id or known.response_id),
        _name(known.previous_response_id or response.previous_response_id),
        known.sequence_number is not None,
        known.generate is False,
        _name(known.event_id),
        _name(known.error.event_id) if known.error is not None else None,
    )


def _of_members(members: object) -> Routed:
    """The place by members of any type, of which those with the right type count."""
    if not isinstance(members, dict):
        return Routed()
    part = members.get("response")
    response = part if isinstance(part, dict) else {}
    error = members.get("error")
    kind = members.get("type")
    return Routed(
        kind if isinstance(kind, str) else None,
        _name(members.get("stream_id")),
        _name(response.get("id")) or _name(members.get("response_id")),
        _name(members.get("previous_response_id")) or _name(response.get("previous_response_id")),
        whole_number(members.get("sequence_number")) is not None,
        members.get("generate") is False,
        _name(members.get("event_id")),
        _name(error.get("event_id")) if isinstance(error, dict) else None,
    )


def _name(value: object) -> str | None:
    return value[:MAX_NAME] if isinstance(value, str) else None
