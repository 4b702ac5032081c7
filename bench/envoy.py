"""What the Envoy tap costs: Envoy's own CPU with and without its reports, and the tap's for each of them.

Streams of one event a read come at a steady pace through a real Envoy (one worker), alternately one whose filter reports to
`streamgauge up envoy` and one without the filter and its access log. `reports a CPU second` are the messages that one CPU
second of the tap's process takes, and `streams a core` the streams of 50 events a second that follow from it. The collector's
CPU, which it needs with every tap, is its own column.

    python -m bench.envoy [--streams N] [--seconds S] [--rounds N] [--document FILE]
"""

import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.client import Received, request, talk
from tests.ports import free_port
from tests.processes import children
from tests.running import Running, start, wait_until_ready
from tests.taps.envoy.rig import Envoy

from bench.document import measure
from bench.measure import cpu_seconds
from bench.wires import wire
from streamgauge_demo import provider as simulated

DIALECT = "openai-chat"
# Events of a stream in a second.
PACE = 50
# The filter and the access log of the guide's bootstrap.
_FILTER = re.compile(
    r" {10}- name: streamgauge\n {12}typed_config:\n.*?(?= {10}- name: envoy\.filters\.http\.router)", re.DOTALL
)
_LOG = re.compile(r" {10}access_log:\n.*?(?=\n  clusters:)", re.DOTALL)
# Streams of both runs that are not measured: connections are made, code is warm.
_WARM = 4


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `streams`: at one time; `seconds`: how long each lasts."""

    streams: int = 60
    seconds: float = 10.0
    rounds: int = 3


class Spent(NamedTuple):
    """The CPU seconds of a run's processes, and the reports that the tap got."""

    envoy: float
    tap: float
    collector: float
    reports: int


def without_reports(text: str) -> str:
    """The bootstrap without filter and access log."""
    text, filters = _FILTER.subn("", text)
    text, logs = _LOG.subn("", text)
    if (filters, logs) != (1, 1):
        raise SystemExit("the bootstrap of docs/guides/envoy.md has another form")
    return text


def load(url: str, streams: int) -> None:
    """Sends requests at one time, and waits for their responses."""

    async def run() -> list[Received]:
        asking = [talk(url, [request("/v1/chat/completions")], received=Received(kept=0)) for _ in range(streams)]
        return await asyncio.gather(*asking)

    ends = {one.end for one in asyncio.run(run())}
    if ends != {"done"}:
        raise SystemExit(f"responses ended otherwise: {ends}")


def processes_of(tap: Running) -> tuple[int, int]:
    """The process that serves Envoy, and the collector."""
    listed = children(tap.process.pid)
    return tuple(next(pid for pid, line in listed.items() if name in line) for name in ("taps.envoy", "cli.collector"))  # type: ignore[return-value]


def measured(envoy: Envoy, tap: Running | None, sizes: Sizes, events: int) -> Spent:
    """One run of all streams."""
    load(envoy.url, _WARM)
    pids = [envoy.process.pid, *(processes_of(tap) if tap else ())]
    recorded = tap.recorded() if tap else 0
    before = [cpu_seconds(pid) for pid in pids]
    load(envoy.url, sizes.streams)
    time.sleep(2)  # the access log's entries, and the collector's last flush
    spent = [cpu_seconds(pid) - began for pid, began in zip(pids, before, strict=True)]
    if tap is not None:
        tap.wait_for_records(recorded + sizes.streams)
        if tap.reads()["seen"] < sizes.streams * events:
            raise SystemExit("the tap got less than all events")
    # Two heads, each event, and the end of the body.
    return Spent(spent[0], spent[1] if tap else 0, spent[2] if tap else 0, sizes.streams * (events + 3))


def rows(sizes: Sizes) -> list[list[str]]:
    """The table: medians of the rounds."""
    events = wire(DIALECT, round(PACE * sizes.seconds)).events
    script = simulated.stream(*events, pause_s=1 / PACE)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider = stack.enter_context(simulated.Provider(script))
        upstream, port = int(provider.url.rsplit(":", 1)[1]), free_port()
        options = ["envoy", "--quiet", "--admin", "127.0.0.1:0", "--data-dir", str(folder / "data")]
        tap = stack.enter_context(start("up", [*options, "--listen", f"127.0.0.1:{port}"], folder / "data"))
        wait_until_ready(tap)
        envoys = []
        for name, changes in (("reporting", None), ("alone", without_reports)):
            (folder / name).mkdir()
            envoys.append(stack.enter_context(Envoy(folder / name, upstream, port, change=changes, concurrency=1)))
        reporting, alone = list[Spent](), list[Spent]()
        for _ in range(sizes.rounds):
            reporting.append(measured(envoys[0], tap, sizes, len(events)))
            alone.append(measured(envoys[1], None, sizes, len(events)))
    pairs = list(zip(reporting, alone, strict=True))
    reports = statistics.median(one.reports / one.tap for one in reporting)
    return [
        [
            "streams",
            "Envoy's CPU, to that without reports",
            "reports a CPU second",
            "streams a core",
            "collector's CPU, to the tap's",
        ],
        [
            str(sizes.streams),
            f"{statistics.median(one.envoy / other.envoy for one, other in pairs):.2f}",
            f"{reports:,.0f}",
            f"{reports / PACE:,.0f}",
            f"{statistics.median(one.collector / one.tap for one in reporting):.2f}",
        ],
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    measure("envoy", __doc__, Sizes, rows, arguments)


if __name__ == "__main__":
    main()
