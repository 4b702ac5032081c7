"""`streamgauge up`: tap, assembler, metrics and ledger in one process group, no Kafka."""

import argparse
import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable

from streamgauge.commands.tapping import Tap, announce, running_tap, say, stop_signal
from streamgauge.config import Settings
from streamgauge.core.assembler import Limits
from streamgauge.core.record import Record
from streamgauge.errors import DONE, Unavailable
from streamgauge.ledger import Ledger, LedgerUnavailableError, open_ledger, row_of
from streamgauge.local import DeliveryFailed, LocalLoop, StateFile
from streamgauge.metrics import table
from streamgauge.metrics.declare import Part
from streamgauge.metrics.prometheus import Metrics, Sample

# How long what lies in the spool may take to reach the ledger at the end, beside the drain timeout (seconds).
_FINISH_S = 30.0


def run(settings: Settings, args: argparse.Namespace) -> int:
    """Run until SIGTERM or Ctrl-C."""
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    stop = stop_signal()
    async with running_up(settings) as tap:
        announce("up", tap, settings)
        await stop.wait()
        say(f"up: stopping; open streams have {settings.drain_timeout:g} s to end")
    return DONE


@contextlib.asynccontextmanager
async def running_up(settings: Settings, watch: Callable[[list[Record]], None] | None = None) -> AsyncIterator[Tap]:
    """All of `up`, for as long as the block lasts; then drained and stopped. Raises StreamgaugeError.

    `watch` is shown each record that is new to the ledger, on another thread.
    """
    metrics = Metrics((Part.TAP, Part.STREAM, Part.WORKER))
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    ledger = open_ledger(settings.ledger_url)
    assembling: threading.Thread | None = None
    loop: LocalLoop | None = None
    state: StateFile | None = None
    try:
        async with running_tap(settings, metrics, lambda: assembling is not None and assembling.is_alive()) as tap:
            state = _state(settings)
            loop = LocalLoop(tap.spool, state, Delivery(ledger, metrics, watch), metrics, _limits(settings), say)
            metrics.register(_open_streams(loop))
            assembling = threading.Thread(target=loop.run, args=(time.monotonic,), name="assembler")
            assembling.start()
            try:
                yield tap
            finally:
                await tap.group.stop(settings.drain_timeout)
                loop.stop(_FINISH_S)
                await asyncio.to_thread(assembling.join)
    finally:
        if state is not None:
            state.close()
        ledger.close()


class Delivery:
    """Stores records, then observes them. After a crash records may come again: those are not observed a second time."""

    def __init__(self, ledger: Ledger, metrics: Metrics, watch: Callable[[list[Record]], None] | None = None) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._watch = watch

    def __call__(self, records: list[Record]) -> None:
        try:
            inserted = self._ledger.insert([row_of(record) for record in records])
        except LedgerUnavailableError as error:
            raise DeliveryFailed(str(error)) from error
        for result in ("new", "same", "different"):
            self._metrics.add(table.LEDGER_ROWS.name, getattr(inserted, result), result=result)
        new = [records[place] for place in inserted.new_places]
        for record in new:
            self._metrics.observe(record)
        if self._watch is not None:
            self._watch(new)


def _limits(settings: Settings) -> Limits:
    return Limits(abandon_after_s=settings.abandon_after, stall_s=settings.stall_seconds)


def _state(settings: Settings) -> StateFile:
    path = settings.data_dir / "state.sqlite"
    try:
        return StateFile(path)
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"{path} cannot be opened ({error}): move it aside, or choose another --data-dir") from None


def _open_streams(loop: LocalLoop) -> Callable[[], list[Sample]]:
    return lambda: [Sample(table.OPEN_STREAMS.name, loop.open_streams, {})]
