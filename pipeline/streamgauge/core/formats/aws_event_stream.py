"""AWS's binary event stream (`application/vnd.amazon.eventstream`): messages with headers and two checksums.

A message is: total length (4 bytes), length of the headers (4), CRC-32 of these 8 bytes, the headers, the payload, CRC-32 of
all before. A header is: length of its name (1 byte), the name, its type (1 byte), its value. All numbers are big-endian.

Sources: https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html (the encoding); botocore's
eventstream.py (limits, types of headers), and its service model bedrock-runtime/2023-09-30 (events and exceptions).

A damaged message is a fault: as in botocore, the stream cannot be read from there on.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from functools import lru_cache
from struct import error as StructError  # noqa: N812 - the library names it as a module's member
from struct import unpack_from

import msgspec

from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.reader import Content, json_line
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event
from streamgauge.core.safe_values import is_code, whole_number

# botocore's limits of a message (bytes).
MAX_HEADERS_BYTES = 128 * 1024
MAX_PAYLOAD_BYTES = 24 * 1024 * 1024

PRELUDE_BYTES = 12
_CRC_BYTES = 4
# The sizes of values of fixed size, by the type of a header. Texts (7) and bytes (6) have a length before them.
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES, _TEXT = 6, 7

# The event of InvokeModelWithResponseStream, and its member with the model's own event in base64.
_CHUNK, _PART = "chunk", "bytes"


class Message(msgspec.Struct):
    """One message. `headers`: those that are texts. `content`: its payload, or the ends of one above the event limit."""

    headers: Mapping[str, str]
    content: Event


def is_prelude(first: bytes) -> bool:
    """Whether a body begins with the prelude of a message, by its checksum. `first`: at least PRELUDE_BYTES."""
    return _lengths(first) is not None


def _lengths(prelude: bytes | bytearray) -> tuple[int, int] | None:
    """The lengths of headers and payload; None if the prelude is damaged or exceeds a limit."""
    if len(prelude) < PRELUDE_BYTES:
        return None
    total, headers, checksum = unpack_from("!III", prelude)
    payload = total - headers - PRELUDE_BYTES - _CRC_BYTES
    fits = headers <= MAX_HEADERS_BYTES and 0 <= payload <= MAX_PAYLOAD_BYTES
    return (headers, payload) if fits and zlib.crc32(prelude[:8]) == checksum else None


class MessageDecoder:
    """Decodes bytes into messages, incrementally. Never raises; memory stays below about twice `max_event_bytes`."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.fault = False
        self._cap = max_event_bytes
        self._held = bytearray()  # of the prelude and the headers, or of the last checksum
        self._payload = Content(max_event_bytes)
        self._lengths: tuple[int, int] | None = None  # once the prelude is whole
        self._headers: Mapping[str, str] | None = None  # once they are whole
        self._left = 0  # bytes of the payload that have not come
        self._crc = 0

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held of a message that has not ended."""
        return len(self._payload) + len(self._held)

    @property
    def is_pending(self) -> bool:
        """Whether a message has begun, and has not ended."""
        return bool(self._held) or self._headers is not None

    def discard(self) -> None:
        """Discard the pending payload."""
        self._payload.discard()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes."""
        messages: list[Message] = []
        at = 0
        if not (self.fault or self._held) and self._headers is None:
            at = self._take_whole(data, messages)
        while not self.fault and at < len(data):
            if self._headers is None:
                at = self._take_head(data, at)
            elif self._left:
                piece = data[at : at + self._left]
                self._payload.add(piece)
                self._crc = zlib.crc32(piece, self._crc)
                self._left -= len(piece)
                at += len(piece)
            else:
                at = self._hold(data, at, _CRC_BYTES)
                messages += self._end(self._headers) if len(self._held) == _CRC_BYTES else []
        return messages

    def _take_whole(self, data: bytes, messages: list[Message]) -> int:
        """Take the messages that `data` has whole and undamaged from its beginning; returns the position after them."""
        at = 0
        while (lengths := _lengths(data[at : at + PRELUDE_BYTES])) is not None:
            begin, end = at + PRELUDE_BYTES + lengths[0], at + PRELUDE_BYTES + sum(lengths)
            raw = data[at + PRELUDE_BYTES : begin]
            if len(data) < end + _CRC_BYTES or lengths[1] > self._cap or lengths[0] > _MAX_KNOWN_HEADERS:
                break
            headers = _known_headers(raw)
            if headers is None or zlib.crc32(data[at:end]) != unpack_from("!I", data, end)[0]:
                break
            messages.append(Message(headers, Event("", json_line(data[begin:end]))))
            at = end + _CRC_BYTES
        return at

    def _hold(self, data: bytes, at: int, size: int) -> int:
        """Hold bytes until there are `size`; returns the position after them."""
        piece = data[at : at + size - len(self._held)]
        self._held += piece
        return at + len(piece)

    def _take_head(self, data: bytes, at: int) -> int:
        """Take bytes of the prelude, then of the headers."""
        at = self._hold(data, at, PRELUDE_BYTES + (self._lengths[0] if self._lengths else 0))
        if self._lengths is None:
            if len(self._held) < PRELUDE_BYTES:
                return at
            self._lengths = _lengths(self._held)
            if self._lengths is None:
                self._break()
                return at
            at = self._hold(data, at, PRELUDE_BYTES + self._lengths[0])
        headers, payload = self._lengths
        if len(self._held) == PRELUDE_BYTES + headers:
            self._headers = _headers(bytes(self._held[PRELUDE_BYTES:]))
            if self._headers is None:
                self._break()
            self._crc, self._left = zlib.crc32(self._held), payload
            self._held.clear()
        return at

    def _end(self, headers: Mapping[str, str]) -> list[Message]:
        (checksum,) = unpack_from("!I", self._held)
        if checksum != self._crc:
            self._break()
            return []
        self._held.clear()
        self._headers = self._lengths = None
        return [Message(headers, self._payload.take())]

    def _break(self) -> None:
        self.fault = True
        self._held.clear()
        self._payload, self._headers = Content(), None


