"""The queue between captures in the application's threads and the sender's thread.

No method waits for the recorder or raises because of it: a read costs one append under a lock.
"""

import contextlib
import threading
from collections import defaultdict

from streamgauge.recorder.client import MESSAGE_BYTES, stream_numbers
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import Message
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import MAX_UPSTREAMS, OTHER, NotCaptured

# If more than this waits in the inbox (bytes), the sender is woken.
WAKE_BYTES = 1024 * 1024
# Divisor of the capacity: one eighth more is reserved for starts of streams, while reads are already dropped.
RESERVE = 8

# A read: its stream, its time, its bytes. The other messages have their size beside them.
Note = tuple[int, int | None, bytes] | tuple[Message, int]


class Inbox:
    """The client of captures in an application (see `recorder/exchange_capture.py`). Any thread may call its methods up to
    `wake`, and the sender's thread the others.

    `full`: no more reads are accepted; `overfull`: no starts of streams either. `capacity`: what may wait in the inbox and in
    the sender's batches (bytes). `asleep`: the sender's thread sleeps for longer than streams may wait, so that a message
    wakes it; `dormant`: it sleeps until `wake`, although responses could be counted, so that a counted response wakes it.
    """

    def __init__(self, capacity: int) -> None:
        self.full = self.overfull = False
        self._capacity = capacity
        # Of everything below. It is reentrant: a signal handler, or a finalizer that the garbage collector calls, may report
        # while its thread holds the lock.
        self._lock = threading.RLock()
        self._held = 0  # bytes in the sender's batches
        self._notes: list[Note] = []
        self._noted_bytes = 0  # of the notes
        self._limit = min(WAKE_BYTES, capacity)  # of `_noted_bytes`: above it the sender is woken
        self._dropped: defaultdict[DropReason, int] = defaultdict(int)
        self._faults = 0
        self._uncaptured: defaultdict[tuple[str | None, NotCaptured], int] = defaultdict(int)
        self._numbers = stream_numbers()
        self._wakeup = threading.Lock()  # released to wake the sender's thread
        self._wakeup.acquire()
        self.asleep = self.dormant = False
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
        with self._lock:
            self._notes.append((message, size))
            self._noted_bytes += size + MESSAGE_BYTES
            if self._noted_bytes > self._limit:
                self._check_room()
                self.wake()
        if self.asleep:
            self.wake()

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        """Queues a read, which the sender's thread counts as seen. Returns False above the capacity."""
        if type(data) is not bytes:
            data = bytes(data)  # the application may use its buffer again
        with self._lock:
            if self.full:
                return False
            self._notes.append((stream, at_ns, data))
            self._noted_bytes += len(data) + MESSAGE_BYTES
            if self._noted_bytes > self._limit:
                self._check_room()
                self.wake()
        return True

    def count_dropped(self, reason: DropReason) -> None:
        """Counts a read as seen and dropped, in the sender's next turn."""
        with self._lock:
            self._dropped[reason] += 1

    def count_fault(self) -> None:
        """Counts an exchange whose capture ended because of a bug, in the sender's next turn."""
        with self._lock:
            self._faults += 1

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        """Counts a response that is not captured, within a second. The sender's thread counts those that are."""
        if without is None:
            return
        with self._lock:
            if len(self._uncaptured) > MAX_UPSTREAMS * len(NotCaptured):
                upstream = OTHER
            key = upstream, without
            self._uncaptured[key] += 1
        if self.dormant:
            self.wake()

    def wake(self) -> None:
        """Ends the current sleep of the sender's thread."""
        with contextlib.suppress(RuntimeError):  # it is released already
            self._wakeup.release()

    # The sender's thread.

    @property
    def waiting(self) -> int:
        """How many notes wait."""
        return len(self._notes)

    def take(self, most: int) -> list[Note]:
        """Removes and returns the first notes, at most `most`. `hold` makes their room free."""
        with self._lock:
            notes = self._notes[:most]
            del self._notes[: len(notes)]
        size = sum(map(_size_of, notes))
        with self._lock:
            self._noted_bytes -= size
        return notes

    def take_counts(self) -> tuple[dict[DropReason, int], int]:
        """Removes and returns the dropped reads and the faults that were counted."""
        with self._lock:
            dropped, self._dropped = self._dropped, defaultdict(int)
            faults, self._faults = self._faults, 0
        return dropped, faults

    def take_uncaptured(self) -> dict[tuple[str | None, NotCaptured], int]:
        """Removes and returns the responses that were counted, by upstream and reason."""
        with self._lock:
            uncaptured, self._uncaptured = self._uncaptured, defaultdict(int)
        return uncaptured

    def hold(self, held: int) -> None:
        """Sets the bytes that wait in batches, and checks the room."""
        with self._lock:
            self._held = held
            self._check_room()

    def _check_room(self) -> None:
        waiting = self._held + self._noted_bytes
        self.full = self._ended or waiting > self._capacity
        self.overfull = self._ended or waiting > self._capacity + self._capacity // RESERVE
        self._limit = (
            self._noted_bytes if self.full else min(self._noted_bytes + WAKE_BYTES, self._capacity - self._held)
        )

    def refuse_reads(self) -> None:
        """Drops the notes, and refuses reads until the next `hold`."""
        with self._lock:
            self._notes.clear()
            self._noted_bytes, self.full, self._limit = 0, True, 0

    def close_inbox(self) -> None:
        """Refuses everything from now on, so that captures drop their reads."""
        with self._lock:
            self._ended = True
            self._check_room()

    def forget(self) -> None:
        """Closes the inbox in a forked child, where no thread releases a lock that a thread of the parent holds."""
        self._lock = threading.RLock()
        self._notes.clear()
        self.close_inbox()


def _size_of(note: Note) -> int:
    return (note[1] if len(note) == 2 else len(note[2])) + MESSAGE_BYTES
