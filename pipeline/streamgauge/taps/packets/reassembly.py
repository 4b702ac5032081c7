"""One direction of a TCP connection: segments in any order -> its bytes in order, and where bytes are missing. Pure.

    next in order       it is a piece at once, together with what waited behind it
    behind a hole       it waits, within limits of bytes, of pieces and of time
    seen before         dropped: of bytes that come twice the first copy counts (retransmissions, keep-alive probes, and
                        captures that see a packet on two interfaces)
    acknowledged        what the other side has and this capture has not is lost: no retransmission will bring it

A piece is bytes, or a number: so many bytes are lost there. What `add` gives became readable with that very packet: for bytes
behind a hole this is when the hole was filled, since the application did not get them before.
"""

from bisect import bisect_left, insort
from operator import itemgetter

from streamgauge.recorder.budget import Budget

# What may wait behind one hole (bytes): the largest window that Linux gives by itself is 6 MiB (tcp_rmem), and more of it
# waits only where an acknowledgement was not seen either.
MAX_AHEAD_BYTES = 8 * 1024 * 1024
# The same in pieces: 8 MiB in common packets; more of them are smaller than anybody sends.
MAX_AHEAD_PIECES = 8 * 1024
# A loss of more (bytes) is none: a window has no room for it, so the sequence numbers are not this connection's.
MAX_GAP_BYTES = 64 * 1024 * 1024

_MODULUS = 1 << 32
_HALF = 1 << 31

# Bytes, or how many of them are lost.
Piece = bytes | int


class OutOfRangeError(ValueError):
    """Sequence numbers that cannot be this connection's: nothing of this direction can be told any more."""


class Direction:
    """See above. `position`: bytes in order so far, lost ones included. `waiting`: bytes that wait behind a hole."""

    __slots__ = ("_ahead", "_base", "_budget", "_fin", "hole_ns", "position", "waiting")

    def __init__(self, first: int, budget: Budget) -> None:
        self.position = 0
        self.waiting = 0
        self.hole_ns: int | None = None  # since when something waits
        self._base = first % _MODULUS
        self._budget = budget
        self._ahead: list[tuple[int, bytes]] = []  # by position, none overlapping
        self._fin: int | None = None

    @property
    def over(self) -> bool:
        """The sender's FIN has been reached."""
        return self._fin is not None and self.position >= self._fin

    def place(self, sequence: int) -> int:
        """The position that a sequence number means: the nearest one. Negative before the beginning."""
        ahead = (sequence - self._base - self.position) % _MODULUS
        return self.position + (ahead if ahead < _HALF else ahead - _MODULUS)

    def add(self, sequence: int, payload: bytes, at_ns: int) -> list[Piece]:
        """A segment's bytes. Raises OutOfRangeError."""
        place = self.place(sequence)
        if place == self.position and not self._ahead:
            self.position += len(payload)
            return [payload]
        if place - self.position > MAX_GAP_BYTES:
            raise OutOfRangeError
        if place < self.position:
            payload, place = payload[self.position - place :], self.position
        if not payload:
            return []
        if place > self.position:
            self._keep(place, payload, at_ns)
            return self._bounded()
        fresh = payload[: self._ahead[0][0] - place] if self._ahead else payload
        self.position += len(fresh)
        if len(fresh) < len(payload):
            self._keep(self.position, payload[len(fresh) :], at_ns)
        return [b"".join((fresh, *self._in_order()))]

    def acknowledge(self, sequence: int) -> list[Piece]:
        """The other side has everything before this number. Raises OutOfRangeError."""
        place = self.place(sequence)
        if self._fin is not None:
            place = min(place, self._fin)
        if place <= self.position:
            return []
        if place - self.position > MAX_GAP_BYTES:
            raise OutOfRangeError
        return self._skip_to(place)

    def finish(self, sequence: int) -> None:
        """The sender's FIN stands at this number."""
        place = self.place(sequence)
        if self._fin is None and 0 <= place - self.position <= MAX_GAP_BYTES:
            self._fin = place

    def give_up(self) -> list[Piece]:
        """No hole will be filled any more: what waits, with the losses between."""
        return self._skip_to(self._ahead[-1][0] + len(self._ahead[-1][1])) if self._ahead else []

    def let_go(self) -> None:
        """Nothing is wanted any more."""
        self._budget.give(self.waiting)
        self._ahead, self.waiting, self.hole_ns = [], 0, None

    def _keep(self, place: int, payload: bytes, at_ns: int) -> None:
        """Keeps what is new in it; what was there stays as it was."""
        ahead, end = self._ahead, place + len(payload)
        at = bisect_left(ahead, place, key=itemgetter(0))
        if at and (before := ahead[at - 1][0] + len(ahead[at - 1][1])) > place:
            payload, place = payload[before - place :], before
        fresh: list[tuple[int, bytes]] = []
        while place < end:
            stop = min(end, ahead[at][0]) if at < len(ahead) else end
            if stop > place:
                fresh.append((place, payload[: stop - place]))
            beyond = stop if stop == end else ahead[at][0] + len(ahead[at][1])
            payload, place, at = payload[beyond - place :], beyond, at + 1
        size = sum(len(piece) for _, piece in fresh)
        if size and not self._budget.take(size):
            return  # no room: it is lost, unless it comes again
        for piece in fresh:
            insort(ahead, piece, key=itemgetter(0))
        self.waiting += size
        if self.hole_ns is None:
            self.hole_ns = at_ns

    def _in_order(self) -> list[bytes]:
        """Takes what is next in order, as one piece."""
        taken: list[bytes] = []
        count = 0
        for place, payload in self._ahead:
            if place != self.position:
                break
            taken.append(payload)
            self.position += len(payload)
            count += 1
        if not taken:
            return []
        del self._ahead[:count]
        whole = taken[0] if len(taken) == 1 else b"".join(taken)
        self.waiting -= len(whole)
        self._budget.give(len(whole))
        if not self._ahead:
            self.hole_ns = None
        return [whole]

    def _bounded(self) -> list[Piece]:
        """What is too much to wait for one hole is waited for no longer."""
        if self.waiting <= MAX_AHEAD_BYTES and len(self._ahead) <= MAX_AHEAD_PIECES:
            return []
        return self._skip_to(self._ahead[0][0])

    def _skip_to(self, place: int) -> list[Piece]:
        """Everything up to this position, and what follows it in order."""
        pieces: list[Piece] = [*self._in_order()]
        while self.position < place:
            stop = min(self._ahead[0][0], place) if self._ahead else place
            pieces.append(stop - self.position)
            self.position = stop
            pieces += self._in_order()
        return pieces