def _headers(raw: bytes) -> Mapping[str, str] | None:
    """The headers that are texts; None if they are damaged, or if a name occurs twice."""
    texts: dict[str, str] = {}
    names: set[bytes] = set()
    at = 0
    try:
        while at < len(raw):
            size = raw[at]
            name, kind = raw[at + 1 : at + 1 + size], raw[at + 1 + size]
            at += 2 + size
            if kind in _FIXED:
                size = _FIXED[kind]
            elif kind in (_BYTES, _TEXT):
                (size,) = unpack_from("!H", raw, at)
                at += 2
            else:
                return None
            value = raw[at : at + size]
            at += size
            if name in names or len(value) < size:
                return None
            names.add(name)
            if kind == _TEXT:
                texts[name.decode()] = value.decode()
            else:
                name.decode()
    except (IndexError, StructError, UnicodeDecodeError):  # it ends within a header, or is no UTF-8
        return None
    return texts


# The messages of a stream have few different headers. Longer ones than this are not kept (bytes).
_MAX_KNOWN_HEADERS = 512
_known_headers = lru_cache(64)(_headers)


class AwsEventReader:
    """Reads messages into events: see `reader.EventReader`.

    The name of an event is its `:event-type`. An exception or an error becomes an event named `error`, with its type. The
    model's own event of an InvokeModelWithResponseStream comes out of its base64.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._decoder = MessageDecoder(max_event_bytes)

    @property
    def fault(self) -> bool:
        """Whether a message was damaged."""
        return self._decoder.fault

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held of a message that has not ended."""
        return self._decoder.pending_bytes

    def feed(self, data: bytes) -> list[Event]:
        """The events of the messages that `data` ends."""
        return list(map(_event, self._decoder.feed(data)))

    def finish(self) -> Event | None:
        """An event without data that is whole, if a message has not ended: its checksum did not come."""
        return Event(data=b"") if self._decoder.is_pending else None

    def discard(self) -> None:
        """Discard the pending message."""
        self._decoder.discard()


def _event(message: Message) -> Event:
    headers, content = message.headers, message.content
    match headers.get(":message-type"):
        case "exception":
            return _error(headers.get(":exception-type"), content)
        case "error":  # https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html
            return _error(headers.get(":error-code"), content)
    name = headers.get(":event-type", "")
    content.name = name if is_code(name) else ""
    if name == _CHUNK and content.data is not None:
        return _model_event(content)
    return content


def _error(kind: str | None, content: Event) -> Event:
    """An error of this type. Of its payload only the status counts, which a modelStreamErrorException names."""
    members = parse(content.data or b"")
    status = whole_number(members.get("originalStatusCode")) if isinstance(members, dict) else None
    facts = {"type": kind if kind and is_code(kind) else None, "status_code": status}
    return Event("error", msgspec.json.encode({"error": facts}))


def _model_event(content: Event) -> Event:
    """The model's event within a chunk; the chunk itself if it holds none."""
    members = parse(content.data or b"")
    part = members.get(_PART) if isinstance(members, dict) else None
    if not isinstance(part, str):
        return content
    try:
        return Event("", json_line(base64.b64decode(part, validate=True)))
    except (binascii.Error, ValueError):
        return content
