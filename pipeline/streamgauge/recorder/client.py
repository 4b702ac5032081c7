"""The client of the recorder: messages wait here in batches, and go out over the recorder's Unix socket.

    RecorderClient   batches, their encoding and the connection, without a clock: its owner decides when to connect and send
    loop_client.py   the owner is an asyncio event loop: the relay, the packet tap
    taps/inprocess/background_sender.py   a thread owns it: the taps in applications
    DirectClient     no socket: a recorder in the same process takes each message at once (replay)

A batch that the socket took only in part was not processed, and is sent again as a whole on the next connection. A batch
that the socket took whole counts as handed to the recorder.
"""

import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from streamgauge.recorder.protocol import Encoded, Message, ResponseRead, encode_batch
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.ownership import is_our_directory
from streamgauge.spool.read_counters import Counters, DropReason, Incident

# Memory of a message besides its content (bytes): three objects and a place in a list.
MESSAGE_BYTES = 200
# Bytes that may wait for a recorder that is unavailable or slow: some 10 s of a busy relay or application.
CAPACITY_BYTES = 32 * 1024 * 1024
# How long a recorder that is unavailable is left alone between two attempts to connect (seconds).
RETRY_S = 1.0

Batch = list[Message | Encoded]


def stream_numbers() -> Iterator[int]:
    """Numbers for the streams of this process. The process id in the high bits makes them differ from those of other
    processes, and of an earlier process of this tap, for as long as a recorder may remember them.
    """
    return itertools.count((os.getpid() & 0xFFFFFF) << 36)


