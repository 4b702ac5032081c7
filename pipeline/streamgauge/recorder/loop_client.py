"""The client of the recorder on an asyncio event loop: bounded, and never blocking.

Messages are collected for FLUSH_S, become a batch, and are sent, one batch per turn of the loop. While the recorder is
unavailable or slow, they wait, up to a bound; then `full` is set, and captures drop reads.
"""

import asyncio
import contextlib
import sys
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from streamgauge.recorder.client import RETRY_S, RecorderClient, stream_numbers
from streamgauge.recorder.fair_shares import FairShares, Party
from streamgauge.spool.read_counters import Counters, DropReason, Incident

# Messages wait this long for others (seconds). Each flush wakes up both processes, and a recorder that processes many
# messages at a time has warm caches. A little longer than BUNDLE_NS: the recorder flushes when a batch comes, unless it
# has flushed within BUNDLE_NS; so both processes wake up as often as bundles are made.
FLUSH_S = 0.26
# A batch is closed at this size (bytes): encoding it blocks the loop for some 80 us.
BATCH_BYTES = 256 * 1024
# While reads are dropped, messages that begin streams may exceed the bound by this fraction of it: one eighth.
RESERVE = 8
# QUIET_S: how long `close` waits for a recorder that accepts nothing (seconds). A recorder on a machine with a load of 20
# has paused for more than 5 s. CLOSE_S: the least time for `close` in all, if streams used up the drain's time.
QUIET_S = 15.0
CLOSE_S = 2.0
# Interval at which `close` checks whether the recorder accepted data (seconds).
_CHECK_S = 0.1

_numbers = stream_numbers()


