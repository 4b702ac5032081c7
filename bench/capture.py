"""The relay's cost of capturing an event, without the cost of forwarding it.

The relay hands over each read as a message. Every 260 ms, or when many messages wait, it encodes them and writes them to
the recorder. Here the reads of 200 open streams are handed over in a loop, on uvloop, and another process reads what is
written and discards it. The first line is the call alone, which delays the next event; the second line is the whole cost
of the relay's process. Both are the medians of the rounds, in CPU time of this machine. The last column is a share of
the aim, which is 0.4 us on a machine on which a pure ASGI wrapper takes 0.24 us for a chunk; it does not depend on the
machine.

    python -m bench.capture [--events N] [--rounds N] [--document FILE]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.document import replace_section, table
from bench.inprocess import ASGI, cost, discarding_recorder
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.recorder.loop_client import FLUSH_S, LoopClient
from streamgauge.spool.read_counters import Counters

STREAMS = 200
EVENT_BYTES = 250
# As a multiple of the time of a pure ASGI wrapper for a chunk.
AIM = 0.4 / 0.24
_CAPACITY = 1 << 26
# Events that are handed over in one turn of the event loop: a tenth of a second of 200 streams with 40 events a second.
_AT_ONCE = 800


class Spent(NamedTuple):
    """CPU seconds for one event: the call, and all of it. `yardstick`: those of the ASGI wrapper for a chunk."""

    handed_over: float
    whole: float
    yardstick: float


def started(client: LoopClient) -> list[ExchangeCapture]:
    """Streams whose start is reported."""
    captures = [ExchangeCapture(client) for _ in range(STREAMS)]
    for capture in captures:
        capture.start(time.monotonic_ns(), time.time_ns(), "bench", "POST", "/v1/chat/completions", [], tap="proxy")
    return captures


def wrapper(events: int) -> float:
    """CPU seconds of a pure ASGI wrapper for one chunk. It runs an event loop of its own, so it needs another thread."""
    return (cost(lambda: ASGI.pure(events)).caller - cost(lambda: ASGI.pure(0)).caller) / events


async def spent(directory: Path, events: int, rounds: int) -> list[Spent]:
    """The costs in each round. Raises SystemExit if a read was dropped."""
    client = LoopClient(directory / "recorder.sock", Counters(directory / "counters", "relay-0"), _CAPACITY)
    captures, data = started(client), bytes(EVENT_BYTES)
    costs = []
    for _ in range(rounds):
        handed_over, began = 0.0, time.process_time()
        for _ in range(events // _AT_ONCE):
            before = time.process_time()
            for _ in range(_AT_ONCE // STREAMS):
                for capture in captures:
                    capture.read(0, data)
            handed_over += time.process_time() - before
            await asyncio.sleep(0)
        await asyncio.sleep(2 * FLUSH_S)
        while client.held:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(FLUSH_S)
        whole = time.process_time() - began
        if client.full:
            raise SystemExit("the recorder did not read what was written")
        costs.append(Spent(handed_over / events, whole / events, await asyncio.to_thread(wrapper, events)))
    await client.close()
    return costs


def rows(costs: Sequence[Spent]) -> list[list[str]]:
    """The table."""
    parts = (
        ("handed over", lambda cost: cost.handed_over),
        ("all of it, encoded and written", lambda cost: cost.whole),
    )
    return [
        ["capture in the relay", "us an event", "of the aim"],
        *(
            [
                title,
                f"{statistics.median(map(of, costs)) * 1e6:.2f}",
                f"{statistics.median(of(cost) / cost.yardstick / AIM for cost in costs):.2f}",
            ]
            for title, of in parts
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.capture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=80_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, discarding_recorder(Path(folder) / "recorder.sock"):
        lines = rows(uvloop.run(spent(Path(folder), given.events, given.rounds)))
    for row in lines:
        print("  ".join(f"{cell:<31}" for cell in row))
    if given.document is not None:
        replace_section(given.document, "capture", table(lines))


if __name__ == "__main__":
    main()
