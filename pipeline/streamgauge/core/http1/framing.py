"""Transfer framing (RFC 9112): which bytes of a connection belong to a body, and where it ends."""

import re
from collections.abc import Sequence
from enum import Enum, auto
from itertools import accumulate
from operator import add
from typing import Protocol

# A chunk's size line with its extensions, or a trailer line (bytes). A size takes 16, and the signatures that some
# servers send in extensions take 100; longer lines carry nothing that is needed here.
MAX_CHUNK_LINE = 8 * 1024
# All trailers of a body together (bytes): as much as proxies allow for a head.
MAX_TRAILER_BYTES = 64 * 1024


class Framing(Protocol):
    """The framing of one body. Never raises. Once `broken`, the body cannot be identified, and `feed` returns no bytes."""

    @property
    def complete(self) -> bool: ...

    @property
    def broken(self) -> bool: ...

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's bytes in `data`, and the bytes after its end."""

    def end(self) -> None:
        """Reports the end of the connection."""


class Plain:
    """A body without chunks: as many bytes as the length says, or all bytes until the end of the connection."""

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


# Chunks in at most this many bytes are read one by one: searching all of them at once takes longer.
_FEW_BYTES = 1024
# The size line of a chunk below 4 KiB fits into this many bytes; and the number of such beginnings that are cached.
_BEGIN_BYTES, _MAX_BEGINS = 5, 4096


class _Begins(dict[bytes, tuple[int, int]]):
    """A cache by a chunk's first bytes: where its data begins, and the size of the chunk with its size line and line end.

    The value of other bytes is (0, -1).
    """

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

    Lines may end with LF alone. Extensions and trailers are ignored. The first error makes it broken.
    """

    _SIZE = re.compile(rb"0*([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
    _USUAL_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
    _BETWEEN = re.compile(rb"\r\n([0-9a-fA-F]{1,8})\r\n")

    def __init__(self) -> None:
        self._at = _At.SIZE
        self._left = 0  # bytes of the chunk's data that have not come yet
        self._line = b""  # the beginning of a line whose end has not come yet
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
        """The body in `data` if it is exactly one whole chunk, as most reads are; else None."""
        size = self._USUAL_SIZE.match(data) if self._at is _At.SIZE and not self._line else None
        if size is None:
            return None
        start, stop = size.end(), size.end() + int(size[1], 16)
        return data[start:stop] if start < stop == len(data) - 2 and data.endswith(b"\r\n") else None

    def whole_chunks_each(self, reads: Sequence[bytes]) -> list[bytes]:
        """The bodies in the first reads that each hold whole chunks and nothing else.

        The first other read ends the result; that read and those after it are not consumed.
        """
        if self._at is not _At.SIZE or self._line:
            return []
        begins = [_BEGINS[data[:_BEGIN_BYTES]] for data in reads]
        if [size for _, size in begins] == list(map(len, reads)) and {data[-2:] for data in reads} == {b"\r\n"}:
            return [data[start:-2] for data, (start, _) in zip(reads, begins, strict=True)]  # one chunk each
        sizes, bodies = self._cut(b"".join(reads))
        return _by_reads(reads, [len(size) + 4 for size in sizes[: _whole(sizes, bodies)]], bodies)

    def end(self) -> None:
        """Does nothing: an end before the last chunk leaves the body incomplete."""

    def _cut(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """Cuts bytes that begin with a chunk wherever a size line may be: the possible sizes, and the possible bodies."""
        begin, *parts = self._BETWEEN.split(b"\r\n" + data)
        if begin or not data.endswith(b"\r\n"):
            del parts[-2:]
        else:
            parts[-1] = parts[-1][:-2]
        return ([], []) if begin else (parts[::2], parts[1::2])

    def _whole_chunks(self, data: bytes, parts: list[bytes]) -> int:
        """Appends the whole chunks at the beginning of `data` to `parts`; returns the position after them."""
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
        """As `_whole_chunks`, but reads all chunks at once, up to the first unusual one."""
        sizes, bodies = self._cut(data)
        count = _whole(sizes, bodies)
        parts += bodies[:count]
        return sum(map(len, sizes[:count])) + sum(map(len, parts)) + 4 * count

    def _lines(self, data: bytes, at: int) -> int:
        """Reads a line, or keeps its beginning; returns the position after it."""
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
    """The bodies in reads, up to a read that ends inside a chunk. `around`: how many bytes each chunk has besides data."""
    ends = accumulate(map(add, around, map(len, bodies)))
    behind = {end: number for number, end in enumerate(ends, 1)}
    found: list[bytes] = []
    first = 0
    for end in accumulate(map(len, reads)):
        last = behind.get(end)
        if last is None or last == first:  # the read ends inside a chunk, or is empty
            break
        found.append(bodies[first] if last == first + 1 else b"".join(bodies[first:last]))
        first = last
    return found
