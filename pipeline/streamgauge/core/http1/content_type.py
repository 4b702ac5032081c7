"""Whether a response says that it is an event stream."""

from collections.abc import Iterable

EVENT_STREAM = "text/event-stream"


def says_event_stream(content_types: Iterable[str]) -> bool:
    """Whether one of the Content-Type fields' values names an event stream.

    A response has one such field with one type (RFC 9110, 8.3). Gateways double the field, or send "text/event-stream,
    text/event-stream" or two types in one value; clients read such a stream all the same.
    """
    types = (part for value in content_types for part in value.split(","))
    return any(part.partition(";")[0].strip().lower() == EVENT_STREAM for part in types)
