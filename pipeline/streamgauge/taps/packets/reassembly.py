"""One direction of a TCP connection: segments in any order -> its bytes in order, and the losses. Pure.

    next in order       returned at once, together with the waiting bytes that follow it
    after a hole        waits, within limits of bytes, pieces and time
    seen before         dropped: the first copy of bytes counts (retransmissions, keep-alive probes, and captures that see
                        a packet on two interfaces)
    acknowledged        bytes that the other side has acknowledged and this capture has not seen are lost: they are not
                        retransmitted

A piece is bytes, or a number of lost bytes. The pieces that `add` returns became readable with that packet. This holds for
bytes after a hole, too: the application gets them only when the hole is filled.
"""

from bisect import bisect_left, insort
from operator import itemgetter

from streamgauge.recorder.budget import Budget

# Limit of bytes that wait after one hole: the largest window that Linux sets by itself is 6 MiB (tcp_rmem); more can wait
# only if an acknowledgement was not captured either.
MAX_AHEAD_BYTES = 8 * 1024 * 1024
# The same limit in pieces: 8 MiB in packets of about 1 KiB; real senders do not send that much in smaller ones.
MAX_AHEAD_PIECES = 8 * 1024
# A larger loss (bytes) does not fit a window, so the sequence numbers are not this connection's.
MAX_GAP_BYTES = 64 * 1024 * 1024

_MODULUS = 1 << 32
_HALF = 1 << 31

# Bytes, or how many of them are lost.
Piece = bytes | int


class OutOfRangeError(ValueError):
    """The sequence numbers cannot be this connection's: this direction cannot be followed any more."""


class Direction:
    """One direction. `position`: bytes in order so far, lost ones included; `waiting`: bytes that wait after a hole."""

    __slots__ = ("_ahead", "_base", "_budget", "_fin", "hole_ns", "position", "waiting")

    def __init__(self, first: int, budget: Budget) -> None:
        self.position = 0
        self.waiting = 0
        self.hole_ns: int | None = None  # when the first waiting bytes arrived; None if none wait
        self._base = first % _MODULUS
        self._budget = budget
        self._ahead: list[tuple[int, bytes]] = []  # by position, none overlapping
        self._fin: int | None = None

    @property
    def over(self) -> bool:
        """Whether all bytes before the sender's FIN have come, or are lost."""
        return self._fin is not None and self.position >= self._fin

    def position_of(self, sequence: int) -> int:
        """The position nearest to a sequence number; negative before the beginning."""
        ahead = (sequence - self._base - self.position) % _MODULUS
        return self.position + (ahead if ahead < _HALF else ahead - _MODULUS)

    def add(self, sequence: int, payload: bytes, at_ns: int) -> list[Piece]:
        """Adds a segment's bytes. Returns the pieces that are readable now. Raises OutOfRangeError."""
        start = self.position_of(sequence)
        if start == self.position and not self._ahead:
            self.position += len(payload)
            return [payload]
        if start - self.position > MAX_GAP_BYTES:
            raise OutOfRangeError
        if start < self.position:
            payload, start = payload[self.position - start :], self.position
        if not payload:
            return []
        if start > self.position:
            self._keep(start, payload, at_ns)
            return self._bounded()
        fresh = payload[: self._ahead[0][0] - start] if self._ahead else payload
        self.position += len(fresh)
        if len(fresh) < len(payload):
            self._keep(self.position, payload[len(fresh) :], at_ns)
        return [b"".join((fresh, *self._in_order()))]

    def acknowledge(self, sequence: int) -> list[Piece]:
        """Handles an acknowledgement by the other side. Returns the pieces before `sequence`. Raises OutOfRangeError."""
        start = self.position_of(sequence)
        if self._fin is not None:
            start = min(start, self._fin)
        if start <= self.position:
            return []
        if start - self.position > MAX_GAP_BYTES:
            raise OutOfRangeError
        return self._skip_to(start)

    def finish(self, sequence: int) -> None:
        """Sets the sequence number of the sender's FIN."""
        start = self.position_of(sequence)
        if self._fin is None and 0 <= start - self.position <= MAX_GAP_BYTES:
            self._fin = start

    def skip_holes(self) -> list[Piece]:
        """Stops waiting for holes. Returns the waiting bytes, with the losses between them."""
        return self._skip_to(self._ahead[-1][0] + len(self._ahead[-1][1])) if self._ahead else []

    def discard(self) -> None:
        """Drops the waiting bytes."""
        self._budget.give_back(self.waiting)
        self._ahead, self.waiting, self.hole_ns = [], 0, None

    def _keep(self, start: int, payload: bytes, at_ns: int) -> None:
        """Keeps the bytes that are new; bytes that were kept before stay unchanged."""
        ahead, end = self._ahead, start + len(payload)
        at = bisect_left(ahead, start, key=itemgetter(0))
        if at and (before := ahead[at - 1][0] + len(ahead[at - 1][1])) > start:
            payload, start = payload[before - start :], before
        fresh: list[tuple[int, bytes]] = []
        while start < end:
            stop = min(end, ahead[at][0]) if at < len(ahead) else end
            if stop > start:
                fresh.append((start, payload[: stop - start]))
            beyond = stop if stop == end else ahead[at][0] + len(ahead[at][1])
            payload, start, at = payload[beyond - start :], beyond, at + 1
        size = sum(len(piece) for _, piece in fresh)
        if size and not self._budget.take(size):
            return  # no room: these bytes are lost unless they are retransmitted
        for piece in fresh:
            insort(ahead, piece, key=itemgetter(0))
        self.waiting += size
        if self.hole_ns is None:
            self.hole_ns = at_ns

    def _in_order(self) -> list[bytes]:
        """Removes what is next in order from the waiting bytes, as at most one piece."""
        taken: list[bytes] = []
        count = 0
        for start, payload in self._ahead:
            if start != self.position:
                break
            taken.append(payload)
            self.position += len(payload)
            count += 1
        if not taken:
            return []
        del self._ahead[:count]
        whole = taken[0] if len(taken) == 1 else b"".join(taken)
        self.waiting -= len(whole)
        self._budget.give_back(len(whole))
        if not self._ahead:
            self.hole_ns = None
        return [whole]

    def _bounded(self) -> list[Piece]:
        """Skips the first hole if more bytes or pieces wait than the limits allow."""
        if self.waiting <= MAX_AHEAD_BYTES and len(self._ahead) <= MAX_AHEAD_PIECES:
            return []
        return self._skip_to(self._ahead[0][0])

    def _skip_to(self, start: int) -> list[Piece]:
        """Returns everything up to this position, and what follows it in order."""
        pieces: list[Piece] = [*self._in_order()]
        while self.position < start:
            stop = min(self._ahead[0][0], start) if self._ahead else start
            pieces.append(stop - self.position)
            self.position = stop
            pieces += self._in_order()
        return pieces
