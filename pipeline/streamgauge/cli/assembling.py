"""The collector of `up`: rows of the spool -> records, for the ledger and metrics, in a thread of its own."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from streamgauge.cli.first_request import clients_of
from streamgauge.cli.ledger_watch import load_last_hour, start_known_upstreams, watched_ledger
from streamgauge.cli.ledgers import ledger_size, opened_ledger
from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.cli.span_export import TakeRows, exported_spans, no_spans
from streamgauge.cli.stored_streams import ledger_streams
from streamgauge.cli.stream_costs import prices_of, stream_costs
from streamgauge.cli.stream_lines import StreamLines
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
from streamgauge.runtime.child import say
from streamgauge.runtime.data_directory import unusable
from streamgauge.runtime.faults import report_fault
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Failure, Spool, failure_of
from streamgauge.spool.file import SQLITE_FAULTS
from streamgauge.spool.response_counters import ASSEMBLER, ResponseCounters
from streamgauge.spool.text_store import TEXTS, TextStore, delete_texts
from streamgauge.taps.proxy.request import route_of
from streamgauge.worker.local import STATE_FILE, DeliveryFailed, LocalLoop, StateFile

# A new record, and what it adds to the cost, if that is known.
Costed = tuple[Record, StreamCost | None]


class Assembling:
    """The delivery of `up`. `process`: the name that the page shows; `terminal_fd`: where a line for each finished stream
    goes, None for no lines. Raises UsageFault for a file that it cannot use.
    """

    def __init__(
        self, settings: Settings, process: str, spool: Spool, files: SettingsFiles, terminal_fd: int | None = None
    ) -> None:
        self._settings, self._spool, self._files = settings, spool, files
        self._lines = None if terminal_fd is None else StreamLines(terminal_fd)
        self._watched = WatchedThread(
            LiveView(process, settings.select(Limits), time.monotonic, time.time, prices=True)
        )
        self._watched.view.responses = partial(responses_of, settings.data_dir / "counters")
        self._prices = prices_of(settings, files)
        self.metrics = Metrics(
            (MetricSource.TAP, MetricSource.STREAM, MetricSource.WORKER),
            settings.metric_attribute,
            otel_names=settings.otel_names,
            cost_of=stream_costs(self._prices),
        )
        self.pages = LivePages(self._watched.ask, clients=clients_of(settings))
        self._loop: LocalLoop | None = None
        self._thread: threading.Thread | None = None

    def is_ready(self) -> bool:
        """Whether the assembler's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the ledger and start the thread, until the stack exits. Raises StreamgaugeError; it may be called again."""
        settings, metrics, view = self._settings, self.metrics, self._watched.view
        async with contextlib.AsyncExitStack() as opening:
            take_rows = opening.enter_context(exported_spans(settings, metrics))
            # On a thread: a database may take long to answer, and a collector that was started again captures meanwhile.
            ledger = await asyncio.to_thread(opening.enter_context, opened_ledger(settings, self._prices))
            view.money = opening.enter_context(watched_ledger(self._files, ledger, metrics))
            await asyncio.to_thread(load_last_hour, view, ledger, stream_costs(self._prices))
            self.pages.stored = ledger_streams(settings, ledger, self._files)
            opening.callback(setattr, self.pages, "stored", None)
            await asyncio.to_thread(start_known_upstreams, metrics, ledger)
            for upstream in settings.upstream:
                metrics.start_upstream(route_of(upstream.name, upstream.url).recorded_name)
            state = opening.enter_context(contextlib.closing(_state(settings)))
            responses = opening.enter_context(contextlib.closing(_responses(settings)))
            texts = _texts(settings)
            if texts is not None:
                opening.enter_context(contextlib.closing(texts))
            delivery = LedgerDelivery(ledger, metrics, self._on_new_records, take_rows)
            loop = _loop(settings, self._spool, state, delivery, metrics, self._watched, responses, texts)
            metrics.register(ledger_size(settings))
            view.scope = lambda: Scope({0: loop.assembler})
            self._loop = loop
            self._thread = threading.Thread(target=_assemble, args=(loop,), name="assembler")
            self._thread.start()
            opening.push_async_callback(self.finish, 0)
            stack.push_async_exit(opening.pop_all())

    def _on_new_records(self, records: list[Costed]) -> None:
        for record, cost in records:
            self._watched.view.finished(record, cost)
        if self._lines is not None:
            self._lines.show(records)

    async def finish(self, finish_s: float) -> None:
        """Move the rest of the spool into the ledger, for at most `finish_s` seconds, and end the thread."""
        if self._loop is not None and self._thread is not None:
            self._loop.stop(finish_s)
            await asyncio.to_thread(self._thread.join)


def _loop(
    settings: Settings,
    spool: Spool,
    state: StateFile,
    delivery: "LedgerDelivery",
    metrics: Metrics,
    watched: WatchedThread,
    responses: ResponseCounters,
    texts: TextStore | None,
) -> LocalLoop:
    try:
        loop = LocalLoop(spool, state, delivery, metrics, settings.select(Limits), say, watched, responses, texts)
    except (*SQLITE_FAULTS, msgspec.DecodeError) as error:
        raise _unreadable_state(settings, error) from None
    metrics.register(lambda: [Sample(table.OPEN_STREAMS.name, loop.open_streams, {})])
    return loop


def _assemble(loop: LocalLoop) -> None:
    """Runs the assembler's thread. If it ends by an error, streams are still captured, and /health/ready fails."""
    try:
        loop.run(time.monotonic)
    except Exception as error:  # noqa: BLE001 - the tap continues without records: the user's stream comes first
        report_fault("the assembler's thread", error)
        say("an internal error ended the assembler: captured data stays in the spool until `up` is restarted")


class LedgerDelivery:
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
    except (*SQLITE_FAULTS, OSError) as error:
        raise _unreadable_state(settings, error) from None


def _texts(settings: Settings) -> TextStore | None:
    """What keeps the texts of streams. If none are kept, those of an earlier run are deleted. Raises Unavailable."""
    path = settings.data_dir / TEXTS
    try:
        if settings.text_age:
            return TextStore(path, settings.text_bytes, settings.text_age, say)
        delete_texts(path)
    except (*SQLITE_FAULTS, OSError) as error:
        cure = "free space on its disk" if failure_of(error) is Failure.DISK_FULL else "move the file away"
        raise Unavailable(f"{path} cannot be used ({error}): {cure}, or choose another --data-dir") from None
    return None


def _unreadable_state(settings: Settings, error: Exception) -> Unavailable:
    path = settings.data_dir / STATE_FILE
    cure = "free space on its disk" if failure_of(error) is Failure.DISK_FULL else "move the file away"
    return Unavailable(f"{path} cannot be used ({error}): {cure}, or choose another --data-dir")
