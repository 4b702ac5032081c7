"""The logs of the worker's benchmark: streams of several taps, in bundles that the taps' own bundler makes.

Contents are those that a tap captures: canonical events, masked or not. The bundler's clock is a simulated number, so the
log of a minute is made quickly.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from bench.core import contents
from bench.wires import Wire, wire
from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import (
    BUNDLE_NS,
    Bundle,
    Ending,
    Head,
    Opening,
    Read,
    RequestFacts,
    Segment,
    StreamEnding,
)
from streamgauge.recorder.bundler import Bundler
from streamgauge.recorder.capture import FLUSHES_PER_SEGMENT, SEGMENT_NS

PARTITIONS = 8
# Concurrent tap instances, one for each partition: an instance that is not very busy writes to one slot.
TAPS = 8
# The recorder sends a segment of an open stream once a second, which has 40 reads at 40 events a second.
READS_A_SEGMENT = 40
_READ_NS = SEGMENT_NS // READS_A_SEGMENT
CHAT = "openai-chat"


@dataclass(frozen=True)
class Load:
    """`streams`: concurrent ones of each tap. `alone`: each event is a message of its own.

    `varied`: full capture, with an unknown member of a different value in each event, so that no two deltas have the same
    bytes, and each one is decoded.
    """

    name: str
    streams: int
    deltas: int
    dialects: tuple[str, ...] = (CHAT,)
    alone: bool = False
    varied: bool = False

    def part(self, share: float) -> "Load":
        """The same load with shorter streams."""
        return replace(self, deltas=max(3, round(self.deltas * share)))


class Message(NamedTuple):
    """One message of the segments topic."""

    partition: int
    value: bytes


class Log(NamedTuple):
    """The messages of one load. `ids`: of its streams, each of which must have one record."""

    messages: list[Message]
    ids: frozenset[str]
    events: int


def made(load: Load, seed: int, partitions: int = PARTITIONS) -> Log:
    """The log of one load. Another seed or another name gives other streams of other taps: one tap for each partition."""
    chance = random.Random(f"{load.name} {seed}")
    wires = [_wire(load, dialect) for dialect in load.dialects]
    chosen = [wires[number % len(wires)] for number in range(load.streams)]
    kinds = [(stream_wire, segments_of(stream_wire, load, chance)) for stream_wire in chosen]
    ids: list[bytes] = []
    logs = [list(_tap(load, kinds, place, chance, ids, partitions)) for place in range(partitions)]
    messages = [message for tick in zip(*logs, strict=True) for run in tick for message in run]
    events = sum(len(wires[place % len(wires)].events) for place in range(load.streams)) * partitions
    return Log(messages, frozenset(map(_text, ids)), events)


def _wire(load: Load, dialect: str) -> Wire:
    one = wire(dialect, load.deltas)
    if not load.varied:
        return one
    return replace(
        one, events=[event.replace(b'{"', b'{"took":%d,"' % place, 1) for place, event in enumerate(one.events, 1_000)]
    )


def segments_of(one: Wire, load: Load, chance: random.Random) -> list[Segment]:
    """A stream's segments, with an empty id. Its reads come at a pace with some jitter."""
    reads = [
        Read(_READ_NS * place + chance.randrange(_READ_NS), len(content) + 20, len(content), content)
        for place, content in enumerate(contents(one, 1, masked=not load.varied), 1)
    ]
    size = 1 if load.alone else READS_A_SEGMENT
    cut = [reads[at : at + size] for at in range(0, len(reads), size)]
    last = len(cut) - 1
    return [_segment(one, load, place, run, is_last=place == last) for place, run in enumerate(cut)]


def _segment(one: Wire, load: Load, place: int, reads: list[Read], *, is_last: bool) -> Segment:
    stream, end = bytes(16), None
    if is_last:
        end = StreamEnding(Ending.COMPLETE, (reads[-1].stamp_ns or 0) + 1, client_bytes=1_000)
    if place:
        return Segment(stream, place, reads=reads, end=end)
    opening = Opening("proxy", "1", "full" if load.varied else "masked", "sim", one.path or None, 1_714_521_600 * 10**9)
    head = Head(200, 1, event_stream=True, provider_request_id="req_0123456789")
    return Segment(stream, 0, opening, RequestFacts(500, "gpt-4.1-mini", stream=True), head, reads, end=end)