class RecorderClient:
    """The messages that wait, and the connection. Only one thread uses it. `held`: bytes that wait in closed batches, with
    the overhead of their messages. `full`: no more reads fit; `overfull`: nor starts of streams: an owner that bounds what
    waits sets them.

    `path`: gives the socket's path. `batch_bytes`: a batch is closed at this size. `timeout_s`: how long a connect or a
    send may wait; 0: not at all.
    """

    def __init__(self, path: Callable[[], str], counters: Counters, batch_bytes: int, timeout_s: float = 0.0) -> None:
        self.counters = counters
        self.held = 0
        self.full = self.overfull = False
        self._path = path
        self._batch_bytes, self._timeout_s = batch_bytes, timeout_s
        self._gathering: Batch = []
        self._gathered = 0
        self._batches: deque[tuple[Batch, int]] = deque()
        self._encoded: memoryview | None = None  # the first batch
        self._sent = 0  # how many of its bytes the socket took
        self._socket: socket.socket | None = None
        self._flush_is_scheduled = True  # by the owner

    @property
    def empty(self) -> bool:
        """Nothing waits."""
        return not (self._gathering or self._batches)

    @property
    def connected(self) -> bool:
        """Whether a recorder is connected, as far as is known."""
        return self._socket is not None

    @property
    def waiting_reads(self) -> int:
        """Reads that wait."""
        return sum(_reads_of(batch) for batch, _ in self._batches) + _reads_of(self._gathering)

    def put(self, message: Message | Encoded, size: int) -> None:
        """Takes a message with `size` bytes of content, even without room: callers check."""
        self._gathering.append(message)
        self._gathered = gathered = self._gathered + size + MESSAGE_BYTES
        if gathered >= self._batch_bytes:
            self.close_batch()
        elif not self._flush_is_scheduled:
            self.schedule_flush()

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        """Counts a read as seen and takes it. Returns False without room: then it is not counted.

        The lines of `put` stand here again, because each read pays for a call.
        """
        if self.full:
            return False
        self._gathering.append(ResponseRead(stream, at_ns, data))
        self.counters.seen(1)  # not before: a read that cannot be taken is counted by `count_dropped`
        self._gathered = gathered = self._gathered + len(data) + MESSAGE_BYTES
        if gathered >= self._batch_bytes:
            self.close_batch()
        elif not self._flush_is_scheduled:
            self.schedule_flush()
        return True

    def put_reads(self, reads: list[Message | Encoded], size: int) -> None:
        """Counts reads of `size` bytes in all as seen, and takes them. The caller limits them to what one batch may hold."""
        self._gathering += reads
        self.counters.seen(len(reads))
        self._gathered += size + len(reads) * MESSAGE_BYTES
        if self._gathered >= self._batch_bytes:
            self.close_batch()

    def count_dropped(self, reason: DropReason) -> None:
        """Counts a read as seen and dropped."""
        self.counters.seen(1)
        self.counters.dropped(reason)

    def count_fault(self) -> None:
        """Counts an exchange whose capture ended because of a bug."""
        self.counters.happened(Incident.CAPTURE_FAULT)

    def schedule_flush(self) -> None:
        """Closes a batch soon. An owner without a schedule of its own closes batches itself."""

    def close_batch(self) -> None:
        """Makes a batch of the messages that gathered."""
        if self._gathering:
            self._batches.append((self._gathering, self._gathered))
            size, self._gathering, self._gathered = self._gathered, [], 0
            self._hold(size)

    def connect(self) -> bool:
        """Connects to the recorder if needed. Returns whether it is connected."""
        if self._socket is not None:
            return True
        path = self._path()
        if not is_our_directory(os.path.dirname(path)):  # noqa: PTH120 - no Path keeps it short
            return False  # missing, or another user's, who would receive the captured data
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.settimeout(self._timeout_s)
        try:
            one.connect(path)
        except OSError:  # not started, gone, or its backlog is full
            one.close()
            return False
        self._socket = one
        return True

    def send_batch(self) -> bool:
        """Sends what the socket takes of the first batch. Returns whether the batch is done with: sent whole, or discarded
        because it cannot be encoded. Raises OSError if the connection has ended.
        """
        assert self._socket is not None
        if self._encoded is None and not self._encode():
            return True
        assert self._encoded is not None
        try:
            while self._sent < len(self._encoded):
                self._sent += self._socket.send(self._encoded[self._sent :])
        except (BlockingIOError, TimeoutError):
            return False
        self.counters.sent_to_recorder(_reads_of(self._batches[0][0]))
        self._remove_batch()
        return True

    def disconnect(self) -> None:
        """Closes the connection. The next one sends the current batch again from its start."""
        self._sent = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def use_counters(self, counters: Counters) -> None:
        """Switches to other counters, and counts the waiting reads there as seen."""
        self.counters = counters
        counters.seen(self.waiting_reads)

    def discard(self, reason: DropReason) -> int:
        """Drops what waits. Returns how many reads that is."""
        self.close_batch()
        return sum(self._discard_batch(reason) for _ in range(len(self._batches)))

    def _encode(self) -> bool:
        try:
            self._encoded, self._sent = memoryview(encode_batch(self._batches[0][0])), 0
        except Exception as error:  # noqa: BLE001 - capture fails open: this batch is dropped, streams and later messages go on
            report_fault("the client of the recorder", error)
            self.counters.happened(Incident.CAPTURE_FAULT)
            self._discard_batch(DropReason.CAPTURE_FAULT)
            return False
        return True

    def _discard_batch(self, reason: DropReason) -> int:
        """Drops the first batch, and returns how many reads it held."""
        reads = _reads_of(self._batches[0][0])
        if reads:
            self.counters.dropped(reason, reads)
        self._remove_batch()
        return reads

    def _remove_batch(self) -> None:
        self._encoded, self._sent = None, 0
        self._hold(-self._batches.popleft()[1])

    def _hold(self, size: int) -> None:
        """Notes that `size` more bytes wait in batches."""
        self.held += size


class DirectClient:
    """Passes each message to `handle` at once. Reads are not counted, and there is always room."""

    full = overfull = False

    def __init__(self, handle: Callable[[Message], None]) -> None:
        self._handle = handle
        self._numbers = itertools.count()

    def new_stream(self) -> int:
        return next(self._numbers)

    def put(self, message: Message, size: int) -> None:
        self._handle(message)

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        self._handle(ResponseRead(stream, at_ns, data))
        return True

    def count_dropped(self, reason: DropReason) -> None:
        """Dropped reads are reported, and the record counts them."""

    def count_fault(self) -> None:
        """The capture reports the fault to the log."""


def _reads_of(batch: Sequence[Message | Encoded]) -> int:
    kinds = list(map(type, batch))
    encoded = sum(message.reads for message in batch if isinstance(message, Encoded)) if Encoded in kinds else 0
    return encoded + kinds.count(ResponseRead)
