"""Reads the head of an HTTP/1 response from raw bytes (RFC 9112, 2 to 5).

The upstream has sent the head, and its client reads it in its own way. So the reader is tolerant: LF alone ends a line,
obs-fold lines are joined, blank lines before the head and field lines without a name are skipped. Only bytes that are not an
HTTP/1 response head, or a head that is too large, are a fault. A head that clients may read differently is `ambiguous`.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

# One head with its line ends (bytes). Proxies and clients stop at 8 to 128 KiB; this limit is higher, so that every
# head that a client may accept is recorded.
MAX_HEAD_BYTES = 256 * 1024
# Field lines of one head that are kept. Clients stop at 100 to 1,000.
MAX_FIELDS = 1_000

_END = re.compile(rb"\n\r?\n")
_LINE_ENDS = re.compile(rb"[\r\n]+")
_BEGINNING = b"HTTP/1."
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: .*)?", re.DOTALL)
_FOLD = re.compile(rb"\r?\n[ \t]+")
# A character of a field's name (RFC 9110, 5.6.2).
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
# A head that all clients read alike, or refuse: RFC 9112's grammar, with LF alone as a line end. What it leaves out has two
# readings: http.client, for example, ignores each field after a line without a valid name, and a CR begins a line for it.
_ONE_READING = re.compile(rb"HTTP/1\.[01] [0-9]{3}(?: [\t -~\x80-\xff]*+)?(?:\r?\n%b++:[\t -~\x80-\xff]*+)*\r?" % TOKEN)
_BLANKS = " \t\r"
# A field's value must not hold CR or NUL: each is read as a space (RFC 9110, 5.5).
_TO_SPACE = str.maketrans("\r\0", "  ")

# The fields that decide about body and connection, in a head in lower case, with their values.
_DECIDING = re.compile(rb"\n(connection|content-(?:encoding|length|range|type)|transfer-encoding)[ \t]*:([^\n]*)")


class HeadFault(StrEnum):
    """Reasons why no head could be read."""

    NOT_HTTP = "not_http"
    TOO_LARGE = "too_large"


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a final response, with its first MAX_FIELDS fields. Names are lower-case, values stripped; both are
    Latin-1, which can hold any byte.
    """

    status: int
    http_minor: int
    headers: list[tuple[str, str]]

    def all(self, name: str) -> list[str]:
        """The values of all fields with this lower-case name, in order."""
        return [value for field, value in self.headers if field == name]

    def first(self, name: str) -> str | None:
        """The value of the first field with this lower-case name; None if there is none."""
        return next((value for field, value in self.headers if field == name), None)

    def firsts(self) -> Mapping[str, str]:
        """The first value of each field."""
        return dict(reversed(self.headers))


class RawHead(msgspec.Struct, frozen=True):
    """A head as it came, without its blank line. `lines`: with folded lines joined, the status line included. `ambiguous`:
    it is a final head, and clients read it differently.
    """

    status: int
    http_minor: int
    lines: bytes
    ambiguous: bool

    def deciding(self) -> dict[bytes, list[str]]:
        """The values of Connection, Transfer-Encoding, and Content-Encoding, -Length, -Range and -Type, in lower case, by the
        field's name; with the blanks at their end.
        """
        values: dict[bytes, list[str]] = {}
        for name, value in _DECIDING.findall(self.lines.lower()):
            values.setdefault(name, []).append(value.decode("latin-1").lstrip(" \t").removesuffix("\r"))
        return values

    def parsed(self) -> ResponseHead:
        """The head's fields."""
        headers = []
        for line in self.lines.decode("latin-1").split("\n")[1:]:
            name, colon, value = line.partition(":")
            if colon and (name := name.strip(" \t")):
                headers.append((name.lower(), value.strip(_BLANKS)))
        headers = headers[:MAX_FIELDS]
        if self.ambiguous:
            headers = [(name, value.translate(_TO_SPACE).strip(_BLANKS)) for name, value in headers]
        return ResponseHead(self.status, self.http_minor, headers)


