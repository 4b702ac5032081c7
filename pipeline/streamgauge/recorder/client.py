"""The client of the recorder: collects messages in batches, and sends these over the recorder's Unix socket.

    RecorderClient   batches, their encoding and the connection, without a clock: its owner decides when to connect and send
    loop_client.py   the owner is an asyncio event loop: the relay, the packet tap
    taps/inprocess/background_sender.py   a thread owns it: the taps in applications
    DirectClient     no socket: a recorder in the same process handles each message at once (replay)

A batch that the socket accepted only in part was not processed, and is sent again as a whole on the next connection. A batch
that the socket accepted whole counts as sent to the recorder.
"""

import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import Encoded, Message, RequestStarted, ResponseRead, WebSocketOpened, encode_batch
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.ownership import is_our_directory
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.spool.response_counters import NotCaptured

# Memory of a message besides its content (bytes): three objects and a place in a list.
MESSAGE_BYTES = 200
# Bytes that may wait for a recorder that is unavailable or slow: some 10 s of a busy relay or application.
CAPACITY_BYTES = 32 * 1024 * 1024
# Interval between two attempts to connect to a recorder that is unavailable (seconds).
RETRY_S = 1.0

Batch = list[Message | Encoded]


def stream_numbers() -> Iterator[int]:
    """Numbers for the streams of this process. The process id in the high bits makes them differ from the numbers of
    other processes, and of an earlier process of this tap, as long as a recorder may know them.
    """
    return itertools.count((os.getpid() & 0xFFFFFF) << 36)


