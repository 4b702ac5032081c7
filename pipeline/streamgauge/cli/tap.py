"""`streamgauge tap`: relay LLM traffic, and ship the captured data to Kafka.

With --agent it is an agent, which ships the data that taps in applications capture.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.parser import Arguments
from streamgauge.cli.tap_process import (
    Capturing,
    Tap,
    announce,
    running_tap,
    say_stopping,
    say_undelivered,
    stop_signal,
    tap_settings,
)
from streamgauge.core.limits import Limits
from streamgauge.errors import UsageFault
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.shipper import Shipper, ShipperSettings
from streamgauge.live.coverage import responses_of
from streamgauge.live.http_pages import LivePages
from streamgauge.live.tap_watch import TapWatch
from streamgauge.metrics import table
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.runtime.log_time import log_with_times
from streamgauge.runtime.process_group import END_S
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Spool

# Least time to ship the rest at the end, even if streams took the whole drain timeout (seconds).
_FINISH_S = 1.0


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C. It starts, and continues to run, while the broker is unavailable."""
    if not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: give a broker, or run `streamgauge up` without Kafka")
    log_with_times(logging.INFO)
    settings = tap_settings(settings, args, agent=args.agent)
    return asyncio.run(_run(settings, brokers_of(settings)))


async def _run(settings: Settings, brokers: Brokers) -> int:
    stop = stop_signal("tap", settings)
    metrics = Metrics((MetricSource.TAP,))
    async with watched_tap(settings, metrics) as (tap, watch):
        shipper = shipper_of(tap, settings, brokers, metrics, watch)
        announce("tap", tap, settings)
        await ship_until(stop, shipper, tap, settings, lambda: say_stopping("tap", settings))
        say_undelivered("tap", settings)
    return tap.group.exit_code


@contextlib.asynccontextmanager
async def watched_tap(
    settings: Settings, metrics: Metrics, *, capturing: Capturing | None = None
) -> AsyncIterator[tuple[Tap, TapWatch]]:
    """As `running_tap`, with the page of streams; give the watch to `shipper_of`."""
    watches: list[TapWatch] = []
    counters = settings.data_dir / "counters"

    def pages(spool: Spool) -> LivePages:
        if not watches:
            watches.append(TapWatch("tap", spool, settings.select(Limits), responses=partial(responses_of, counters)))
        return LivePages(watches[0].ask)

    async with running_tap(settings, metrics, lambda: True, capturing=capturing, pages=pages) as tap:
        pages(tap.spool)
        try:
            yield tap, watches[0]
        finally:
            await asyncio.to_thread(watches[0].stop)


def shipper_of(tap: Tap, settings: Settings, brokers: Brokers, metrics: Metrics, watch: TapWatch) -> Shipper:
    """The shipper of a tap's spool, with its metrics."""
    shipper = Shipper(tap.spool, ShipperSettings(brokers, settings.topic_prefix), watch.put)
    metrics.register(lambda: _broker_samples(shipper))
    return shipper


async def ship_until(
    stop: asyncio.Event, shipper: Shipper, tap: Tap, settings: Settings, say_end: Callable[[], None]
) -> None:
    """Ships until `stop` is set. Then calls `say_end`, stops the tap's processes, and ships the rest."""
    shipping = asyncio.create_task(shipper.run())
    await asyncio.wait({asyncio.create_task(stop.wait()), shipping}, return_when=asyncio.FIRST_COMPLETED)
    if not shipping.done():
        say_end()
        deadline = time.monotonic() + settings.drain_timeout - END_S
        await tap.group.stop(settings.drain_timeout)
        await shipper.stop(max(deadline - time.monotonic(), _FINISH_S))
    await shipping


def _broker_samples(shipper: Shipper) -> Iterable[Sample]:
    """The metrics of a tap's connection to its broker."""
    yield Sample(table.BROKER_CONNECTED.name, int(shipper.connected), {})
    yield Sample(table.BROKER_PROBLEM.name, int(shipper.problem is not None), {})
    if (skew_s := shipper.clock_skew_s) is not None:
        yield Sample(table.CLOCK_SKEW.name, skew_s, {})