class HeadReader:
    """Reads up to the final head. Interim heads (1xx except 101) are skipped and counted in `interim`.

    `head_bytes`: the size of the final head with its blank line, 0 before it is complete. `rest`: the bytes of the last feed
    that follow the head. `continues`: a head of status 100 came. Never raises; after a `fault` nothing more is read.
    """

    def __init__(self) -> None:
        self.rest = b""
        self.fault: HeadFault | None = None
        self.interim = self.head_bytes = 0
        self.continues = False
        self._held = bytearray()
        self._searched = 0
        self._done = False

    @property
    def held_bytes(self) -> int:
        """The number of the last bytes that belong to an incomplete head."""
        return len(self._held)

    def feed(self, data: bytes) -> RawHead | None:
        """The head, once, when `data` completes it; else None."""
        if self._done:
            self.rest = data
            return None
        self._held += data
        while (raw := self._next()) is not None:
            head = _head(raw)
            if head is None:
                self._fail(HeadFault.NOT_HTTP)
            elif _is_final(head.status):
                self._done, self.rest, self._held = True, bytes(self._held), bytearray()
                return head
            else:
                self.interim += 1
                self.continues = self.continues or head.status == 100
        return None

    def _next(self) -> bytes | None:
        """Removes the next head from the input and returns it without blank lines around it; None until it is whole."""
        if blank := _LINE_ENDS.match(self._held):
            del self._held[: blank.end()]
        end = _END.search(self._held, self._searched)
        if (end.end() if end else len(self._held)) > MAX_HEAD_BYTES:
            self._fail(HeadFault.TOO_LARGE)
        elif end is not None:
            raw = bytes(self._held[: end.start()])
            self.head_bytes = end.end()
            del self._held[: end.end()]  # does not copy the rest: a read may hold thousands of interim heads
            self._searched = 0
            return raw
        elif not _BEGINNING.startswith(self._held[: len(_BEGINNING)]):
            self._fail(HeadFault.NOT_HTTP)
        else:
            self._searched = max(0, len(self._held) - 2)
        return None

    def _fail(self, fault: HeadFault) -> None:
        self.fault, self._done, self._held = fault, True, bytearray()


def _head(raw: bytes) -> RawHead | None:
    status_line = _STATUS_LINE.fullmatch(raw.partition(b"\n")[0].rstrip(b"\r"))
    if status_line is None:
        return None
    status = int(status_line[2])
    ambiguous = _is_final(status) and _ONE_READING.fullmatch(raw) is None
    lines = _FOLD.sub(b" ", raw) if ambiguous else raw
    return RawHead(status, int(status_line[1]), lines, ambiguous)


def _is_final(status: int) -> bool:
    return status == 101 or status >= 200


EVENT_STREAM = "text/event-stream"
AWS_EVENT_STREAM = "application/vnd.amazon.eventstream"
# Lines of JSON have no registered type. Ollama sends the first, Cohere's first API `application/stream+json`.
JSON_LINES = frozenset(
    (
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/stream+json",
    )
)
_STREAMS = JSON_LINES | {EVENT_STREAM, AWS_EVENT_STREAM}


def media_types(content_types: Iterable[str]) -> set[str]:
    """The types that Content-Type fields name, in lower case and without parameters.

    A response has one such field with one type (RFC 9110, 8.3). Gateways send the field twice, or send
    "text/event-stream, text/event-stream" or two types in one value; clients read such a stream nevertheless.
    """
    parts = (part for value in content_types for part in value.split(","))
    return {part.partition(";")[0].strip().lower() for part in parts}


def names_event_stream(content_types: Iterable[str]) -> bool:
    """Whether one of the values of Content-Type fields names server-sent events."""
    return EVENT_STREAM in media_types(content_types)


def names_stream(content_types: Iterable[str]) -> bool:
    """Whether one of the values of Content-Type fields names a stream of events in a framing that is read."""
    return not _STREAMS.isdisjoint(media_types(content_types))
