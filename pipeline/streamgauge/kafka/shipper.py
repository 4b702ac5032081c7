"""The shipper: from the spool to the segments topic. A broker that is away, slow or comes and goes is its daily bread.

Rows go out in the order in which they came into the spool, to partition = slot % partitions, through an idempotent
producer, so that within a slot nothing is lost or passes something else. A row leaves the spool when Kafka has it.

What a failure means is `broker.producer.meaning_of`. A batch that fails for good takes other rows with it and leaves a
hole in the producer's sequence numbers: then the shipper goes back to the first row that is not confirmed, takes a new
producer, and sends what was under way one row at a time, until it is known which one the broker refuses. A bundle that
is sent twice this way is known by its number and skipped.

    the broker is away, slow, half-open; retriable errors    wait, for as long as it takes; nothing is dropped
    it refuses our TLS or log-in                             say so once, look again, ever less often; nothing is dropped
    it denies us, or the topic is missing                    say so once, look again every few seconds; nothing is dropped
    it refuses a bundle (its size, what it holds)            that bundle is dropped: `refused`
    it fails over a bundle without a reason, five times      as refused, so that one bundle does not stop all others
    nothing is confirmed although the broker answers         begin anew: the topic may be another one
    a bug of ours                                            say so, begin anew; a tap does not end for its shipper
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka.errors import KafkaError, KafkaTimeoutError  # type: ignore[import-untyped]

from streamgauge.kafka.backoff import Pace
from streamgauge.kafka.cancelling import end_task
from streamgauge.kafka.log_throttle import Watch
from streamgauge.kafka.producer import Meaning, Message, Producer, may_be_the_message, meaning_of
from streamgauge.kafka.security import Brokers, brokers_at
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

_LOG = logging.getLogger("streamgauge.shipper")

# Bundles handed to the producer and not confirmed yet (bytes): a second of a fast tap, and what memory an outage takes.
_IN_FLIGHT_BYTES = 8 * 1024 * 1024
# One produce request carries about five bundles for a partition (bytes): aiokafka's cost is mostly a request's.
_BATCH_BYTES = 256 * 1024
# How often the spool is asked for more (seconds), unless it had more than one request takes: a small part of what a record
# may take to the ledger. Each time costs wake-ups of two threads and a produce request, whatever is in it.
_POLL_S = 0.25
# How soon a broker that was away is tried again (seconds).
_RETRY_S = 1.0
# How soon after the broker denied us, which only an operator can change (seconds).
_DENIED_S = 10.0
# How often a bundle that fails alone, without a reason that can be put right, is tried: half a minute, by the pauses.
_TRIES_ALONE = 5
# After so long without a confirmation from a broker that answers something else is wrong (seconds): three requests.
_STUCK_S = 30.0
# A stop waits this long for a broker that is away or refuses (seconds): one more attempt, since what waits is on the disk.
AWAY_S = 1.0
# How often a stop looks whether the broker is away (seconds).
_STOP_LOOK_S = 0.1
# How long a drained producer may take to say goodbye (seconds).
_FAREWELL_S = 2.0
# Where the spool keeps the partition count that this data directory's instance learnt.
_PARTITIONS = "partitions"


@dataclass(frozen=True)
class ShipperSettings:
    """Where to ship to; an address alone means plain text."""

    bootstrap: Brokers | str
    prefix: str = DEFAULT_PREFIX


class Shipper:
    """Ships until it is stopped. The spool is called from other threads, never from the event loop's.

    `connected`: the broker answers. `lag`: rows handed over and not confirmed. `problem`: one sentence on what an
    operator has to put right, None if nothing.
    """

    def __init__(self, spool: Spool, settings: ShipperSettings) -> None:
        self._spool = spool
        self._brokers = brokers_at(settings.bootstrap)
        self._prefix = settings.prefix
        self._topic = Topics(settings.prefix).segments
        self._producer = Producer(self._brokers, max_message_bytes=MAX_MESSAGE_BYTES, batch_bytes=_BATCH_BYTES)
        self._watch = Watch(
            self._brokers, self._producer.answers, "captured data is kept until it answers", self._producer.refusal
        )
        self._partitions: int | None = None
        self._counts_by_it = False  # streams may be open that were sent under this count
        self._most_in_flight = min(_IN_FLIGHT_BYTES, spool.most_in_flight)
        self._after = 0  # the last row that was handed over
        self._careful_to = 0  # rows up to this one are sent one at a time
        self._in_flight: dict[int, int] = {}  # row -> bytes
        self._confirmed: list[int] = []
        self._refused: list[int] = []
        self._alone = (0, 0)  # the row that failed by itself, and how often
        self._pace = Pace()
        self._progress_s = 0.0  # when something was last confirmed, or the first of what is under way was handed over
        self._broken = self._denied = False
        self._wake = asyncio.Event()
        self._stopping = False
        self._drained = False
        self._crowded = False  # half of what may be under way is
        self._shipping: asyncio.Task[None] | None = None
        self._complaint: str | None = None

    @property
    def problem(self) -> str | None:
        return self._complaint or self._watch.problem

    @property
    def connected(self) -> bool:
        return self._watch.connected

    @property
    def lag(self) -> int:
        return len(self._in_flight)

    async def run(self) -> None:
        """Ships until `stop`. Returns when all is shipped or the stop's deadline has passed."""
        self._shipping = asyncio.create_task(self._ship_all())
        watching = asyncio.create_task(self._watch_always())
        try:
            await asyncio.wait({self._shipping})
        finally:
            await asyncio.gather(end_task(self._shipping), end_task(watching))
            await self._producer.stop(_FAREWELL_S if self._drained else 0)
            await self._settle()
        if not self._shipping.cancelled():
            self._shipping.result()

    async def stop(self, deadline_s: float) -> None:
        """Ship what is left, for at most `deadline_s` seconds, or until nothing was deliverable for AWAY_S.

        What remains stays in the spool.
        """
        self._stopping = True
        self._wake.set()
        if self._shipping is None:
            return
        now = asyncio.get_running_loop().time
        ends, deliverable_s = now() + deadline_s, now()
        while not self._shipping.done() and now() < min(ends, deliverable_s + AWAY_S):
            await asyncio.wait({self._shipping}, timeout=_STOP_LOOK_S)
            if not self._watch.away and self.problem is None:
                deliverable_s = now()
        await end_task(self._shipping)

    async def _ship_all(self) -> None:
        while not (self._stopping and self._drained):
            try:
                await (self._ship() if await self._is_ready() else self._pause(self._retry_s()))
            except Exception as error:  # noqa: BLE001 - capture fails open: a tap goes on without its shipper
                report_fault("the shipper", error)
                self._complain(f"internal error while sending to Kafka ({described(error)}): captured data is kept")
                self._broken = True
                await self._pause(self._pace.failed())

    async def _watch_always(self) -> None:
        """Watch the broker. A watch that ended would leave `connected` as it was."""
        while True:
            try:
                await self._watch.run()
            except Exception as error:  # noqa: BLE001 - the shipper goes on, and the watch begins again
                report_fault("the check of the broker connection", error)
                await asyncio.sleep(_RETRY_S)

    async def _pause(self, seconds: float) -> None:
        """Until something happens, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    # --- the way to the broker --------------------------------------------------------------------------------------

    async def _is_ready(self) -> bool:
        """Whether rows can be handed over. Learns the partition count and connects where that is still to be done."""
        try:
            if self._partitions is None:
                self._partitions = await self._learn_partitions()
        except BrokerUnreachableError as error:
            self._watch.seen(False, error.why)
            return False
        except BrokerRefusesError as error:
            self._watch.seen(False, str(error))
            return False
        except TopicsError as error:
            self._watch.seen(True)  # it answers, and that is what it says
            self._complain(str(error))
            return False
        if not self._producer.started:
            self._watch.seen(await self._producer.start())
        if not self._denied:
            self._complaint = None
        return self._producer.started

    def _retry_s(self) -> float:
        """A broker that refuses our log-in may lock us out if it is stormed."""
        return self._pace.failed() if self._watch.problem else _RETRY_S

    async def _learn_partitions(self) -> int:
        """The count is kept for an instance's life, and while rows wait: a stream must not move to another partition."""
        there = await segments_partitions(self._brokers, self._prefix)
        noted = await asyncio.to_thread(self._spool.get, _PARTITIONS) or b""
        kept = int(noted) if noted.isdigit() else 0
        waiting = await asyncio.to_thread(self._spool.take, 0, 1)
        if (waiting or self._counts_by_it) and 0 < kept <= there:
            self._counts_by_it = True
            return kept
        await asyncio.to_thread(self._spool.set, _PARTITIONS, str(there).encode())
        self._counts_by_it = True
        return there

    def _complain(self, problem: str) -> None:
        if problem != self._complaint:
            _LOG.error("%s", problem)
        self._complaint = problem

    # --- shipping ---------------------------------------------------------------------------------------------------

    async def _ship(self) -> None:
        """One round: what failed, then what is confirmed, then what is new."""
        if self._broken:
            return await self._start_over()
        room = self._most_in_flight - sum(self._in_flight.values())
        last = self._stopping  # what came before the stop is seen by this round; by an earlier one perhaps not
        rows = await self._visit(lambda after: self._spool.take(after, room) if room > 0 else [])
        for row in rows:
            if not await self._hand_over(row):
                break
        self._look_for_progress()
        taken = sum(len(row.value) for row in rows)
        self._crowded = taken >= room // 2
        if not rows:
            idle = room > 0 and not (self._in_flight or self._broken or self._confirmed or self._refused)
            self._drained = last and idle
        more = rows and (self._crowded or taken >= _BATCH_BYTES)
        if not (more or self._broken or (self._stopping and self._drained)):
            await self._pause(_POLL_S)

    def _first_after(self) -> int:
        """Behind which row to go on. With nothing under way from the front: whatever lies there is to be sent."""
        return self._after if self._in_flight or self._confirmed or self._refused else 0

    def _look_for_progress(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._in_flight or not self._watch.connected:
            self._progress_s = now
        elif now - self._progress_s > _STUCK_S:
            self._broken = True

    async def _hand_over(self, row: Row) -> bool:
        """One row to the producer, waiting while its buffer is full. False if the next one must not follow."""
        assert self._partitions is not None
        message = Message(self._topic, row.value, partition=row.slot % self._partitions)
        while not self._broken:
            try:
                future = await self._producer.send(message)
            except KafkaTimeoutError:
                self._look_for_progress()
                continue  # the buffer is still full: the broker is slow or away, and the producer keeps what it has
            except KafkaError as error:
                return await self._on_failure(row, error)
            self._after = row.id
            if not self._in_flight:
                self._progress_s = asyncio.get_running_loop().time()
            self._in_flight[row.id] = len(row.value)
            if row.id <= self._careful_to:
                return await self._confirm_alone(row, future)
            future.add_done_callback(partial(self._on_settled, row.id))
            return True
        return False

    def _on_settled(self, row: int, future: "asyncio.Future[Any]") -> None:
        if future.cancelled() or future.exception() is not None:
            self._broken = True
        else:
            self._confirmed.append(row)
            self._in_flight.pop(row, None)
            self._pace.worked()
            if self._denied:
                self._denied, self._complaint = False, None
            self._progress_s = asyncio.get_running_loop().time()
            if not self._watch.connected:
                self._watch.seen(True)
        if self._broken or self._crowded or self._stopping:
            self._wake.set()

    async def _confirm_alone(self, row: Row, future: "asyncio.Future[Any]") -> bool:
        await asyncio.wait({future})
        if not future.cancelled() and (error := future.exception()) is not None:
            return await self._on_failure(row, error)
        self._on_settled(row.id, future)
        return True

    async def _on_failure(self, row: Row, error: BaseException) -> bool:
        """What is to be done about a row that failed by itself. False: the next one must not follow it."""
        self._broken = True
        self._in_flight[row.id] = len(row.value)
        meaning = meaning_of(error)
        if self._tried_enough(row) if may_be_the_message(error) else meaning is Meaning.REFUSED:
            _LOG.error(
                "the broker rejected a bundle of %d bytes permanently (%s): it is discarded and counted",
                len(row.value),
                type(error).__name__,
            )
            del self._in_flight[row.id]
            self._after = row.id
            self._refused.append(row.id)
        elif meaning is Meaning.DENIED:
            self._denied = True
            self._complain(f"the broker denies writes to {self._topic} ({type(error).__name__}): grant Write on it")
            await self._pause(_DENIED_S)
        else:
            await self._pause(self._pace.failed())
        return False

    def _tried_enough(self, row: Row) -> bool:
        """Whether this row, which failed by itself, did so often enough for it to be the row's own fault."""
        if row.id > self._careful_to:
            return False
        failed, times = self._alone
        self._alone = (row.id, times + 1 if failed == row.id else 1)
        return self._alone[1] >= _TRIES_ALONE

    async def _start_over(self) -> None:
        """A new producer, and back to the first row that is not confirmed."""
        self._watch.seen(await self._producer.renew(self._producer.generation))
        await asyncio.sleep(0)  # the old producer's futures tell what became of them
        await self._settle()
        if self._in_flight:
            self._after = min(self._after, min(self._in_flight) - 1)
            self._careful_to = max(self._careful_to, *self._in_flight)
            self._in_flight.clear()
        self._broken = False
        self._partitions = None  # it may have been the topic

    async def _settle(self) -> None:
        await self._visit(lambda _: [])

    async def _visit(self, take: Callable[[int], list[Row]]) -> list[Row]:
        """Lets go of what Kafka has, or will never have; then takes rows behind the given one: one visit of another thread.

        What the disk does not let go of is tried again later.
        """
        after = self._first_after()
        confirmed, self._confirmed = self._confirmed, []
        refused, self._refused = self._refused, []
        confirmed, refused, rows = await asyncio.to_thread(self._visit_now, confirmed, refused, take, after)
        self._confirmed, self._refused = confirmed + self._confirmed, refused + self._refused
        return rows

    def _visit_now(
        self, confirmed: list[int], refused: list[int], take: Callable[[int], list[Row]], after: int
    ) -> tuple[list[int], list[int], list[Row]]:
        if confirmed and (self._spool.done(confirmed) or not self._spool.failure):
            confirmed = []
        if refused and (self._spool.discard(refused, DropReason.REFUSED) or not self._spool.failure):
            refused = []
        return confirmed, refused, take(after)
