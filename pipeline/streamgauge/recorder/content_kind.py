"""The kind of a response's content: how its events are framed, or one whole answer. Its first bytes decide.

The type that the head names decides only where the bytes do not: gateways and recordings change it, and some servers send
lines or an array of JSON as `application/json`. So of such a content the first line or element is read: it begins a stream if
a dialect recognises it as an event, and not as a whole answer. An event is complete then, so none gets a later time.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto

from streamgauge.core.dialects import recognised, recognised_body
from streamgauge.core.formats.aws_event_stream import PRELUDE_BYTES, is_prelude
from streamgauge.core.formats.json_array import JsonArrayReader
from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.reader import BLANKS, EventReader
from streamgauge.core.formats.sse import BOM, MAX_EVENT_BYTES
from streamgauge.core.http1.head import AWS_EVENT_STREAM, JSON_LINES, ResponseHead, media_types
from streamgauge.recorder.response_head import MAX_SNIFF_BYTES, Expected, expected_of, is_event_stream

# How much of a JSON content is held until its first line or element is whole (bytes). It is not charged to the budget.
MAX_FIRST_EVENT = 16 * 1024
# Endpoints that send their stream as an array: one whose first element is longer is a stream nevertheless.
_SENDS_ARRAYS = frozenset((":streamGenerateContent",))


class ContentKind(Enum):
    """How the events of a content are framed. WHOLE: it is one answer."""

    SSE = auto()
    LINES = auto()
    ARRAY = auto()
    AWS_EVENTS = auto()
    WHOLE = auto()


class KindDetector:
    """Finds the kind of one content, fed as it arrives.

    `head`: None for a recording, which is a stream unless it begins as JSON or HTML do. `path`: the endpoint's template.
    """

    def __init__(self, head: ResponseHead | None, path: str | None) -> None:
        self._expected = Expected.EVENTS if head is None else expected_of(head)
        types = frozenset[str]() if head is None else media_types(head.all("content-type"))
        self._names_lines = self._expected is Expected.OTHER and not JSON_LINES.isdisjoint(types)
        self._names_aws = self._expected is Expected.OTHER and AWS_EVENT_STREAM in types
        self._longest_first = MAX_EVENT_BYTES if head is None else MAX_FIRST_EVENT
        self._sends_array = path in _SENDS_ARRAYS
        self._first = bytearray()
        self._reader: EventReader | None = None  # of the first line or element
        self._read = 0  # how many of the first bytes it has

    @property
    def announced(self) -> ContentKind:
        """The kind of an empty content."""
        if self._names_aws:
            return ContentKind.AWS_EVENTS
        if self._names_lines:
            return ContentKind.LINES
        return ContentKind.SSE if is_event_stream(self._expected, b"", over=True) else ContentKind.WHOLE

    @property
    def first(self) -> bytes:
        """The bytes that were fed, without a byte order mark before JSON."""
        first = bytes(self._first)
        return first.removeprefix(BOM) if self._reader is not None or self._names_lines else first

    def feed(self, data: bytes) -> ContentKind | None:
        """The kind, once the content's bytes so far show it; None before."""
        self._first += data
        return self._kind(over=False)

    def finish(self) -> ContentKind:
        """The kind of a content that has ended."""
        return self._kind(over=True) or ContentKind.WHOLE

    def _kind(self, *, over: bool) -> ContentKind | None:
        if self._names_aws or (self._expected in _MAY_BE_JSON and self._first[:1] in _AWS_BEGINS):
            if self._names_aws or is_prelude(bytes(self._first[:PRELUDE_BYTES])):
                return ContentKind.AWS_EVENTS
            if len(self._first) < PRELUDE_BYTES and not over:
                return None
        if self._reader is None:
            text = bytes(self._first[:MAX_SNIFF_BYTES]).removeprefix(BOM).lstrip(BLANKS)
            if self._names_lines:
                return ContentKind.LINES if text or over else None
            if self._expected not in _MAY_BE_JSON or text[:1] not in _READERS:
                is_sse = is_event_stream(self._expected, bytes(self._first), over=over)
                return None if is_sse is None else ContentKind.SSE if is_sse else ContentKind.WHOLE
            self._reader = _READERS[text[:1]]()
        return self._kind_of_json(self._reader, over=over)

    def _kind_of_json(self, reader: EventReader, *, over: bool) -> ContentKind | None:
        kind = ContentKind.LINES if isinstance(reader, JsonLinesReader) else ContentKind.ARRAY
        events = reader.feed(self.first[self._read : self._longest_first])
        self._read = min(len(self.first), self._longest_first)
        if events:
            value = parse(events[0].data or b"")
            is_whole = kind is ContentKind.LINES and recognised_body(value) is not None
            return kind if recognised("", value) is not None and not is_whole else ContentKind.WHOLE
        if over or reader.fault:
            return ContentKind.WHOLE
        if self._read == self._longest_first:
            return kind if self._sends_array and kind is ContentKind.ARRAY else ContentKind.WHOLE
        return None


# The first byte of a prelude: its length is below MAX_PAYLOAD_BYTES and some.
_AWS_BEGINS = (b"\0", b"\1")
_MAY_BE_JSON = (Expected.EVENTS, Expected.OTHER)
_READERS: Mapping[bytes, Callable[[], EventReader]] = {b"{": JsonLinesReader, b"[": JsonArrayReader}
