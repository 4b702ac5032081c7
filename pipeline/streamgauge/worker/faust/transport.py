"""Faust's aiokafka transport, with changes for speed and for correct recovery.

Written for faust-streaming 0.12 to 0.15 and mode-streaming 0.4 to 0.7. No public report.

Tasks: for each message, Faust waits for its delivery or for a rebalance, whichever is first. That creates four asyncio
tasks, half of a message's cost. But the delivery nearly always ends at its first step, because the stream's queue has
room. So this module runs that first step directly, and creates tasks only if it has to wait.

Fetch wait: the client has one fetch request at a time in flight to a broker, for the partitions of which it has no buffered
messages. Faust lets the broker hold that request for 1.5 s if none of these has a message. A partition whose buffer becomes
empty meanwhile waits as long. Here the broker may hold it for a tenth of a second.

Full queues: if a stream's queue is full, Faust stops fetching that partition. If all partitions are stopped, Faust checks for
room once a second, so the queues may run empty before the next check. Here it checks more often.

Held partitions: Faust fetches a partition again when its stream's queue has room. The worker's own queue for the partition
may still be full at that time. Here a partition that the worker holds is not fetched until the worker releases it.

Seeks: Faust may seek while its thread is still fetching. The in-flight fetch then returns messages past the new position,
and Faust drops them, because the fetch began before the rebalance. A recovery then waits for its changelog without limit.
Two facts make that likely. A rebalance blocks the fetch until it is over. And a rebalance empties the set of partitions to
fetch, which Faust shares with aiokafka, and for aiokafka an empty set means all partitions. Here a lock separates fetches
from seeks, and the set is a copy.

Start: Faust ends if the broker does not answer when its consumer or its producer starts. Here both wait for the broker.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Mapping
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service, WaitResults

from streamgauge.kafka.administrator import UNREACHABLE
from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.security import Brokers
from streamgauge.worker.faust.delivery import DeliveryCheck
from streamgauge.worker.faust.group_leader import wait_for_topics_before_assigning
from streamgauge.worker.faust.store import FAUST_LOG

# How long a broker may hold a fetch request while none of its partitions has a message (milliseconds).
_FETCH_WAIT_MS = 100
# How often to check whether a partition may be fetched again (seconds), and how many times before returning to Faust.
_ROOM_CHECK_S = 0.01
_ROOM_CHECKS = 100
# How long one fetch from aiokafka's buffer waits for messages (seconds); a seek waits at most twice as long for the lock.
_FETCH_S = 0.25
# How soon a broker that did not answer at the start is tried again (seconds).
_RETRY_S = 1.0


class _StartedCoroutine:
    """A coroutine whose first step has run and yielded `waits_for`. Awaiting this object runs the remaining steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine, self._waits_for = coroutine, waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - the coroutine must get it, above all a cancellation
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(sent)
        except StopIteration as done:
            return done.value


