"""How fast streams are put together: events a CPU-second, as a share of the floor that any reader has to pay.

The floor splits the same bytes at their blank lines and decodes each event with msgspec into a struct of the members that
hold its text (for a dialect of plain text it decodes UTF-8). Ours is the assembler, from segments to records, with all
times, counts, usage and choices. Both see the same reads, in turns, in one process; the figure is the median of the
rounds' ratios. Last: the bytes of an open stream's state, as it is persisted.

    python -m bench.core [--streams N] [--deltas N] [--rounds N] [DIALECT...]
"""

import argparse
import statistics
import time
from collections.abc import Callable

from bench.floors import FLOORS
from bench.wires import Wire, wire
from streamgauge.core.assembler import Assembler, bucket_of
from streamgauge.core.dialects import DIALECTS
from streamgauge.core.masking import Masker
from streamgauge.core.segments import Bundle, End, Ending, Head, Opening, Read, Segment
from streamgauge.core.sse import SseDecoder, write_event

MS = 1_000_000
# Reads of a segment: what a stream at 100 events a second leaves in a bundle of 100 ms, and what a burst does.
READS_A_SEGMENT = 10
# Events of a read: paced streams bring one, buffered and fast ones several.
EVENTS_A_READ = (1, 8)


def contents(one: Wire, events: int, *, masked: bool) -> list[bytes]:
    """What a tap makes of a stream: canonical events, so many a read."""
    masker = Masker(one.path or None, full=not masked)
    canonical = [write_event(masker.event(event)) for event in SseDecoder().feed(b"".join(one.events))]
    return [b"".join(canonical[at : at + events]) for at in range(0, len(canonical), events)]


def segments(number: int, one: Wire, reads: list[bytes]) -> list[Segment]:
    """One stream's segments, a read each 10 ms."""
    stream = number.to_bytes(16)
    stamped = [Read((number + place) * 10 * MS, len(read), len(read), read) for place, read in enumerate(reads)]
    cut = [stamped[at : at + READS_A_SEGMENT] for at in range(0, len(stamped), READS_A_SEGMENT)]
    opening = Opening("bench", "0", "full", upstream="sim", path=one.path or None)
    first = Segment(stream, 0, opening=opening, head=Head(200, 0, event_stream=True), reads=cut[0])
    rest = [Segment(stream, place, reads=run) for place, run in enumerate(cut[1:], 1)]
    return [first, *rest, Segment(stream, len(cut), end=End(Ending.COMPLETE, stamp_ns=10**12))]


def bundles(one: Wire, reads: list[bytes], streams: int) -> list[Bundle]:
    """Streams side by side, as a tap's messages hold them."""
    each = [segments(number, one, reads) for number in range(streams)]
    return [
        Bundle(bytes(16)[:-1] + b"\1", 0, place, place * 100 * MS, list(run))
        for place, run in enumerate(zip(*each, strict=True))
    ]


def assemble(messages: list[Bundle], streams: int) -> None:
    """Bundles to records."""
    assembler = Assembler()
    found = sum(len(assembler.apply(place, place, message)) for place, message in enumerate(messages))
    if found != streams:
        raise SystemExit(f"{found} records of {streams} streams")


def floor(reads: list[bytes], streams: int, decode: Callable[[bytes], object]) -> None:
    """Split and decode, no more."""
    for _ in range(streams):
        for read in reads:
            for block in read.split(b"\n\n"):
                if block:
                    data = block[block.index(b"data: ") + 6 :]
                    if data != b"[DONE]":
                        decode(data)


def seconds(run: Callable[[], None]) -> float:
    """CPU seconds that it takes."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def measure(one: Wire, events: int, streams: int, rounds: int, *, masked: bool) -> tuple[float, float]:
    """The share of the floor's speed, and our events a CPU-second."""
    reads = contents(one, events, masked=masked)
    messages = bundles(one, reads, streams)
    ratios, best = [], 0.0
    for _ in range(rounds):
        lowest = seconds(lambda: floor(reads, streams, FLOORS[one.dialect]))
        ours = seconds(lambda: assemble(messages, streams))
        ratios.append(lowest / ours)
        best = max(best, streams * len(one.events) / ours)
    return statistics.median(ratios), best


def state_bytes(one: Wire) -> int:
    """The persisted state of a stream that is open after half of its events, alone in its bucket."""
    reads = contents(one, 1, masked=True)
    assembler = Assembler()
    half = segments(1, one, reads)[: max(1, len(reads) // READS_A_SEGMENT // 2)]
    key = bucket_of(half[0].stream)
    empty = len(assembler.dump(key))
    for place, segment in enumerate(half):
        assembler.apply(place, place, Bundle(bytes(15) + b"\1", 0, place, place, [segment]))
    return len(assembler.dump(key)) - empty


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.core", description=__doc__.splitlines()[0])
    parser.add_argument("dialects", nargs="*", metavar="DIALECT", help="all by default")
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--deltas", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    print(
        f"{'dialect':<22} {'capture':<8}" + "".join(f"{count:>4} a read" for count in EVENTS_A_READ) + "   state, bytes"
    )
    for name in given.dialects or [dialect.name for dialect in DIALECTS]:
        one = wire(name, given.deltas)
        for capture in ("masked", "full"):
            found = [
                measure(one, events, given.streams, given.rounds, masked=capture == "masked")
                for events in EVENTS_A_READ
            ]
            shares = "".join(f"{share:>11.2f}" for share, _ in found)
            print(f"{name:<22} {capture:<8}{shares}   {state_bytes(one):>6}", flush=True)


if __name__ == "__main__":
    main()
