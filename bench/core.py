"""The assembler's speed, as a share of the speed of the simplest possible reader of the same bytes (the floor).

The floor splits the bytes at blank lines and decodes each event with msgspec into a struct of the members that hold its
text. It does not interpret events, and computes no times and no counts. The assembler makes records of segments, with all
times, counts, usage and choices. Both read the same reads, alternately, in one process. A figure is the median of the
rounds' ratios, and does not depend on the machine. Only dialects that declare plain deltas have this figure.

Also measured, for a stream that is open after half of its events: the bytes of its persisted state, and the bytes that it
takes in the process (tracemalloc, over many open streams).

An event that is not a plain delta is read on its own, and masked on its own. The times for each dialect's deltas are
multiples of the floor's time for the same event; `--one-by-one` measures only these. Replicate sends plain text, not JSON:
its floor splits and decodes UTF-8, so a multiple of it is the least meaningful.

The framings beside server-sent events are measured where they are read: in the recorder, from the body's bytes to masked
canonical events, with a read for each event and 40 reads a call. `--framings` measures only these.

    python -m bench.core [--one-by-one | --framings] [--streams N] [--deltas N] [--rounds N] [--open N] [--document FILE]
        [DIALECT...]
"""

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import patch

import msgspec

from bench.document import replace_section, table
from bench.floors import FLOORS
from bench.framings import FRAMINGS
from bench.wires import Wire, wire
from streamgauge.core.assembly.assembler import Assembler, bucket_of
from streamgauge.core.assembly.stream import Stream
from streamgauge.core.capture.segments import Bundle, Ending, Head, Opening, Read, Segment, StreamEnding
from streamgauge.core.dialects import BY_NAME, DIALECTS
from streamgauge.core.formats.reader import EventReader
from streamgauge.core.formats.sse import Event, SseDecoder, write_event
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.events import MaskedEvents
from streamgauge.recorder.framed_events import EventContent, FramedEvents

MS = 1_000_000
INSTANCE = bytes(15) + b"\1"
_BUNDLE = msgspec.msgpack.Decoder(Bundle)
# The most that an open stream may take (bytes): persisted, and in process, where 10,000 of them must fit into 100 MiB.
STATE_LIMIT = 4 * 1024
# As the recorder reads an open stream with 40 events a second.
READS_A_CALL = 40
MEMORY_LIMIT = 100 * 1024 * 1024 // 10_000


@dataclass(frozen=True)
class Shape:
    """How a stream arrives. `length`: its number of deltas, as a share of the usual one.

    The first shape gives a dialect's figure; the others differ from it in one thing. The recorder sends a segment of an
    open stream once a second: a stream with 40 events a second then has 40 reads, a slow one ten or one. Paced streams
    have one event in a read, buffered and fast ones several. The fixed cost of a stream, from its first events to its
    record, weighs most on short ones.

    `packed`: both start from the encoded bundles of a tap, and decode them. With small segments this is a large part of
    an event's cost.
    """

    title: str
    length: float = 1.0
    events_a_read: int = 1
    reads_a_segment: int = 40
    packed: bool = False