async def _continued(coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    return await _StartedCoroutine(coroutine, waits_for)


class Eager(Service):
    """A service whose `wait_first` runs the first step of its first coroutine directly, without a task."""

    async def wait_first(self, *coros: Any, timeout: Any = None) -> WaitResults:  # noqa: ASYNC109 - mode's own signature
        """As mode's: wait until one of these is done, or the service stops, and cancel the others."""
        first, others = coros[0], coros[1:]
        if not asyncio.iscoroutine(first) or self.should_stop:
            return await super().wait_first(*coros, timeout=timeout)
        try:
            waits_for = first.send(None)
        except BaseException as ended:
            for other in others:
                if asyncio.iscoroutine(other):
                    other.close()
            if isinstance(ended, StopIteration):
                return WaitResults([first], [ended.value], False)
            raise
        return await super().wait_first(_continued(first, waits_for), *others, timeout=timeout)


class _Thread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with a shorter fetch wait, and with waits for the broker."""

    logger = FAUST_LOG

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        client: Any = super()._create_worker_consumer(transport)
        client._fetch_max_wait_ms = _FETCH_WAIT_MS
        return client

    async def on_start(self) -> None:
        """As Faust's, but waits for an unreachable broker, and lets a group leader fetch metadata before it assigns."""
        while not await _answered(super().on_start(), self.transport):
            await self._consumer.stop()  # type: ignore[union-attr]
            if self.should_stop:
                return
            await asyncio.sleep(_RETRY_S)
        wait_for_topics_before_assigning(self._consumer._coordinator)  # type: ignore[union-attr]

    async def on_thread_stop(self) -> None:
        """As Faust's, but also ends properly if the broker is unreachable. aiokafka then cancels its own requests, and that
        CancelledError would end the thread before it has reported its end.
        """
        with contextlib.suppress(asyncio.CancelledError):
            await super().on_thread_stop()

    async def _fetch_records(self, *arguments: Any, **options: Any) -> Any:
        """As Faust's, but with a time limit, because aiokafka waits for the end of a rebalance that begins."""
        try:
            async with asyncio.timeout(2 * _FETCH_S):
                return await super()._fetch_records(*arguments, **options)
        except TimeoutError:  # no message is lost: aiokafka takes messages from its buffer and returns them in one step
            return {}


class Consumer(Eager, driver.Consumer):
    """Faust's consumer, with the `wait_first` of Eager, with held partitions, and with a lock between fetches and seeks."""

    logger = FAUST_LOG

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Held by fetches and seeks, which move the read positions. First come, first served.
        self.position_lock = asyncio.Lock()
        self.delivery_check = DeliveryCheck()
        self._held: set[TP] = set()

    def hold(self, tp: TP) -> None:
        """Do not fetch the partition until `release`. Messages already fetched are still delivered."""
        self._held.add(tp)
        self.on_buffer_full(tp)

    def release(self, tp: TP) -> None:
        """Fetch the partition again."""
        self._held.discard(tp)
        self.on_buffer_drop(tp)

    def on_buffer_drop(self, tp: TP) -> None:
        """As Faust's, which calls it when a stream's queue has room again, but leaves out held partitions."""
        if tp not in self._held:
            super().on_buffer_drop(tp)

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """As Faust's, which calls it at the end of each recovery: no partition is held any more."""
        tps = set(tps)
        self._held -= tps
        super().resume_partitions(tps)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:  # noqa: ASYNC109
        async with self.position_lock:
            if not active_partitions:
                return {}  # a rebalance has begun during the wait
            wanted = set(active_partitions)
            try:
                records = await super()._getmany(wanted, min(timeout, _FETCH_S))
            except BaseException:
                self.delivery_check.fetch_failed(wanted)
                raise
            for tp, fetched in records.items():
                self.delivery_check.fetched(tp, [record.offset for record in fetched])
            return records

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """As Faust's, but not while a fetch uses the positions."""
        async with self.position_lock:
            await super().seek_wait(partitions)

    async def seek_after(self, recovered: Mapping[TP, int]) -> None:
        """Continue after these messages, the last that the recovery has; -1 for none. The last one is fetched once more."""
        async with self.position_lock:
            for tp, offset in recovered.items():
                self.delivery_check.sought(tp, offset)
            await super().seek_wait({tp: max(offset, 0) for tp, offset in recovered.items()})

    async def perform_seek(self) -> None:
        """As Faust's, but not while a fetch uses the positions."""
        async with self.position_lock:
            await super().perform_seek()

    async def _wait_next_records(self, timeout: float) -> Any:  # noqa: ASYNC109 - Faust's own signature
        """As Faust's, but checks more often whether a partition may be fetched again."""
        checks = 0
        while self.flow_active and not self._get_active_partitions():
            if checks == _ROOM_CHECKS:
                return {}, set()
            checks += 1
            await asyncio.sleep(_ROOM_CHECK_S)
        return await super()._wait_next_records(timeout)

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class Producer(driver.Producer):
    """Faust's producer, which waits for an unreachable broker when it starts. The worker sends nothing with it."""

    logger = FAUST_LOG

    async def on_start(self) -> None:
        """As Faust's, with retries until the broker answers."""
        while not await _answered(super().on_start(), self.transport):
            await self._producer.stop()  # type: ignore[union-attr]
            if self.should_stop:
                return
            await asyncio.sleep(_RETRY_S)


async def _answered(start: Awaitable[None], transport: Any) -> bool:
    """Start a client; returns whether the broker answered. Raises the client's error if the broker refuses permanently."""
    try:
        await start
    except UNREACHABLE:
        refusal = await refusal_of(transport.brokers)
        if refusal is not None and refusal.final:
            raise
        return False
    return True


class Transport(driver.Transport):
    """The transport with the Consumer and the Producer of this module. Assign it to `app.transport`."""

    Consumer = Consumer
    Producer = Producer
    brokers: Brokers


def transport_of(app: faust.App, brokers: Brokers) -> Transport:
    """Create the transport for an app."""
    transport = Transport(app.conf.broker_consumer, app)
    transport.brokers = brokers
    return transport
