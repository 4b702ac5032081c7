"""`streamgauge worker`: bundles from Kafka -> records, for the records topic, the ledger and metrics."""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence

from streamgauge.cli.admin_port import admin_access, with_worker_admin_port
from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.ledger_watch import load_last_hour, start_known_upstreams, watched_ledger
from streamgauge.cli.ledgers import ledger_size, opened_ledger
from streamgauge.cli.parser import Arguments
from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.cli.span_export import TakeRows, exported_spans, no_spans
from streamgauge.cli.stored_streams import ledger_streams
from streamgauge.cli.stream_costs import prices_of, stream_costs
from streamgauge.core.limits import Limits
from streamgauge.ledger import Inserted, Ledger, LedgerRow, UnreadableRecordError
from streamgauge.live.http_pages import LivePages
from streamgauge.live.mailbox import DirectAsk
from streamgauge.live.view import LiveView, Scope
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.process import process_metrics
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.data_directory import make_data_dir, warning_about
from streamgauge.settings.declarations import Settings
from streamgauge.worker.log_lines import log_lines_to_stderr
from streamgauge.worker.process import Worker, run_worker
from streamgauge.worker.settings import Stored, WorkerSettings

_LOG = logging.getLogger("streamgauge.worker")


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C, or until the worker must end; it then logs the reason."""
    log_lines_to_stderr()
    settings = with_worker_admin_port(settings)
    access = admin_access(settings, _LOG.warning)
    worker_settings = settings.select(WorkerSettings, bootstrap=brokers_of(settings), prefix=settings.topic_prefix)
    make_data_dir(settings.data_dir)
    if warning := warning_about(settings.data_dir):
        _LOG.warning("%s", warning)
    files = SettingsFiles(settings)
    prices = prices_of(settings, files)
    metrics = Metrics(
        (MetricSource.STREAM, MetricSource.WORKER),
        settings.metric_attribute,
        otel_names=settings.otel_names,
        cost_of=stream_costs(prices),
    )
    metrics.register(process_metrics())
    view = LiveView("worker", settings.select(Limits), time.monotonic, time.time, prices=True)
    pages = LivePages(DirectAsk(view))

    @contextlib.asynccontextmanager
    async def admin_port(worker: Worker) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            view.scope = lambda: Scope(worker.assemblers, partitioned=True, unready=worker.unready)
            admin = AdminServer(
                metrics,
                lambda: worker.unready or True,
                live=lambda: worker.live,
                hosts=settings.admin_host,
                pages=pages,
                access=access,
            )
            await admin.start(str(settings.admin))
            stack.push_async_callback(admin.stop)
            _LOG.info("page at %s/, metrics at %s/metrics, data in %s", admin.url, admin.url, settings.data_dir)
            yield

    with (
        exported_spans(settings, metrics) as take_rows,
        opened_ledger(settings, prices) as ledger,
        watched_ledger(files, ledger, metrics) as view.money,
    ):
        metrics.register(ledger_size(settings))
        start_known_upstreams(metrics, ledger)
        load_last_hour(view, ledger, stream_costs(prices))
        pages.stored = ledger_streams(settings, ledger, files)
        return run_worker(worker_settings, LedgerStore(ledger, take_rows), metrics, admin_port, view)


class LedgerStore:
    """Stores a worker's records, which are JSON bytes from their topic, in a ledger. `take_rows` gets the new rows."""

    def __init__(self, ledger: Ledger, take_rows: TakeRows = no_spans) -> None:
        self._ledger = ledger
        self._take_rows = take_rows

    def insert(self, records: Sequence[bytes]) -> Stored:
        """Stores the records that can be read. Raises LedgerUnavailableError; then nothing is stored."""
        rows: list[LedgerRow] = []
        unreadable: list[int] = []
        for index, record in enumerate(records):
            try:
                rows.append(LedgerRow.of_json(record))
            except UnreadableRecordError:
                unreadable.append(index)
        inserted = self._ledger.insert(rows) if rows else Inserted()
        self._take_rows(rows[index] for index in inserted.new_places)
        return Stored(inserted.new, inserted.same, inserted.different, unreadable)
