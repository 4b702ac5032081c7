"""A body as it comes: transfer framing off (`framing.py`), then content codings off (RFC 9110, 8.4).

Decoded bytes come out as soon as the coding gives them - after each sync flush of the server - and what comes out does not
depend on how the input was split, also where it is damaged: then all that lies before the damage comes out.

Whatever is wrong is a `DecodeFault`, the first one stays, and nothing raises. After a fault nothing is decoded any more,
while framing goes on and body bytes are counted; after BAD_FRAMING nobody can tell what is body, and nothing is counted.

Limits: decoded bytes stay below RATIO_FREE_BYTES + `max_ratio` times the body's bytes, and below `max_decoded` in all; so
a feed of n bytes gives at most RATIO_FREE_BYTES + `max_ratio` * (n + one window). Plain bodies pass through without limit.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Literal, Protocol

import brotli  # type: ignore[import-untyped]
import msgspec
import zstandard

from streamgauge.core.framing import Chunked, Framing, Plain

# Decoded bytes of one body. A stream of a million events has about this size; more is no LLM's answer.
MAX_DECODED_BYTES = 256 * 1024 * 1024
# Decoded bytes a body byte. Measured: recorded streams compressed whole up to 78, with a flush after each event 15, one event
# over and over gzip'd whole 256. A gzip bomb has 1,030, others far more.
MAX_RATIO = 300
# Decoded bytes for which no ratio is asked: as much as the largest event, so that nothing small is ever called a bomb.
RATIO_FREE_BYTES = 4 * 1024 * 1024
# The ratio is judged at multiples of this many body bytes and not where reads end, so that splits change nothing.
RATIO_WINDOW_BYTES = 16 * 1024
# Codings one upon another. No server sends more than one; two is a proxy that compressed again.
MAX_CODINGS = 2

# Decoded at a time, so that a bomb is seen before it has grown (bytes).
_SLICE_BYTES = 64 * 1024
# zstd cannot be told to stop: at most 8 blocks of 128 KiB fit into this many bytes of input.
_ZSTD_STEP_BYTES = 32
# zstd's window: what a decoder for the web has to support, and no more (RFC 9659; bytes).
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
# Compressed input that is kept in case that the next proves damaged (see _Coding): nearly all streams are shorter.
_LATEST_BYTES = 64 * 1024


class DecodeFault(StrEnum):
    """Why the rest of a body could not be decoded."""

    UNKNOWN_CODING = "unknown_coding"
    TOO_MANY_CODINGS = "too_many_codings"
    CORRUPT = "corrupt"  # not what its coding says, or bytes after the coding's end
    BOMB = "bomb"  # MAX_RATIO
    TOO_LARGE = "too_large"  # MAX_DECODED_BYTES
    BAD_FRAMING = "bad_framing"
    INCOMPLETE = "incomplete"  # the framing says that it is whole, the coding does not


class Piece(msgspec.Struct, gc=False):
    """What a feed gave: body bytes (after framing, before decoding), decoded bytes, and the bytes beyond the body's end."""

    body_bytes: int
    decoded: bytes
    rest: bytes


