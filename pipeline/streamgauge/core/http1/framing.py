"""Transfer framing (RFC 9112): which bytes of a connection are a body's, and where it ends."""

import re
from collections.abc import Sequence
from enum import Enum, auto
from itertools import accumulate
from operator import add
from typing import Protocol

# A chunk's size line with its extensions, or a trailer line (bytes). A size takes 16, the signatures that some put into
# extensions 100; more says nothing that matters here.
MAX_CHUNK_LINE = 8 * 1024
# All trailers of a body together (bytes): as much as proxies allow a head.
MAX_TRAILER_BYTES = 64 * 1024


class Framing(Protocol):
    """One body's framing. Nothing raises; after `broken` nobody can tell what is body, and `feed` gives none."""

    @property
    def complete(self) -> bool: ...

    @property
    def broken(self) -> bool: ...

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's bytes in `data`, and those beyond its end."""

    def end(self) -> None:
        """The connection has ended."""


class Plain:
    """Without chunks: as many bytes as the length says, or all until the end."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.complete = length == 0
        self.broken = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if self._left is None:
            return data, b""
        body, rest = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.complete = self._left == 0
        return body, rest

    def end(self) -> None:
        self.complete = self.complete or self._left is None


# Chunks in so many bytes are taken one by one: looking for all of them at one time costs more.
_FEW_BYTES = 1024
# A chunk below 4 KiB tells its size within so many bytes; and so many such beginnings are remembered.
_BEGIN_BYTES, _MAX_BEGINS = 5, 4096


class _Begins(dict[bytes, tuple[int, int]]):
    """By a chunk's first bytes: where its data begins, and its size with all that is around. For other bytes 0 and -1."""

    _SIZE = re.compile(rb"([0-9a-fA-F]{1,3})\r\n")

    def __missing__(self, begin: bytes) -> tuple[int, int]:
        size = self._SIZE.match(begin)
        data_bytes = int(size[1], 16) if size else 0
        if len(self) >= _MAX_BEGINS:
            self.clear()
        self[begin] = found = (size.end(), size.end() + data_bytes + 2) if size and data_bytes else (0, -1)
        return found


_BEGINS = _Begins()


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILERS = auto()
    DONE = auto()
    BROKEN = auto()


