"""A simulator for a test: in a thread with its own event loop, so that sync clients can be used."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.simulator import Simulator

# Fast enough for a test, slow enough that most writes arrive separately.
QUICK = 0.05

# A thread starts, or ends, within this on a busy machine (seconds).
START_S = 60.0


@contextmanager
def simulator(time_scale: float = QUICK, scenarios: Mapping[str, Scenario] = BY_MODEL) -> Iterator[Simulator]:
    """A started simulator; stopped when the context is left."""
    running, ready = Simulator(scenarios, time_scale=time_scale), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run(stop: asyncio.Event) -> None:
        await running.start()
        ready.set()
        await stop.wait()
        await running.stop()

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await run(stop)

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(START_S)
        yield running
    finally:
        if loops:
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(START_S)
        assert not thread.is_alive()
