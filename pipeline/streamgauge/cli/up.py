"""`streamgauge up`: tap, assembler, metrics and ledger in one process group, without Kafka."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec

from streamgauge.cli.ledger_watch import load_last_hour, start_known_upstreams, watched_ledger
from streamgauge.cli.ledgers import ledger_size, opened_ledger
from streamgauge.cli.parser import Arguments
from streamgauge.cli.span_export import TakeRows, exported_spans, no_spans
from streamgauge.cli.stream_costs import prices_of, stream_costs
from streamgauge.cli.tap_process import (
    Capturing,
    Tap,
    announce,
    check_attributes,
    running_tap,
    say,
    say_stopping,
    stop_signal,
    tap_settings,
)
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.errors import Unavailable
from streamgauge.ledger import Ledger, LedgerUnavailableError, row_of
from streamgauge.live.coverage import responses_of
from streamgauge.live.http_pages import LivePages
from streamgauge.live.mailbox import WatchedThread
from streamgauge.live.view import LiveView, Scope
from streamgauge.metrics import table
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.runtime.data_directory import make_data_dir, unusable
from streamgauge.runtime.faults import report_fault
from streamgauge.runtime.log_time import log_with_times
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Failure, failure_of
from streamgauge.spool.response_counters import ASSEMBLER, ResponseCounters
from streamgauge.taps.proxy.request import route_of
from streamgauge.worker.local import STATE_FILE, DeliveryFailed, LocalLoop, StateFile

# Least time to move the spool into the ledger at the end, even if streams took the whole drain timeout (seconds).
_FINISH_S = 1.0

# A new record, and what it adds to the cost, if that is known.
Costed = tuple[Record, StreamCost | None]


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C. Returns the exit code of the process group."""
    log_with_times()
    return asyncio.run(_run(tap_settings(settings, args, agent=args.agent)))


async def _run(settings: Settings) -> int:
    stop = stop_signal("up", settings)
    async with running_up(settings) as tap:
        announce("up", tap, settings)
        await stop.wait()
        say_stopping("up", settings)
    return tap.group.exit_code


@contextlib.asynccontextmanager
async def running_up(
    settings: Settings,
    on_new_records: Callable[[list[Record]], None] | None = None,
    capturing: Capturing | None = None,
    process: str = "up",
) -> AsyncIterator[Tap]:
    """Runs all of `up` while the block runs, then drains and stops it. Raises StreamgaugeError.

    `on_new_records` gets the records that are new to the ledger, on another thread. `capturing`: as for `running_tap`.
    `process`: the name that the page shows.
    """
    check_attributes(settings, names_them=bool(settings.upstream or capturing))
    watched = WatchedThread(LiveView(process, settings.select(Limits), time.monotonic, time.time, prices=True))
    watched.view.responses = partial(responses_of, settings.data_dir / "counters")
    prices = prices_of(settings)
    metrics = Metrics(
        (MetricSource.TAP, MetricSource.STREAM, MetricSource.WORKER),
        settings.metric_attribute,
        otel_names=settings.otel_names,
        cost_of=stream_costs(prices),
    )
    make_data_dir(settings.data_dir)
    assembling: threading.Thread | None = None
    with (
        exported_spans(settings, metrics) as take_rows,
        opened_ledger(settings, prices) as ledger,
        contextlib.ExitStack() as files,
    ):
        metrics.register(ledger_size(settings))
        watched.view.money = files.enter_context(watched_ledger(settings, ledger, metrics))
        load_last_hour(watched.view, ledger, stream_costs(prices))

        def is_ready() -> bool:
            return assembling is not None and assembling.is_alive()

        def on_new(records: list[Costed]) -> None:
            for record, cost in records:
                watched.view.finished(record, cost)
            if on_new_records is not None:
                on_new_records([record for record, _ in records])

        pages = LivePages(watched.ask)
        async with running_tap(settings, metrics, is_ready, capturing=capturing, pages=lambda _: pages) as tap:
            start_known_upstreams(metrics, ledger)
            for upstream in settings.upstream:
                metrics.start_upstream(route_of(upstream.name, upstream.url).recorded_name)
            state = files.enter_context(contextlib.closing(_state(settings)))
            responses = files.enter_context(contextlib.closing(_responses(settings)))
            loop = _loop(settings, tap, state, Delivery(ledger, metrics, on_new, take_rows), watched, responses)
            watched.view.scope = lambda: Scope({0: loop.assembler})
            assembling = threading.Thread(target=_assemble, args=(loop,), name="assembler")
            assembling.start()
            try:
                yield tap
            finally:
                deadline = time.monotonic() + settings.drain_timeout
                await tap.group.stop(settings.drain_timeout)
                loop.stop(max(deadline - time.monotonic(), _FINISH_S))
                await asyncio.to_thread(assembling.join)


def _loop(
    settings: Settings,
    tap: Tap,
    state: StateFile,
    delivery: "Delivery",
    watched: WatchedThread,
    responses: ResponseCounters,
) -> LocalLoop:
    limits = settings.select(Limits)
    try:
        loop = LocalLoop(tap.spool, state, delivery, tap.metrics, limits, say, watched, responses)
    except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable_state(settings, error) from None
    tap.metrics.register(lambda: [Sample(table.OPEN_STREAMS.name, loop.open_streams, {})])
    return loop


def _assemble(loop: LocalLoop) -> None:
    """Runs the assembler's thread. If it ends by an error, streams are still relayed, and /health/ready fails."""
    try:
        loop.run(time.monotonic)
    except Exception as error:  # noqa: BLE001 - the tap continues without records: the user's stream comes first
        report_fault("the assembler's thread", error)
        say("an internal error ended the assembler: captured data stays in the spool until `up` is restarted")


class Delivery:
    """Stores records, then adds them to the metrics. After a crash records may come again; those are not observed twice.

    `take_rows` gets the rows that are new to the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        metrics: Metrics,
        on_new_records: Callable[[list[Costed]], None] | None = None,
        take_rows: TakeRows = no_spans,
    ) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._on_new_records = on_new_records
        self._take_rows = take_rows
        for result in table.RESULTS:  # so that the first records after a start show as growth
            metrics.add(table.LEDGER_ROWS.name, 0, result=result)

    def __call__(self, records: list[Record]) -> None:
        """Delivers records. Raises DeliveryFailed if the ledger is unavailable; then nothing is stored or observed."""
        rows = [row_of(record) for record in records]
        try:
            inserted = self._ledger.insert(rows)
        except LedgerUnavailableError as error:
            raise DeliveryFailed(str(error)) from error
        for result in table.RESULTS:
            self._metrics.add(table.LEDGER_ROWS.name, getattr(inserted, result), result=result)
        self._take_rows(rows[index] for index in inserted.new_places)
        new = [(records[index], self._metrics.observe(records[index])) for index in inserted.new_places]
        if self._on_new_records is not None:
            self._on_new_records(new)


def _responses(settings: Settings) -> ResponseCounters:
    try:
        return ResponseCounters(settings.data_dir / "counters", ASSEMBLER)
    except OSError as error:
        raise unusable(settings.data_dir, error) from None


def _state(settings: Settings) -> StateFile:
    try:
        return StateFile(settings.data_dir / STATE_FILE)
    except (sqlite3.Error, OSError) as error:
        raise _unreadable_state(settings, error) from None


def _unreadable_state(settings: Settings, error: Exception) -> Unavailable:
    path = settings.data_dir / STATE_FILE
    cure = "free space on its disk" if failure_of(error) is Failure.DISK_FULL else "move the file away"
    return Unavailable(f"{path} cannot be used ({error}): {cure}, or choose another --data-dir")
