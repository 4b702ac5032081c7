"""Checks whether the Content-Type of a response names an event stream."""

from collections.abc import Iterable

EVENT_STREAM = "text/event-stream"


def names_event_stream(content_types: Iterable[str]) -> bool:
    """Whether one of the values of Content-Type fields names an event stream.

    A response has one such field with one type (RFC 9110, 8.3). Gateways send the field twice, or send
    "text/event-stream, text/event-stream" or two types in one value; clients read such a stream nevertheless.
    """
    types = (part for value in content_types for part in value.split(","))
    return any(part.partition(";")[0].strip().lower() == EVENT_STREAM for part in types)
