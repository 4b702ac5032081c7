"""Transfer framing (RFC 9112, 6 and 7.1): which bytes of a connection belong to a response's body, and where it ends.

Chunks of the usual form are read in C (`_chunks.c`), or by a function in Python where that was not built. Everything else,
and each decision, is here.
"""

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

from streamgauge.core.http1.head import TOKEN as _TOKEN

_read_in_c: Callable[[bytes, int, int], tuple[bytes, int, int, int]] | None
try:
    from streamgauge.core.http1._chunks import read_chunks as _read_in_c
except ImportError:  # no C compiler at installation
    _read_in_c = None

# A chunk's size line with its extensions, or a trailer line (bytes). A size takes 16, and the signatures that some
# servers send in extensions take 100; longer lines carry nothing that is needed here.
MAX_CHUNK_LINE = 8 * 1024
# All trailers of a body together (bytes): as much as proxies allow for a head.
MAX_TRAILER_BYTES = 64 * 1024
# A valid length has at most 18 digits: such a number is below an exabyte, and fits 64 bits.
_LENGTH = re.compile(r"[0-9]{1,18}")
# A chunk of this size is doubtful (bytes): Java's HttpClient counts in 32 bits, and takes a size of 2**32 for the last chunk.
# No server holds a chunk of 2 GiB in memory.
_TOO_LARGE_CHUNK = 1 << 31
# The pump adds a digit to a size only while the size is below this, so that the chunk is below _TOO_LARGE_CHUNK.
_MAX_SIZE_OF_PUMP = _TOO_LARGE_CHUNK >> 4


class Phase(IntEnum):
    """The phases of a body, by its next byte; `_pump.c` has the same numbers.

    In a chunked body: before a size, in its digits, after its CR, in data, at the CR and at the LF after the data. LENGTH: in
    a body with a length. UNTIL_EOF: in a body that ends with its connection.
    """

    SIZE_BEGIN = 0
    SIZE = 1
    SIZE_LF = 2
    DATA = 3
    DATA_CR = 4
    DATA_LF = 5
    LENGTH = 6
    UNTIL_EOF = 7


class BodyPosition(NamedTuple):
    """A position in a body. `phase`: a Phase. `left`: bytes of the chunk or the body that are still to come; in SIZE the
    value of the digits so far.
    """

    phase: int
    left: int


class Framing(Protocol):
    """The framing of one body. Never raises."""

    @property
    def complete(self) -> bool:
        """Whether the whole body was fed."""

    @property
    def broken(self) -> bool:
        """Whether the framing is invalid: the body cannot be identified, and `feed` returns no bytes."""

    @property
    def ambiguous(self) -> bool:
        """Whether strict parsers refuse the framing so far. `feed` then reads it as tolerant parsers do."""

    @property
    def bytes_before_doubt(self) -> int:
        """The number of bytes before the doubtful line, in the feed that set `broken` or `ambiguous`."""

    @property
    def position(self) -> BodyPosition | None:
        """The position of the next byte; None where the pump cannot continue."""

    @property
    def until_eof(self) -> bool:
        """Whether only the end of the connection ends the body, and has not come."""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's bytes in `data`, and the bytes after its end."""

    def continue_at(self, position: BodyPosition) -> None:
        """Sets the position of the next byte, after the pump moved bytes that were not fed here."""

    def end(self) -> None:
        """Reports the end of the connection."""


class Plain:
    """A body without chunks: as many bytes as the length says, or all bytes until the end of the connection."""

    broken = ambiguous = False
    bytes_before_doubt = 0

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.complete = length == 0

    @property
    def position(self) -> BodyPosition | None:
        """UNTIL_EOF, or LENGTH with the bytes left; None once the body is complete."""
        if self.complete:
            return None
        return BodyPosition(Phase.UNTIL_EOF, 0) if self._left is None else BodyPosition(Phase.LENGTH, self._left)

    @property
    def until_eof(self) -> bool:
        """Whether the body has no length, and the connection is still open."""
        return self._left is None and not self.complete

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes up to the length are the body's; without a length all bytes are."""
        if self._left is None:
            return data, b""
        body, rest = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.complete = self._left == 0
        return body, rest

    def continue_at(self, position: BodyPosition) -> None:
        """Takes over the bytes left; without a length there is nothing to set."""
        if position.phase == Phase.LENGTH:
            self._left = position.left

    def end(self) -> None:
        """Completes a body without a length; one with a length stays incomplete."""
        self.complete = self.complete or self._left is None