class BodyDecoder:
    """One body, fed as it comes.

    `transfer`: chunked, or identity: then `length` is the body's, None if the connection's end ends it. `coding`: the
    Content-Encoding header's value. `fault`: one that is known beforehand.

    `complete`: the framing says that the body is whole; without chunks and length only `finish()` says so.
    """

    def __init__(
        self,
        transfer: Literal["identity", "chunked"] = "identity",
        coding: str | None = None,
        length: int | None = None,
        *,
        fault: DecodeFault | None = None,
        max_decoded: int = MAX_DECODED_BYTES,
        max_ratio: int = MAX_RATIO,
    ) -> None:
        self._framing: Framing = Chunked() if transfer == "chunked" else Plain(length)
        self._max_decoded, self._max_ratio = max_decoded, max_ratio
        self._broken = fault is DecodeFault.BAD_FRAMING
        self._body_bytes = 0
        codings, wrong = _codings(coding)
        self._codings = codings
        self.fault: DecodeFault | None = fault or wrong

    @property
    def complete(self) -> bool:
        return self._framing.complete and not self._broken

    @property
    def is_coded(self) -> bool:
        """Whether there is a content coding to undo."""
        return bool(self._codings)

    def usual(self, data: bytes) -> bytes | None:
        """What `feed` would give of the usual read: one whole chunk of a body without coding. None, and nothing is taken, for
        any other.
        """
        framing = self._framing
        if self._codings or self.fault is not None or not isinstance(framing, Chunked):
            return None
        return framing.one_chunk(data)

    def usual_each(self, reads: Sequence[bytes]) -> list[bytes]:
        """The same of many reads, each of one chunk or more: what the first ones give, up to one that is not usual."""
        framing = self._framing
        if self._codings or self.fault is not None or not isinstance(framing, Chunked):
            return []
        return framing.whole_chunks_each(reads)

    def feed(self, data: bytes) -> Piece:
        """Takes bytes off the wire. Never raises."""
        if self._broken:
            return Piece(0, b"", b"")
        body, rest = self._framing.feed(data)
        decoded = self._decoded(body) if body else b""
        if self._framing.broken:
            self._broken = True
            self.fault = self.fault or DecodeFault.BAD_FRAMING
        return Piece(len(body), decoded, rest)

    def finish(self) -> bool:
        """The input is over. Whether the body is whole, by its framing and by its coding; `complete` and `fault` say more."""
        self._framing.end()
        if self.complete and self.fault is None and not all(coding.whole for coding in self._codings):
            self.fault = DecodeFault.INCOMPLETE
        return self.complete and self.fault is None

    def _decoded(self, body: bytes) -> bytes:
        if self.fault is not None:
            return b""
        if not self._codings:
            return body
        out: list[bytes] = []
        try:
            for window, limit in self._windows(body):
                out.extend(_through(self._codings, window, limit))
        except _UndecodableError as error:
            self.fault = error.fault
            if self.fault is DecodeFault.BOMB and error.limit == self._max_decoded:
                self.fault = DecodeFault.TOO_LARGE
        return b"".join(out)

    def _windows(self, body: bytes) -> Iterator[tuple[bytes, int]]:
        """`body` cut where the body's windows end, each with the limit for what is decoded up to there."""
        at = 0
        while at < len(body):
            number, within = divmod(self._body_bytes, RATIO_WINDOW_BYTES)
            window = body[at : at + RATIO_WINDOW_BYTES - within]
            at += len(window)
            self._body_bytes += len(window)
            ratio_limit = RATIO_FREE_BYTES + self._max_ratio * (number + 1) * RATIO_WINDOW_BYTES
            yield window, min(ratio_limit, self._max_decoded)


class _UndecodableError(Exception):
    def __init__(self, fault: DecodeFault, limit: int | None = None) -> None:
        self.fault, self.limit = fault, limit


