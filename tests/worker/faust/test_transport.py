"""`wait_first` gives the same results as mode's own, whether it has to wait or not."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import faust
import pytest
from faust.types import TP
from mode.services import Service
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from streamgauge.kafka.security import brokers_at
from streamgauge.worker.faust.transport import Consumer, Eager, Transport, transport_of


class Ordinary(Service):
    """mode's own way."""


class Sooner(Eager):
    """Ours."""


PLACE = TP("segments", 0)
BOTH = pytest.mark.parametrize("kind", [Ordinary, Sooner])


def run(kind: type[Service], work: Callable[[Service], Awaitable[Any]]) -> Any:
    async def in_a_loop() -> Any:
        service = kind()
        await service.start()
        try:
            return await asyncio.wait_for(work(service), 10)
        finally:
            await service.stop()

    return asyncio.run(in_a_loop())


async def at_once() -> str:
    return "done"


async def in_steps(seen: list[int]) -> str:
    for number in range(3):
        seen.append(number)
        await asyncio.sleep(0.001 * number)
    return "done"


@BOTH
def test_delivery_that_need_not_wait_is_done(kind: type[Service]) -> None:
    async def work(service: Service) -> None:
        never = asyncio.Event()
        results = await service.wait_first(at_once(), never.wait())
        assert (results.results, results.stopped) == (["done"], False)

    run(kind, work)


