"""The shipper sends the spool's rows to the segments topic. It expects brokers that are unreachable, slow or unstable.

It sends rows in the spool's order, to partition = slot % partitions, through an idempotent producer, so that within a slot
no row is lost or overtakes another. It removes a row from the spool when Kafka has confirmed it.

`producer.meaning_of` classifies failures. A batch that fails permanently may contain other rows, and leaves a hole in the
producer's sequence numbers. The shipper then creates a new producer, goes back to the first unconfirmed row, and sends the
rows that were in flight one at a time, until it finds the row that the broker refuses. Workers recognise a bundle that was
sent twice by its number, and skip it.

    the broker is unreachable, slow or half-open; retriable errors    wait without limit; nothing is dropped
    the broker refuses our TLS or log-in                       log once, retry with growing pauses; nothing is dropped
    the broker denies writes, or the topic is missing          log once, retry every few seconds; nothing is dropped
    the broker refuses a bundle (for its size or content)      drop that bundle and count it as `refused`
    the broker fails on one bundle five times, without reason  the same, so that one bundle does not stop all others
    the broker answers, but confirms nothing                   new producer, start again: the topic may be recreated
    a bug in the shipper                                       log it, start again; the tap continues
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-untyped]

from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.kafka.backoff import Backoff
from streamgauge.kafka.log_throttle import BrokerMonitor
from streamgauge.kafka.producer import Meaning, Message, Producer, may_concern_message, meaning_of
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.shims.cancelling import end_task
from streamgauge.kafka.topics import (
    DEFAULT_PREFIX,
    MAX_MESSAGE_BYTES,
    BrokerRefusesError,
    BrokerUnreachableError,
    Topics,
    TopicsError,
    segments_partitions,
)
from streamgauge.runtime.faults import described, report_fault
from streamgauge.spool import Row, Spool
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured

_LOG = logging.getLogger("streamgauge.shipper")

# The most bundles in flight, sent and not confirmed (bytes): one second of a fast tap. It limits memory in an outage.
_IN_FLIGHT_BYTES = 8 * 1024 * 1024
# The producer's batch size (bytes): about five bundles for one partition. aiokafka's cost is mostly per request.
_BATCH_BYTES = 256 * 1024
# How often the spool is read if no row is put meanwhile (seconds): confirmed rows are removed, and progress is checked.
_POLL_S = 0.25
# How soon an unreachable broker is tried again (seconds).
_RETRY_S = 1.0
# How soon a send is tried again after the broker denied it, which only an operator can change (seconds).
DENIED_S = 10.0
# How many times a bundle that fails alone, without a known reason, is sent: about half a minute with the pauses.
_TRIES_ALONE = 5
# After this time without a confirmation from a broker that answers, the shipper starts again (seconds): three requests.
STUCK_S = 30.0
# How long a stop waits for a broker that is unreachable or refuses (seconds): one more attempt, as all rows are on disk.
UNREACHABLE_S = 1.0
# How often a stop checks whether the broker is unreachable (seconds).
_STOP_CHECK_S = 0.1
# How long a producer without unconfirmed messages may take to disconnect (seconds).
_DISCONNECT_S = 2.0
# What a confirmation calls the time that the broker, not the producer, gave to a message.
_LOG_APPEND_TIME = 1
# The spool's key for the partition count under which this data directory's rows were sent.
_PARTITIONS = "partitions"
# How long the smallest difference of the clocks is kept before a new search begins (seconds).
_SKEW_PERIOD_S = 60.0


@dataclass(frozen=True)
class ShipperSettings:
    """The brokers and the topic prefix. A `bootstrap` that is only an address means plain text."""

    bootstrap: Brokers | str
    prefix: str = DEFAULT_PREFIX


class Shipper:
    """Ships until it is stopped. It calls the spool from other threads, never from the event loop's thread.

    `connected`: the broker answers. `problem`: one sentence on what an operator has to fix; None if there is nothing.
    `on_row` gets each row that is sent, also if it is sent again.
    """

    def __init__(self, spool: Spool, settings: ShipperSettings, on_row: Callable[[Row], None] = lambda _: None) -> None:
        self._spool = spool
        self._on_row = on_row
        self._brokers = brokers_at(settings.bootstrap)
        self._prefix = settings.prefix
        self._topic = Topics(settings.prefix).segments
        self._producer = Producer(self._brokers, max_message_bytes=MAX_MESSAGE_BYTES, batch_bytes=_BATCH_BYTES)
        self._monitor = BrokerMonitor(
            self._brokers, self._producer.answers, "captured data is kept until it answers", self._producer.refusal
        )
        self._partitions: int | None = None
        self._partitions_in_use = False  # open streams may have been sent under this partition count
        self._most_in_flight = min(_IN_FLIGHT_BYTES, spool.most_in_flight)
        self._after = 0  # the id of the last row that was sent
        self._send_alone_to = 0  # rows up to this one are sent one at a time
        self._in_flight: dict[int, int] = {}  # row id -> bytes
        self._confirmed: list[int] = []
        self._refused: list[int] = []
        self._alone = (0, 0)  # the id of the row that failed when sent alone, and how many times it failed
        self._backoff = Backoff()
        self._clock_skew = ClockSkew()
        self._progress_s = 0.0  # when a row was last confirmed, or sent while no other was in flight
        self._broken = self._denied = False
        self._wake = asyncio.Event()
        self._rows_put = self._waits_for_rows = False  # since the spool was last read; now
        self._stopping = False
        self._drained = False
        self._is_backlogged = False  # the last round took at least half of the free in-flight bytes
        self._shipping: asyncio.Task[None] | None = None
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """The reason why rows cannot be shipped now, as a sentence for the operator; None if they can."""
        return self._problem or self._monitor.problem

    @property
    def connected(self) -> bool:
        """Whether the broker answered the latest check."""
        return self._monitor.connected

    @property
    def clock_skew_s(self) -> float | None:
        """This host's wall clock minus the broker's (seconds); None before the first confirmation."""
        return self._clock_skew.seconds

    async def run(self) -> None:
        """Ship until `stop` is called. Returns when all rows are shipped, or when the stop's deadline has passed."""
        # The spool may be written by another thread.
        self._spool.on_put = partial(asyncio.get_running_loop().call_soon_threadsafe, self._on_put)
        self._shipping = asyncio.create_task(self._ship_all())
        monitoring = asyncio.create_task(self._monitor_always())
        try:
            await asyncio.wait({self._shipping})
        finally:
            self._spool.on_put = lambda: None
            await asyncio.gather(end_task(self._shipping), end_task(monitoring))
            await self._producer.stop(_DISCONNECT_S if self._drained else 0)
            await self._remove_settled()
        if not self._shipping.cancelled():
            self._shipping.result()

    async def stop(self, deadline_s: float) -> None:
        """Ship the remaining rows, for at most `deadline_s` seconds, or until the broker was unavailable for UNREACHABLE_S.

        Unconfirmed rows stay in the spool.
        """
        self._stopping = True
        self._wake.set()
        if self._shipping is None:
            return
        now = asyncio.get_running_loop().time
        ends, deliverable_s = now() + deadline_s, now()
        while not self._shipping.done() and now() < min(ends, deliverable_s + UNREACHABLE_S):
            await asyncio.wait({self._shipping}, timeout=_STOP_CHECK_S)
            if not self._monitor.unreachable and self.problem is None:
                deliverable_s = now()
        await end_task(self._shipping)

    async def _ship_all(self) -> None:
        while not (self._stopping and self._drained):
            try:
                await (self._ship() if await self._is_ready() else self._pause(self._retry_s()))
            except Exception as error:  # noqa: BLE001 - capture fails open: the tap continues without its shipper
                report_fault("the shipper", error)
                self._set_problem(f"internal error while sending to Kafka ({described(error)}): captured data is kept")
                self._broken = True
                await self._pause(self._backoff.failed())

    async def _monitor_always(self) -> None:
        """Run the monitor, and run it again after an error: without it, `connected` would keep its last value."""
        while True:
            try:
                await self._monitor.run()
            except Exception as error:  # noqa: BLE001 - the shipper continues, and the monitor starts again
                report_fault("the check of the broker connection", error)
                await asyncio.sleep(_RETRY_S)

    async def _pause(self, seconds: float) -> None:
        """Wait until `_wake` is set, or for `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _pause_for_rows(self) -> None:
        """Wait until a row is put, or for _POLL_S. A row ends no other pause: those are for a broker that refuses."""
        self._waits_for_rows = True
        if not self._rows_put:
            await self._pause(_POLL_S)
        self._waits_for_rows = False

    def _on_put(self) -> None:
        self._rows_put = True
        if self._waits_for_rows:
            self._wake.set()

    # --- connecting to the broker -----------------------------------------------------------------------------------

    async def _is_ready(self) -> bool:
        """Whether rows can be sent. Reads the partition count and connects, if that is not done yet."""
        try:
            if self._partitions is None:
                self._partitions = await self._learn_partitions()
        except BrokerUnreachableError as error:
            self._monitor.report(False, error.why)
            return False
        except BrokerRefusesError as error:
            self._monitor.report(False, str(error))
            return False
        except TopicsError as error:
            self._monitor.report(True)  # the broker answered, with this error
            self._set_problem(str(error))
            return False
        if not self._producer.started:
            self._monitor.report(await self._producer.start())
        if not self._denied:
            self._problem = None
        return self._producer.started

    def _retry_s(self) -> float:
        """The pause before the next attempt (seconds). It grows after a refusal: too many log-ins may lock us out."""
        return self._backoff.failed() if self._monitor.problem else _RETRY_S

    async def _learn_partitions(self) -> int:
        """Return the partition count to use: the present count, or an earlier and smaller count that must stay in use.

        An earlier count stays in use while rows wait in the spool, and for the life of this instance, because a stream must
        not move to another partition.
        """
        present = await segments_partitions(self._brokers, self._prefix)
        noted = await asyncio.to_thread(self._spool.get, _PARTITIONS) or b""
        kept = int(noted) if noted.isdigit() else 0
        waiting = await asyncio.to_thread(self._spool.take, 0, 1)
        if (waiting or self._partitions_in_use) and 0 < kept <= present:
            self._partitions_in_use = True
            return kept
        await asyncio.to_thread(self._spool.set, _PARTITIONS, str(present).encode())
        self._partitions_in_use = True
        return present

    def _set_problem(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.error("%s", problem)
        self._problem = problem

    # --- shipping ---------------------------------------------------------------------------------------------------

    async def _ship(self) -> None:
        """One round: recover from a failure; else remove confirmed rows from the spool, and send new ones."""
        if self._broken:
            return await self._start_over()
        room = self._most_in_flight - sum(self._in_flight.values())
        last = self._stopping  # only a round that begins after the stop has surely read every row from before the stop
        self._rows_put = False
        rows = await self._update_spool(lambda after: self._spool.take(after, room) if room > 0 else [])
        for row in rows:
            if not await self._send_row(row):
                break
        self._check_progress()
        taken = sum(len(row.value) for row in rows)
        self._is_backlogged = taken >= room // 2
        if not rows:
            idle = room > 0 and not (self._in_flight or self._broken or self._confirmed or self._refused)
            self._drained = last and idle
        more = rows and (self._is_backlogged or taken >= _BATCH_BYTES)
        if not (more or self._broken or (self._stopping and self._drained)):
            await self._pause_for_rows()

    def _first_after(self) -> int:
        """The row id after which to read the spool; 0 if nothing is in flight, as every row is then still to be sent."""
        return self._after if self._in_flight or self._confirmed or self._refused else 0

    def _check_progress(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._in_flight or not self._monitor.connected:
            self._progress_s = now
        elif now - self._progress_s > STUCK_S:
            self._broken = True

    async def _send_row(self, row: Row) -> bool:
        """Give one row to the producer, waiting while its buffer is full. False if the next row must not be sent now."""
        assert self._partitions is not None
        message = Message(self._topic, row.value, partition=row.slot % self._partitions)
        while not self._broken:
            try:
                future = await self._producer.send(message)
            except KafkaTimeoutError:
                self._check_progress()
                continue  # the buffer is still full: the broker is slow or unreachable, and the producer keeps its rows
            except KafkaError as error:
                return await self._on_failure(row, error)
            self._after = row.id
            self._on_row(row)
            if not self._in_flight:
                self._progress_s = asyncio.get_running_loop().time()
            self._in_flight[row.id] = len(row.value)
            if row.id <= self._send_alone_to:
                return await self._confirm_alone(row, future)
            future.add_done_callback(partial(self._on_done, row.id))
            return True
        return False

    def _on_done(self, row: int, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() or future.exception() is not None:
            self._broken = True
        else:
            self._confirmed.append(row)
            self._in_flight.pop(row, None)
            self._backoff.worked()
            if self._denied:
                self._denied, self._problem = False, None
            self._progress_s = asyncio.get_running_loop().time()
            placed = future.result()
            if placed.timestamp_type == _LOG_APPEND_TIME:
                self._clock_skew.confirmed(self._progress_s, time.time(), placed.timestamp)
            if not self._monitor.connected:
                self._monitor.report(True)
        if self._broken or self._is_backlogged or self._stopping:
            self._wake.set()

    async def _confirm_alone(self, row: Row, future: "asyncio.Future[Any]") -> bool:
        while not (await asyncio.wait({future}, timeout=_POLL_S))[0]:
            self._check_progress()
            if self._broken:
                future.add_done_callback(partial(self._on_done, row.id))
                return False  # the row stays in flight: `_start_over` goes back to it
        if not future.cancelled() and (error := future.exception()) is not None:
            return await self._on_failure(row, error)
        self._on_done(row.id, future)
        return True

    async def _on_failure(self, row: Row, error: BaseException) -> bool:
        """Handle a row whose own send failed. Returns False: the next row must not be sent now."""
        self._broken = True
        self._in_flight[row.id] = len(row.value)
        meaning = meaning_of(error)
        if self._tried_enough(row) if may_concern_message(error) else meaning is Meaning.REFUSED:
            _LOG.error(
                "the broker rejected a bundle of %d bytes permanently (%s): it is discarded and counted",
                len(row.value),
                type(error).__name__,
            )
            del self._in_flight[row.id]
            self._after = row.id
            self._refused.append(row.id)
            for upstream in _whole_streams(row.value):
                self._spool.count_lost(upstream, NotCaptured.BROKER_REFUSED)
        elif meaning is Meaning.DENIED:
            self._denied = True
            self._set_problem(f"the broker denies writes to {self._topic} ({type(error).__name__}): grant Write on it")
            await self._pause(DENIED_S)
        else:
            await self._pause(self._backoff.failed())
        return False

    def _tried_enough(self, row: Row) -> bool:
        """Count a failure of a row that was sent alone; whether it has failed _TRIES_ALONE times."""
        if row.id > self._send_alone_to:
            return False
        failed, times = self._alone
        self._alone = (row.id, times + 1 if failed == row.id else 1)
        return self._alone[1] >= _TRIES_ALONE

    async def _start_over(self) -> None:
        """Create a new producer, and go back to the first unconfirmed row."""
        self._monitor.report(await self._producer.renew(self._producer.generation))
        await asyncio.sleep(0)  # let the callbacks of the old producer's futures run
        await self._remove_settled()
        if self._in_flight:
            self._after = min(self._after, min(self._in_flight) - 1)
            self._send_alone_to = max(self._send_alone_to, *self._in_flight)
            self._in_flight.clear()
        self._broken = False
        self._partitions = None  # read again, because the topic may be the cause

    async def _remove_settled(self) -> None:
        await self._update_spool(lambda _: [])

    async def _update_spool(self, take: Callable[[int], list[Row]]) -> list[Row]:
        """Remove confirmed and refused rows from the spool, then call `take` for new rows, all in one call in another thread.

        Rows that the spool fails to remove stay listed for the next call.
        """
        after = self._first_after()
        confirmed, self._confirmed = self._confirmed, []
        refused, self._refused = self._refused, []
        confirmed, refused, rows = await asyncio.to_thread(self._update_spool_now, confirmed, refused, take, after)
        self._confirmed, self._refused = confirmed + self._confirmed, refused + self._refused
        return rows

    def _update_spool_now(
        self, confirmed: list[int], refused: list[int], take: Callable[[int], list[Row]], after: int
    ) -> tuple[list[int], list[int], list[Row]]:
        if confirmed and (self._spool.done(confirmed) or not self._spool.failure):
            confirmed = []
        if refused and (self._spool.discard(refused, DropReason.REFUSED) or not self._spool.failure):
            refused = []
        return confirmed, refused, take(after)


class ClockSkew:
    """This host's wall clock minus the broker's, by the times that the broker gives to our messages.

    Each confirmed message gives a difference that is too large by the broker's answering time: the smallest one counts.

    `seconds`: our clock minus the broker's, the smallest difference of the last one to two minutes; None before the first.
    """

    def __init__(self) -> None:
        self._began_s = float("-inf")
        self._before: float | None = None  # the smallest of the period before
        self._now: float | None = None  # the smallest of this period

    @property
    def seconds(self) -> float | None:
        """Our clock minus the broker's (seconds); positive if ours is ahead. None before the first message."""
        return min((skew for skew in (self._before, self._now) if skew is not None), default=None)

    def confirmed(self, now_s: float, wall_s: float, appended_ms: int) -> None:
        """A message was confirmed. `now_s`: monotonic; `wall_s`: our wall clock; `appended_ms`: the broker's wall clock."""
        if now_s - self._began_s >= _SKEW_PERIOD_S:
            self._began_s, self._before, self._now = now_s, self._now, None
        difference = wall_s - appended_ms / 1000
        self._now = difference if self._now is None else min(self._now, difference)


def _whole_streams(value: bytes) -> list[str | None]:
    """The upstreams of the streams that begin and end in a bundle; none if it cannot be decoded."""
    try:
        segments = decode_bundle(value).segments
    except UnreadableBundle:
        return []
    return [segment.opening.upstream for segment in segments if segment.opening is not None and segment.end is not None]