class _Member(Protocol):
    """One gzip member, zlib stream, brotli stream or zstd frame. Raises what its library raises."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """What `data` gives, in pieces of bounded size."""

    @property
    def ended(self) -> bool: ...

    @property
    def unused(self) -> bytes:
        """What lies beyond the end in the data given last."""


class _Zlib:
    def __init__(self, window_bits: int) -> None:
        self._zlib = zlib.decompressobj(window_bits)

    @property
    def ended(self) -> bool:
        return self._zlib.eof

    @property
    def unused(self) -> bytes:
        return self._zlib.unused_data

    def decode(self, data: bytes) -> Iterator[bytes]:
        out = b"-"
        while (data or out) and not self._zlib.eof:
            out = self._zlib.decompress(data, _SLICE_BYTES)
            data = self._zlib.unconsumed_tail
            yield out


class _Deflate:
    """zlib's wrapping, as the standard has it, or none, as some servers send it: the first two bytes tell."""

    def __init__(self) -> None:
        self._first = b""
        self._zlib: _Zlib | None = None

    @property
    def ended(self) -> bool:
        return self._zlib is not None and self._zlib.ended

    @property
    def unused(self) -> bytes:
        return self._zlib.unused if self._zlib else b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        if self._zlib is None:
            self._first = data = self._first + data
            if len(data) < 2:
                return
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            self._zlib = _Zlib(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        yield from self._zlib.decode(data)


class _Brotli:
    unused = b""  # it tells of bytes after its end as of damage

    def __init__(self) -> None:
        self._brotli = brotli.Decompressor()

    @property
    def ended(self) -> bool:
        return bool(self._brotli.is_finished())

    def decode(self, data: bytes) -> Iterator[bytes]:
        out = self._brotli.process(data, output_buffer_limit=_SLICE_BYTES)
        while out or not self._brotli.can_accept_more_data():
            yield out
            out = self._brotli.process(b"", output_buffer_limit=_SLICE_BYTES)


class _Zstd:
    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
        self._behind = b""
        # The library checks the content's size only of a frame that comes whole in its first call: so none ever does.
        self._first_step = 1

    @property
    def ended(self) -> bool:
        return self._zstd.eof

    @property
    def unused(self) -> bytes:
        return self._zstd.unused_data + self._behind

    def decode(self, data: bytes) -> Iterator[bytes]:
        at, step = 0, self._first_step
        while at < len(data):
            yield self._zstd.decompress(data[at : at + step])
            at, step, self._first_step = at + step, _ZSTD_STEP_BYTES, _ZSTD_STEP_BYTES
            if self._zstd.eof:
                self._behind = data[at:]
                return


_MEMBERS: dict[str, Callable[[], _Member]] = {
    "gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "x-gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
# Codings whose body may be several members, one after another (RFC 1952, 2.2; RFC 8878, 3.1).
_SEVERAL = frozenset(("gzip", "x-gzip", "zstd"))
_LIBRARY_ERRORS = (zlib.error, brotli.error, zstandard.ZstdError)


class _Coding:
    """One content coding.

    The libraries raise on damage and lose what they decoded before it in the same call, so that more would come out of small
    reads than of large ones. Hence the latest input is kept, and a second decoder that stands where it begins; when a part
    proves damaged, that one gets the same again, the part byte by byte. A short body needs no second decoder: a new one does.
    """

    def __init__(self, name: str) -> None:
        self._make, self._several = _MEMBERS[name], name in _SEVERAL
        self._member: _Member | None = None
        self._behind: _Member | None = None
        self._latest = bytearray()  # what `_member` had and `_behind` had not
        self._ended = 0
        self.produced = 0

    @property
    def whole(self) -> bool:
        """Whether the input ends where the coding does; none at all is whole as well."""
        return self._member is None

    def decode(self, data: bytes) -> Iterator[bytes]:
        """What `data` gives, in pieces. Raises _UndecodableError behind the last one."""
        while data:
            member = self._member or self._begin()
            yield from self._guarded(member, data)
            if not member.ended:
                return
            data = member.unused
            self._member, self._ended = None, self._ended + 1

    def _begin(self) -> _Member:
        if self._ended and not self._several:
            raise _UndecodableError(DecodeFault.CORRUPT)
        self._member, self._behind = self._make(), None
        self._latest.clear()
        return self._member

    def _guarded(self, member: _Member, part: bytes) -> Iterator[bytes]:
        given = 0
        try:
            for piece in member.decode(part):
                given += len(piece)
                yield piece
        except _LIBRARY_ERRORS:
            yield from self._again(part, given)
            raise _UndecodableError(DecodeFault.CORRUPT) from None
        self._latest += part
        if len(self._latest) > _LATEST_BYTES:
            self._catch_up()

    def _catch_up(self) -> _Member:
        self._behind = self._behind or self._make()
        for _ in self._behind.decode(bytes(self._latest)):
            pass
        self._latest.clear()
        return self._behind

    def _again(self, part: bytes, given: int) -> Iterator[bytes]:
        """What a damaged `part` holds beyond the `given` bytes, decoded byte by byte up to the damage."""
        member = self._catch_up()
        try:
            for byte in part:
                for piece in member.decode(bytes((byte,))):
                    yield piece[given:]
                    given = max(0, given - len(piece))
        except _LIBRARY_ERRORS:
            return


def _codings(header: str | None) -> tuple[list[_Coding], DecodeFault | None]:
    """The codings to take off, outermost first."""
    if not header:
        return [], None
    names = [name.strip().lower() for name in header.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if any(name not in _MEMBERS for name in names):
        return [], DecodeFault.UNKNOWN_CODING
    if len(names) > MAX_CODINGS:
        return [], DecodeFault.TOO_MANY_CODINGS
    return [_Coding(name) for name in reversed(names)], None


def _through(codings: Sequence[_Coding], data: bytes, limit: int) -> Iterator[bytes]:
    """`data` through all codings. Raises _UndecodableError once a coding has given more than `limit` bytes in all."""
    if not codings:
        yield data
        return
    coding, others = codings[0], codings[1:]
    for piece in coding.decode(data):
        room = limit - coding.produced
        coding.produced += len(piece)
        yield from _through(others, piece[:room], limit)
        if len(piece) > room:
            raise _UndecodableError(DecodeFault.BOMB, limit)
