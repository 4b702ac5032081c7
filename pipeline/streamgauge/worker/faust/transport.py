"""Faust's aiokafka transport, with a consumer that makes no tasks for what needs no waiting.

For each message Faust waits for its delivery, or for a rebalance, whichever is first: four asyncio tasks, and half of what
a message costs. But nearly always the delivery has nothing to wait for: a stream's queue has room, and it is done at its
first step. So that step is taken before anything is made of it.

And its client has one request at a time under way to a broker, for the partitions of which it holds nothing. Faust lets the
broker keep that request for 1.5 s if none of these has a message, and a partition whose messages were all taken meanwhile
waits for as long. Here the broker may keep it for a tenth of a second.

Where more messages come at once than a stream's queue takes, Faust fetches no more until there is room. If that is so of all
partitions, it looks for room once a second, which may be longer than what is in the queue lasts. Here it looks more often.

And it may set reading back while its thread still waits for messages. The one who waits then takes what comes behind the
new place, and drops it, for it was asked before the rebalance: a recovery waits for its changelog for ever. Two things
make that likely. A rebalance holds up the one who waits until it is over; and it empties the set of partitions to take from,
which Faust shares with aiokafka, to which an empty set means all. Here taking and setting back have turns, and the set is
a copy.

Faust ends where the broker does not answer when its consumer or its producer starts. Here both wait for the broker.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from typing import Any

import faust
from aiokafka.errors import (  # type: ignore[import-untyped]
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
)
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service, WaitResults

from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.security import Brokers
from streamgauge.worker.faust.group_leader import wait_for_topics_before_assigning
from streamgauge.worker.faust.store import FAUST_LOG

# How long a broker may hold its answer back while none of the partitions that it is asked for has a message (milliseconds).
_FETCH_WAIT_MS = 100
# How often it is looked whether a partition may be fetched again (seconds), and how many times before Faust has its turn.
_LOOK_S = 0.01
_LOOKS = 100
# How long one taking waits for messages (seconds); who wants to set reading back waits for twice that at most.
_TAKE_S = 0.25
# How soon a broker that did not answer at the start is asked again (seconds).
_RETRY_S = 1.0
# What a client raises that could not connect.
_AWAY = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError, TimeoutError)


class _Begun:
    """A coroutine whose first step was taken, and gave `waits_for`: await it for the rest."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine, self._waits_for = coroutine, waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    given = yield waits_for
                except BaseException as error:  # noqa: BLE001 - a cancellation above all: it is the coroutine's
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(given)
        except StopIteration as done:
            return done.value


async def _rest(coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    return await _Begun(coroutine, waits_for)


class Eager(Service):
    """A service whose `wait_first` takes the first step of its first coroutine by itself."""

    async def wait_first(self, *coros: Any, timeout: Any = None) -> WaitResults:  # noqa: ASYNC109 - mode's own signature
        """As mode's: waits for the first of these that is done, or until the service stops, and cancels the others."""
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
        return await super().wait_first(_rest(first, waits_for), *others, timeout=timeout)


class _Thread(driver.AIOKafkaConsumerThread):
    """Faust's thread, whose client asks a broker for so long only."""

    logger = FAUST_LOG

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        client: Any = super()._create_worker_consumer(transport)
        client._fetch_max_wait_ms = _FETCH_WAIT_MS
        return client

    async def on_start(self) -> None:
        """As Faust's, but it waits for a broker that is away, and the coordinator assigns no topic that it does not know."""
        while not await _answered(super().on_start(), self.transport):
            await self._consumer.stop()  # type: ignore[union-attr]
            if self.should_stop:
                return
            await asyncio.sleep(_RETRY_S)
        wait_for_topics_before_assigning(self._consumer._coordinator)  # type: ignore[union-attr]

    async def on_thread_stop(self) -> None:
        """As Faust's, but that it ends where the broker is away: aiokafka then breaks off its own requests, and what that
        raises would end the thread before it has said that it is over.
        """
        with contextlib.suppress(asyncio.CancelledError):
            await super().on_thread_stop()

    async def _fetch_records(self, *given: Any, **more: Any) -> Any:
        """As Faust's, but that it waits no longer where a rebalance begins meanwhile, whose end aiokafka waits for."""
        try:
            async with asyncio.timeout(2 * _TAKE_S):
                return await super()._fetch_records(*given, **more)
        except TimeoutError:  # nothing was taken: what there is, is taken and given back in one step
            return {}


class Consumer(Eager, driver.Consumer):
    """Faust's consumer, which delivers each message by `wait_first`."""

    logger = FAUST_LOG

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.turn = asyncio.Lock()  # of who moves the places at which partitions are read; first come, first served

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:  # noqa: ASYNC109
        async with self.turn:
            if not active_partitions:
                return {}  # a rebalance has begun meanwhile
            return await super()._getmany(set(active_partitions), min(timeout, _TAKE_S))

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        async with self.turn:
            await super().seek_wait(partitions)

    async def perform_seek(self) -> None:
        async with self.turn:
            await super().perform_seek()

    async def _wait_next_records(self, timeout: float) -> Any:  # noqa: ASYNC109 - Faust's own signature
        """As Faust's, but that it looks more often whether a partition may be fetched again."""
        looks = 0
        while self.flow_active and not self._get_active_partitions():
            if looks == _LOOKS:
                return {}, set()
            looks += 1
            await asyncio.sleep(_LOOK_S)
        return await super()._wait_next_records(timeout)

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


class Producer(driver.Producer):
    """Faust's producer, which waits for a broker that is away when it starts. The worker sends nothing by it."""

    logger = FAUST_LOG

    async def on_start(self) -> None:
        """As Faust's, until the broker answers."""
        while not await _answered(super().on_start(), self.transport):
            await self._producer.stop()  # type: ignore[union-attr]
            if self.should_stop:
                return
            await asyncio.sleep(_RETRY_S)


async def _answered(start: Awaitable[None], transport: Any) -> bool:
    """Start a client; whether the broker answered. Raises what a client raises that the broker refuses for good."""
    try:
        await start
    except _AWAY:
        refusal = await refusal_of(transport.brokers)
        if refusal is not None and refusal.final:
            raise
        return False
    return True


class Transport(driver.Transport):
    """The transport that has both. Give it to `app.transport`."""

    Consumer = Consumer
    Producer = Producer
    brokers: Brokers


def transport_of(app: faust.App, brokers: Brokers) -> Transport:
    """The transport for an app, by its settings."""
    transport = Transport(app.conf.broker_consumer, app)
    transport.brokers = brokers
    return transport