class Unframed(Plain):
    """A body whose length cannot be determined: no byte is identified as the body's."""

    broken = True

    def __init__(self) -> None:
        super().__init__(None)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Discards all bytes."""
        return b"", b""

    def end(self) -> None:
        """Does nothing: the body is never complete."""


class _At(IntEnum):
    SIZE = 0
    DATA = 1
    DATA_END = 2
    TRAILERS = 3
    DONE = 4
    BROKEN = 5


# Module globals: access to an enum's member costs one more lookup, on every read.
_SIZE, _DATA, _DATA_END, _TRAILERS, _DONE, _BROKEN = _At

# The size line of a usual chunk, which is smaller than 256 MiB; `_chunks.c` has the same limit.
_USUAL_SIZE = re.compile(rb"([0-9a-fA-F]{1,7})\r\n")
# The bytes in which the size line of a chunk below 4 KiB ends; how many such beginnings are cached.
_BEGIN_BYTES, _MAX_BEGINS = 5, 4096
_ANY_SIZE = re.compile(rb"0*([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_SIZE_BEGUN = re.compile(rb"(?:[0-9a-fA-F]+[ \t]*(?:;.*|\r)?)?", re.DOTALL)
_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_EXTENSION = rb";(?:%b+|(?=[=;]))(?:=%b*(?:%b)?)?" % (_TOKEN, _TOKEN, _QUOTED)
_STRICT_SIZE = re.compile(rb"[0-9a-fA-F]+[ \t]*(?:%b)*" % _EXTENSION)
# Clients may obey such a field in a trailer, although it must not be there (RFC 9110, 6.5.1): llhttp takes lengths from it.
_OF_HEADS = rb"(?i:connection|content-length|keep-alive|proxy-connection|transfer-encoding|upgrade)"
_STRICT_TRAILER = re.compile(rb"(?!%b:)%b+:[\t -~\x80-\xff]*" % (_OF_HEADS, _TOKEN))
_SIZE_BEGINNING = re.compile(rb"([0-9a-fA-F]*)(\r?)")


class Chunked:
    """Chunks (RFC 9112, 7.1): size line, data, line end; after a chunk of size 0 trailers and a blank line.

    Extensions and trailers are ignored. The first error sets `broken`. Lines that clients read differently set `ambiguous`:
    those that end with LF alone, extensions and trailers that the grammar of the RFC does not allow, trailers that concern
    framing or connection (RFC 9110, 6.5.1), and sizes of 2 GiB or more.
    """

    until_eof = False

    def __init__(self) -> None:
        self.complete = self.broken = self.ambiguous = False
        self.bytes_before_doubt = 0
        self._at = _SIZE
        self._left = 0  # bytes of the chunk's data that have not come yet
        self._line = b""  # the beginning of a line whose end has not come yet
        self._trailers = 0

    @property
    def position(self) -> BodyPosition | None:
        """The position in a chunk or its size; None in extensions, in trailers and in ambiguous framing."""
        if self.ambiguous:
            return None
        if self._at is _DATA:
            return BodyPosition(Phase.DATA, self._left)
        if self._at is _DATA_END:
            return BodyPosition(Phase.DATA_LF if self._line else Phase.DATA_CR, 0)
        if self._at is _SIZE and (size := _SIZE_BEGINNING.fullmatch(self._line)):
            return _position_in_size(size[1], ended=bool(size[2]))
        return None

    def continue_at(self, position: BodyPosition) -> None:
        """Sets the state that belongs to the position; the digits of a size become an unfinished line."""
        self._line, self._left = b"", 0
        match position.phase:
            case Phase.DATA:
                self._at, self._left = _DATA if position.left else _DATA_END, position.left
            case Phase.DATA_CR | Phase.DATA_LF:
                self._at, self._line = _DATA_END, b"\r" if position.phase == Phase.DATA_LF else b""
            case Phase.SIZE | Phase.SIZE_LF:
                self._at = _SIZE
                self._line = b"%x\r" % position.left if position.phase == Phase.SIZE_LF else b"%x" % position.left
            case _:
                self._at = _SIZE

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The data of the chunks, and the bytes after the blank line that ends the body."""
        if self._at is _DATA and len(data) < self._left:  # within a large chunk
            self._left -= len(data)
            return data, b""
        if self._at is _SIZE and not self._line:  # nearly all reads of an event stream: they begin and end with a chunk
            body, at, left, whole = read_chunks(data, 0, 0)
            if at == len(data) and whole:
                self._left, self._at = left, _DATA if left else _SIZE
                return body, b""
        earlier = 0  # bytes of an unfinished line, from earlier feeds
        if self._line:
            earlier, data, self._line = len(self._line), self._line + data, b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self._at is _SIZE or self._at is _DATA:
                part, at, self._left, whole = read_chunks(data, at, self._left)
                self._at = _DATA if self._left else _SIZE if whole else _DATA_END
                if part:
                    parts.append(part)
                if at == end:
                    break
            if self._at < _DONE:
                sure = not (self.ambiguous or self.broken)
                begin, at = at, self._read_line(data, at)
                if sure and (self.ambiguous or self.broken):
                    self.bytes_before_doubt = max(0, begin - earlier)
            else:
                break
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return body, b"" if self._at is _BROKEN else data[at:]

    def end(self) -> None:
        """Does nothing: an end before the last chunk leaves the body incomplete."""

    def _read_line(self, data: bytes, at: int) -> int:
        """Reads a line, or keeps its beginning; returns the position after it."""
        end = data.find(b"\n", at)
        line = data[at:] if end < 0 else data[at:end]
        if len(line) > MAX_CHUNK_LINE or (self._at is _DATA_END and line not in (b"", b"\r")):
            self._at = _BROKEN
        elif end < 0:
            self._line = line
            if self._at is _SIZE and not _SIZE_BEGUN.fullmatch(line):
                self._at, self._line = _BROKEN, b""
        else:
            self._at = self._after(line.removesuffix(b"\r"))
            self.ambiguous = self.ambiguous or not (line.endswith(b"\r") or self._at is _BROKEN)
        self.complete, self.broken = self._at is _DONE, self._at is _BROKEN
        return len(data) if end < 0 else end + 1

    def _after(self, line: bytes) -> _At:
        if self._at is _DATA_END:
            return _SIZE
        if self._at is _TRAILERS:
            if not line:
                return _DONE
            self._trailers += len(line)
            self.ambiguous = self.ambiguous or not _STRICT_TRAILER.fullmatch(line)
            return _BROKEN if self._trailers > MAX_TRAILER_BYTES else _TRAILERS
        size = _ANY_SIZE.fullmatch(line)
        if not size:
            return _BROKEN
        self._left = int(size[1], 16)
        self.ambiguous = self.ambiguous or self._left >= _TOO_LARGE_CHUNK or not _STRICT_SIZE.fullmatch(line)
        return _DATA if self._left else _TRAILERS