SHAPES = (
    Shape("of the floor"),
    Shape("eight a read", events_a_read=8),
    Shape("ten reads a segment", reads_a_segment=10, packed=True),
    Shape("one read a segment", reads_a_segment=1, packed=True),
    Shape("a fifth as long", length=0.2),
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured. `streams`: concurrent ones; `deltas`: of each; `opened`: streams that are open at once."""

    streams: int = 10
    deltas: int = 1_000
    rounds: int = 7
    opened: int = 2_000


def contents(one: Wire, events: int, *, masked: bool) -> list[bytes]:
    """A stream as a tap captures it: canonical events, `events` in each read."""
    masker = Masker(one.path or None, full=not masked)
    canonical = [write_event(masker.event(event)) for event in SseDecoder().feed(b"".join(one.events))]
    return [b"".join(canonical[at : at + events]) for at in range(0, len(canonical), events)]


def segments(number: int, one: Wire, reads: Sequence[bytes], reads_a_segment: int = 40) -> list[Segment]:
    """One stream's segments with its own ids, and a read every 10 ms."""
    stream, own = number.to_bytes(16), [one.of_stream(read, number) for read in reads]
    stamped = [Read((number + place) * 10 * MS, len(read), len(read), read) for place, read in enumerate(own)]
    cut = [stamped[at : at + reads_a_segment] for at in range(0, len(stamped), reads_a_segment)]
    opening = Opening("bench", "0", "full", upstream="sim", path=one.path or None)
    first = Segment(stream, 0, opening=opening, head=Head(200, 0, event_stream=True), reads=cut[0])
    rest = [Segment(stream, place, reads=run) for place, run in enumerate(cut[1:], 1)]
    return [first, *rest, Segment(stream, len(cut), end=StreamEnding(Ending.COMPLETE, stamp_ns=10**12))]


def bundles(one: Wire, reads: Sequence[bytes], streams: int, reads_a_segment: int = 40) -> list[Bundle]:
    """Concurrent streams, in bundles as a tap sends them."""
    each = [segments(number, one, reads, reads_a_segment) for number in range(streams)]
    return [
        Bundle(INSTANCE, 0, place, place * 100 * MS, list(run)) for place, run in enumerate(zip(*each, strict=True))
    ]


def assemble(messages: Iterable[Bundle], streams: int) -> None:
    """Makes records of bundles. Raises SystemExit if their number is wrong."""
    assembler = Assembler()
    records = sum(len(assembler.apply(place, place, message)) for place, message in enumerate(messages))
    if records != streams:
        raise SystemExit(f"{records} records of {streams} streams")


def floor(reads: Iterable[bytes], decode: Callable[[bytes], object]) -> None:
    """Splits and decodes events, and does nothing else."""
    for read in reads:
        for block in read.split(b"\n\n"):
            if block:
                data = block[block.index(b"data: ") + 6 :]
                if data != b"[DONE]":
                    decode(data)


def unpacked(written: Iterable[bytes]) -> Iterator[bytes]:
    """The contents of the reads in encoded bundles."""
    for message in written:
        for segment in _BUNDLE.decode(message).segments:
            for read in segment.reads:
                yield read.content


def seconds(run: Callable[[], None]) -> float:
    """The CPU seconds of a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def share(dialect: str, shape: Shape, sizes: Sizes, *, masked: bool) -> float:
    """The assembler's speed as a share of the floor's."""
    one = wire(dialect, round(sizes.deltas * shape.length))
    streams = round(sizes.streams / shape.length)
    reads = contents(one, shape.events_a_read, masked=masked)
    messages = bundles(one, reads, streams, shape.reads_a_segment)
    written = [msgspec.msgpack.encode(message) for message in messages]

    def bare() -> None:
        floor(unpacked(written) if shape.packed else chain.from_iterable(repeat(reads, streams)), FLOORS[dialect])

    def ours() -> None:
        assemble(map(_BUNDLE.decode, written) if shape.packed else messages, streams)

    return statistics.median(seconds(bare) / seconds(ours) for _ in range(sizes.rounds))


def one_by_one(dialect: str, sizes: Sizes) -> tuple[float, float]:
    """The times to read and to mask an event on its own, as multiples of the floor's time."""
    one = wire(dialect, sizes.deltas)
    reads = contents(one, 1, masked=False)
    messages = bundles(one, reads, sizes.streams)
    events = SseDecoder().feed(b"".join(one.events))

    def bare() -> None:
        floor(chain.from_iterable(repeat(reads, sizes.streams)), FLOORS[dialect])

    def mask() -> None:
        for _ in range(sizes.streams):
            masker = Masker(one.path or None, full=False)
            for event in events:
                masker.event(event)

    with patch.object(Stream, "_may_batch", lambda _: False):
        rounds = [
            (seconds(bare), seconds(lambda: assemble(messages, sizes.streams)), seconds(mask))
            for _ in range(sizes.rounds)
        ]
    assembled, masked = ([times[at] / times[0] for times in rounds] for at in (1, 2))
    return statistics.median(assembled), statistics.median(masked)


def framed(
    dialect: str,
    write: Callable[[list[Event]], list[bytes]],
    make: Callable[[], EventReader],
    sizes: Sizes,
    *,
    masked: bool,
) -> tuple[float, float]:
    """The times to read a stream of a framing, and the same events as server-sent events, in multiples of the floor's."""
    one = wire(dialect, sizes.deltas)
    reads = contents(one, 1, masked=False)
    pieces = write(SseDecoder().feed(b"".join(one.events)))

    def read(content: Callable[[Masker, Budget], EventContent], sent: Sequence[bytes]) -> None:
        for _ in range(sizes.streams):
            events = content(Masker(one.path or None, full=not masked), Budget(MEMORY_LIMIT * 1_000))
            for at in range(0, len(sent), READS_A_CALL):
                events.feed_each(sent[at : at + READS_A_CALL])
            if events.events < sizes.deltas:
                raise SystemExit(f"{events.events} events of {sizes.deltas}")

    def own(masker: Masker, budget: Budget) -> EventContent:
        return FramedEvents(masker, budget, make())

    def bare() -> None:
        floor(chain.from_iterable(repeat(reads, sizes.streams)), FLOORS[dialect])

    rounds = [
        (seconds(bare), seconds(lambda: read(own, pieces)), seconds(lambda: read(MaskedEvents, one.events)))
        for _ in range(sizes.rounds)
    ]
    ours, as_sse = ([times[at] / times[0] for times in rounds] for at in (1, 2))
    return statistics.median(ours), statistics.median(as_sse)


def halves(one: Wire, streams: int) -> Iterator[Bundle]:
    """The first halves of masked streams, with one segment in a bundle, decoded from bytes as in a worker."""
    reads = contents(one, 1, masked=True)
    written = [msgspec.msgpack.encode(segments(number, one, reads)[:-1]) for number in range(streams)]
    place = 0
    for number in range(streams):
        whole = msgspec.msgpack.decode(written[number], type=list[Segment])
        for segment in whole[: (len(whole) + 1) // 2]:
            yield Bundle(INSTANCE, 0, place, place, [segment])
            place += 1


def state_bytes(one: Wire) -> int:
    """The bytes of the persisted state of a stream after half of its events, alone in its bucket."""
    assembler = Assembler()
    key = bucket_of(bytes(16))
    empty = len(assembler.dump(key))
    for place, message in enumerate(halves(one, 1)):
        assembler.apply(place, place, message)
    return len(assembler.dump(key)) - empty


def memory_bytes(one: Wire, streams: int) -> int:
    """The bytes that each of these open streams takes in the process."""
    messages = halves(one, streams)
    assembler = Assembler()
    assembler.apply(0, 0, next(messages))  # allocates what all streams share
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for place, message in enumerate(messages, 1):
            assembler.apply(place, place, message)
        for key in assembler.changed():
            assembler.dump(key)  # applies what is pending
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) // max(1, assembler.open_streams - 1)


def rows(dialects: Sequence[str], sizes: Sizes) -> Iterator[list[str]]:
    """Yields the table's rows as they are measured. Without declared deltas a dialect has no shares, only memory."""
    yield ["dialect", "capture", *(shape.title for shape in SHAPES), "state, bytes", "in process, bytes"]
    for name in dialects:
        one = wire(name, sizes.deltas)
        memory = [str(state_bytes(one)), str(memory_bytes(one, sizes.opened))]
        if not BY_NAME[name].deltas.kinds:
            yield [name, "masked", *([""] * len(SHAPES)), *memory]
            continue
        for capture in ("masked", "full"):
            shares = [share(name, shape, sizes, masked=capture == "masked") for shape in SHAPES]
            yield [name, capture, *(f"{value:.2f}" for value in shares), *(memory if capture == "masked" else ["", ""])]


def rows_one_by_one(dialects: Sequence[str], sizes: Sizes) -> Iterator[list[str]]:
    """Yields the rows of the table of events that are read one by one, as they are measured."""
    yield ["dialect", "assembling, of the floor's time", "masking, of the floor's time"]
    for name in dialects:
        yield [name, *(f"{multiple:.1f}" for multiple in one_by_one(name, sizes))]


def rows_of_framings(sizes: Sizes) -> Iterator[list[str]]:
    """Yields the rows of the table of framings, as they are measured."""
    yield ["framing", "dialect", "capture", "reading, of the floor's time", "the same as server-sent events"]
    for name, dialect, write, make in FRAMINGS:
        for capture in ("masked", "full"):
            multiples = framed(dialect, write, make, sizes, masked=capture == "masked")
            yield [name, dialect, capture, *(f"{multiple:.1f}" for multiple in multiples)]


def report(lines: Sequence[Sequence[str]]) -> str:
    """Two tables: the figure and memory of each dialect, and its figures for the other shapes of streams."""
    figures = [[*row[:3], *row[-2:]] for row in lines]
    other_shapes = [[*row[:2], *row[3:-2]] for row in lines if row[2]]
    limits = f"Limits of an open stream: {STATE_LIMIT:,} bytes of state, {MEMORY_LIMIT:,} in process."
    return f"{table(figures)}\n\n{limits}\n\nThe same for streams that arrive differently:\n\n{table(other_shapes)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.core", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dialects", nargs="*", metavar="DIALECT", help="all by default")
    for name, value in asdict(Sizes()).items():
        parser.add_argument("--open" if name == "opened" else f"--{name}", dest=name, type=int, default=value)
    parser.add_argument("--one-by-one", action="store_true", help="measure only events that are read one by one")
    parser.add_argument("--framings", action="store_true", help="measure only the framings beside server-sent events")
    parser.add_argument("--document", type=Path, help="write the tables into this file, between its markers")
    given = parser.parse_args(arguments)
    sizes = Sizes(given.streams, given.deltas, given.rounds, given.opened)
    dialects = given.dialects or [dialect.name for dialect in DIALECTS]
    if not given.framings:
        _measure_events(given.document, dialects, sizes, single_only=given.one_by_one)
    if not given.one_by_one:
        framings = printed(rows_of_framings(sizes))
        if given.document is not None:
            replace_section(given.document, "core framings", table(framings))


def _measure_events(document: Path | None, dialects: Sequence[str], sizes: Sizes, *, single_only: bool) -> None:
    if not single_only:
        lines = printed(rows(dialects, sizes))
        if document is not None:
            replace_section(document, "core", report(lines))
    single = printed(rows_one_by_one(dialects, sizes))
    if document is not None:
        replace_section(document, "core one by one", table(single))


def printed(measured: Iterable[list[str]]) -> list[list[str]]:
    """The rows, each printed as soon as it is measured."""
    lines = []
    for row in measured:
        lines.append(row)
        print("  ".join(f"{cell:<21}" for cell in row), flush=True)
    return lines


if __name__ == "__main__":
    main()
