"""The queue between captures in the application's threads and the sender's thread. No method waits, locks or raises because
of the recorder: a read costs one append.

The sum of the queued bytes is approximate, since threads add to it without a lock. It is corrected whenever few notes are
left.
"""

import contextlib
import itertools
import threading

from streamgauge.recorder.client import MESSAGE_BYTES, stream_numbers
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import Message
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import MAX_UPSTREAMS, OTHER, NotCaptured

# If more than this waits in the inbox (bytes), the sender is woken.
WAKE_BYTES = 1024 * 1024
# Divisor of the capacity: one eighth more is reserved for starts of streams, while reads are already dropped.
RESERVE = 8

# If no more notes than these are left, their sizes are added up again: it takes some microseconds.
_FEW = 128
_NO_ROOM = -1  # below any sum: each read checks the limits

# A read: its stream, its time, its bytes. The other messages have their size beside them.
Note = tuple[int, int | None, bytes] | tuple[Message, int]


class SharedCount:
    """Counts in several threads without a lock: `next` of an `itertools.count` is one step of the interpreter."""

    __slots__ = ("_numbers", "_taken")

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._taken = 0

    def add(self) -> None:
        """Adds 1. Any thread may call it."""
        next(self._numbers)

    def take(self) -> int:
        """How much was added since the last call. Only one thread calls it."""
        number = next(self._numbers)
        added, self._taken = number - self._taken, number + 1
        return added


class Inbox:
    """The client of captures in an application (see `recorder/exchange_capture.py`). Any thread may call the public methods.

    `full`: no more reads are accepted; `overfull`: no starts of streams either. `capacity`: what may wait in the inbox and in
    the sender's batches (bytes).
    """

    def __init__(self, capacity: int) -> None:
        self.full = self.overfull = False
        self._capacity = capacity
        self._held = 0  # bytes in the sender's batches
        self._notes: list[Note] = []
        self._append = self._notes.append
        self._noted_bytes = 0  # of the notes, about
        self._limit = min(WAKE_BYTES, capacity)  # of `_noted_bytes`: above it the limits are checked
        self._dropped = {reason: SharedCount() for reason in DropReason}
        self._faults = SharedCount()
        self._uncaptured: dict[tuple[str | None, NotCaptured], SharedCount] = {}
        self._numbers = stream_numbers()
        self._wakeup = threading.Lock()  # released to wake the sender's thread
        self._wakeup.acquire()
        self._asleep = False  # for longer than streams may wait
        self._dormant = False  # until `wake`, although responses could be counted
        self._ended = False

    def admits(self, party: Party | None) -> bool:
        """Always: an application is one party."""
        return True

    def has_room(self, stream: int, size: int) -> bool:
        """Whether a read or a piece of a body may be queued: the streams of an application have no shares."""
        return not self.full

    def take_room(self, stream: int, size: int) -> bool:
        """As `has_room`."""
        return not self.full

    def new_stream(self) -> int:
        """A number for the next stream."""
        return next(self._numbers)

    def put(self, message: Message, size: int) -> None:
        """Queues a message with `size` bytes of content, even above the capacity."""
        self._append((message, size))
        self._noted_bytes = noted = self._noted_bytes + size + MESSAGE_BYTES
        if noted > self._limit:
            self._check_and_wake()
        if self._asleep:
            self.wake()

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        """Queues a read, which the sender's thread counts as seen. Returns False above the capacity."""
        if type(data) is not bytes:
            data = bytes(data)  # the application may use its buffer again
        noted = self._noted_bytes + len(data) + MESSAGE_BYTES
        if noted > self._limit and not self._has_room(noted):
            return False
        self._append((stream, at_ns, data))
        self._noted_bytes = noted
        return True

    def count_dropped(self, reason: DropReason) -> None:
        """Counts a read as seen and dropped, in the sender's next turn."""
        self._dropped[reason].add()

    def count_fault(self) -> None:
        """Counts an exchange whose capture ended because of a bug, in the sender's next turn."""
        self._faults.add()

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        """Counts a response that is not captured, within a second. The sender's thread counts those that are."""
        if without is not None:
            if len(self._uncaptured) > MAX_UPSTREAMS * len(NotCaptured):
                upstream = OTHER
            self._uncaptured.setdefault((upstream, without), SharedCount()).add()
            if self._dormant:
                self.wake()

    def wake(self) -> None:
        """Ends the current sleep of the sender's thread."""
        with contextlib.suppress(RuntimeError):  # it is released already
            self._wakeup.release()

    def _has_room(self, noted: int) -> bool:
        """Whether a read may be queued, with which `noted` bytes wait."""
        if self.full:
            return False
        self._noted_bytes = noted
        self._check_and_wake()
        return True

    def _check_and_wake(self) -> None:
        self._check_room()
        self.wake()

    # The sender's thread.

    def _take(self, most: int) -> list[Note]:
        """Removes the first notes, at most `most`. Other threads append at the same time: each statement is atomic."""
        notes = self._notes[:most]
        del self._notes[: len(notes)]
        return notes

    def _account(self, size: int, held: int) -> None:
        """Updates the sums: notes of `size` bytes were removed, and `held` bytes now wait in batches."""
        self._held = held
        left = self._notes[: _FEW + 1]
        self._noted_bytes = self._noted_bytes - size if len(left) > _FEW else sum(map(_size_of, left))
        self._check_room()

    def _check_room(self) -> None:
        waiting = self._held + self._noted_bytes
        self.full = self._ended or waiting > self._capacity
        self.overfull = self._ended or waiting > self._capacity + self._capacity // RESERVE
        self._limit = _NO_ROOM if self.full else min(self._noted_bytes + WAKE_BYTES, self._capacity - self._held)

    def _refuse_reads(self) -> None:
        """Refuses reads until the next `_account`."""
        self._noted_bytes, self.full, self._limit = 0, True, _NO_ROOM

    def _close_inbox(self) -> None:
        """Refuses everything from now on, so that captures drop their reads."""
        self._ended = True
        self._check_room()


def _size_of(note: Note) -> int:
    return (note[1] if len(note) == 2 else len(note[2])) + MESSAGE_BYTES