def test_it_makes_no_task_for_what_need_not_wait() -> None:
    async def work(service: Service) -> tuple[int, int]:
        made = list[asyncio.Task[Any]]()

        def making(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            made.append(asyncio.Task(coroutine, loop=loop, **more))
            return made[-1]

        asyncio.get_running_loop().set_task_factory(making)
        await service.wait_first(at_once(), asyncio.Event().wait())
        before = len(made)
        await service.wait_first(in_steps([]), asyncio.Event().wait())
        return before, len(made)

    assert run(Ordinary, work)[0] == 4
    before, after = run(Sooner, work)
    assert (before, after) == (0, 4)


@BOTH
def test_waiting_delivery_continues_at_its_step(kind: type[Service]) -> None:
    async def work(service: Service) -> None:
        seen: list[int] = []
        results = await service.wait_first(in_steps(seen), asyncio.Event().wait())
        assert (results.results, seen) == (["done"], [0, 1, 2])

    run(kind, work)


@BOTH
@pytest.mark.parametrize("pause_s", [None, 0, 0.001])
def test_error_of_the_first_step_is_raised(kind: type[Service], pause_s: float | None) -> None:
    async def fails() -> None:
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        raise ValueError("no")

    async def work(service: Service) -> None:
        with pytest.raises(ValueError, match="no"):
            await service.wait_first(fails(), asyncio.Event().wait())

    run(kind, work)


@BOTH
def test_a_rebalance_cancels_a_delivery_that_waits(kind: type[Service]) -> None:
    async def work(service: Service) -> None:
        cancelled, suspended = asyncio.Event(), asyncio.Event()

        async def waits() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        asyncio.get_running_loop().call_later(0.01, suspended.set)
        results = await service.wait_first(waits(), suspended.wait())
        assert (results.results, results.stopped) == ([True], False)
        await cancelled.wait()

    run(kind, work)


@BOTH
def test_stopping_service_ends_the_wait(kind: type[Service]) -> None:
    async def work(service: Service) -> None:
        asyncio.get_running_loop().call_later(0.01, service._stopped.set)
        results = await service.wait_first(asyncio.Event().wait(), asyncio.Event().wait())
        assert results.stopped

    run(kind, work)


def test_an_app_gets_the_consumer() -> None:
    app = faust.App("test", broker="kafka://127.0.0.1:1;kafka://127.0.0.1:2", autodiscover=False)
    transport = transport_of(app, brokers_at("127.0.0.1:1"))
    assert isinstance(transport, Transport)
    assert transport.Consumer is Consumer
    assert [url.port for url in transport.url] == [1, 2]


def of_an_app() -> Any:
    """A consumer as the app makes one."""
    app = faust.App("test", broker="kafka://127.0.0.1:1", autodiscover=False, loop=asyncio.get_running_loop())
    app.transport = transport_of(app, brokers_at("127.0.0.1:1"))
    consumer: Any = app.transport.create_consumer(
        lambda message: None,  # type: ignore[arg-type, return-value]
        on_partitions_revoked=lambda revoked: None,
        on_partitions_assigned=lambda assigned: None,
    )
    consumer._thread.thread_loop.close()  # of a thread that is never started
    return consumer


def full() -> tuple[Any, list[float]]:
    """One that has a partition for which there is no room; and the moments at which it fetches."""
    consumer, fetched = of_an_app(), list[float]()
    consumer.resume_flow()
    consumer._active_partitions = {PLACE}
    consumer.on_buffer_full(PLACE)

    async def getmany(active_partitions: set[TP], timeout: float) -> dict[TP, list[str]]:  # noqa: ASYNC109
        fetched.append(time.monotonic())
        return {place: ["a message"] for place in active_partitions}

    consumer._getmany = getmany
    return consumer, fetched


def test_a_partition_that_has_room_again_is_fetched_soon() -> None:
    """Faust looks a second later."""

    async def run() -> None:
        consumer, fetched = full()
        waiting = asyncio.ensure_future(consumer._wait_next_records(1.0))
        await asyncio.sleep(0.05)
        assert not fetched
        room_at = time.monotonic()
        consumer.on_buffer_drop(PLACE)
        assert await waiting == ({PLACE: ["a message"]}, {PLACE})
        assert fetched[0] - room_at < 0.7

    asyncio.run(run())


def test_full_queues_return_to_faust_after_some_checks() -> None:
    """It looks whether it is to stop, then."""

    async def run() -> None:
        consumer, fetched = full()
        assert await consumer._wait_next_records(1.0) == ({}, set())
        assert not fetched

    asyncio.run(run())


def test_a_held_partition_is_not_fetched_when_the_streams_queue_has_room_again() -> None:
    """Faust fetched it again, although the worker's own queue was still full."""

    async def run() -> None:
        consumer = of_an_app()
        consumer._active_partitions = {PLACE}
        control = FlowControlEvent(initially_suspended=False)
        queue = ThrowableQueue[int](4, flow_control=control)
        full_at, room_at = partial(consumer.on_buffer_full, PLACE), partial(consumer.on_buffer_drop, PLACE)
        for number in range(4):
            queue.put_nowait_enhanced(number, on_pressure_high=full_at, on_pressure_drop=room_at)
        assert PLACE in consumer._buffered_partitions  # the queue is full
        consumer.hold(PLACE)
        while not queue.empty():
            queue.get_nowait()
        await asyncio.wait({asyncio.ensure_future(queue.get())}, timeout=0.01)
        assert not queue._pending_pressure_drop_callbacks  # the queue has room again
        assert consumer._get_active_partitions() == set()
        consumer.release(PLACE)
        assert consumer._get_active_partitions() == {PLACE}

    asyncio.run(run())


def test_no_partition_is_held_after_a_recovery() -> None:
    """The worker's queues are new ones then. Otherwise Faust would not fetch a partition again when its queue has room."""

    async def run() -> None:
        consumer = of_an_app()
        consumer._active_partitions = {PLACE}
        consumer.hold(PLACE)
        consumer.resume_partitions({PLACE})
        assert consumer._get_active_partitions() == {PLACE}
        consumer.on_buffer_full(PLACE)
        consumer.on_buffer_drop(PLACE)
        assert consumer._get_active_partitions() == {PLACE}

    asyncio.run(run())


def test_a_broker_may_not_keep_a_request_for_long() -> None:
    """For aiokafka asks it for no other partition meanwhile."""

    async def run() -> None:
        consumer = of_an_app()
        client = consumer._thread._create_worker_consumer(consumer.transport)
        assert client._fetch_max_wait_ms == 100
        await client.stop()

    asyncio.run(run())


def moving() -> tuple[Any, list[str]]:
    """One of which a thread moves the places: what it does, in order. A taking lasts until there is something else to do."""
    consumer, done = of_an_app(), list[str]()
    consumer.resume_flow()

    async def getmany(active_partitions: set[TP], timeout: float) -> dict[TP, list[str]]:  # noqa: ASYNC109
        done.append(f"takes from {len(active_partitions)}")
        await asyncio.sleep(min(timeout, 0.5))
        done.append(f"took from {len(active_partitions)}")
        return {}

    async def seek_wait(partitions: dict[TP, int]) -> None:
        done.append("sets back")

    async def seek_to_committed() -> dict[TP, int]:
        done.append("sets back")
        return {}

    consumer._thread.getmany = getmany
    consumer._thread.seek_wait = seek_wait
    consumer._thread.seek_to_committed = seek_to_committed
    return consumer, done


@pytest.mark.parametrize(
    "sets_back",
    [
        lambda consumer: consumer.seek_wait({PLACE: 0}),
        lambda consumer: consumer.seek_after({PLACE: -1}),
        lambda consumer: consumer.perform_seek(),
    ],
)
def test_seek_waits_for_a_fetch(sets_back: Callable[[Any], Awaitable[None]]) -> None:
    """And who takes next takes from what there is then; a set that a rebalance empties means nothing, and not all."""

    async def run() -> None:
        consumer, done = moving()
        partitions = {PLACE}
        takes = asyncio.ensure_future(consumer._getmany(partitions, 1.0))
        await asyncio.sleep(0.01)
        partitions.clear()
        next_one = asyncio.ensure_future(consumer._getmany(partitions, 1.0))
        await asyncio.gather(sets_back(consumer), takes, next_one)
        assert done == ["takes from 1", "took from 1", "sets back"]
        assert next_one.result() == {}

    asyncio.run(run())
