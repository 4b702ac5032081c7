"""Where an upstream's response ends, without touching its bytes (RFC 9112, 6.3).

HEAD --interim head--> HEAD --final head--> LENGTH | CHUNKED | UNTIL_EOF | DONE;  LENGTH, CHUNKED --last byte--> DONE.
What cannot be followed (`fault`) goes on as UNTIL_EOF, and nothing is reused after it: the client reads the same bytes
and judges for itself. Heads are read tolerantly, as `core.http_head` reads them; chunks by llhttp.
"""

import re
from enum import Enum, StrEnum, auto

import httptools

# One head of a response with its line ends (bytes); the recorder's limit for the same head.
MAX_RESPONSE_HEAD = 256 * 1024

_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?=[ \r\n]|\Z)")
_BEGINNING = b"HTTP/1."
_FOLD = re.compile(rb"\r?\n[ \t]+")
_FIELD = re.compile(
    rb"\n(connection|content-length|content-type|transfer-encoding)[ \t]*:([^\n]*)",
    re.IGNORECASE,
)
# Digits of a length that can be meant: 18 are an exabyte.
_LENGTH = re.compile(rb"[0-9]{1,18}")
_LINE_ENDS = (0x0D, 0x0A)
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class ResponseFault(StrEnum):
    """Why a response's end cannot be told."""

    NOT_HTTP = "not_http"
    TOO_LARGE = "too_large"
    UPGRADED = "upgraded"  # 101: nobody asked for it
    BAD_HEAD = "bad_head"
    BAD_CHUNKS = "bad_chunks"


class _At(Enum):
    HEAD = auto()
    LENGTH = auto()
    CHUNKED = auto()
    UNTIL_EOF = auto()
    DONE = auto()


