"""Messages for the recorder: bounded batches, sent one after another over a Unix socket.

They wait here while the recorder is away or slow, up to a limit; callers check for room before they put a message. A batch
that the socket took only in part was not processed by the recorder and is sent again as a whole. A batch that the socket
took whole counts as handed to the recorder.
"""

import os
import socket
from collections import deque
from collections.abc import Callable

from streamgauge.recorder.protocol import Message, ResponseRead, encode_batch
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.ownership import is_our_directory
from streamgauge.spool.read_counters import Counters, DropReason, Incident

# Limit of what waits for a recorder that is away or slow (bytes): as for a relay, about 10 s of a busy process.
CAPACITY_BYTES = 32 * 1024 * 1024
# Size at which a batch is closed (bytes): encoding it holds the GIL for about 20 us.
BATCH_BYTES = 64 * 1024
# Overhead of a message besides its data (bytes): three objects and a list entry.
MESSAGE_BYTES = 200
# Divisor of the limit: one eighth more is reserved for starts of streams, while reads are already dropped.
RESERVE = 8
# How long a send waits for a recorder that does not read (seconds): notes are collected between sends.
PATIENCE_S = 0.02


class _Batch:
    """Messages that are sent together. `size`: their bytes with overhead; `reads`: how many of them are reads."""

    __slots__ = ("messages", "reads", "size")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = self.size = 0


class MessageBatches:
    """A process's outgoing messages. `place`: gives the path of the recorder's socket. Only the sender's thread uses it."""

    def __init__(self, place: Callable[[], str], counters: Counters, capacity: int = CAPACITY_BYTES) -> None:
        self.counters = counters
        self.held = 0  # bytes that wait, with their overhead
        self._place = place
        self._capacity = capacity
        self._gathering = _Batch()
        self._batches: deque[_Batch] = deque()
        self._sending: memoryview | None = None  # the first batch, encoded
        self._sent = 0
        self._socket: socket.socket | None = None

    @property
    def full(self) -> bool:
        """There is no room for reads."""
        return self.held > self._capacity

    @property
    def overfull(self) -> bool:
        """The reserve for starts of streams is used up as well."""
        return self.held > self._capacity + self._capacity // RESERVE

    @property
    def empty(self) -> bool:
        """Nothing waits."""
        return not (self._gathering.messages or self._batches)

    @property
    def connected(self) -> bool:
        """Whether a recorder is connected, as far as is known."""
        return self._socket is not None

    @property
    def waiting_reads(self) -> int:
        """Reads that wait."""
        return sum(batch.reads for batch in self._batches) + self._gathering.reads

    def put(self, message: Message, size: int) -> None:
        """Adds a message of `size` bytes of content without checking for room: callers check."""
        gathering = self._gathering
        gathering.messages.append(message)
        gathering.reads += type(message) is ResponseRead
        self._held(size + MESSAGE_BYTES)

    def put_reads(self, reads: list[Message], size: int) -> None:
        """The same for reads of `size` bytes in all; the caller limits them to what one batch may hold."""
        self._gathering.messages += reads
        self._gathering.reads += len(reads)
        self._held(size + len(reads) * MESSAGE_BYTES)

    def send(self) -> bool:
        """Sends batches until the recorder accepts nothing for PATIENCE_S. Returns whether everything was sent."""
        self._close_batch()
        while self._socket is not None and self._batches:
            if (self._sending is not None or self._encode()) and not self._send_one(self._socket):
                break
        return self.empty

    def connect(self) -> bool:
        """Connects to the recorder if needed. Returns whether it is connected."""
        if self._socket is not None:
            return True
        place = self._place()
        if not is_our_directory(os.path.dirname(place)):  # noqa: PTH120 - no Path keeps it short
            return False  # missing, or another user's, who would receive the captured data
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.settimeout(PATIENCE_S)
        try:
            one.connect(place)
        except OSError:  # not started, gone, or its backlog is full
            one.close()
            return False
        self._socket = one
        return True

    def disconnect(self) -> None:
        """Closes the connection. The next one sends the current batch again from its start."""
        self._sent = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def count_in(self, counters: Counters) -> None:
        """Switches to other counters and counts the waiting reads there as seen."""
        self.counters = counters
        counters.seen(self.waiting_reads)

    def give_up(self) -> None:
        """Drops what waits: nothing more will be sent."""
        self._close_batch()
        self.disconnect()
        while self._batches:
            self._lose_first(DropReason.RECORDER_GONE)

    def forget(self) -> None:
        """Called in a forked child: the connection belongs to the parent."""
        if self._socket is not None:
            self._socket.close()

    def _send_one(self, one: socket.socket) -> bool:
        """Sends the rest of the first batch. Returns whether it was sent whole."""
        assert self._sending is not None
        try:
            while self._sent < len(self._sending):
                self._sent += one.send(self._sending[self._sent :])
        except TimeoutError:
            return False
        except OSError:
            self.disconnect()
            return False
        self.counters.handed(self._batches[0].reads)
        self._forget_first()
        return True

    def _held(self, size: int) -> None:
        self.held += size
        self._gathering.size += size
        if self._gathering.size >= BATCH_BYTES:
            self._close_batch()

    def _close_batch(self) -> None:
        if self._gathering.messages:
            self._batches.append(self._gathering)
            self._gathering = _Batch()

    def _encode(self) -> bool:
        try:
            self._sending, self._sent = memoryview(encode_batch(self._batches[0].messages)), 0
        except Exception as error:  # noqa: BLE001 - capture fails open: a bad message must not stop later ones
            report_fault("the outbox of a tap in an application", error)
            self.counters.happened(Incident.CAPTURE_FAULT)
            self._lose_first(DropReason.CAPTURE_FAULT)
            return False
        return True

    def _lose_first(self, reason: DropReason) -> None:
        self.counters.dropped(reason, self._batches[0].reads)
        self._forget_first()

    def _forget_first(self) -> None:
        self.held -= self._batches.popleft().size
        self._sending, self._sent = None, 0
