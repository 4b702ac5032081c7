"""The collector of `tap`: rows of the spool -> Kafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from functools import partial

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
    """The shipper of a collector, with its metrics."""

    def __init__(self, metrics: Metrics, pages: LivePages, shipper: Shipper) -> None:
        self.metrics, self.pages = metrics, pages
        self._shipper = shipper
        self._task = asyncio.ensure_future(shipper.run())

    def is_ready(self) -> bool:
        """True: rows wait in the spool while the broker is unavailable."""
        return True

    async def finish(self, finish_s: float) -> None:
        """Ship the rest of the spool, for at most `finish_s` seconds."""
        await self._shipper.stop(finish_s)
        await self._task

    async def end(self) -> None:
        """End the shipper at once, if it runs."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def shipping(settings: Settings, process: str, spool: Spool) -> AsyncIterator[Shipping]:
    """Ships while the block runs. It starts, and continues to run, while the broker is unavailable. Raises UsageFault.

    `process`: the name that the page shows.
    """
    metrics = Metrics((MetricSource.TAP,))
    counters = settings.data_dir / "counters"
    watch = TapWatch(process, spool, settings.select(Limits), responses=partial(responses_of, counters))
    shipper = Shipper(spool, ShipperSettings(brokers_of(settings), settings.topic_prefix), watch.put)
    metrics.register(lambda: _broker_samples(shipper))
    shipping = Shipping(metrics, LivePages(watch.ask), shipper)
    try:
        yield shipping
    finally:
        await shipping.end()
        await asyncio.to_thread(watch.stop)


def _broker_samples(shipper: Shipper) -> Iterable[Sample]:
    """The metrics of a tap's connection to its broker."""
    yield Sample(table.BROKER_CONNECTED.name, int(shipper.connected), {})
    yield Sample(table.BROKER_PROBLEM.name, int(shipper.problem is not None), {})
    if (skew_s := shipper.clock_skew_s) is not None:
        yield Sample(table.CLOCK_SKEW.name, skew_s, {})
