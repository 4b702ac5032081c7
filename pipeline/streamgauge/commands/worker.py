"""`streamgauge worker`: bundles from Kafka -> records, their topic, the ledger, metrics."""

import argparse
import asyncio
import contextlib
import os
from collections.abc import Sequence

import uvloop

from streamgauge.admin import AdminServer
from streamgauge.commands.ledgers import opened_ledger
from streamgauge.commands.tapping import say, started_admin, stop_signal
from streamgauge.config import Settings
from streamgauge.datadir import make_data_dir
from streamgauge.errors import UsageFault
from streamgauge.ledger import Inserted, Ledger, LedgerRow, UnreadableRecordError
from streamgauge.metrics.declare import Part
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.run import Worker, log_lines_to_stderr
from streamgauge.worker.settings import Stored, WorkerSettings


def run(settings: Settings, args: argparse.Namespace) -> int:
    """Run until SIGTERM or Ctrl-C, or until the worker has a reason to end: it says which."""
    if not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: which broker?")
    told = WorkerSettings(
        bootstrap=settings.kafka,
        data_dir=settings.data_dir,
        prefix=settings.topic_prefix,
        abandon_after_s=settings.abandon_after,
        stall_s=settings.stall_seconds,
        drain_timeout_s=settings.drain_timeout,
    )
    make_data_dir(settings.data_dir)
    log_lines_to_stderr()
    # Faust's consumer has a loop of its own in its thread: the policy reaches that one, too.
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    with opened_ledger(settings) as ledger:
        metrics = Metrics((Part.STREAM, Part.WORKER))
        worker = Worker(told, LedgerStore(ledger), metrics)
        code = asyncio.run(_run(settings, worker, metrics))
    if worker.hung:
        os._exit(code)  # a thread that waits for a broker would keep the process for ever
    return code


async def _run(settings: Settings, worker: Worker, metrics: Metrics) -> int:
    stop = stop_signal()
    async with contextlib.AsyncExitStack() as stack:
        admin = AdminServer(metrics, lambda: worker.ready, hosts=settings.admin_host)
        await started_admin(stack, admin, settings)
        say(f"worker: metrics at http://{admin.address}/metrics, data in {settings.data_dir}")
        return await worker.run(stop)


class LedgerStore:
    """A ledger as a worker's place for records, which come as the bytes of their topic."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def insert(self, records: Sequence[bytes]) -> Stored:
        """Store what are records. Raises LedgerUnavailableError; then nothing is stored."""
        rows: list[LedgerRow] = []
        unreadable: list[int] = []
        for place, record in enumerate(records):
            try:
                rows.append(LedgerRow.of_json(record))
            except UnreadableRecordError:
                unreadable.append(place)
        inserted = self._ledger.insert(rows) if rows else Inserted()
        return Stored(inserted.new, inserted.same, inserted.different, unreadable)
