"""The framings in which a model's events come, written plainly: for the bench of their readers.

Each carries the events of a dialect whose provider sends it; a chunk of AWS holds the event of a vendor.
"""

import base64
import struct
import zlib
from collections.abc import Callable

from streamgauge.core.formats.aws_event_stream import AwsEventReader
from streamgauge.core.formats.json_array import JsonArrayReader
from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.formats.reader import EventReader
from streamgauge.core.formats.sse import Event


def lines(events: list[Event]) -> list[bytes]:
    """A line of JSON an event."""
    return [(event.data or b"") + b"\n" for event in events]


def array(events: list[Event]) -> list[bytes]:
    """An element of an array an event; a comma begins the next one."""
    return [(b",\r\n" if place else b"[") + (event.data or b"") for place, event in enumerate(events)] + [b"]"]


def aws_events(events: list[Event]) -> list[bytes]:
    """A message of AWS's event stream an event, with its name as the type."""
    return [_message(event.name, event.data or b"") for event in events]


def aws_chunks(events: list[Event]) -> list[bytes]:
    """A message a chunk, in which the event of a model's vendor is base64."""
    coded = (base64.b64encode(event.data or b"").decode() for event in events)
    return [_message("chunk", f'{{"bytes":"{text}","p":"abcdefghij"}}'.encode()) for text in coded]


def _message(kind: str, payload: bytes) -> bytes:
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes((len(name),)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in named.items()
    )
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    begun = lengths + struct.pack("!I", zlib.crc32(lengths)) + headers + payload
    return begun + struct.pack("!I", zlib.crc32(begun))


# What is measured: the name of the framing, the dialect whose events it carries, how they are written, and their reader.
FRAMINGS: tuple[tuple[str, str, Callable[[list[Event]], list[bytes]], Callable[[], EventReader]], ...] = (
    ("lines of JSON", "ollama", lines, JsonLinesReader),
    ("array of JSON", "gemini", array, JsonArrayReader),
    ("AWS's event stream", "bedrock-converse", aws_events, AwsEventReader),
    ("AWS's event stream, chunks", "anthropic-messages", aws_chunks, AwsEventReader),
)
