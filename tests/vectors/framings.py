"""Vectors in other framings than server-sent events: the same events, as lines or an array of JSON, or in AWS's messages."""

from collections.abc import Callable

import msgspec

from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import Event, SseDecoder
from tests.core.formats import aws_messages
from tests.vectors.load import Vector


def json_lines(events: list[Event]) -> list[bytes] | None:
    """An event a line; None if an event has a name, or is no object."""
    return None if any(map(is_more_than_an_object, events)) else [(event.data or b"") + b"\n" for event in events]


def json_array(events: list[Event]) -> list[bytes] | None:
    """An event an element, as Gemini cuts them: a comma begins the next one."""
    if not events or any(map(is_more_than_an_object, events)):
        return None
    first, *others = events
    return [b"[" + (first.data or b""), *[b"\n,\r\n" + (event.data or b"") for event in others], b"\n]"]


def is_more_than_an_object(event: Event) -> bool:
    value = parse(event.data or b"")
    fields = (event.name, event.id, event.retry, event.error, event.bare)
    return any(fields) or event.comments > 0 or not isinstance(value, dict) or b"\n" in (event.data or b"")


def aws_events(events: list[Event]) -> list[bytes] | None:
    """An event a message, its name as `:event-type`; an event named `error` as an exception. None if an event has more."""
    if any(map(is_more_than_a_name, events)):
        return None
    return [aws_error(event.data or b"") or aws_messages.event(event.name, event.data or b"") for event in events]


def aws_chunks(events: list[Event]) -> list[bytes] | None:
    """An event a chunk, as a model's own events come; None if an event but an exception has a name."""
    sent = [event for event in events if not (event.name == "error" and aws_error(event.data or b""))]
    if any(map(is_more_than_an_object, sent)):
        return None
    return [aws_error(event.data or b"") or aws_messages.chunk(event.data or b"") for event in events]


def aws_error(data: bytes) -> bytes | None:
    """The exception that the reader gives as this data; None if it is none."""
    value = parse(data)
    error = value.get("error") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(error, dict) or error.keys() != {"type", "status_code"}:
        return None
    status = error["status_code"]
    more = {} if status is None else {"originalStatusCode": status}
    return aws_messages.exception(error["type"], {"message": "a sentence", **more})


def is_more_than_a_name(event: Event) -> bool:
    data = event.data
    fields = (event.id, event.retry, event.error, event.bare)
    return any(fields) or event.comments > 0 or data is None or b"\n" in data or data != data.strip()


class Framing(msgspec.Struct, frozen=True):
    """`write` gives the piece of each event, and what follows the last one; None if the framing cannot carry the events."""

    name: str
    content_type: str
    write: Callable[[list[Event]], list[bytes] | None]


FRAMINGS = [
    Framing("json lines", "application/x-ndjson", json_lines),
    Framing("json array", "application/json", json_array),
    Framing("aws events", "application/vnd.amazon.eventstream", aws_events),
    Framing("aws chunks", "application/vnd.amazon.eventstream", aws_chunks),
]
# The framing that a provider of the dialect sends, where it is not server-sent events.
OF_DIALECT = {
    "ollama": FRAMINGS[0],
    "cohere-v1": FRAMINGS[0],
    "bedrock-converse": FRAMINGS[2],
    "bedrock-text": FRAMINGS[3],
}


def events_of(vector: Vector) -> list[Event] | None:
    """The events of a vector; None if one of them is not whole."""
    decoder = SseDecoder()
    events = decoder.feed(vector.body)
    return None if decoder.finish() else events


def framed(vector: Vector, framing: Framing) -> tuple[Vector, list[bytes]] | None:
    """The vector in another framing, and its pieces; None if the framing cannot carry it."""
    events = events_of(vector)
    pieces = None if events is None or not vector.is_stream or vector.status >= 300 else framing.write(events)
    if not pieces:
        return None
    if framing.name == "json array" and not vector.record.get("response_model"):
        return None  # of an array only the first element shows whether it is a stream
    return msgspec.structs.replace(vector, body=b"".join(pieces), content_type=framing.content_type), pieces


def as_sent(vector: Vector) -> Vector:
    """The vector as its provider sends it; its last event may be half a one."""
    if not vector.is_stream or vector.dialect not in OF_DIALECT:
        return vector
    framing, decoder = OF_DIALECT[vector.dialect], SseDecoder()
    pieces = framing.write(decoder.feed(vector.body))
    assert pieces is not None, vector.name
    half = decoder.finish()
    body = b"".join(pieces) + (b"" if half is None else half.data or b"")
    return msgspec.structs.replace(vector, body=body, content_type=framing.content_type)
