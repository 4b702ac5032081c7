"""One bound over all streams for what a recorder has to hold of them: bodies, and events that have not ended.

A client or upstream that stalls holds its part for as long as it likes. So the budget is never denied to a newcomer because
of what others hold: where it is full, the holder that began first lets go of what it has. A body that arrives at an
ordinary pace is held for milliseconds and is among the newest all that time; a stalled one becomes the oldest.

Small and large holders are kept apart, each with a part of the budget that the other cannot take from it: bodies of
megabytes, at whatever rate they come, do not push out the small body of a slow client, nor many small ones a large one.
"""

from typing import Protocol

# A holder of so many bytes is large. Most requests are smaller: a recorded agent's prompt has 50 KB.
LARGE_BYTES = 64 * 1024
# The part of the budget that large holders may have where small ones want the rest: three quarters.
_LARGE_PART = 3 / 4


class Holder(Protocol):
    """A body or an event that is held within the budget."""

    def give_way(self) -> None:
        """Let go of all that is held, and give it back to the budget: others need the room."""


class Budget:
    """Bytes that may be held at once. `take` before holding, `give` after letting go."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._most_large = int(most * _LARGE_PART)
        self._fixed = 0  # of takers that cannot give way
        self._large_bytes = 0
        self._small: dict[Holder, int] = {}  # both in the order in which holders came to be so large
        self._large: dict[Holder, int] = {}

    @property
    def free(self) -> int:
        """How many bytes are held by nothing."""
        return self._left

    def take(self, size: int, holder: Holder | None = None) -> bool:
        """Whether there was room for `size` more bytes, or could be made; then they are taken.

        `holder`: what they are for, which may be told to give way later on; without one they stay until `give`, and
        count as large.
        """
        is_large = holder is None or self._large.get(holder, self._small.get(holder, 0)) + size >= LARGE_BYTES
        if holder is None and self._fixed + size > self._most_large:
            return False
        if holder is not None and is_large and holder in self._small:
            self._large[holder] = held = self._small.pop(holder)
            self._large_bytes += held
        while size > self._left:
            first = self._first_to_go(size if is_large else 0)
            if first is None or first is holder:
                return False
            first.give_way()
        self._add(size, holder, is_large=is_large)
        return True

    def give(self, size: int, holder: Holder | None = None) -> None:
        """`size` bytes are held no longer; `holder` as for `take`."""
        self._left += size
        if holder is None:
            self._fixed -= size
            return
        holders = self._large if holder in self._large else self._small
        if holders is self._large:
            self._large_bytes -= size
        if size and holders[holder] > size:
            holders[holder] -= size
        else:
            holders.pop(holder, None)

    def _add(self, size: int, holder: Holder | None, *, is_large: bool) -> None:
        self._left -= size
        if holder is None:
            self._fixed += size
        elif is_large:
            self._large[holder] = self._large.get(holder, 0) + size
            self._large_bytes += size
        else:
            self._small[holder] = self._small.get(holder, 0) + size

    def _first_to_go(self, large_wanted: int) -> Holder | None:
        """The oldest of the holders that have more than their part, with `large_wanted` bytes more for large ones."""
        too_large = self._fixed + self._large_bytes + large_wanted > self._most_large
        holders = self._large if too_large or not self._small else self._small
        return next(iter(holders), None)


class Gathered:
    """A body that is gathered whole, up to a limit of its own and within the budget; beyond either it is let go."""

    def __init__(self, budget: Budget, most: int) -> None:
        self._budget, self._most = budget, most
        self._pieces: list[bytes] = []
        self._size = 0
        self.capped = False

    def add(self, piece: bytes) -> None:
        """One more piece."""
        if self.capped or not piece:
            return
        if self._size + len(piece) > self._most or not self._budget.take(len(piece), self):
            self.give_way()
            return
        self._size += len(piece)
        self._pieces.append(piece)

    def take(self) -> bytes | None:
        """The whole, once; None if it was capped."""
        whole = None if self.capped else b"".join(self._pieces)
        self.drop()
        return whole

    def give_way(self) -> None:
        """Let go of what is there, and of what still comes."""
        self.drop()
        self.capped = True

    def drop(self) -> None:
        """Let go of what is there."""
        self._budget.give(self._size, self)
        self._size = 0
        self._pieces = []
