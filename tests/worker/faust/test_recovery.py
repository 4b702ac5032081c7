"""After an interrupted recovery, which Faust reports as complete, no callback runs. Uses Faust's own classes."""

import asyncio
from pathlib import Path
from typing import Any

from faust.types import TP

from streamgauge.worker.faust.app import create_app
from streamgauge.worker.faust.store import StateTable
from streamgauge.worker.settings import WorkerSettings

STATE = TP("streamgauge.state", 0)


async def callbacks_run(break_off: Any) -> int:
    """How often the recovery callback runs, if Faust's recovery is in the state that `break_off` sets."""
    app = create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)
    table: Any = app.tables["state"]
    assert isinstance(table, StateTable)
    times = 0

    async def count() -> None:
        nonlocal times
        times += 1

    table.on_recover(count)
    recovery: Any = app.tables.recovery  # type: ignore[attr-defined]
    recovery.active_highwaters[STATE] = 9
    recovery.active_offsets[STATE] = 9
    break_off(recovery)
    await table.on_recovery_completed({STATE}, set())
    return times


def test_complete_recovery_runs_the_callbacks() -> None:
    assert asyncio.run(callbacks_run(lambda recovery: None)) == 1


def test_recovery_that_a_rebalance_interrupts_is_not_complete() -> None:
    assert asyncio.run(callbacks_run(lambda recovery: recovery.signal_recovery_start.set())) == 0


def test_recovery_of_an_earlier_assignment_is_not_complete() -> None:
    """The app has a new generation already, and the recovery does not know its partitions yet."""
    assert asyncio.run(callbacks_run(lambda recovery: setattr(recovery.app, "consumer_generation_id", 7))) == 0


def test_recovery_that_the_workers_stop_interrupts_is_not_complete() -> None:
    assert asyncio.run(callbacks_run(lambda recovery: recovery._stopped.set())) == 0


def test_recovery_with_unread_changelog_is_not_complete() -> None:
    assert asyncio.run(callbacks_run(lambda recovery: recovery.active_offsets.update({STATE: -2}))) == 0
