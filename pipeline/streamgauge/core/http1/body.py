"""A body as it comes: transfer framing off (`framing.py`), then content codings off (RFC 9110, 8.4).

Decoded bytes come out as soon as the coding gives them - after each sync flush of the server - and what comes out does not
depend on how the input was split, also where it is damaged: then all that lies before the damage comes out.

Whatever is wrong is a `DecodeFault`, the first one stays, and nothing raises. After a fault nothing is decoded any more,
while framing goes on and body bytes are counted; after BAD_FRAMING nobody can tell what is body, and nothing is counted.

Limits: decoded bytes stay below RATIO_FREE_BYTES + `max_ratio` times the body's bytes, and below `max_decoded` in all; so
a feed of n bytes gives at most RATIO_FREE_BYTES + `max_ratio` * (n + one window). Plain bodies pass through without limit.
Work is bounded by the same limits: each further member of a coding counts as MEMBER_BYTES, and what one coding gives to
another one stays below BETWEEN_FREE_BYTES + MAX_BETWEEN_RATIO times the body's bytes.

Memory: a decoder takes what its libraries hold, and the input that it keeps, from a `Memory` that is shared by all.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from streamgauge.core.http1.coding_members import LIBRARY_ERRORS, MEMBERS, SEVERAL, Member
from streamgauge.core.http1.framing import Chunked, Framing, Plain

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
# Of two codings, what the outer one gives to the inner one, a body byte: what is compressed already shrinks little. Measured:
# recorded streams, compressed with a flush after each event and then again, at most 2.6.
MAX_BETWEEN_RATIO = 8
# The same, for which no ratio is asked (bytes): 10,000 equal events, a flush after each, are smaller.
BETWEEN_FREE_BYTES = 128 * 1024
# Decoded bytes that a coding's second and each further member count as, whatever they hold: to begin one takes about as long
# as to decode so many. The smallest have 8 bytes: below MAX_RATIO, so that a body of one coding may have any number.
MEMBER_BYTES = 2 * 1024

# A coding decodes so many bytes of its input at a time: of a damaged one, these are decoded again byte by byte.
_PART_BYTES = 4 * 1024
# Compressed input that is kept in case that the next proves damaged (bytes; see _Coding). Nearly all streams are shorter:
# one of 40,000 events has about this size.
_LATEST_BYTES = 512 * 1024
# Memory is asked for in units of so many bytes, so that little is asked.
_MEMORY_UNIT_BYTES = 16 * 1024


class DecodeFault(StrEnum):
    """Why the rest of a body could not be decoded."""

    UNKNOWN_CODING = "unknown_coding"
    TOO_MANY_CODINGS = "too_many_codings"
    CORRUPT = "corrupt"  # not what its coding says, or bytes after the coding's end
    BOMB = "bomb"  # MAX_RATIO or MAX_BETWEEN_RATIO
    TOO_LARGE = "too_large"  # MAX_DECODED_BYTES, or there was no memory for its decoder
    BAD_FRAMING = "bad_framing"
    INCOMPLETE = "incomplete"  # the framing says that it is whole, the coding does not


class Piece(msgspec.Struct, gc=False):
    """What a feed gave: body bytes (after framing, before decoding), decoded bytes, and the bytes beyond the body's end."""

    body_bytes: int
    decoded: bytes
    rest: bytes


class Memory(Protocol):
    """Bounds what all decoders hold together."""

    def hold(self, holder: "BodyDecoder", size: int) -> bool:
        """Whether `holder` may hold `size` bytes in all from now on; if not, it holds as many as before.

        It is always granted to hold less. To make room, `give_way` of another holder may be called.
        """