def _tap(
    load: Load,
    kinds: Sequence[tuple[Wire, list[Segment]]],
    place: int,
    chance: random.Random,
    ids: list[bytes],
    partitions: int,
) -> Iterator[list[Message]]:
    """One tap's messages, as a list for each flush of its recorder. Each flush has a part of the streams."""
    instance = chance.randbytes(15) + bytes((place,))  # `place` is its first slot
    streams = [(chance.randbytes(16), *kind) for kind in kinds]
    first = len(ids)
    ids += [stream for stream, *_ in streams]
    bundler = Bundler(instance, 0)
    now, number = 0, 0
    flushes = 1 if load.alone else FLUSHES_PER_SEGMENT  # for one segment of each stream
    for flush in range(flushes * max(len(kind) for _, kind in kinds)):
        now, turn = flush * BUNDLE_NS, flush // flushes
        segments = [
            _of_stream(one, kind[turn], stream, index)
            for index, (stream, one, kind) in enumerate(streams, first)
            if turn < len(kind) and index % flushes == flush % flushes
        ]
        if load.alone:
            bundles = [Bundle(instance, place, number + at, now, [segment]) for at, segment in enumerate(segments)]
            number += len(bundles)
        else:
            bundler.add(segments, now, since_ns=now - BUNDLE_NS)
            bundles = bundler.take(now)
        yield _messages(bundles, partitions)
    yield [] if load.alone else _messages(bundler.farewell(now), partitions)


def _of_stream(one: Wire, segment: Segment, stream: bytes, number: int) -> Segment:
    """The segment with the ids of this stream. `number`: the stream's index among all streams."""
    reads = [msgspec.structs.replace(read, content=one.of_stream(read.content, number)) for read in segment.reads]
    return msgspec.structs.replace(segment, stream=stream, reads=reads)


def _messages(bundles: Sequence[Bundle], partitions: int = PARTITIONS) -> list[Message]:
    return [Message(bundle.slot % partitions, encode_bundle(bundle)) for bundle in bundles]


def _text(stream: bytes) -> str:
    """A stream's id as in its record."""
    digits = stream.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class OpenStreams:
    """Streams without an end. `next` returns the log of their next segments, `end` that of their last ones."""

    def __init__(self, streams: int, seed: int, reads: int = 4) -> None:
        chance = random.Random(seed)
        self._load = Load("open", streams, 40 * reads)
        self._one = wire(CHAT, self._load.deltas)
        self._contents = contents(self._one, 1, masked=True)
        self._streams = [chance.randbytes(16) for _ in range(streams)]
        self._bundlers = [Bundler(chance.randbytes(15) + bytes((place,)), 0) for place in range(TAPS)]
        self._reads = reads
        self._next = 0

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(map(_text, self._streams))

    def next(self) -> Log:
        """The next segment of each stream. Segments differ in their ids only."""
        first = self._next * self._reads
        return self._log(self._contents[first : first + self._reads], is_last=False)

    def end(self) -> Log:
        """The last segment of each stream."""
        return self._log(self._contents[-3:], is_last=True)

    def _log(self, events: Sequence[bytes], *, is_last: bool) -> Log:
        start = self._next * BUNDLE_NS
        reads = [Read(start + at * _READ_NS, len(event) + 20, len(event), event) for at, event in enumerate(events, 1)]
        segment = _segment(self._one, self._load, self._next, reads, is_last=is_last)
        self._next += 1
        messages = []
        for place, bundler in enumerate(self._bundlers):
            streams = self._streams[place::TAPS]
            bundler.add((msgspec.structs.replace(segment, stream=stream) for stream in streams), start)
            messages += _messages(bundler.take(start + BUNDLE_NS))
        return Log(messages, self.ids, len(self._streams) * len(reads))