class Chunked:
    """Chunks (RFC 9112, 7.1): size line, data, line end; after a chunk of size 0 trailers and a blank line.

    Lines may end with LF alone, extensions and trailers mean nothing. At the first thing that is wrong it is broken.
    """

    _SIZE = re.compile(rb"0*([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
    _USUAL_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
    _BETWEEN = re.compile(rb"\r\n([0-9a-fA-F]{1,8})\r\n")

    def __init__(self) -> None:
        self._at = _At.SIZE
        self._left = 0  # of the chunk's data
        self._line = b""  # a line without its end
        self._trailers = 0

    @property
    def complete(self) -> bool:
        return self._at is _At.DONE

    @property
    def broken(self) -> bool:
        return self._at is _At.BROKEN

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if self._line:
            data, self._line = self._line + data, b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        if self._at is _At.SIZE:
            at = self._whole_chunks(data, parts)
            if at == end and len(parts) == 1:  # the usual read: one chunk
                return parts[0], b""
        while at < end and self._at is not _At.DONE and self._at is not _At.BROKEN:
            if self._at is _At.DATA:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._at = _At.DATA if self._left else _At.DATA_END
            else:
                at = self._lines(data, at)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return body, b"" if self._at is _At.BROKEN else data[at:]

    def one_chunk(self, data: bytes) -> bytes | None:
        """The body in `data` if that is one whole chunk, as most reads are; else None, and nothing is taken."""
        size = self._USUAL_SIZE.match(data) if self._at is _At.SIZE and not self._line else None
        if size is None:
            return None
        start, stop = size.end(), size.end() + int(size[1], 16)
        return data[start:stop] if start < stop == len(data) - 2 and data.endswith(b"\r\n") else None

    def whole_chunks_each(self, reads: Sequence[bytes]) -> list[bytes]:
        """The same of many reads, of which each may be several chunks: the bodies of the first ones, up to one that is
        something else.
        """
        if self._at is not _At.SIZE or self._line:
            return []
        begins = [_BEGINS[data[:_BEGIN_BYTES]] for data in reads]
        if [size for _, size in begins] == list(map(len, reads)) and {data[-2:] for data in reads} == {b"\r\n"}:
            return [data[start:-2] for data, (start, _) in zip(reads, begins, strict=True)]  # a chunk each, as most are
        sizes, bodies = self._cut(b"".join(reads))
        return _by_reads(reads, [len(size) + 4 for size in sizes[: _whole(sizes, bodies)]], bodies)

    def end(self) -> None:
        """An end before the last chunk leaves the body incomplete."""

    def _cut(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """Bytes that begin with a chunk cut wherever a size line may stand: what may be sizes, and what may be bodies."""
        begin, *parts = self._BETWEEN.split(b"\r\n" + data)
        if begin or not data.endswith(b"\r\n"):
            del parts[-2:]
        else:
            parts[-1] = parts[-1][:-2]
        return ([], []) if begin else (parts[::2], parts[1::2])

    def _whole_chunks(self, data: bytes, parts: list[bytes]) -> int:
        """Takes the chunks that lie whole at the beginning, as most do; gives the place behind them."""
        at = self._many_chunks(data, parts) if len(data) > _FEW_BYTES else 0
        while size := self._USUAL_SIZE.match(data, at):
            start = size.end()
            stop = start + int(size[1], 16)
            if stop == start or not data.startswith(b"\r\n", stop):
                break
            parts.append(data[start:stop])
            at = stop + 2
        return at

    def _many_chunks(self, data: bytes, parts: list[bytes]) -> int:
        """The same up to the first that looks otherwise than usual, all at one time."""
        sizes, bodies = self._cut(data)
        count = _whole(sizes, bodies)
        parts += bodies[:count]
        return sum(map(len, sizes[:count])) + sum(map(len, parts)) + 4 * count

    def _lines(self, data: bytes, at: int) -> int:
        """Takes a line, or keeps its beginning; gives the place behind it."""
        end = data.find(b"\n", at)
        line = data[at:] if end < 0 else data[at:end]
        if len(line) > MAX_CHUNK_LINE:
            self._at = _At.BROKEN
        elif end < 0:
            self._line = line
        else:
            self._at = self._after(line.removesuffix(b"\r"))
        return len(data) if end < 0 else end + 1

    def _after(self, line: bytes) -> _At:
        if self._at is _At.DATA_END:
            return _At.BROKEN if line else _At.SIZE
        if self._at is _At.TRAILERS:
            self._trailers += len(line)
            return _At.BROKEN if self._trailers > MAX_TRAILER_BYTES else _At.TRAILERS if line else _At.DONE
        size = self._SIZE.fullmatch(line)
        self._left = int(size[1], 16) if size else 0
        return _At.BROKEN if not size else _At.DATA if self._left else _At.TRAILERS


def _whole(sizes: Sequence[bytes], bodies: Sequence[bytes]) -> int:
    """How many chunks are whole, up to the first that is not."""
    whole = [0 < int(size, 16) == len(body) for size, body in zip(sizes, bodies, strict=True)]
    return whole.index(False) if False in whole else len(whole)


def _by_reads(reads: Sequence[bytes], around: Sequence[int], bodies: Sequence[bytes]) -> list[bytes]:
    """What reads hold, up to one that ends amid a chunk. `around`: the bytes of each whole chunk beside its data."""
    ends = accumulate(map(add, around, map(len, bodies)))
    behind = {end: number for number, end in enumerate(ends, 1)}
    found: list[bytes] = []
    first = 0
    for end in accumulate(map(len, reads)):
        last = behind.get(end)
        if last is None or last == first:  # nothing in it is no chunk
            break
        found.append(bodies[first] if last == first + 1 else b"".join(bodies[first:last]))
        first = last
    return found
