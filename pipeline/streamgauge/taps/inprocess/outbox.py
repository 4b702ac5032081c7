"""Messages on their way to the recorder: bounded batches, one after another over a Unix socket.

While the recorder is away or slow they stay here, up to a bound; whoever has one more asks first whether there is room. A
batch that the socket took in part was not read by anybody, and is sent again as a whole; what it took is the recorder's.
"""

import os
import socket
from collections import deque
from collections.abc import Callable

from streamgauge.recorder.protocol import Message, ResponseRead, encode_batch
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.ownership import is_our_directory
from streamgauge.spool.read_counters import Counters, DropReason, Incident

# Bytes that may wait for a recorder that is away or slow: as for a relay, some 10 s of a busy process.
CAPACITY_BYTES = 32 * 1024 * 1024
# A batch is closed at this size (bytes): encoding it holds the interpreter for some 20 us.
BATCH_BYTES = 64 * 1024
# What a message costs besides its bytes (bytes): three objects and a place in a list.
MESSAGE_BYTES = 200
# The part of the bound that is kept for beginnings, when reads are already dropped: one eighth.
RESERVE = 8
# How long a send waits for a recorder that takes nothing (seconds): the streams' notes are taken in between.
PATIENCE_S = 0.02


class _Batch:
    """Messages that go out together. `size`: their bytes, with their overhead; `reads`: how many of them are reads."""

    __slots__ = ("messages", "reads", "size")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = self.size = 0


class MessageBatches:
    """One process's way to its recorder. `place`: where that listens. Used by the sender's thread alone."""

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
        """No more reads fit."""
        return self.held > self._capacity

    @property
    def overfull(self) -> bool:
        """The reserve for beginnings is used up as well."""
        return self.held > self._capacity + self._capacity // RESERVE

    @property
    def empty(self) -> bool:
        """Nothing waits."""
        return not (self._gathering.messages or self._batches)

    @property
    def connected(self) -> bool:
        """Whether a recorder is there, as far as is known."""
        return self._socket is not None

    @property
    def waiting_reads(self) -> int:
        """Reads that wait."""
        return sum(batch.reads for batch in self._batches) + self._gathering.reads

    def put(self, message: Message, size: int) -> None:
        """Takes a message of `size` bytes of content, whether there is room or not: who puts asks first."""
        gathering = self._gathering
        gathering.messages.append(message)
        gathering.reads += type(message) is ResponseRead
        self._held(size + MESSAGE_BYTES)

    def put_reads(self, reads: list[Message], size: int) -> None:
        """The same for reads of `size` bytes together, which are so few that a batch may hold them all."""
        self._gathering.messages += reads
        self._gathering.reads += len(reads)
        self._held(size + len(reads) * MESSAGE_BYTES)

    def send(self) -> bool:
        """Sends what the recorder takes now, or within a moment. Whether all that waited went out."""
        self._close_batch()
        while self._socket is not None and self._batches:
            if (self._sending is not None or self._encode()) and not self._send_one(self._socket):
                break
        return self.empty

    def connect(self) -> bool:
        """Looks for the recorder. Whether it is there."""
        if self._socket is not None:
            return True
        place = self._place()
        if not is_our_directory(os.path.dirname(place)):  # noqa: PTH120 - no Path keeps it short
            return False  # not there yet, or of another user, who would get what is captured
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.settimeout(PATIENCE_S)
        try:
            one.connect(place)
        except OSError:  # not there yet, gone, or its backlog is full
            one.close()
            return False
        self._socket = one
        return True

    def disconnect(self) -> None:
        """The batch on its way begins anew with the next connection."""
        self._sent = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def count_in(self, counters: Counters) -> None:
        """The books are others from now on: what waits was seen there."""
        self.counters = counters
        counters.seen(self.waiting_reads)

    def give_up(self) -> None:
        """Nothing more will go out: what waits is dropped."""
        self._close_batch()
        self.disconnect()
        while self._batches:
            self._lose_first(DropReason.RECORDER_GONE)

    def forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        if self._socket is not None:
            self._socket.close()

    def _send_one(self, one: socket.socket) -> bool:
        """Whether the rest of the first batch went out."""
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
        except Exception as error:  # noqa: BLE001 - capture fails open: whatever a message holds, streams and later messages go on
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
