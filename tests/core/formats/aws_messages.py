"""Messages of AWS's binary event stream, written plainly from its description; and hostile ones."""

import base64
import json
import struct
import zlib
from collections.abc import Mapping

from botocore.eventstream import EventStreamBuffer, ParserError

from streamgauge.core.formats.aws_event_stream import MAX_HEADERS_BYTES, MAX_PAYLOAD_BYTES


def header(name: str, value: str) -> bytes:
    return (
        bytes((len(name.encode()),)) + name.encode() + b"\x07" + struct.pack("!H", len(value.encode())) + value.encode()
    )


def message(payload: bytes, headers: Mapping[str, str] | bytes = b"") -> bytes:
    """One message. `headers`: by name, or their bytes."""
    raw = headers if isinstance(headers, bytes) else b"".join(header(*pair) for pair in headers.items())
    lengths = struct.pack("!II", 16 + len(raw) + len(payload), len(raw))
    begun = lengths + struct.pack("!I", zlib.crc32(lengths)) + raw + payload
    return begun + struct.pack("!I", zlib.crc32(begun))


def prelude(total: int, headers: int) -> bytes:
    """The first bytes of a message with these lengths, and the right checksum."""
    lengths = struct.pack("!II", total, headers)
    return lengths + struct.pack("!I", zlib.crc32(lengths))


def event(kind: str, payload: bytes) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return message(payload, headers)


def exception(kind: str, members: Mapping[str, object]) -> bytes:
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return message(json.dumps(members).encode(), headers)


def chunk(payload: bytes) -> bytes:
    """A model's own event, as InvokeModelWithResponseStream sends it."""
    return event("chunk", json.dumps({"bytes": base64.b64encode(payload).decode(), "p": "abc"}).encode())


def botocores(data: bytes) -> tuple[list[tuple[dict[str, object], bytes]], bool]:
    """The messages that botocore reads, and whether it raises."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    found = []
    try:
        for one in buffer:
            found.append((one.headers, one.payload))
    except (ParserError, struct.error, KeyError, UnicodeDecodeError, IndexError):
        return found, True
    return found, False


def alike(payload: bytes) -> bytes:
    """A payload as an event has it: on one line, without blanks around it, as UTF-8."""
    line = payload.lstrip(b" \t\r\n").rstrip(b" \t\r\n")
    return line.replace(b"\r", b" ").replace(b"\n", b" ").decode("utf-8", "replace").encode()


# Messages after which nothing can be read, by what is wrong.
HOSTILE = {
    "headers above the limit": prelude(MAX_HEADERS_BYTES + 100, MAX_HEADERS_BYTES + 1),
    "a payload above the limit": prelude(MAX_PAYLOAD_BYTES + 17, 0),
    "headers beyond the message": prelude(20, 5),
    "a message shorter than its frame": prelude(15, 0),
    "a length of 0": prelude(0, 0),
    "4 GiB": prelude(2**32 - 1, 0),
    "4 GiB of headers": prelude(2**32 - 1, 2**32 - 17),
    "a wrong checksum of the prelude": message(b"{}")[:11] + b"x",
    "a wrong checksum of the message": message(b"{}")[:-1] + b"x",
    "a header twice": message(b"{}", header("a", "b") * 2),
    "an unknown type": message(b"{}", b"\1a\x0a"),
    "a text beyond the headers": message(b"{}", b"\1a\7\0\5ab"),
    "a name that is no UTF-8": message(b"{}", b"\1\xff\7\0\0"),
    "a value that is no UTF-8": message(b"{}", b"\1a\7\0\1\xff"),
}
