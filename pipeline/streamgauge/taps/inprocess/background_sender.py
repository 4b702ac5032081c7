"""The background sender: a thread that sends the captures of an application to a recorder. One for each data directory and
process.

while streams are open   it empties the inbox every FLUSH_S; up to every QUIET_S if there is nothing in it
while messages wait      and no recorder is reachable, it tries to connect every RETRY_S, and logs once how to start an agent
otherwise                it closes the connection after IDLE_S, and sleeps without a timer

This thread counts a read as seen.
"""

import logging
import shlex
import threading
import time
from collections import deque
from pathlib import Path

from streamgauge.errors import StreamgaugeError
from streamgauge.recorder.client import CAPACITY_BYTES, RETRY_S, RecorderClient
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestStarted,
    ResponseRead,
)
from streamgauge.runtime.faults import described, report_fault
from streamgauge.spool.read_counters import DropReason, Incident
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.inprocess.agent_location import recorder_socket
from streamgauge.taps.inprocess.counter_slot import CounterSlot
from streamgauge.taps.inprocess.inbox import Inbox, Note

# Interval between turns while notes arrive (seconds): long enough to spread the cost of a turn over many notes, short
# compared with the recorder's flush interval of 1 s.
FLUSH_S = 0.05
# Longest interval between turns while streams are open and quiet (seconds).
QUIET_S = 0.1
# How long the connection stays open without streams (seconds): the next request of a busy process then needs no new
# one.
IDLE_S = 1.0
# Interval of attempts to connect and to send while a caller waits for a flush (seconds).
FLUSH_STEP_S = 0.05
# Size at which a batch is closed (bytes): encoding it holds the GIL for about 20 us.
BATCH_BYTES = 64 * 1024
# How long a send waits for a recorder that does not read (seconds): the inbox is taken between sends.
SEND_S = 0.02
# Notes taken at a time: about 0.2 ms, in which an application's thread may wait for the GIL. The pause between two times
# (seconds): the application's threads get the GIL.
TURN_NOTES = 128
PAUSE_S = 0.00005
# A longer piece is split (bytes): encoding this much holds the GIL for about 0.1 ms.
PIECE_BYTES = 1024 * 1024

_log = logging.getLogger("streamgauge")


