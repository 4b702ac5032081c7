"""Finds where an upstream's response ends, without changing its bytes (RFC 9112, 6.3).

HEAD --interim head--> HEAD --final head--> LENGTH | CHUNKED | UNTIL_EOF | DONE;  LENGTH, CHUNKED --last byte--> DONE.
A response that cannot be followed (`fault`) goes on as UNTIL_EOF, and its connection is not reused: the client gets the same
bytes, and decides by itself. Heads are read tolerantly, as `core.http1.head` reads them. Chunks are followed in C, where that
was built, as long as each read holds only well-formed chunks; from the first other read on, llhttp follows them.
"""

import re
from collections.abc import Callable
from enum import Enum, StrEnum, auto

import httptools

from streamgauge.taps.proxy.body_position import BodyPosition, Phase, bytes_leading_to

follow: Callable[[int, int, bytes | memoryview, int], tuple[int, int] | None] | None
try:
    from streamgauge.taps.proxy.native._pump import follow
except ImportError:  # no Linux, or no C compiler at installation: llhttp follows all chunks
    follow = None

# Largest head of a response with its line ends (bytes). The recorder has the same limit.
MAX_RESPONSE_HEAD = 256 * 1024

_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?=[ \r\n]|\Z)")
_BEGINNING = b"HTTP/1."
_FOLDED = re.compile(rb"\n[ \t]")
_FOLD = re.compile(rb"\r?\n[ \t]+")
# For a head in lower case.
_FIELD = re.compile(rb"\n(connection|content-length|content-type|transfer-encoding)[ \t]*:([^\n]*)")
# With CR: `_FIELD` matches a value together with the CR of its line end.
_BLANKS = b" \t\r"
# Parts of a head that clients read differently: a CR or NUL within a line, a folded line, a blank before the colon. The
# relay passes such a head on as it is, and does not reuse its connection.
_TWO_READINGS = re.compile(rb"\r(?!\n|\Z)|\0|\n[ \t]|\n[^:\n]*[ \t]:")
# Digits of a plausible length: 18 are an exabyte.
_LENGTH = re.compile(rb"[0-9]{1,18}")
_LINE_ENDS = (0x0D, 0x0A)
_LAST_CHUNK = b"0\r\n\r\n"
# Values in place of a body's length.
UNTIL_EOF, CHUNKED = -1, -2
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class ResponseFault(StrEnum):
    """Why a response's end cannot be found."""

    NOT_HTTP = "not_http"
    TOO_LARGE = "too_large"
    UPGRADED = "upgraded"  # status 101, although the relay forwards no Upgrade field
    BAD_HEAD = "bad_head"
    BAD_CHUNKS = "bad_chunks"


class _At(Enum):
    HEAD = auto()
    LENGTH = auto()
    CHUNKED = auto()
    UNTIL_EOF = auto()
    DONE = auto()


# Module globals: access to an enum's member costs one more lookup, on every read.
_HEAD, _LENGTH_LEFT, _CHUNKED, _UNTIL_EOF, _DONE = _At
_BODY_BEGINS = BodyPosition(Phase.SIZE_BEGIN, 0)


class _Chunks:
    """The callbacks of llhttp for a chunked body. Separate from ResponseFraming, which would form a reference cycle with its
    parsers.
    """

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False

    def on_message_complete(self) -> None:
        self.ended = True

    def parser(self) -> httptools.HttpResponseParser:
        """Returns a parser at the body's first byte, which sets `ended` at the body's end."""
        parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)  # some servers pad the size
        parser.feed_data(_CHUNKED_HEAD)
        return parser


