"""Messages of AWS's binary event stream, written plainly from its description; and hostile ones."""

import base64
import json
import struct
import zlib
from collections.abc import Mapping


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
