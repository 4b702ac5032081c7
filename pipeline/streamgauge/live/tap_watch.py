"""Assembles a tap's streams while its page is requested. A tap with Kafka has no assembler of its own.

Bundles come from the shipper, as it takes rows from the spool; while it takes none, since the broker is away, from the spool.
All this is on a thread of its own, which ends some time after the last request. Only the page uses its records.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

import msgspec

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle, Loss, Segment
from streamgauge.core.limits import Limits
from streamgauge.live.answers import Responses
from streamgauge.live.mailbox import WatchedThread
from streamgauge.live.view import LiveView, Scope
from streamgauge.runtime.faults import report_fault
from streamgauge.spool import Row, Spool

Result = TypeVar("Result")

# How long after the last request the thread goes on (seconds): a page asks every two seconds, and may be opened again.
LINGER_S = 60.0
# Bundles that wait for the thread (bytes); further bundles are missed, and counted.
WAITING_BYTES = 8 * 1024 * 1024
# After this time without a row from the shipper, the spool is read (seconds), this much at a time (bytes).
QUIET_S = 1.0
READ_BYTES = 1024 * 1024
# How soon a question is answered if nothing comes (seconds).
POLL_S = 0.05
# Streams whose first segment's number is known: as many as an assembler may have open.
MAX_STREAMS = 100_000


class TapWatch:
    """The live view of a tap with Kafka. Call `ask` on the event loop, and `put` with the shipper's rows on any thread."""

    def __init__(
        self,
        process: str,
        spool: Spool,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        responses: Callable[[], Responses | None] = lambda: None,
    ) -> None:
        self._process = process
        self._responses = responses
        self._spool = spool
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_s = float("-inf")
        self._running: _Assembling | None = None
        self._thread: threading.Thread | None = None
        self._newest = 0  # id of the last row that the shipper took
        self._stopped = False

    def put(self, row: Row) -> None:
        """Takes a row that the shipper sends; the row may come again after a failure."""
        self._newest = max(self._newest, row.id)
        running = self._running
        if running is not None:
            running.put(row)

    async def ask(self, question: Callable[[LiveView], Result]) -> Result:
        """The question's answer; the first question starts the thread. Raises NoAnswerError."""
        with self._lock:
            self._asked_s = self._clock()
            if self._running is None and not self._stopped:
                self._running = self._new()
                self._thread = threading.Thread(target=self._run, args=(self._running,), name="page", daemon=True)
                self._thread.start()
            running = self._running
        if running is None:
            running = self._new()
            return question(running.mailbox.view)
        return await running.mailbox.ask(question)

    def _new(self) -> "_Assembling":
        running = _Assembling(self._process, self._spool, self._limits, self._clock, self._newest)
        running.mailbox.view.responses = self._responses
        return running

    def stop(self) -> None:
        """Ends the thread. Call it before the spool is closed."""
        self._stopped = True
        running = self._running
        if running is not None:
            running.mailbox.wake()
        if self._thread is not None:
            self._thread.join()

    def _run(self, running: "_Assembling") -> None:
        try:
            while not self._is_over():
                running.work()
        except Exception as error:  # noqa: BLE001 - the tap goes on without its page, and the next request starts it again
            report_fault("the page's assembler", error)
            with self._lock:
                if self._running is running:
                    self._running = None

    def _is_over(self) -> bool:
        with self._lock:
            over = self._stopped or self._clock() - self._asked_s > LINGER_S
            if over:
                self._running = None
            return over


class _Assembling:
    """The assembler of one run of the thread. `after`: the id of the row before the first one."""

    def __init__(self, process: str, spool: Spool, limits: Limits, clock: Callable[[], float], after: int) -> None:
        self._spool = spool
        self._clock = clock
        self._after = after
        self._assembler = Assembler(limits)
        view = LiveView(process, limits, clock, time.time)
        view.scope = lambda: Scope({0: self._assembler})
        self._wake = threading.Event()
        self.mailbox = WatchedThread(view, self._wake.set)
        self._rows: deque[Row] = deque()
        self._put_bytes = self._taken_bytes = 0  # each is changed by one thread alone
        self._came_s = clock()
        self._first: OrderedDict[bytes, int] = OrderedDict()  # of each stream the number of the first segment that came

    def put(self, row: Row) -> None:
        """Takes a row, on the shipper's thread."""
        self._came_s = self._clock()
        if self._put_bytes - self._taken_bytes + len(row.value) > WAITING_BYTES:
            self.mailbox.view.missed_bundles += 1
            return
        self._put_bytes += len(row.value)
        self._rows.append(row)
        self._wake.set()

    def work(self) -> None:
        """Answers questions, then applies a row, or waits for the next one."""
        self.mailbox.answer()
        if not self._rows:
            if self._clock() - self._came_s < QUIET_S or not self._read_spool():
                self._wake.wait(POLL_S)
                self._wake.clear()
            return
        row = self._rows.popleft()
        self._taken_bytes += len(row.value)
        self._apply(row)

    def _read_spool(self) -> bool:
        rows = self._spool.peek(self._after, READ_BYTES)
        for row in rows:
            self._apply(row)
            self.mailbox.answer()
        return bool(rows)

    def _apply(self, row: Row) -> None:
        if row.id <= self._after:
            return
        self._after = row.id
        try:
            bundle = decode_bundle(row.value)
        except UnreadableBundle:
            return  # the worker makes it a dead letter
        bundle = self._with_joined(bundle)
        records = self._assembler.apply(row.id, bundle.tap_ns // 1_000_000, bundle)
        self._assembler.counts.clear()
        self._assembler.ignored.clear()
        self.mailbox.applied(bundle, self._assembler, records)
        for record in records:
            self.mailbox.view.finished(record)

    def _with_joined(self, bundle: Bundle) -> Bundle:
        """The bundle with the segments of streams that had begun numbered from 0. The first segment reports missing reads,
        so that no latency is measured from it.
        """
        segments = [self._from_zero(segment) for segment in bundle.segments]
        return msgspec.structs.replace(bundle, segments=segments)

    def _from_zero(self, segment: Segment) -> Segment:
        stream, number = segment.stream, segment.number
        first = self._first.get(stream)
        if first is None:
            first = self._first[stream] = number
            if len(self._first) > MAX_STREAMS:
                self._first.popitem(last=False)
            if number:
                segment = msgspec.structs.replace(segment, loss=Loss(dropped_reads=1))
        if segment.end is not None:
            del self._first[stream]
        return msgspec.structs.replace(segment, number=number - first) if 0 < first <= number else segment