def read_in_python(data: bytes, begin: int, left: int) -> tuple[bytes, int, int, int]:
    """What `_chunks.pyi` says of `read_chunks`, where that was not built."""
    parts: list[bytes] = []
    at = begin
    while True:
        if not left:
            line_bytes, left = _usual_size(data[at : at + _BEGIN_BYTES])
            if not left and (size := _USUAL_SIZE.match(data, at)):
                line_bytes, left = size.end() - at, int(size[1], 16)
            if not left:
                return b"".join(parts), at, 0, 1
            at += line_bytes
        part = data[at : at + left]
        parts.append(part)
        at += len(part)
        left -= len(part)
        if left:
            return b"".join(parts), at, left, 1
        if data[at : at + 2] != b"\r\n":
            return b"".join(parts), at, 0, 0
        at += 2


@lru_cache(_MAX_BEGINS)
def _usual_size(beginning: bytes) -> tuple[int, int]:
    """The bytes of a usual size line, and its size, by its first _BEGIN_BYTES bytes; (0, 0) if it is not whole in them."""
    size = _USUAL_SIZE.match(beginning)
    return (size.end(), int(size[1], 16)) if size else (0, 0)


read_chunks = _read_in_c or read_in_python


def _position_in_size(digits: bytes, *, ended: bool) -> BodyPosition | None:
    """The position after the digits of a size, and after its CR if it has `ended`. The last chunk is not the pump's."""
    size = int(digits or b"0", 16)
    if not digits:
        return None if ended else BodyPosition(Phase.SIZE_BEGIN, 0)
    if (ended and not size) or size >= _MAX_SIZE_OF_PUMP:
        return None
    return BodyPosition(Phase.SIZE_LF if ended else Phase.SIZE, size)


def framing_of(status: int, method: str, transfers: Sequence[str], lengths: Sequence[str]) -> Framing:
    """The framing of a final response's body (RFC 9112, 6.3). `method`: of the request. `transfers`, `lengths`: the members
    of the fields Transfer-Encoding and Content-Length, lower-case.
    """
    if has_no_body(status, method):
        return Plain(0)
    if transfers:
        *others, last = transfers
        if last != "chunked":
            return Plain(None)
        return Unframed() if "chunked" in others else Chunked()
    if not lengths:
        return Plain(None)
    valid = len(set(lengths)) == 1 and _LENGTH.fullmatch(lengths[0])
    return Plain(int(lengths[0])) if valid else Unframed()


def has_no_body(status: int, method: str) -> bool:
    """Whether no body follows this final head, whatever its fields say."""
    connected = method == "CONNECT" and 200 <= status < 300
    return method == "HEAD" or connected or status < 200 or status in (204, 304)
