"""The relay's messages on their way to its recorder: bounded, and never blocking.

Messages gather for a moment, become a batch, and go out over a Unix socket, one batch per turn of the loop. While the
recorder is unavailable or slow, they stay here, up to a bound; then `full` is set, and the capture drops reads. A batch
that the socket took only in part was not processed, and is sent again as a whole on the next connection. A batch that the
socket took completely counts as handed to the recorder.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from streamgauge.recorder.protocol import Encoded, Message, ResponseRead, encode_batch
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.ownership import is_our_directory
from streamgauge.spool.read_counters import Counters, DropReason, Incident

# Messages wait this long for others (seconds). Each flush wakes up both processes, and a recorder that processes many
# messages at a time has warm caches. A little longer than BUNDLE_NS: the recorder flushes when a batch comes, unless it
# has flushed within BUNDLE_NS; so both processes wake up as often as bundles are made.
FLUSH_S = 0.26
# A batch is closed at this size (bytes): encoding it blocks the loop for some 80 us.
BATCH_BYTES = 256 * 1024
# Interval between attempts to connect to a recorder that is unavailable (seconds).
RETRY_S = 1.0
# Memory of a message besides its content (bytes): three objects and a place in a list.
MESSAGE_BYTES = 200
# While reads are dropped, messages that begin streams may exceed the bound by this fraction of it: one eighth.
RESERVE = 8
# QUIET_S: how long `close` waits for a recorder that takes nothing (seconds). A recorder on a machine with a load of 20
# was seen to pause for more than 5 s. CLOSE_S: the least time for `close` in all, if streams used up the drain's time.
QUIET_S = 15.0
CLOSE_S = 2.0
# Interval at which `close` checks whether the recorder took something (seconds).
_LOOK_S = 0.1


class RecorderClient:
    """A relay's connection to its recorder. `capacity`: bytes that may wait. Not thread-safe: one event loop uses it.

    `before_flush` is called before each flush, so that the pump's messages can be added.
    """

    def __init__(self, path: Path, counters: Counters, capacity: int) -> None:
        self.counters = counters
        self.held = 0  # bytes that wait in batches, with their overhead
        self.full = False  # no more reads fit
        self.overfull = False  # the reserve for messages that begin streams is used up as well
        self.before_flush: Callable[[], None] | None = None
        self._path = path
        self._capacity = capacity
        self._gathering: list[Message | Encoded] = []
        self._gathered = 0
        self._batches: deque[tuple[list[Message | Encoded], int]] = deque()
        self._sending: memoryview | None = None  # the first batch, encoded
        self._sent = 0
        self._socket: socket.socket | None = None
        self._scheduled = self._blocked = self._closed = False
        self._emptied = asyncio.Event()  # set while closing, once nothing more will go out
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._connect()

    def put(self, message: Message | Encoded, size: int) -> None:
        """Takes a message with `size` bytes of content, even without room: callers check `full` or `overfull` first."""
        self._gathering.append(message)
        self._gathered = gathered = self._gathered + size + MESSAGE_BYTES
        if gathered >= BATCH_BYTES:
            self._close_batch()
        elif not self._scheduled:
            self.expect()

    def expect(self) -> None:
        """Schedules a flush. Called for messages that `before_flush` will add."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(FLUSH_S, self._flush)

    @property
    def room(self) -> int:
        """How much more may be put before `full` is set (bytes)."""
        return max(self._capacity - BATCH_BYTES - self.held - self._gathered, 0)

    async def close(self, within_s: float = CLOSE_S) -> int:
        """Sends what waits, for at most the longer of `within_s` and CLOSE_S; stops earlier if the recorder takes nothing
        for QUIET_S (all in seconds).

        Counts what is left as dropped (recorder_gone), and returns how many reads that is.
        """
        self._close_batch()
        self._closed = True
        if self._socket is not None:
            await self._send_all(max(within_s, CLOSE_S))
        self._disconnect()
        if self._timer is not None:
            self._timer.cancel()
        lost = sum(self._lose(batch, DropReason.RECORDER_GONE) for batch, _ in self._batches)
        self._batches.clear()
        return lost

    async def _send_all(self, within_s: float) -> None:
        ends = self._loop.time() + within_s
        quiet_since, before = self._loop.time(), (len(self._batches), self._sent)
        while self._batches and not self._emptied.is_set() and self._loop.time() < min(ends, quiet_since + QUIET_S):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._emptied.wait()
            now = (len(self._batches), self._sent)
            if now != before:
                quiet_since, before = self._loop.time(), now

    def _hold(self, size: int) -> None:
        self.held += size
        # `held` does not count gathering messages. With a batch of these and one more read, the reserve is still
        # unused.
        self.full = self.held > self._capacity - BATCH_BYTES
        self.overfull = self.held > self._capacity + self._capacity // RESERVE

    def _flush(self) -> None:
        self._scheduled = False
        if self.before_flush is not None:
            self.before_flush()
        self._close_batch()

    def _close_batch(self) -> None:
        if not self._gathering:
            return
        self._batches.append((self._gathering, self._gathered))
        self._hold(self._gathered)
        self._gathering, self._gathered = [], 0
        if not self._blocked and len(self._batches) == 1:
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Sends the first batch, or what is left of it. The next batch follows in a turn of its own."""
        if self._socket is None or not self._batches or (self._sending is None and not self._encode()):
            return
        assert self._sending is not None
        try:
            self._sent += self._socket.send(self._sending[self._sent :])
        except BlockingIOError:
            pass
        except OSError:
            self._lost()
            return
        if self._sent < len(self._sending):
            self._wait_for_room(True)
            return
        self._wait_for_room(False)
        self.counters.handed(_reads_of(self._batches[0][0]))
        self._next_batch()

    def _encode(self) -> bool:
        try:
            self._sending, self._sent = memoryview(encode_batch(self._batches[0][0])), 0
        except Exception as error:  # noqa: BLE001 - capture fails open: this batch is dropped, streams and later messages go on
            report_fault("the outbox to the recorder", error)
            self.counters.happened(Incident.CAPTURE_FAULT)
            self._lose(self._batches[0][0], DropReason.CAPTURE_FAULT)
            self._next_batch()
            return False
        return True

    def _next_batch(self) -> None:
        self._hold(-self._batches.popleft()[1])
        self._sending, self._sent = None, 0
        if self._batches:
            self._loop.call_soon(self._send)
        elif self._closed:
            self._emptied.set()

    def _lose(self, batch: Sequence[Message | Encoded], reason: DropReason) -> int:
        """Counts a batch's reads as dropped, and returns how many they are."""
        reads = _reads_of(batch)
        if reads:
            self.counters.dropped(reason, reads)
        return reads

    def _wait_for_room(self, blocked: bool) -> None:
        if blocked != self._blocked and self._socket is not None:
            self._blocked = blocked
            if blocked:
                self._loop.add_writer(self._socket, self._send)
            else:
                self._loop.remove_writer(self._socket)

    def _connect(self) -> None:
        self._timer = None
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.setblocking(False)
        try:
            if not is_our_directory(self._path.parent):  # it is gone, or another user has recreated it
                raise FileNotFoundError(self._path)
            one.connect(str(self._path))
        except OSError:  # the recorder does not listen yet, or no more, or its backlog is full
            one.close()
            self._timer = self._loop.call_later(RETRY_S, self._connect)
            return
        self._socket = one
        self._loop.add_reader(one, self._heard)
        self._loop.call_soon(self._send)

    def _heard(self) -> None:
        """The recorder sends nothing: its socket becomes readable when the connection ends."""
        try:
            heard = self._socket.recv(4096) if self._socket is not None else b" "
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._lost()

    def _lost(self) -> None:
        """The connection to the recorder has ended: the current batch is sent from its start on the next connection."""
        self._disconnect()
        self._sent = 0
        if self._closed:
            self._emptied.set()
        else:
            self._timer = self._loop.call_later(RETRY_S, self._connect)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._wait_for_room(False)
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None


def _reads_of(batch: Sequence[Message | Encoded]) -> int:
    kinds = list(map(type, batch))
    encoded = sum(message.reads for message in batch if isinstance(message, Encoded)) if Encoded in kinds else 0
    return encoded + kinds.count(ResponseRead)
