"""The recorder's speed: events for each CPU-second, from the batches of a relay to the rows of the spool.

The batches hold whole streams of chat completions, as a relay sends them: the request with its body, the response as the
wire had it, in chunks, and the end. A real spool in a temporary directory takes the rows. The last column is the time of an
event as a multiple of the floor's: bare splitting and decoding of the same events (`bench/floors.py`), in the same round. It
does not depend on the machine. A figure is the median of the rounds.

    python -m bench.recorder [--streams N] [--rounds N] [--profile] [--document FILE]
"""

import argparse
import contextlib
import cProfile
import pstats
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

from bench.core import floor, seconds
from bench.document import replace_section, table, when_and_where
from bench.floors import FLOORS
from bench.wires import wire
from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.loop_client import BATCH_BYTES
from streamgauge.recorder.process import RecorderProcess, RecorderSettings
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
    encode_batch,
)
from streamgauge.spool import Spool
from streamgauge.spool.read_counters import Counters

DELTAS = 200
# Events for each CPU-second that a recorder must carry, masked.
AIM = 200_000
_SPOOL_BYTES = 1 << 30
_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Wed, 01 May 2024 00:00:00 GMT\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\nx-request-id: req_0123456789abcdef\r\ntransfer-encoding: chunked\r\n\r\n"
)
_BODY = b'{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"%b"}]}' % (b"How is it? " * 20)
_HEADERS = [("content-type", "application/json"), ("authorization", "Bearer sk-bench-0123456789")]


@dataclass(frozen=True)
class Shape:
    """How a stream arrives. `events`: in each read."""

    title: str
    events: int


SHAPES = (Shape("a hundred events a read", 100), Shape("eight events a read", 8), Shape("one event a read", 1))


def responses(shape: Shape) -> list[bytes]:
    """The reads of a response: the head with the first events, then events, at the end the last chunk."""
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in wire("openai-chat", DELTAS).events]
    reads = [b"".join(chunks[at : at + shape.events]) for at in range(0, len(chunks), shape.events)]
    return [_HEAD + reads[0], *reads[1:-1], reads[-1] + b"0\r\n\r\n"]


def exchange(number: int, reads: Sequence[bytes]) -> Iterator[Message]:
    """The messages of one stream, with a read every 10 ms."""
    one, begin = wire("openai-chat", 1), number * 1_000_000
    path = "/v1/chat/completions"
    yield RequestStarted(number, begin, 1_714_521_600_000_000_000, "bench", "POST", path, _HEADERS, "proxy")
    yield RequestBody(number, _BODY)
    yield RequestSent(number, begin + 1_000, None, len(_BODY), True)
    for place, read in enumerate(reads, 1):
        yield ResponseRead(number, begin + place * 10_000_000, one.of_stream(read, number))
    yield ExchangeEnding(number, begin + len(reads) * 10_000_000, Ending.COMPLETE)


def batches(shape: Shape, streams: int) -> list[bytes]:
    """The encoded batches of this many streams, one after the other."""
    reads = responses(shape)
    made: list[bytes] = []
    batch: list[Message] = []
    size = 0
    for message in chain.from_iterable(exchange(number, reads) for number in range(streams)):
        batch.append(message)
        size += len(message.data) if isinstance(message, ResponseRead) else 0
        if size >= BATCH_BYTES:
            made.append(bytes(encode_batch(batch)[4:]))
            batch, size = [], 0
    return [*made, bytes(encode_batch(batch)[4:])]


@contextlib.contextmanager
def recording(capture: str) -> Iterator[RecorderProcess]:
    """A recorder without a process of its own, with a spool in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="streamgauge-bench-") as name:
        folder = Path(name)
        settings = RecorderSettings(folder, capture="full" if capture == "full" else "masked")
        with Counters(folder / "counters", "recorder") as counters:
            spool = Spool(folder / "spool.sqlite", _SPOOL_BYTES, counters)
            yield RecorderProcess(settings, bytes(32), spool, counters)
            spool.close()


def record(capture: str, bodies: Sequence[bytes], profile: cProfile.Profile | None = None) -> float:
    """The CPU seconds of a recorder for these batches. Raises SystemExit if a stream has not ended."""
    with recording(capture) as process:

        def run() -> None:
            for body in bodies:
                process.handle_batch(0, body)
            process.flush_due()

        spent = seconds(run if profile is None else lambda: profile.runcall(run))
        if process.open_streams:
            raise SystemExit(f"{process.open_streams} streams have not ended")
    return spent


def measure(capture: str, shape: Shape, streams: int, rounds: int) -> tuple[float, float]:
    """Events for each CPU-second, and the time of an event as a multiple of the floor's."""
    events = wire("openai-chat", DELTAS).events
    bodies = batches(shape, streams)
    record(capture, bodies)  # warms caches
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        bare = seconds(lambda: floor(chain.from_iterable(repeat(events, streams)), FLOORS["openai-chat"]))
        times.append((record(capture, bodies), bare))
    count = streams * len(events)
    return count / statistics.median(ours for ours, _ in times), statistics.median(ours / bare for ours, bare in times)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.recorder", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    rows = [["a stream arrives with", "capture", "events a CPU-second", "of the aim", "of the floor's time"]]
    for shape in SHAPES:
        for capture in ("masked", "full"):
            if given.profile:
                profile = cProfile.Profile()
                record(capture, batches(shape, given.streams), profile)
                print(shape.title, capture)
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)
                continue
            rate, multiple = measure(capture, shape, given.streams, given.rounds)
            aim = f"{rate / AIM:.1f}" if capture == "masked" else ""
            rows.append([shape.title, capture, f"{rate:,.0f}", aim, f"{multiple:.2f}"])
            print("  ".join(f"{cell:<24}" for cell in rows[-1]), flush=True)
    if given.document is not None:
        replace_section(given.document, "recorder", f"{table(rows)}\n\n{when_and_where()}")


if __name__ == "__main__":
    main()
