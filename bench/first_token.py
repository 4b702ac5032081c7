"""The difference between the time to first token that a client measures and that of the record.

`streamgauge tap` runs in front of the load's upstream, with a real Kafka. Each request has a trace id, which its record
repeats. A client's time is from just before it writes its request to the read with the first token; the record's time is
subtracted. The rest is two transfers over the loopback, with a wake-up at the end of each. For comparison, twice the
time of an event from the upstream to the client without a tap is measured. If there are two cores, load and broker run
on one, and the tap on the other.

    python -m bench.first_token [--streams N] [--document FILE]
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.faults.rig import records_on
from tests.kafka_broker.jars import NoBrokerError

from bench.document import replace_section, table
from bench.load.client import first_tokens, paced
from bench.measure import cores, started_on
from bench.peers.broker import broker
from bench.peers.peer import Origin, upstream
from bench.peers.streamgauge import prefix_of, tap
from bench.tap_loads import percentile
from streamgauge.core.record import Record

# The largest difference (ms) for half of the streams, and for 99 of 100.
AIM_P50, AIM_P99 = 0.2, 1.0
CAPTURE = "masked"
# Streams that only warm up code and caches.
_WARM = 50
# The distance between the first trace ids of two loads.
_APART = 1_000_000


class Load(NamedTuple):
    """`at_once`: concurrent streams; `events`: deltas of each, one every `pace_s` seconds."""

    at_once: int
    events: int
    pace_s: float


LOADS = (Load(1, 5, 0.02), Load(50, 100, 0.02), Load(200, 80, 0.025))


class Timed(NamedTuple):
    """`client`: the times of one load's clients (ns, by trace id). `ways`: two transfers without a tap (ms)."""

    load: Load
    ways: float
    client: dict[str, int]


def timed(load: Load, streams: int, direct: int, proxy: int, number: int) -> Timed:
    """Runs one load on the upstream's port and then on the tap's, with trace ids from `number` on."""
    ways = 2 * percentile(paced(direct, load.at_once, load.events, load.pace_s).late, 0.5) / 1e6
    first_tokens(proxy, load.at_once, min(_WARM, streams), 2, load.pace_s, number=number + streams)
    return Timed(load, ways, first_tokens(proxy, load.at_once, streams, load.events, load.pace_s, number=number))


def measured(loads: Sequence[Load], streams: int) -> tuple[list[Timed], list[Record]]:
    """Runs all loads on one tap, one after the other, and returns their records too. Raises NoBrokerError."""
    load_cores, tap_cores = cores()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgauge-bench-")))
        stack.enter_context(started_on(load_cores))
        direct = stack.enter_context(upstream())
        kafka = stack.enter_context(broker(directory / "kafka"))
        with started_on(tap_cores):
            proxy = stack.enter_context(tap(Origin(direct.port), directory, kafka, CAPTURE))
        numbers = range(_APART, _APART * (len(loads) + 1), _APART)
        times = [
            timed(load, streams, direct.port, proxy.port, number) for load, number in zip(loads, numbers, strict=True)
        ]
        proxy.settle()
        return times, asyncio.run(records_on(kafka, prefix_of(CAPTURE)))


def off(client: Mapping[str, int], records: Sequence[Record]) -> list[float]:
    """Each client's time (ns, by trace id) minus its record's, in ms. Raises SystemExit if a record has no time."""
    exported = {record.trace_id: record.timing.first_token_s for record in records}
    differences = []
    for trace, ns in client.items():
        first_token_s = exported.get(trace)
        if first_token_s is None:
            raise SystemExit(f"stream {trace} has no record with a first token")
        differences.append(ns / 1e6 - first_token_s * 1e3)
    return differences


def rows(times: Sequence[Timed], records: Sequence[Record]) -> list[list[str]]:
    """The table."""
    head = [
        "streams at a time",
        "events a second of each",
        "client's own, p50",
        "two ways, p50",
        "off, p50",
        "off, p99",
    ]
    lines = [[*head, "of the aim, p50", "of the aim, p99"]]
    for load, ways, client in times:
        differences = off(client, records)
        distances = [abs(difference) for difference in differences]
        figures = [
            percentile(list(client.values()), 0.5) / 1e6,
            ways,
            percentile(differences, 0.5),
            percentile(differences, 0.99),
            percentile(distances, 0.5) / AIM_P50,
            percentile(distances, 0.99) / AIM_P99,
        ]
        lines.append([str(load.at_once), f"{1 / load.pace_s:.0f}", *(f"{figure:.2f}" for figure in figures)])
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.first_token", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000, help="of each load")
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    before = os.sched_getaffinity(0)
    try:
        lines = rows(*measured(LOADS, given.streams))
    except NoBrokerError as error:
        raise SystemExit(f"no broker is available: {error}") from error
    finally:
        os.sched_setaffinity(0, before)
    for row in lines:
        print("  ".join(f"{cell:<23}" for cell in row))
    if given.document is not None:
        replace_section(given.document, "first-token", table(lines))


if __name__ == "__main__":
    main()