class _ChunksEnd:
    """Told by llhttp; apart from the framing, so that the two make no reference cycle."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = False

    def on_message_complete(self) -> None:
        self.seen = True


class ResponseFraming:
    """Follows one response. `head_only`: the request was HEAD. Never raises.

    `status` is None until the final head is complete; `persistent`: by head and framing the connection may be used again.
    """

    __slots__ = (
        "_at",
        "_chunks_end",
        "_head_only",
        "_held",
        "_left",
        "_parser",
        "_searched",
        "complete",
        "content_type",
        "fault",
        "persistent",
        "status",
    )

    def __init__(self, head_only: bool) -> None:
        self.status: int | None = None
        self.content_type = b""
        self.persistent = False
        self.complete = False
        self.fault: ResponseFault | None = None
        self._head_only = head_only
        self._at = _At.HEAD
        self._held = bytearray()
        self._searched = 0
        self._left = 0
        self._parser: httptools.HttpResponseParser | None = None
        self._chunks_end = _ChunksEnd()

    @property
    def untouched(self) -> bool:
        """No byte of the final head has come."""
        return self._at is _At.HEAD and not self._held

    @property
    def until_eof(self) -> bool:
        """Only the connection's end tells the body's end."""
        return self._at is _At.UNTIL_EOF

    def feed(self, data: bytes) -> int:
        """How many of `data`'s bytes belong to this response: all of them, unless it ends among them."""
        at = self._at
        if at is _At.CHUNKED:
            return self._chunks(data)
        if at is _At.LENGTH:
            return self._counted(len(data))
        if at is _At.HEAD:
            return self._head(data)
        return len(data) if at is _At.UNTIL_EOF else 0

    def end_of_input(self) -> bool:
        """The upstream has ended its side cleanly: whether the response is whole with that."""
        if self._at is _At.UNTIL_EOF and self.fault is None:
            self._done()
        return self.complete

    def _done(self) -> None:
        self._at, self.complete, self._parser = _At.DONE, True, None

    def _fail(self, fault: ResponseFault) -> None:
        self.fault, self._at, self.persistent, self._parser = fault, _At.UNTIL_EOF, False, None
        self._held = bytearray()

    def _counted(self, size: int) -> int:
        if size < self._left:
            self._left -= size
            return size
        size = self._left
        self._done()
        return size

    def _chunks(self, data: bytes) -> int:
        """Chunks end with CR LF CR LF alone: so the parser is stopped at each of those, to learn where it was."""
        fed = 0
        if data[0] in _LINE_ENDS:  # those four bytes may have begun in an earlier read
            while fed < min(3, len(data)) and not self.complete:
                fed += self._parse(data[fed : fed + 1])
        while fed < len(data) and not self.complete:
            end = data.find(b"\r\n\r\n", max(0, fed - 3)) + 4
            fed += self._parse(data[fed : end if end > 3 else len(data)] if fed or end > 3 else data)
        return fed

    def _parse(self, data: bytes) -> int:
        if self._parser is not None:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError:
                self._fail(ResponseFault.BAD_CHUNKS)
        if self._chunks_end.seen:
            self._done()
        return len(data)

    def _head(self, data: bytes) -> int:
        before = len(self._held)
        self._held += data
        at = 0
        while self._at is _At.HEAD:
            while at < len(self._held) and self._held[at] in _LINE_ENDS:
                at += 1
            end = _END.search(self._held, max(at, self._searched))
            if end is None:
                self._keep(at)
                return len(data)
            raw, at, self._searched = bytes(self._held[at : end.start()]), end.end(), 0
            self._begin(raw)
        if self.fault is not None:
            return len(data)
        self._held, taken = bytearray(), at - before
        rest = data[taken:]
        return taken + self.feed(rest) if rest and not self.complete else taken

    def _keep(self, at: int) -> None:
        """Keeps the beginning of a head."""
        del self._held[:at]
        self._searched = max(0, len(self._held) - 2)
        if len(self._held) > MAX_RESPONSE_HEAD:
            self._fail(ResponseFault.TOO_LARGE)
        elif not _BEGINNING.startswith(bytes(self._held[:7])):
            self._fail(ResponseFault.NOT_HTTP)

    def _begin(self, raw: bytes) -> None:
        """Reads a head; an interim one leaves everything as it is."""
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
            self._frame(status, line[1] != b"0", _FIELD.findall(_FOLD.sub(b" ", raw)))

    def _frame(self, status: int, modern: bool, fields: list[tuple[bytes, bytes]]) -> None:
        found: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            found.setdefault(name.lower(), []).append(value)
        self.content_type = found.get(b"content-type", [b""])[0].strip().lower()
        transfers, lengths = _members(found.get(b"transfer-encoding")), _members(found.get(b"content-length"))
        options = _members(found.get(b"connection"))
        self.persistent = b"close" not in options and (modern or b"keep-alive" in options)
        if self._head_only or status in (204, 304):
            self._done()
        elif transfers:
            # With both, the length means nothing, and somebody may have been fooled: no reuse (RFC 9112, 6.1).
            self.persistent = self.persistent and not lengths and modern
            self._transferred(transfers)
        elif lengths:
            self._length(lengths)
        else:
            self.persistent, self._at = False, _At.UNTIL_EOF

    def _transferred(self, transfers: list[bytes]) -> None:
        if transfers[-1] != b"chunked":
            self.persistent, self._at = False, _At.UNTIL_EOF
            return
        if b"chunked" in transfers[:-1]:
            self._fail(ResponseFault.BAD_HEAD)
            return
        self._at = _At.CHUNKED
        self._parser = httptools.HttpResponseParser(self._chunks_end)
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)  # some servers pad the size
        self._parser.feed_data(_CHUNKED_HEAD)

    def _length(self, lengths: list[bytes]) -> None:
        if len(set(lengths)) > 1 or not _LENGTH.fullmatch(lengths[0]):
            self._fail(ResponseFault.BAD_HEAD)
            return
        self._at, self._left = _At.LENGTH, int(lengths[0])
        if not self._left:
            self._done()


def _members(values: list[bytes] | None) -> list[bytes]:
    """The members of a list-valued field, lower-case."""
    return [member.strip().lower() for value in values or () for member in value.split(b",") if member.strip()]