class BodyDecoder:
    """One body, fed as it comes.

    `transfer`: chunked, or identity: then `length` is the body's, None if the connection's end ends it. `coding`: the
    Content-Encoding header's value. `fault`: one that is known beforehand. `memory`: see Memory; with one, `let_go` must be
    called at last.

    `complete`: the framing says that the body is whole; without chunks and length only `finish()` says so.
    """

    def __init__(
        self,
        transfer: Literal["identity", "chunked"] = "identity",
        coding: str | None = None,
        length: int | None = None,
        *,
        fault: DecodeFault | None = None,
        memory: Memory | None = None,
        max_decoded: int = MAX_DECODED_BYTES,
        max_ratio: int = MAX_RATIO,
    ) -> None:
        self._framing: Framing = Chunked() if transfer == "chunked" else Plain(length)
        self._max_decoded, self._max_ratio = max_decoded, max_ratio
        self._broken = fault is DecodeFault.BAD_FRAMING
        self._body_bytes = 0
        self._memory, self._held = memory, 0
        codings, wrong = _codings(coding)
        self._codings = codings
        self.is_coded = bool(codings)  # whether there is a content coding to undo
        self.fault: DecodeFault | None = fault or wrong

    @property
    def complete(self) -> bool:
        return self._framing.complete and not self._broken

    def usual(self, data: bytes) -> bytes | None:
        """What `feed` would give of the usual read: one whole chunk of a body without coding. None, and nothing is taken, for
        any other.
        """
        framing = self._framing
        if self.is_coded or self.fault is not None or not isinstance(framing, Chunked):
            return None
        return framing.one_chunk(data)

    def usual_each(self, reads: Sequence[bytes]) -> list[bytes]:
        """The same of many reads, each of one chunk or more: what the first ones give, up to one that is not usual."""
        framing = self._framing
        if self.is_coded or self.fault is not None or not isinstance(framing, Chunked):
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
            self.let_go()
        return Piece(len(body), decoded, rest)

    def finish(self) -> bool:
        """The input is over. Whether the body is whole, by its framing and by its coding; `complete` and `fault` say more."""
        self._framing.end()
        if self.complete and self.fault is None and not all(coding.whole for coding in self._codings):
            self.fault = DecodeFault.INCOMPLETE
        return self.complete and self.fault is None

    def give_way(self) -> None:
        """Give the memory back because another decoder needs it: nothing more is decoded."""
        self.fault = self.fault or DecodeFault.TOO_LARGE
        self.let_go()

    def let_go(self) -> None:
        """Give the memory back; nothing more is decoded."""
        self._codings = []
        self._hold(0)

    def _decoded(self, body: bytes) -> bytes:
        if self.fault is not None:
            return b""
        if not self.is_coded:
            return body
        if not self._codings:  # let go
            return b""
        out: list[bytes] = []
        try:
            for window, limits in self._windows(body):
                for piece in _through(self._codings, window, limits):
                    out.append(piece)
                    if len(piece) >= _MEMORY_UNIT_BYTES:
                        self._account()
                self._account()
        except _UndecodableError as error:
            self.fault = error.fault
            if self.fault is DecodeFault.BOMB and error.limit == self._max_decoded:
                self.fault = DecodeFault.TOO_LARGE
        if self.fault is not None:
            self.let_go()
        return b"".join(out)

    def _account(self) -> None:
        """Take the memory that is needed by now. Raises _UndecodableError if there is none."""
        held = 0
        for coding in self._codings:
            held += coding.held
        if not self._hold(-(-held // _MEMORY_UNIT_BYTES) * _MEMORY_UNIT_BYTES):
            raise _UndecodableError(DecodeFault.TOO_LARGE)

    def _hold(self, size: int) -> bool:
        if size != self._held and self._memory is not None:
            if not self._memory.hold(self, size):
                return False
            self._held = size
        return True

    def _windows(self, body: bytes) -> Iterator[tuple[bytes, Sequence[int]]]:
        """`body` cut where the body's windows end, each with every coding's limit for what it gives up to there."""
        at = 0
        while at < len(body):
            number, within = divmod(self._body_bytes, RATIO_WINDOW_BYTES)
            window = body[at : at + RATIO_WINDOW_BYTES - within]
            at += len(window)
            self._body_bytes += len(window)
            end = (number + 1) * RATIO_WINDOW_BYTES
            limit = min(RATIO_FREE_BYTES + self._max_ratio * end, self._max_decoded)
            if len(self._codings) == 1:
                yield window, (limit,)
            else:
                yield window, (min(BETWEEN_FREE_BYTES + MAX_BETWEEN_RATIO * end, self._max_decoded), limit)


class _UndecodableError(Exception):
    def __init__(self, fault: DecodeFault, limit: int | None = None) -> None:
        self.fault, self.limit = fault, limit


class _Coding:
    """One content coding.

    The libraries raise on damage and lose what they decoded before it in the same call, so that more would come out of small
    reads than of large ones. Hence the latest input is kept, and a second decoder that stands where it begins; when a part
    proves damaged, that one gets the same again, the part byte by byte. A short body needs no second decoder: a new one does.
    """

    def __init__(self, name: str) -> None:
        self._make, self._several = MEMBERS[name], name in SEVERAL
        self._member: Member | None = None
        self._second: Member | None = None
        self._before: Member | None = None  # the one that ended last, if it is reusable
        self._latest = bytearray()  # what `_member` had and `_second` had not
        self._ended = 0
        self.produced = 0  # decoded bytes, with what further members count as

    @property
    def whole(self) -> bool:
        """Whether the input ends where the coding does; none at all is whole as well."""
        return self._member is None

    @property
    def held(self) -> int:
        """About how many bytes of memory it holds."""
        if self._member is None:
            return 0 if self._before is None else self._before.held
        held = len(self._latest) + self._member.held
        return held if self._second is None else held + self._second.held

    def decode(self, data: bytes) -> Iterator[bytes]:
        """What `data` gives, in pieces; an empty one where a member begins. Raises _UndecodableError after the last one."""
        for at in range(0, len(data), _PART_BYTES):
            part = data[at : at + _PART_BYTES]
            while part:
                if self._member is None:
                    self._member = self._begin()
                    yield b""
                member = self._member
                yield from self._guarded(member, part)
                if not member.ended:
                    break
                part = member.unused
                self._end(member)

    def _begin(self) -> Member:
        if self._ended and not self._several:
            raise _UndecodableError(DecodeFault.CORRUPT)
        if self._ended:
            self.produced += MEMBER_BYTES
        before, self._before = self._before, None
        return self._make(before)

    def _end(self, member: Member) -> None:
        self._before = member if member.reusable else None
        self._member = self._second = None
        self._latest.clear()
        self._ended += 1

    def _guarded(self, member: Member, part: bytes) -> Iterator[bytes]:
        given = 0
        try:
            for piece in member.decode(part):
                given += len(piece)
                yield piece
        except LIBRARY_ERRORS:
            yield from self._again(part, given)
            raise _UndecodableError(DecodeFault.CORRUPT) from None
        self._latest += part
        if len(self._latest) > _LATEST_BYTES:
            self._catch_up()

    def _catch_up(self) -> Member:
        self._second = self._second or self._make(None)
        if self._latest:
            for _ in self._second.decode(bytes(self._latest)):
                pass
            self._latest.clear()
        return self._second

    def _again(self, part: bytes, given: int) -> Iterator[bytes]:
        """What a damaged `part` holds beyond the `given` bytes, decoded byte by byte up to the damage."""
        member = self._catch_up()
        try:
            for byte in part:
                for piece in member.decode(bytes((byte,))):
                    yield piece[given:]
                    given = max(0, given - len(piece))
        except LIBRARY_ERRORS:
            return


def _codings(header: str | None) -> tuple[list[_Coding], DecodeFault | None]:
    """The codings to take off, outermost first."""
    if not header:
        return [], None
    names = [name.strip().lower() for name in header.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if any(name not in MEMBERS for name in names):
        return [], DecodeFault.UNKNOWN_CODING
    if len(names) > MAX_CODINGS:
        return [], DecodeFault.TOO_MANY_CODINGS
    return [_Coding(name) for name in reversed(names)], None


def _through(codings: Sequence[_Coding], data: bytes, limits: Sequence[int]) -> Iterator[bytes]:
    """`data` through all codings. Raises _UndecodableError once a coding has given more in all than its limit."""
    coding, limit = codings[0], limits[0]
    for piece in coding.decode(data):
        given = piece[: max(limit - coding.produced, 0)]
        coding.produced += len(piece)
        if len(codings) > 1:
            yield from _through(codings[1:], given, limits[1:])
        elif given:
            yield given
        if coding.produced > limit:
            raise _UndecodableError(DecodeFault.BOMB, limit)