class ResponseFraming:
    """Follows one response. `head_only`: the request was HEAD. `plainly`: follow chunks in C (if built). Never raises.

    `status` is None until the final head is complete; `persistent`: head and framing allow the connection to be reused;
    `says_keep_alive`: the head has `Connection: keep-alive`, which HTTP/1.0 requires.
    """

    __slots__ = (
        "_ahead",
        "_at",
        "_behind",
        "_chunks",
        "_follow",
        "_head_only",
        "_held",
        "_left",
        "_place",
        "_plain",
        "_searched",
        "complete",
        "content_type",
        "fault",
        "persistent",
        "says_keep_alive",
        "status",
    )

    def __init__(self, head_only: bool, *, plainly: bool = True) -> None:
        self.status: int | None = None
        self.content_type = b""
        self.persistent = False
        self.says_keep_alive = False
        self.complete = False
        self.fault: ResponseFault | None = None
        self._head_only = head_only
        self._follow = follow if plainly else None
        self._at = _HEAD
        self._held = b""
        self._searched = 0
        self._left = 0
        self._place: BodyPosition | None = None  # in a chunked body, as long as llhttp does not follow it
        self._plain = True  # all clients read the final head alike
        self._chunks: _Chunks | None = None

    @property
    def untouched(self) -> bool:
        """The final head is not complete."""
        return self._at is _HEAD

    @property
    def half_head(self) -> int:
        """How many of the last bytes belong to an incomplete head."""
        return len(self._held) if self._at is _HEAD else 0

    @property
    def until_eof(self) -> bool:
        """Only the connection's end marks the body's end."""
        return self._at is _UNTIL_EOF

    @property
    def place(self) -> BodyPosition | None:
        """The position of the next byte in the body; None outside a body, and while llhttp follows the body."""
        if self._at is _LENGTH_LEFT:
            return BodyPosition(Phase.LENGTH, self._left)
        if self._at is _UNTIL_EOF:
            return BodyPosition(Phase.UNTIL_EOF, 0) if self.fault is None else None
        return self._place if self._at is _CHUNKED else None

    def go_on_at(self, place: BodyPosition) -> None:
        """Sets the position of the next byte, after the pump moved bytes that were not fed here."""
        self._left = place.left
        if self._at is _CHUNKED:
            self._place, self._chunks = place, None

    def feed(self, data: bytes) -> int:
        """Follows a read. Returns how many of its bytes belong to this response: all, unless the response ends in it."""
        at = self._at
        if at is _CHUNKED:
            return self._chunked(data)
        if at is _LENGTH_LEFT:
            return self._counted(len(data))
        if at is _HEAD:
            return self._head(data)
        return len(data) if at is _UNTIL_EOF else 0

    def end_of_input(self) -> bool:
        """The upstream has ended its side cleanly. Returns whether the response is complete."""
        if self._at is _UNTIL_EOF and self.fault is None:
            self._done()
        return self.complete

    def _done(self) -> None:
        self._at, self.complete = _DONE, True

    def _fail(self, fault: ResponseFault) -> None:
        self.fault, self._at, self.persistent = fault, _UNTIL_EOF, False
        self._held = b""

    def _counted(self, size: int) -> int:
        if size < self._left:
            self._left -= size
            return size
        size = self._left
        self._done()
        return size

    def _chunked(self, data: bytes) -> int:
        """Follows chunks. llhttp does not report at which byte a body ends. So one parser (`_ahead`) finds the read in which
        the body ends. A second parser (`_behind`) is one read later, and finds the byte.
        """
        if self._chunks is None:
            if self._plainly(data):
                return len(data)
            self._ask_llhttp()
        assert self._chunks is not None
        try:
            self._ahead.feed_data(data)
        except httptools.HttpParserError:  # within the body, or at bytes after its end
            if not self._chunks.ended:
                self._fail(ResponseFault.BAD_CHUNKS)
        else:
            if not self._chunks.ended:
                self._behind.feed_data(data)
        return self._end_in(data) if self._chunks.ended else len(data)

    def _plainly(self, data: bytes) -> bool:
        """Follows a read in C. Returns False if it is not clearly from the middle of the body, or its middle and end."""
        if self._follow is None or self._place is None:
            return False
        if data.endswith(_LAST_CHUNK):
            found = self._follow(*self._place, memoryview(data)[: -len(_LAST_CHUNK)], 0)
            if found is not None and found[0] == Phase.SIZE_BEGIN:
                self._done()
                return True
        found = self._follow(*self._place, data, 0)
        if found is not None:
            self._place = BodyPosition(*found)
        return found is not None

    def _end_in(self, data: bytes) -> int:
        """Returns the offset after the body's end. A body ends with CR LF CR LF, which may begin in an earlier read."""
        place, behind = 0, self._behind.feed_data
        assert self._chunks is not None
        self._chunks.ended = False
        while not self._chunks.ended:
            end = place + 1 if place < 3 else data.index(b"\r\n\r\n", place - 3) + 4
            behind(data[place:end])
            place = end
        self._done()
        return place

    def _head(self, data: bytes) -> int:
        before = len(self._held)
        held = self._held + data if before else data
        at = 0
        while self._at is _HEAD:
            while at < len(held) and held[at] in _LINE_ENDS:
                at += 1
            end = _END.search(held, max(at, self._searched))
            if end is None:
                self._keep(held[at:])
                return len(data)
            raw, at, self._searched = held[at : end.start()], end.end(), 0
            self._begin(raw)
        if self.fault is not None:
            return len(data)
        self._held, taken = b"", at - before
        if taken == len(data) or self.complete:
            return taken
        return taken + self.feed(data[taken:])

    def _keep(self, beginning: bytes) -> None:
        """Keeps the beginning of an incomplete head; fails if it is too large, or no head of HTTP/1."""
        self._held = beginning
        self._searched = max(0, len(beginning) - 2)
        if len(beginning) > MAX_RESPONSE_HEAD:
            self._fail(ResponseFault.TOO_LARGE)
        elif not _BEGINNING.startswith(beginning[:7]):
            self._fail(ResponseFault.NOT_HTTP)

    def _begin(self, raw: bytes) -> None:
        """Reads a head. An interim head changes nothing."""
        line = _STATUS_LINE.match(raw)
        if line is None:
            self._fail(ResponseFault.NOT_HTTP)
            return
        status = int(line[2])
        if status == 101:
            self._fail(ResponseFault.UPGRADED)
        elif len(raw) > MAX_RESPONSE_HEAD:
            self._fail(ResponseFault.TOO_LARGE)
        elif status >= 200:
            self.status = status
            self._plain = _reads_alike(raw)
            lower = raw.lower()
            if not self._plain and _FOLDED.search(lower):
                lower = _FOLD.sub(b" ", lower)
            self._frame(status, line[1] != b"0", _FIELD.findall(lower))

    def _frame(self, status: int, modern: bool, fields: list[tuple[bytes, bytes]]) -> None:
        found: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            found.setdefault(name, []).append(value)
        self.content_type = b", ".join(found.get(b"content-type", []))
        transfers, lengths = _members(found.get(b"transfer-encoding")), _members(found.get(b"content-length"))
        options = _members(found.get(b"connection"))
        self.says_keep_alive = b"keep-alive" in options
        self.persistent = self._plain and b"close" not in options and (modern or self.says_keep_alive)
        length: int | None = UNTIL_EOF
        if transfers:
            length = _transferred(transfers)
            if not self._without_body(status):
                # With both fields the length is ignored, and it may be an attack: no reuse (RFC 9112, 6.1).
                self.persistent = self.persistent and not lengths and modern
        elif lengths:
            length = _length(lengths)
        self._framed(status, length)

    def _without_body(self, status: int) -> bool:
        return self._head_only or status in (204, 304)

    def _framed(self, status: int, length: int | None) -> None:
        """Goes on after the final head. `length`: of the body, or UNTIL_EOF or CHUNKED; None: the body's end is unknown."""
        if self._without_body(status) or length == 0:
            self._done()
        elif length is None:
            self._fail(ResponseFault.BAD_HEAD)
        elif length == CHUNKED:
            self._at, self._place = _CHUNKED, _BODY_BEGINS
        elif length == UNTIL_EOF:
            self.persistent, self._at = False, _UNTIL_EOF
        else:
            self._at, self._left = _LENGTH_LEFT, length

    def _ask_llhttp(self) -> None:
        """From here on, llhttp follows the chunks."""
        lead, self._place = bytes_leading_to(self._place or _BODY_BEGINS), None
        self._chunks = _Chunks()
        self._ahead, self._behind = self._chunks.parser(), self._chunks.parser()
        if lead:
            self._ahead.feed_data(lead)
            self._behind.feed_data(lead)


def _transferred(codings: list[bytes]) -> int | None:
    if codings[-1] != b"chunked":
        return UNTIL_EOF
    return None if b"chunked" in codings[:-1] else CHUNKED


def _length(lengths: list[bytes]) -> int | None:
    return int(lengths[0]) if len(set(lengths)) == 1 and _LENGTH.fullmatch(lengths[0]) else None


def _reads_alike(raw: bytes) -> bool:
    """Whether all clients read a head alike; `raw` has no last LF. For most heads the quick checks suffice."""
    if b"\t" in raw or b" :" in raw or b"\n " in raw or b"\0" in raw or raw.count(b"\r") > raw.count(b"\r\n") + 1:
        return not _TWO_READINGS.search(raw)
    return raw.endswith(b"\r") or raw.count(b"\r") == raw.count(b"\r\n")


def _members(values: list[bytes] | None) -> list[bytes]:
    """The members of a list-valued field."""
    if values is None:
        return []
    return [stripped for value in values for member in value.split(b",") if (stripped := member.strip(_BLANKS))]
