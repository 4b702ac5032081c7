"""The collector of `tap`: rows of the spool -> Kafka."""

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial

from streamgauge.cli.first_request import clients_of
from streamgauge.cli.kafka_options import brokers_of
from streamgauge.core.limits import Limits
from streamgauge.kafka.shipper import Shipper, ShipperSettings
from streamgauge.live.coverage import responses_of
from streamgauge.live.http_pages import LivePages
from streamgauge.live.tap_watch import TapWatch
from streamgauge.metrics import table
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Spool


class Shipping:
    """The delivery of `tap`. `process`: the name that the page shows. Raises UsageFault."""

    def __init__(self, settings: Settings, process: str, spool: Spool) -> None:
        self.metrics = Metrics((MetricSource.TAP,), otel_names=settings.otel_names)
        responses = partial(responses_of, settings.data_dir / "counters")
        self._watch = TapWatch(process, spool, settings.select(Limits), responses=responses)
        self.pages = LivePages(self._watch.ask, clients=clients_of(settings))
        self._shipper = Shipper(spool, ShipperSettings(brokers_of(settings), settings.topic_prefix), self._watch.put)
        self.metrics.register(lambda: _broker_samples(self._shipper))
        self._task: asyncio.Task[None] | None = None

    def is_ready(self) -> bool:
        """True: rows wait in the spool while the broker is unavailable."""
        return True

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        """Ship until the stack exits. It starts, and continues to run, while the broker is unavailable."""
        self._task = asyncio.create_task(self._shipper.run())
        stack.push_async_callback(asyncio.to_thread, self._watch.stop)
        stack.push_async_callback(_ended, self._task)

    async def finish(self, finish_s: float) -> None:
        """Ship the rest of the spool, for at most `finish_s` seconds."""
        await self._shipper.stop(finish_s)
        if self._task is not None:
            await self._task


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _broker_samples(shipper: Shipper) -> Iterable[Sample]:
    """The metrics of a tap's connection to its broker."""
    yield Sample(table.BROKER_CONNECTED.name, int(shipper.connected), {})
    yield Sample(table.BROKER_PROBLEM.name, int(shipper.problem is not None), {})
    if (skew_s := shipper.clock_skew_s) is not None:
        yield Sample(table.CLOCK_SKEW.name, skew_s, {})
