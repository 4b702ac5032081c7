"""What the proxy's relay spends on the capture of an event, apart from relaying it.

The relay hands each read over as a message; ten times a second, or when many wait, it encodes what was gathered and writes
it to the recorder. Here 200 open streams have their reads handed over in a loop, on uvloop, and a process takes what is
written and looks at nothing. The first line is the handing over alone, which is what stands between an event's arrival and
the next event; the second all that the relay's process spends. A figure is the median of the rounds, in CPU time of this
machine; as a share of the aim, 0.4 us on a machine on which a pure ASGI wrapper takes 0.24 for a chunk, it says nothing
about the machine.

    python -m bench.capture [--events N] [--rounds N] [--document FILE]
"""

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.document import replace_section, table
from bench.inprocess import ASGI, cost, take_all
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.recorder.loop_client import FLUSH_S, LoopClient
from streamgauge.spool.read_counters import Counters

STREAMS = 200
EVENT_BYTES = 250
# As a multiple of what a pure ASGI wrapper takes for a chunk.
AIM = 0.4 / 0.24
_CAPACITY = 1 << 26
# Events that are handed over before the loop turns: what 200 streams at 40 a second bring until the next flush.
_AT_ONCE = 800


class Spent(NamedTuple):
    """CPU seconds for one event: handed over, and all of it; `yardstick` is the ASGI wrapper's."""

    handed_over: float
    whole: float
    yardstick: float


@contextmanager
def recorder(path: Path) -> Iterator[None]:
    """A process that takes everything and looks at nothing."""
    spawn = multiprocessing.get_context("spawn")
    listens = spawn.Event()
    taker = spawn.Process(target=take_all, args=(str(path), listens), daemon=True)
    taker.start()
    try:
        listens.wait(30)
        yield
    finally:
        taker.terminate()
        taker.join()


def started(client: LoopClient) -> list[ExchangeCapture]:
    """Streams whose start was reported."""
    captures = [ExchangeCapture(client) for _ in range(STREAMS)]
    for capture in captures:
        capture.start(time.monotonic_ns(), time.time_ns(), "bench", "POST", "/v1/chat/completions", [], tap="proxy")
    return captures


def wrapper(events: int) -> float:
    """CPU seconds of a pure ASGI wrapper for one chunk; in a thread of its own, since it has a loop of its own."""
    return (cost(lambda: ASGI.pure(events)).caller - cost(lambda: ASGI.pure(0)).caller) / events


async def spent(directory: Path, events: int, rounds: int) -> list[Spent]:
    """Round by round. Raises SystemExit if a read was left out."""
    client = LoopClient(directory / "recorder.sock", Counters(directory / "counters", "relay-0"), _CAPACITY)
    captures, data = started(client), bytes(EVENT_BYTES)
    found = []
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
        while client.held:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(FLUSH_S)
        whole = time.process_time() - began
        if client.full:
            raise SystemExit("the recorder did not take what was written")
        found.append(Spent(handed_over / events, whole / events, await asyncio.to_thread(wrapper, events)))
    await client.close()
    return found


def rows(found: Sequence[Spent]) -> list[list[str]]:
    """The table."""
    parts = (("handed over", lambda one: one.handed_over), ("all of it, encoded and written", lambda one: one.whole))
    return [
        ["capture in the relay", "us an event", "of the aim"],
        *(
            [
                title,
                f"{statistics.median(map(of, found)) * 1e6:.2f}",
                f"{statistics.median(of(one) / one.yardstick / AIM for one in found):.2f}",
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
    with tempfile.TemporaryDirectory() as folder, recorder(Path(folder) / "recorder.sock"):
        found = rows(uvloop.run(spent(Path(folder), given.events, given.rounds)))
    for row in found:
        print("  ".join(f"{cell:<31}" for cell in row))
    if given.document is not None:
        replace_section(given.document, "capture", table(found))


if __name__ == "__main__":
    main()