class BackgroundSender(Inbox):
    """The client of the recorder for an application's captures. `open_streams`: those that it was told to have begun and not
    to have ended.
    """

    def __init__(self, data_dir: Path, capacity: int = CAPACITY_BYTES) -> None:
        super().__init__(capacity)
        self._data_dir = data_dir
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._flushes: deque[threading.Event] = deque()  # set when everything has been sent
        self._slot: CounterSlot | None = None
        self._client: RecorderClient | None = None  # made when the slot is claimed
        self.open_streams: set[int] = set()
        self._next_attempt_s = 0.0
        self._agent_is_missing = False  # and this was logged
        self._last_warning = ""

    @property
    def connected(self) -> bool:
        """Whether the connection to a recorder is open; a recorder that has just ended may not be noticed yet."""
        return self._client is not None and self._client.connected

    # Called by the application's threads.

    def new_stream(self) -> int:
        """A number for the next stream. Starts the thread if it does not run. Raises what starting it raises."""
        if self._thread is None and not self._ended:
            self._start()
        return super().new_stream()

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        """See Inbox. Starts the thread if it does not run. Raises what starting it raises."""
        super().count_response(upstream, without)
        if without is not None and self._thread is None and not self._ended:
            self._start()

    def flush(self, within_s: float) -> None:
        """Sends everything noted so far. Waits at most `within_s` seconds, and only for a recorder that is connected."""
        if self._thread is not None and self._thread.is_alive():
            done = threading.Event()
            self._flushes.append(done)
            self.wake()
            done.wait(within_s)

    def close(self, within_s: float) -> None:
        """Sends the queued notes for at most `within_s` seconds, and counts the rest as dropped: the process exits."""
        self.flush(within_s)
        self.close_inbox()
        self.wake()
        if self._thread is not None:
            self._thread.join(within_s)

    def after_fork(self) -> None:
        """Releases everything in a forked child: thread, connection, counter slot and open streams belong to the parent."""
        self.forget()
        if self._client is not None:
            self._client.disconnect()
        if self._slot is not None:
            self._slot.after_fork()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="streamgauge-sender", daemon=True)
                thread.start()
                self._thread = thread

    # The thread.

    def _run(self) -> None:
        pause: float | None = FLUSH_S
        while not self._ended:
            flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
            try:
                pause = self._turn(pause, flushing=bool(flushes))
            except Exception as error:  # noqa: BLE001 - capture fails open: an internal error must not end the thread
                pause = self._after_fault(error)
            self._sleep(self._finish(flushes, pause))
        try:
            self._discard()
        except Exception as error:  # noqa: BLE001 - Python would print its text, which may quote a stream
            report_fault("the end of the sender's thread", error)

    def _turn(self, before: float | None, *, flushing: bool) -> float | None:
        """Does one turn. Returns the pause until the next one (seconds); None: until `wake`."""
        client = self._client or self._make_client()
        counted = self._count_uncaptured(client)
        busy = self._collect(client)
        if not client.empty and not client.connected:
            self._connect(client, flushing)
        self._send(client)
        self.hold(client.held)
        if self.open_streams:
            return FLUSH_S if busy or before is None else min(2 * before, QUIET_S)
        if not client.empty:
            return FLUSH_S if client.connected else RETRY_S
        if client.connected and (busy or before != IDLE_S):
            return IDLE_S
        client.disconnect()  # so that a draining agent need not wait for this process
        return IDLE_S if counted else None

    def _discard(self) -> None:
        """Counts what was not sent as dropped, and releases the counter slot."""
        if self._client is not None and self._slot is not None:
            self._count_uncaptured(self._client)
            self._collect(self._client)
            self._client.disconnect()
            self._client.discard(DropReason.RECORDER_GONE)
            self._slot.close()

    def _make_client(self) -> RecorderClient:
        """Raises OSError if the data directory cannot be used or has no free counter slot."""
        self._slot = CounterSlot(self._data_dir)
        counters = self._slot.counters
        self._client = RecorderClient(lambda: recorder_socket(self._data_dir), counters, BATCH_BYTES, SEND_S)
        return self._client

    def _count_uncaptured(self, client: RecorderClient) -> bool:
        """Counts the responses that are not captured. Returns whether there were any."""
        uncaptured = self.take_uncaptured()
        for (upstream, reason), responses in uncaptured.items():
            client.counters.responses.passed(upstream, reason, responses)
        return bool(uncaptured)

    def _collect(self, client: RecorderClient) -> bool:
        """Makes batches of the notes that are in the inbox now. Returns whether there were any."""
        dropped, faults = self.take_counts()
        for reason, reads in dropped.items():
            client.counters.seen(reads)
            client.counters.dropped(reason, reads)
        if faults:
            client.counters.happened(Incident.CAPTURE_FAULT, faults)
        waiting = self.waiting
        for _ in range(0, waiting, TURN_NOTES):
            self._put_notes(client, self.take(TURN_NOTES))
            self.hold(client.held)
            time.sleep(PAUSE_S)
        client.close_batch()
        self.hold(client.held)
        return waiting > 0

    def _put_notes(self, client: RecorderClient, notes: list[Note]) -> None:
        """Passes notes to the client."""
        reads = [note for note in notes if len(note) == 3]
        size = sum([len(data) for _, _, data in reads])
        if len(reads) == len(notes) and size <= BATCH_BYTES:  # as usual
            client.put_reads([ResponseRead(*read) for read in reads if read[2]], size)
        else:
            for note in notes:
                self._put_note(client, note)

    def _put_note(self, client: RecorderClient, note: Note) -> None:
        """Passes one note to the client. After a bug a read is dropped, and reported as dropped."""
        try:
            if len(note) == 2:
                self._put_message(client, *note)
            else:
                for piece in _pieces(note[2]):
                    client.put_read(note[0], note[1], piece)
        except Exception as error:  # noqa: BLE001 - capture fails open: a bug makes this stream's record incomplete
            report_fault("the sender of a tap in an application", error)
            client.count_fault()
            if len(note) == 3:
                client.count_dropped(DropReason.CAPTURE_FAULT)
                client.put(ReadsDropped(note[0], 1), 0)

    def _put_message(self, client: RecorderClient, message: Message, size: int) -> None:
        if isinstance(message, RequestStarted):
            self.open_streams.add(message.stream)
        elif isinstance(message, ExchangeEnding):
            self.open_streams.discard(message.stream)
        if isinstance(message, RequestBody):
            for piece in _pieces(message.data):
                client.put(RequestBody(message.stream, piece), len(piece))
        else:
            client.put(message, size)
            if isinstance(message, RequestStarted):
                client.count_response(message.upstream)

    def _connect(self, client: RecorderClient, flushing: bool) -> None:
        now = time.monotonic()
        if now < self._next_attempt_s and not flushing:
            return
        if not client.connect():
            self._next_attempt_s = now + RETRY_S
            if not self._agent_is_missing:
                self._agent_is_missing = True
                _log.warning("streamgauge: %s", _missing_agent(self._data_dir))
            return
        self._agent_is_missing = False
        if self._slot is not None and not self._slot.is_current:
            self._claim_new_slot(client, self._slot)

    def _claim_new_slot(self, client: RecorderClient, before: CounterSlot) -> None:
        """Claims a slot in the new counters file of a data directory that was recreated."""
        self._slot = CounterSlot(self._data_dir)
        before.close()
        client.use_counters(self._slot.counters)

    def _send(self, client: RecorderClient) -> None:
        """Sends batches until the recorder accepts nothing for SEND_S."""
        try:
            while client.connected and not client.empty and client.send_batch():
                pass
        except OSError:
            client.disconnect()

    def _after_fault(self, error: Exception) -> float | None:
        """Handles an error of a turn: drops what is noted if the data directory is unusable, else counts it. Returns the
        pause until the next turn.
        """
        if not isinstance(error, OSError | StreamgaugeError):
            report_fault("the sender's thread of a tap in an application", error)
        warning = described(error)
        if warning != self._last_warning:
            self._last_warning = warning
            effect = "they are not captured" if self._client is None else "a part of the captured data may be lost"
            _log.warning("streamgauge: streams are not affected, but %s (%s)", effect, warning)
        if self._client is None:
            self.refuse_reads()
            return None
        try:
            self._client.count_fault()
        except Exception as failed:  # noqa: BLE001 - as in `_run`: the thread must continue
            report_fault("the counters of a tap in an application", failed)
        return RETRY_S

    def _finish(self, flushes: list[threading.Event], pause: float | None) -> float | None:
        """Ends the flushes, unless data waits for a recorder that is connected. Returns the pause."""
        client = self._client
        if flushes and client is not None and client.connected and not client.empty:
            self._flushes.extend(flushes)
            return FLUSH_STEP_S
        for flush in flushes:
            flush.set()
        return pause

    def _sleep(self, pause: float | None) -> None:
        """Sleeps until the pause is over or `wake` is called. `put` calls `wake` only if the pause is long.

        Without a counter slot, a response that is only counted does not wake it: each turn tries to claim a slot.
        """
        self.asleep, self.dormant = pause is None or pause > QUIET_S, pause is None and self._client is not None
        if not (self.asleep and (self.waiting or self._flushes or self._ended)):
            self._wakeup.acquire(timeout=-1 if pause is None else pause)
        self.asleep = self.dormant = False


def _missing_agent(data_dir: Path) -> str:
    """The sentence for the log: what happens to the capture without an agent, and the commands that start one."""
    options = f"--agent --data-dir {shlex.quote(str(data_dir))}"
    return (
        f"no agent runs at {data_dir}: streams are not affected, and up to {CAPACITY_BYTES // 1024**2} MiB of captured data"
        " wait in this process until an agent runs; data beyond that, or still waiting when the process ends, is dropped and"
        f" counted. Start an agent as this user: `streamgauge up {options}`, or with a broker `streamgauge tap {options}"
        " --kafka HOST:PORT`"
    )


def _pieces(data: bytes) -> list[bytes]:
    """The data in pieces of at most PIECE_BYTES; none if it is empty."""
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