class LoopClient(RecorderClient):
    """A process's connection to its recorder. `capacity`: bytes that may wait; starts of streams have a reserve beyond it.
    Only the event loop that made it uses it.

    `before_flush` is called before each flush, so that the pump's messages can be added.
    """

    def __init__(self, path: Path, counters: Counters, capacity: int) -> None:
        super().__init__(lambda: str(path), counters, BATCH_BYTES)
        self.before_flush: Callable[[], None] | None = None
        self._capacity = capacity
        self._shares = FairShares(capacity)
        self._taken: dict[int, int] = {}  # while crowded: bytes that each stream has put since the last flush
        self._begun_in_open: Counter[Party] = Counter()  # streams that begin in the open batch, by party
        self._begun: deque[Counter[Party]] = deque()  # the same of each closed batch
        self._blocked = self._closed = self._flush_is_scheduled = False
        self._emptied = asyncio.Event()  # set while closing, once nothing more will go out
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._try_to_connect()

    def new_stream(self) -> int:
        """A number for the next stream."""
        return next(_numbers)

    def admits(self, party: Party | None) -> bool:
        """Whether a new stream of this party may begin, while the recorder is behind. Counts it if not."""
        if party is None:
            return True
        if not self._shares.admits(party, self.held):
            self.counters.happened(Incident.STREAM_OVER_SHARE)
            return False
        self._shares.add(party)
        self._begun_in_open[party] += 1
        return True

    def has_room(self, stream: int, size: int) -> bool:
        """See RecorderClient: also not, if `crowded`, beyond the stream's share."""
        if self.full or not self.crowded:
            return not self.full
        return self._taken.get(stream, 0) + size <= self.share_of(len(self._taken))

    def take_room(self, stream: int, size: int) -> bool:
        """See RecorderClient."""
        has = self.has_room(stream, size)
        if has and self.crowded:
            self._taken[stream] = self._taken.get(stream, 0) + size
        return has

    def share_of(self, streams: int) -> int:
        """The bytes that each of this many streams may put within FLUSH_S: no limit unless it is `crowded`."""
        return self._shares.of_reads(self.held, streams) if self.crowded else sys.maxsize

    def schedule_flush(self) -> None:
        """Flushes after FLUSH_S. Called for the first message, and for messages that `before_flush` will add."""
        if not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.call_later(FLUSH_S, self._flush)

    @property
    def room(self) -> int:
        """The number of bytes that may still be put before `full` is set."""
        return max(self._capacity - BATCH_BYTES - self.held - self._open_bytes, 0)

    @property
    def room_of_reads(self) -> int:
        """The bytes of reads that the pump may hold: half of `room`, since the relay's own messages need room too; less if
        other streams would lose it.
        """
        return max(min(self.room // 2, self._shares.room_of_reads(self.held)), 0)

    async def close(self, within_s: float = CLOSE_S) -> int:
        """Sends the waiting messages, for at most the longer of `within_s` and CLOSE_S; stops earlier if the recorder accepts
        nothing for QUIET_S (all in seconds).

        Counts the unsent reads as dropped (recorder_gone), and returns how many they are.
        """
        self.close_batch()
        self._closed = True
        if self.connected:
            await self._send_all(max(within_s, CLOSE_S))
        self.disconnect()
        if self._timer is not None:
            self._timer.cancel()
        return self.discard(DropReason.RECORDER_GONE)

    def close_batch(self) -> None:
        """Closes the open batch, and sends it if no other batch waits."""
        idle, before = not self._batches, len(self._batches)
        super().close_batch()
        if len(self._batches) > before:
            self._begun.append(self._begun_in_open)
            self._begun_in_open = Counter()
        if idle and self._batches and not self._blocked:
            self._loop.call_soon(self._send)

    def disconnect(self) -> None:
        """Closes the connection."""
        if self._socket is not None:
            self._wait_until_writable(False)
            self._loop.remove_reader(self._socket)
        super().disconnect()

    async def _send_all(self, within_s: float) -> None:
        ends = self._loop.time() + within_s
        quiet_since, before = self._loop.time(), (len(self._batches), self._sent)
        while self._batches and not self._emptied.is_set() and self._loop.time() < min(ends, quiet_since + QUIET_S):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._emptied.wait()
            now = (len(self._batches), self._sent)
            if now != before:
                quiet_since, before = self._loop.time(), now

    def _remove_batch(self) -> None:
        self._shares.remove(self._begun.popleft())
        super()._remove_batch()

    def _add_held(self, size: int) -> None:
        super()._add_held(size)
        # `held` does not count the open batch. With a full one and one more read, the reserve is still unused.
        self.full = self.held > self._capacity - BATCH_BYTES
        self.overfull = self.held > self._capacity + self._capacity // RESERVE
        self.crowded = self._shares.crowded(self.held)

    def _flush(self) -> None:
        self._flush_is_scheduled = False
        self._taken.clear()
        if self.before_flush is not None:
            self.before_flush()
        self.close_batch()

    def _send(self) -> None:
        """Sends the first batch, or the rest of it. The next batch follows in a later turn of the loop."""
        if not (self.connected and self._batches):
            return
        try:
            done = self.send_batch()
        except OSError:
            self._connection_lost()
            return
        self._wait_until_writable(not done)
        if done and self._batches:
            self._loop.call_soon(self._send)
        elif done and self._closed:
            self._emptied.set()

    def _wait_until_writable(self, blocked: bool) -> None:
        if blocked != self._blocked and self._socket is not None:
            self._blocked = blocked
            if blocked:
                self._loop.add_writer(self._socket, self._send)
            else:
                self._loop.remove_writer(self._socket)

    def _try_to_connect(self) -> None:
        self._timer = None
        if not self.connect():
            self._timer = self._loop.call_later(RETRY_S, self._try_to_connect)
            return
        assert self._socket is not None
        self._loop.add_reader(self._socket, self._readable)
        self._loop.call_soon(self._send)

    def _readable(self) -> None:
        """Notices the end of the connection: the recorder sends nothing, so its socket is readable only then."""
        try:
            data = self._socket.recv(4096) if self._socket is not None else b" "
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._connection_lost()

    def _connection_lost(self) -> None:
        """Prepares to send the current batch from its start on the next connection."""
        self.disconnect()
        if self._closed:
            self._emptied.set()
        else:
            self._timer = self._loop.call_later(RETRY_S, self._try_to_connect)
