"""The whole demo: simulator, tap, clients and view. The caller provides the tap: the one that `up` starts."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rich.console import Console

from streamgauge_demo.child import simulator_process
from streamgauge_demo.driver import clients_loop, drive_all
from streamgauge_demo.results import Results
from streamgauge_demo.scenario import Finale, Scenario
from streamgauge_demo.scenarios import SCENARIOS, UPSTREAMS
from streamgauge_demo.verdict import Json
from streamgauge_demo.view import View

# The tap must be started with this --upstream-idle-timeout (seconds): longer than every pause within a scenario (5.5 s
# and a gap), and short enough that the scenario that falls silent for good does not delay the demo.
UPSTREAM_IDLE_TIMEOUT_S = 8.0

# Concurrent streams: all scenarios then take less than half a minute.
CONCURRENCY = 8

# Every SYNC_EVERY-th scenario uses a sync client in a thread, the others use async clients.
SYNC_EVERY = 4

# Interval of reading new records, and time limit for the last ones after the last client is done (seconds).
POLL_S = 0.2
RECORDS_WAIT_S = 15.0

# With --serve: the pause between two rounds (seconds).
ROUND_REST_S = 2.0


class Tap(Protocol):
    """A running tap with its ledger."""

    @property
    def url(self) -> str:
        """Where clients connect, without a final slash; an upstream's name follows it."""

    async def records(self) -> list[Json]:
        """The records that are new since the last call, as JSON objects."""


# Starts a tap for upstreams (URL by name) with UPSTREAM_IDLE_TIMEOUT_S; stops it when the context exits.
StartUp = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Tap]]


async def run_demo(
    start_up: StartUp,
    *,
    serve: bool = False,
    stop: asyncio.Event | None = None,
    scenarios: Sequence[Scenario] = SCENARIOS,
    time_scale: float = 1.0,
    console: Console | None = None,
    as_json: bool = False,
) -> int:
    """Plays every scenario once and prints a summary; with `serve`, repeats until `stop` is set. `as_json`: the summary is
    one JSON document on stdout, and all else goes to stderr.

    Returns the exit code: 0 if all results were as expected, else 1; with `serve` 0.
    """
    results = Results(scenarios)
    async with simulator_process(time_scale) as simulator:
        with clients_loop() as clients:
            async with start_up(dict.fromkeys(UPSTREAMS, simulator.url)) as tap:
                with View(results, console, stderr=as_json) as view:
                    view.say(f"simulated providers at {simulator.url}, tap at {tap.url}: {', '.join(UPSTREAMS)}")
                    await _play(tap, view, results, clients, stop if serve else None)
        truths = await simulator.told()
        if as_json:
            sys.stdout.write(json.dumps(results.summary(truths)) + "\n")
        else:
            view.summary(truths)
    return 0 if serve or results.as_expected else 1


async def _play(
    tap: Tap, view: View, results: Results, clients: asyncio.AbstractEventLoop, stop: asyncio.Event | None
) -> None:
    """Runs rounds of traffic until `stop` is set, or one round if it is None; then reads the remaining records."""
    reading = asyncio.create_task(_read(tap, view))
    try:
        while not (stop and stop.is_set()):
            traffic = asyncio.create_task(_round(tap, view, results.scenarios, clients))
            await _until(traffic, reading, stop)
            if stop is None:
                break
            await _until(asyncio.create_task(asyncio.sleep(ROUND_REST_S)), reading, stop)
        await _last_records(results, reading)
        # Only now: a client's thread may have begun one more request while the round was stopped.
        results.interrupted.update(view.under_way)
    finally:
        await _cancelled(reading)


async def _round(tap: Tap, view: View, scenarios: Sequence[Scenario], clients: asyncio.AbstractEventLoop) -> None:
    """Plays each scenario once, the longest first, so that the round does not end with a single long one."""
    loop = asyncio.get_running_loop()
    driving = drive_all(
        sorted(scenarios, key=_duration_s, reverse=True),
        tap.url,
        concurrency=CONCURRENCY,
        started=lambda scenario: loop.call_soon_threadsafe(view.started, scenario),
        ended=lambda scenario, seen: loop.call_soon_threadsafe(view.ended, scenario, seen),
        sync_every=SYNC_EVERY,
    )
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(driving, clients))


def _duration_s(scenario: Scenario) -> float:
    waiting = UPSTREAM_IDLE_TIMEOUT_S if scenario.tap_only and scenario.answer.finale is Finale.SILENT else 0.0
    return waiting + sum(piece.delay_s for piece in scenario.answer.pieces)


async def _read(tap: Tap, view: View) -> None:
    while True:
        for record in await tap.records():
            view.record(record)
        await asyncio.sleep(POLL_S)


async def _until(task: asyncio.Task[None], reading: asyncio.Task[None], stop: asyncio.Event | None) -> None:
    """Waits until the task is done or `stop` is set. If reading records failed, raises its error."""
    stopped = asyncio.create_task(stop.wait()) if stop else None
    others: set[asyncio.Task[None] | asyncio.Task[bool]] = {task, reading} | ({stopped} if stopped else set())
    try:
        await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            await reading
        if task.done():
            await task
    finally:
        await _cancelled(task)
        if stopped:
            await _cancelled(stopped)


async def _last_records(results: Results, reading: asyncio.Task[None]) -> None:
    """Waits until every request has a record, up to RECORDS_WAIT_S; the summary then shows what is missing."""
    rounds = int(RECORDS_WAIT_S / POLL_S)
    while results.missing and rounds and not reading.done():
        await asyncio.wait({reading}, timeout=POLL_S)
        rounds -= 1
    await asyncio.wait({reading}, timeout=2 * POLL_S)  # a surplus record is an error, too, and arrives within this time
    if reading.done():
        await reading


async def _cancelled(task: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    task.cancel()
    await asyncio.wait({task})
