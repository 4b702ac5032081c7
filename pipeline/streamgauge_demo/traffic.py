"""Simulated traffic through a tap that runs already: `python -m streamgauge_demo.traffic http://HOST:PORT`.

The official clients play every scenario in a round, and round follows round until SIGTERM or Ctrl-C. The tap needs each of
`scenarios.UPSTREAMS` as an upstream, with a simulator (`simulator.py`) as its URL. A tap that is away is tried again.
"""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Sequence

from streamgauge_demo.driver import drive_all
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import SCENARIOS

# Concurrent streams, and the pause between two rounds (seconds): some streams a second, on a small part of one core.
CONCURRENCY = 4
REST_S = 2.0


async def rounds(root: str, scenarios: Sequence[Scenario] = SCENARIOS, *, rest_s: float = REST_S) -> None:
    """Plays the scenarios again and again, until it is cancelled. `root`: the tap's URL, without a final slash."""
    while True:
        await drive_all(
            scenarios, root, concurrency=CONCURRENCY, started=lambda _: None, ended=lambda _scenario, _seen: None
        )
        await asyncio.sleep(rest_s)


async def _until_stopped(root: str) -> None:
    playing = asyncio.ensure_future(rounds(root))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, playing.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await playing


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Sends simulated traffic through a running tap.")
    parser.add_argument("tap", metavar="URL", help="the tap's URL, as in http://127.0.0.1:8080")
    asyncio.run(_until_stopped(parser.parse_args().tap.rstrip("/")))


if __name__ == "__main__":
    main()
