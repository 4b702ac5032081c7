"""Decodes a body as it arrives: removes its framing (`framing.py`), then its content codings (RFC 9110, 8.4).

Decoded bytes are returned as soon as the coding gives them, which is after each sync flush of the server. The output does not
depend on how the input is split, even if the input is damaged: then everything before the damage is returned.

Each failure is a `DecodeFault`; the first one stays, and nothing raises. After a fault nothing more is decoded, while the
framing continues and body bytes are counted. After BAD_FRAMING the body cannot be identified, and nothing is counted.

Limits: decoded bytes stay below RATIO_FREE_BYTES + `max_ratio` times the body's bytes, and below `max_decoded` in total. So
a feed of n bytes gives at most RATIO_FREE_BYTES + `max_ratio` * (n + one window). Bodies without a coding have no limit.
The same limits bound the work: each further member of a coding counts as MEMBER_BYTES, and the bytes that one coding gives
to another stay below BETWEEN_FREE_BYTES + MAX_BETWEEN_RATIO times the body's bytes.

Memory: a decoder reserves the memory of its libraries and of its kept input from a `Memory` that all decoders share.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from streamgauge.core.http1.coding_members import LIBRARY_ERRORS, MEMBERS, SEVERAL, Member
from streamgauge.core.http1.framing import Framing, Plain

# Decoded bytes of one body. A stream of a million events has about this size; a larger body is no LLM response.
MAX_DECODED_BYTES = 256 * 1024 * 1024
# Decoded bytes per body byte. Measured: recorded streams compressed as a whole up to 78, with a flush after each event
# 15; one event repeated, and compressed as a whole with gzip, 256. A gzip bomb has 1,030, other bombs far more.
MAX_RATIO = 300
# Decoded bytes allowed besides the ratio: the size of the largest event, so that no small body is called a bomb.
RATIO_FREE_BYTES = 4 * 1024 * 1024
# The ratio is checked at multiples of this many body bytes, and not where reads end, so that splits change nothing.
RATIO_WINDOW_BYTES = 16 * 1024
# Codings applied one after another. No server sends more than one; two mean that a proxy compressed again.
MAX_CODINGS = 2
# Of two codings, the bytes that the outer one may give to the inner one, per body byte: compressed data shrinks little
# when it is compressed again. Measured: recorded streams, compressed with a flush after each event and then again, at
# most 2.6.
MAX_BETWEEN_RATIO = 8
# Bytes between two codings that are allowed besides MAX_BETWEEN_RATIO: 10,000 equal events, each flushed, are smaller.
BETWEEN_FREE_BYTES = 128 * 1024
# Decoded bytes that a coding's second and each further member count as, besides their content: beginning a member takes
# about as long as decoding this many bytes. The smallest member has 8 bytes, which gives a ratio of 256. This is below
# MAX_RATIO, so that a body of one coding may have any number of members.
MEMBER_BYTES = 2 * 1024

# A coding decodes its input in parts of this many bytes. It decodes a damaged part again, byte by byte.
_PART_BYTES = 4 * 1024
# Compressed input that is kept in case later input proves damaged (bytes; see _Coding). Nearly all streams are shorter:
# a stream of 40,000 events has about this size.
_LATEST_BYTES = 512 * 1024
# Memory is reserved in units of this many bytes, to keep calls of `Memory.reserve` rare.
_MEMORY_UNIT_BYTES = 16 * 1024


class DecodeFault(StrEnum):
    """Reasons why the rest of a body could not be decoded."""

    UNKNOWN_CODING = "unknown_coding"
    TOO_MANY_CODINGS = "too_many_codings"
    CORRUPT = "corrupt"  # invalid in its coding, or bytes after the coding's end
    BOMB = "bomb"  # over MAX_RATIO or MAX_BETWEEN_RATIO
    TOO_LARGE = "too_large"  # over MAX_DECODED_BYTES, or there was no memory for the decoder
    BAD_FRAMING = "bad_framing"
    INCOMPLETE = "incomplete"  # whole by its framing, but not by its coding
    BAD_EVENT_FRAMING = "bad_event_framing"  # decoded, but its events cannot be told apart (a checksum, a length)


class Piece(msgspec.Struct, gc=False):
    """The result of a feed.

    `body_bytes`: how many bytes of the body it held (after framing, before decoding). `rest`: the bytes after the body.
    """

    body_bytes: int
    decoded: bytes
    rest: bytes


class Memory(Protocol):
    """Limits the memory that all decoders hold together."""

    def reserve(self, holder: "BodyDecoder", size: int) -> bool:
        """Whether `holder` may hold `size` bytes in total from now on; if not, it keeps its present amount.

        A smaller amount is always granted. To make room, `reserve` may call `evict` of another decoder.
        """


class BodyDecoder:
    """Decodes one body, fed as it arrives.

    `framing`: of the body; None if it has none, and the end of the input ends it. `coding`: the value of the Content-Encoding
    header. `memory`: see Memory; a decoder with a memory needs a call of `release` at the end.

    `complete`: the body is whole by its framing. Without chunks and without a length, only `finish()` makes it complete.
    """

    def __init__(
        self,
        framing: Framing | None = None,
        coding: str | None = None,
        *,
        memory: Memory | None = None,
        max_decoded: int = MAX_DECODED_BYTES,
        max_ratio: int = MAX_RATIO,
    ) -> None:
        self._framing: Framing = Plain(None) if framing is None else framing
        self._max_decoded, self._max_ratio = max_decoded, max_ratio
        self._body_bytes = 0
        self._memory, self._held = memory, 0
        codings, wrong = _codings(coding)
        self._codings = codings
        self.is_coded = bool(codings)  # whether there is a content coding to undo
        self.fault: DecodeFault | None = DecodeFault.BAD_FRAMING if self._framing.broken else wrong

    @property
    def complete(self) -> bool:
        """Whether the body is whole by its framing, whatever its coding."""
        return self._framing.complete

    def feed(self, data: bytes) -> Piece:
        """Decodes bytes from the connection. Never raises."""
        body, rest = self._framing.feed(data)
        decoded = self._decoded(body) if body else b""
        self._check_framing()
        return Piece(len(body), decoded, rest)

    def feed_each(self, reads: Sequence[bytes]) -> list[bytes]:
        """The body's bytes in each of several reads, of a body that is not coded and has no fault yet. Never raises."""
        feed = self._framing.feed
        bodies = [feed(data)[0] for data in reads]
        self._check_framing()
        return bodies

    def _check_framing(self) -> None:
        if self._framing.broken:
            self.fault = self.fault or DecodeFault.BAD_FRAMING
            self.release()

    def finish(self) -> bool:
        """Ends the input; returns whether the body is whole by its framing and its coding. See `complete` and `fault`."""
        self._framing.end()
        if self.complete and self.fault is None and not all(coding.whole for coding in self._codings):
            self.fault = DecodeFault.INCOMPLETE
        return self.complete and self.fault is None

    def evict(self) -> None:
        """Releases the memory because another decoder needs it. The fault is TOO_LARGE, unless there is one."""
        self.fault = self.fault or DecodeFault.TOO_LARGE
        self.release()

    def release(self) -> None:
        """Releases the memory; nothing more is decoded."""
        self._codings = []
        self._hold(0)

    def _decoded(self, body: bytes) -> bytes:
        if self.fault is not None:
            return b""
        if not self.is_coded:
            return body
        if not self._codings:  # after `release`
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
            self.release()
        return b"".join(out)

    def _account(self) -> None:
        """Reserves the memory that the codings hold now. Raises _UndecodableError if it is not granted."""
        held = 0
        for coding in self._codings:
            held += coding.held
        if not self._hold(-(-held // _MEMORY_UNIT_BYTES) * _MEMORY_UNIT_BYTES):
            raise _UndecodableError(DecodeFault.TOO_LARGE)

    def _hold(self, size: int) -> bool:
        if size != self._held and self._memory is not None:
            if not self._memory.reserve(self, size):
                return False
            self._held = size
        return True

    def _windows(self, body: bytes) -> Iterator[tuple[bytes, Sequence[int]]]:
        """Cuts `body` at the ends of ratio windows; each part comes with the output limit of each coding for its window."""
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
    """Decodes one content coding.

    The libraries raise on damage and lose what they decoded before it in the same call, so that small reads would give more
    output than large reads. Therefore the latest input is kept, with a second decoder that has decoded everything before it.
    When a part proves damaged, the second decoder gets the kept input, then the part byte by byte. A body that is shorter
    than the kept input needs no second decoder: a new one is made when it is needed.
    """

    def __init__(self, name: str) -> None:
        self._make, self._several = MEMBERS[name], name in SEVERAL
        self._member: Member | None = None
        self._second: Member | None = None
        self._before: Member | None = None  # the member that ended last, if it is reusable
        self._latest = bytearray()  # input that `_member` has decoded and `_second` has not
        self._ended = 0
        self.produced = 0  # decoded bytes, and MEMBER_BYTES for each further member

    @property
    def whole(self) -> bool:
        """Whether the input ends where a member ends. Empty input is whole as well."""
        return self._member is None

    @property
    def held(self) -> int:
        """The approximate memory that the coding holds (bytes)."""
        if self._member is None:
            return 0 if self._before is None else self._before.held
        held = len(self._latest) + self._member.held
        return held if self._second is None else held + self._second.held

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yields what `data` decodes to, in pieces, and an empty piece where a member begins.

        Raises _UndecodableError at damage, after all pieces before it.
        """
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
        yielded = 0
        try:
            for piece in member.decode(part):
                yielded += len(piece)
                yield piece
        except LIBRARY_ERRORS:
            yield from self._again(part, yielded)
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

    def _again(self, part: bytes, skip: int) -> Iterator[bytes]:
        """Decodes a damaged `part` byte by byte up to the damage; yields the output after the first `skip` bytes."""
        member = self._catch_up()
        try:
            for byte in part:
                for piece in member.decode(bytes((byte,))):
                    yield piece[skip:]
                    skip = max(0, skip - len(piece))
        except LIBRARY_ERRORS:
            return


def _codings(header: str | None) -> tuple[list[_Coding], DecodeFault | None]:
    """The codings to remove, outermost first; or none, and the fault of the header."""
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
    """Decodes `data` through all codings. Raises _UndecodableError once a coding's total output exceeds its limit."""
    coding, limit = codings[0], limits[0]
    for piece in coding.decode(data):
        allowed = piece[: max(limit - coding.produced, 0)]
        coding.produced += len(piece)
        if len(codings) > 1:
            yield from _through(codings[1:], allowed, limits[1:])
        elif allowed:
            yield allowed
        if coding.produced > limit:
            raise _UndecodableError(DecodeFault.BOMB, limit)