class RecorderClient:
    """The waiting messages, and the connection. Only one thread uses it.

    `held`: bytes that wait in closed batches, with the overhead of their messages. `connections`: how many were made so far;
    a new one may be to another recorder. `full`: no more reads are accepted;
    `overfull`: no starts of streams either; `crowded`: streams have shares (`take_room`). An owner that bounds the waiting
    bytes sets these.

    `path`: returns the socket's path. `batch_bytes`: a batch is closed at this size. `timeout_s`: how long a connect or a
    send may wait; 0: not at all.
    """

    def __init__(self, path: Callable[[], str], counters: Counters, batch_bytes: int, timeout_s: float = 0.0) -> None:
        self.counters = counters
        self.held = self.connections = 0
        self.full = self.overfull = self.crowded = False
        self._path = path
        self._batch_bytes, self._timeout_s = batch_bytes, timeout_s
        self._open_batch: Batch = []
        self._open_bytes = 0
        self._batches: deque[tuple[Batch, int]] = deque()
        self._encoded: memoryview | None = None  # the first batch
        self._sent = 0  # how many of its bytes the socket has accepted
        self._socket: socket.socket | None = None
        self._flush_is_scheduled = True  # by the owner

    @property
    def empty(self) -> bool:
        """Whether no message waits."""
        return not (self._open_batch or self._batches)

    @property
    def connected(self) -> bool:
        """Whether the connection to a recorder is open; a recorder that has just ended may not be noticed yet."""
        return self._socket is not None

    @property
    def waiting_reads(self) -> int:
        """The number of reads that wait, in all batches."""
        return sum(_reads_of(batch) for batch, _ in self._batches) + _reads_of(self._open_batch)

    def admits(self, party: Party | None) -> bool:
        """Whether a new stream of this party may begin: always, unless an owner shares the room."""
        return True

    def has_room(self, stream: int, size: int) -> bool:
        """Whether a read or a piece of a body of this size may be put for a stream."""
        return not self.full

    def take_room(self, stream: int, size: int) -> bool:
        """As `has_room`, and takes it from the stream's share, if there are shares."""
        return not self.full

    def put(self, message: Message | Encoded, size: int) -> None:
        """Adds a message with `size` bytes of content, even if `full` or `overfull` is set: callers check these."""
        self._open_batch.append(message)
        self._open_bytes = gathered = self._open_bytes + size + MESSAGE_BYTES
        if gathered >= self._batch_bytes:
            self.close_batch()
        elif not self._flush_is_scheduled:
            self.schedule_flush()

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        """Counts a read as seen and adds it. Returns False if there is no room: then it is not counted.

        The lines of `put` are repeated here, to save a call for each read.
        """
        if self.full or (self.crowded and not self.take_room(stream, len(data))):
            return False
        self._open_batch.append(ResponseRead(stream, at_ns, data))
        self.counters.seen(1)  # not before: a read that cannot be added is counted by `count_dropped`
        self._open_bytes = gathered = self._open_bytes + len(data) + MESSAGE_BYTES
        if gathered >= self._batch_bytes:
            self.close_batch()
        elif not self._flush_is_scheduled:
            self.schedule_flush()
        return True

    def put_reads(self, reads: list[Message | Encoded], size: int) -> None:
        """Counts reads of `size` bytes in all as seen, and adds them. The caller limits them to the size of a batch."""
        self._open_batch += reads
        self.counters.seen(len(reads))
        self._open_bytes += size + len(reads) * MESSAGE_BYTES
        if self._open_bytes >= self._batch_bytes:
            self.close_batch()

    def count_dropped(self, reason: DropReason) -> None:
        """Counts a read as seen and dropped."""
        self.counters.seen(1)
        self.counters.dropped(reason)

    def count_fault(self) -> None:
        """Counts an exchange whose capture ended because of a bug."""
        self.counters.happened(Incident.CAPTURE_FAULT)

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        """Counts a response that passes. `without`: why it is not captured."""
        if without is None:
            self.counters.responses.seen(upstream)
        else:
            self.counters.responses.passed(upstream, without)

    def schedule_flush(self) -> None:
        """Does nothing here: an owner that closes batches after a time overrides it."""

    def close_batch(self) -> None:
        """Closes the open batch, if it has messages."""
        if self._open_batch:
            self._batches.append((self._open_batch, self._open_bytes))
            size, self._open_batch, self._open_bytes = self._open_bytes, [], 0
            self._add_held(size)

    def connect(self) -> bool:
        """Connects to the recorder if needed. Returns whether it is connected."""
        if self._socket is not None:
            return True
        path = self._path()
        if not is_our_directory(os.path.dirname(path)):  # noqa: PTH120 - no Path keeps it short
            return False  # missing, or another user's, who would receive the captured data
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout_s)
        try:
            connection.connect(path)
        except OSError:  # it has not started, or has ended, or its backlog is full
            connection.close()
            return False
        self._socket = connection
        self.connections += 1
        return True

    def send_batch(self) -> bool:
        """Sends as much of the first batch as the socket accepts. Returns whether the batch was removed: sent whole, or
        discarded because it cannot be encoded. Raises OSError if the connection has ended.
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
        batch = self._batches[0][0]
        self.counters.sent_to_recorder(_reads_of(batch))
        for begun in _begun_in(batch):
            self.counters.responses.handed_over(begun.upstream)
        self._remove_batch()
        return True

    def disconnect(self) -> None:
        """Closes the connection. The next one sends the current batch again from its start."""
        self._sent = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def use_counters(self, counters: Counters) -> None:
        """Switches to other counters, and counts the waiting reads, and the streams that begin, there as seen."""
        self.counters = counters
        counters.seen(self.waiting_reads)
        for batch in (*(batch for batch, _ in self._batches), self._open_batch):
            for begun in _begun_in(batch):
                counters.responses.seen(begun.upstream)

    def discard(self, reason: DropReason) -> int:
        """Drops all waiting messages. Returns how many reads were dropped."""
        self.close_batch()
        return sum(self._discard_batch(reason) for _ in range(len(self._batches)))

    def _encode(self) -> bool:
        try:
            self._encoded, self._sent = memoryview(encode_batch(self._batches[0][0])), 0
        except Exception as error:  # noqa: BLE001 - capture fails open: only this batch is dropped
            report_fault("the client of the recorder", error)
            self.counters.happened(Incident.CAPTURE_FAULT)
            self._discard_batch(DropReason.CAPTURE_FAULT)
            return False
        return True

    def _discard_batch(self, reason: DropReason) -> int:
        """Drops the first batch, and returns how many reads it held."""
        batch = self._batches[0][0]
        reads = _reads_of(batch)
        if reads:
            self.counters.dropped(reason, reads)
        without = NotCaptured.CAPTURE_FAULT if reason is DropReason.CAPTURE_FAULT else NotCaptured.RECORDER_GONE
        for begun in _begun_in(batch):
            self.counters.responses.not_captured(begun.upstream, without)
        for message in batch:
            if type(message) is WebSocketOpened:  # how many responses it would have had is not known
                self.counters.responses.passed(message.request.upstream, without)
        self._remove_batch()
        return reads

    def _remove_batch(self) -> None:
        self._encoded, self._sent = None, 0
        self._add_held(-self._batches.popleft()[1])

    def _add_held(self, size: int) -> None:
        """Adds `size` bytes to those that wait in closed batches; a negative number subtracts."""
        self.held += size


class DirectClient:
    """Passes each message to `handle` at once. Reads are not counted, and it is never full."""

    full = overfull = False
    connections = 1

    def __init__(self, handle: Callable[[Message], None]) -> None:
        self._handle = handle
        self._numbers = itertools.count()

    def new_stream(self) -> int:
        """A number for the next stream, from 0."""
        return next(self._numbers)

    def admits(self, party: Party | None) -> bool:
        """Always: nothing waits."""
        return True

    def has_room(self, stream: int, size: int) -> bool:
        """Always: nothing waits."""
        return True

    def take_room(self, stream: int, size: int) -> bool:
        """Always: nothing waits."""
        return True

    def put(self, message: Message, size: int) -> None:
        """Handles a message. Raises what `handle` raises."""
        self._handle(message)

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        """Handles a read, and returns True. Raises what `handle` raises."""
        self._handle(ResponseRead(stream, at_ns, data))
        return True

    def count_dropped(self, reason: DropReason) -> None:
        """Does nothing: dropped reads are reported as a message, and the record counts them."""

    def count_fault(self) -> None:
        """Does nothing: the capture reports the fault to the log."""

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        """Does nothing: a recording is no response that passes."""


def _begun_in(batch: Sequence[Message | Encoded]) -> Iterator[RequestStarted]:
    return (message for message in batch if type(message) is RequestStarted)


def _reads_of(batch: Sequence[Message | Encoded]) -> int:
    kinds = list(map(type, batch))
    encoded = sum(message.reads for message in batch if isinstance(message, Encoded)) if Encoded in kinds else 0
    return encoded + kinds.count(ResponseRead)
