"""The assignment epoch, by Faust's own signals."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from streamgauge.worker.faust.app import create_app
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.readiness import Owners
from streamgauge.worker.settings import WorkerSettings


def test_no_assignment_epoch_between_a_revocation_and_the_next_assignment() -> None:
    """A recovery that ends there belongs to partitions that were taken away: Faust does not break it off before."""

    async def run() -> None:
        app = create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)
        consumer = FaustConsumer(app, "segments")
        held: list[Any] = []
        for generation in (1, 2, 2):  # a recreated group may count from its beginning
            app.rebalancing_count += 1
            await app.on_partitions_revoked.send(set())
            assert consumer.assignment_epoch is None
            app.consumer_generation_id = generation
            await app.on_partitions_assigned.send(set())
            held.append(consumer.assignment_epoch)
            assert consumer.assignment_epoch == held[-1]
        assert None not in held
        assert len(set(held)) == 3
        before = consumer.assignment_epoch
        app.rebalancing_count += 1  # the next one begins, in the consumer's thread
        assert consumer.assignment_epoch != before

    asyncio.run(run())


def test_before_fausts_thread_runs_nothing_is_given() -> None:
    """A checkup asks as soon as the worker runs; Faust's thread may wait for the broker for minutes."""

    async def run() -> None:
        app = create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)
        consumer = FaustConsumer(app, "segments")
        owners = Owners(None, [consumer])  # type: ignore[arg-type]
        assert consumer.assigned() == set()
        assert consumer.loop is not None
        assert owners.problem == "it has no partitions, and does not know yet whether other workers have all of them"

    asyncio.run(run())


def test_a_consumer_whose_thread_has_ended_refuses_without_an_error() -> None:
    """A worker that stops may end the thread while a recovery completes: that is no internal error."""

    async def run() -> None:
        app = create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)
        consumer: Any = FaustConsumer(app, "segments")
        consumer.assigned = lambda: {0}
        thread: Any = cast(Any, app.consumer)._thread
        thread.thread_loop = asyncio.new_event_loop()
        thread.thread_loop.close()
        coordinator = SimpleNamespace(_do_heartbeat=None, generation=1)
        thread._ensure_consumer = lambda: SimpleNamespace(_coordinator=coordinator, commit=None)
        assert not await consumer.is_current()
        assert not await consumer.commit({0: 1})
        await consumer.seek(0, 1)

    asyncio.run(run())
