"""One bound over all streams for the bytes that a recorder buffers: bodies, and events that have not ended.

A client or upstream that stalls makes the recorder buffer its data for an unlimited time. So old data never keeps new data
out: when the budget is full, the holder that began first discards its data. A body that arrives at an ordinary pace is
buffered for milliseconds, and is among the newest for all that time; a stalled one becomes the oldest.

Small and large holders each have a part of the budget that the other kind cannot use. So bodies of megabytes, at any rate,
do not displace the small body of a slow client, and many small bodies do not displace a large one.
"""

from abc import ABC, abstractmethod
from typing import Protocol

# An unfinished event is charged to the budget from this size on (bytes). Nearly all events are smaller, and the bound on
# open streams bounds their total.
FREE_EVENT_BYTES = 16 * 1024
# From this size on a holder is large (bytes). Most requests are smaller: a recorded agent's prompt has 50 KB.
LARGE_BYTES = 64 * 1024
# The part of the budget that large holders may use when small ones need the rest: three quarters.
_LARGE_PART = 3 / 4


class Holder(Protocol):
    """A body or an event that is buffered within the budget."""

    def evict(self) -> None:
        """Discard all buffered data, and return its bytes to the budget: other holders need the space."""


class Budget:
    """The bytes that may be buffered at once. Callers `take` bytes before they buffer data, and `give_back` them later."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._most_large = int(most * _LARGE_PART)
        self._fixed = 0  # bytes taken without a holder: they cannot be discarded
        self._large_bytes = 0
        self._small: dict[Holder, int] = {}  # both in the order in which holders reached this size
        self._large: dict[Holder, int] = {}

    @property
    def free(self) -> int:
        """Bytes that no holder has taken."""
        return self._left

    def take(self, size: int, holder: Holder | None = None) -> bool:
        """Take `size` more bytes. Other holders may discard their data for it. False if there is no space; nothing is taken.

        `holder`: the object that buffers them; the budget may call its `evict` later. Without a holder the bytes stay
        taken until `give_back`, and count as large.
        """
        is_large = holder is None or self._large.get(holder, self._small.get(holder, 0)) + size >= LARGE_BYTES
        if holder is None and self._fixed + size > self._most_large:
            return False
        if holder is not None and is_large and holder in self._small:
            self._large[holder] = held = self._small.pop(holder)
            self._large_bytes += held
        while size > self._left:
            first = self._first_to_evict(size if is_large else 0)
            if first is None or first is holder:
                return False
            first.evict()
        self._add(size, holder, is_large=is_large)
        return True

    def give_back(self, size: int, holder: Holder | None = None) -> None:
        """Return `size` bytes; `holder` as for `take`."""
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

    def _first_to_evict(self, large_wanted: int) -> Holder | None:
        """The oldest holder of the kind that exceeds its part. `large_wanted`: bytes that a large holder requests now."""
        too_large = self._fixed + self._large_bytes + large_wanted > self._most_large
        holders = self._large if too_large or not self._small else self._small
        return next(iter(holders), None)


class BodyBuffer:
    """Buffers a whole body, up to a limit of its own and within the budget. A body beyond either is discarded."""

    def __init__(self, budget: Budget, most: int) -> None:
        self._budget, self._most = budget, most
        self._pieces: list[bytes] = []
        self._size = 0
        self.capped = False

    def add(self, piece: bytes) -> None:
        """Append a piece of the body."""
        if self.capped or not piece:
            return
        if self._size + len(piece) > self._most or not self._budget.take(len(piece), self):
            self.evict()
            return
        self._size += len(piece)
        self._pieces.append(piece)

    def take(self) -> bytes | None:
        """The whole body; None if it was capped. Its bytes are returned to the budget."""
        whole = None if self.capped else b"".join(self._pieces)
        self.drop()
        return whole

    def evict(self) -> None:
        """Discard the buffered pieces, and ignore further ones."""
        self.drop()
        self.capped = True

    def drop(self) -> None:
        """Discard the buffered pieces."""
        self._budget.give_back(self._size, self)
        self._size = 0
        self._pieces = []


class UnfinishedEvent(ABC):
    """Charges to the budget what is buffered of an event that has not ended."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._charged = 0

    @abstractmethod
    def evict(self) -> None:
        """Discard the unfinished event, and release its bytes: other holders need its share of the budget."""

    def release(self) -> None:
        """Return all bytes to the budget."""
        self._budget.give_back(self._charged, self)
        self._charged = 0

    def charge(self, held: int) -> None:
        """Charge an event of which `held` bytes are buffered. It is discarded if the budget has no space for it."""
        charge = max(held - FREE_EVENT_BYTES, 0)
        if charge < self._charged:
            self._budget.give_back(self._charged - charge, self)
        elif charge > self._charged and not self._budget.take(charge - self._charged, self):
            self.evict()
            return
        self._charged = charge
