"""Synthetic streams as taps would send them, and the records that a local assembler makes of a log."""

import contextlib
import random
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle, Ending, Head, Opening, Read, RequestFacts, Segment, StreamEnding
from streamgauge.core.limits import Limits
from streamgauge.core.record import encode_record
from tests.kafka_broker.fixtures import PARTITIONS

_HEAD = Head(200, 5_000_000, True, provider_request_id="req-1")
_OPENING = Opening("proxy", "1", "masked", "openai", "/chat/completions", 1_700_000_000_000_000_000)


class SyntheticTap:
    """One tap instance: interleaved streams in bundles, slot by slot. The same seed gives the same bytes."""

    def __init__(self, seed: int, slots: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        self._random = random.Random(seed)
        self.instance = uuid.UUID(int=self._random.getrandbits(128), version=4).bytes
        self._slots = slots
        self._numbers = dict.fromkeys(slots, 0)
        self._open: list[tuple[bytes, int, int]] = []  # id, next segment, segments in all
        self.ids: list[str] = []

    def bundles(self, streams: int, segments: int = 6, a_bundle: int = 20) -> Iterator[tuple[int, bytes]]:
        """(partition, message) until all these streams have ended."""
        for _ in range(streams):
            stream = uuid.UUID(int=self._random.getrandbits(128), version=4)
            self.ids.append(str(stream))
            self._open.append((stream.bytes, 0, segments))
        while self._open:
            chosen = self._random.sample(self._open, min(a_bundle * len(self._slots), len(self._open)))
            yield from self._bundled(chosen)

    def begin(self, streams: int) -> Iterator[tuple[int, bytes]]:
        """Starts streams without sending more of them."""
        chosen = []
        for _ in range(streams):
            stream = uuid.UUID(int=self._random.getrandbits(128), version=4)
            self.ids.append(str(stream))
            self._open.append((stream.bytes, 0, 1_000))
            chosen.append(self._open[-1])
        yield from self._bundled(chosen)

    def _bundled(self, chosen: list[tuple[bytes, int, int]]) -> Iterator[tuple[int, bytes]]:
        by_slot: dict[int, list[Segment]] = {}
        for stream, number, count in chosen:
            self._open.remove((stream, number, count))
            if number + 1 < count:
                self._open.append((stream, number + 1, count))
            slot = self._slots[stream[0] % len(self._slots)]
            by_slot.setdefault(slot, []).append(_segment(stream, number, count))
        for slot, run in by_slot.items():
            bundle = Bundle(self.instance, slot, self._numbers[slot], 1_000_000 * self._numbers[slot], run)
            self._numbers[slot] += 1
            yield slot % PARTITIONS, encode_bundle(bundle)


def _segment(stream: bytes, number: int, count: int) -> Segment:
    last = number + 1 == count
    first = 10_000_000 * (1 + 4 * number)
    reads = [
        Read(first + 10_000_000 * place, 120, 110, b'data: {"choices":[{"index":0,"delta":{"content":"xxxx"}}]}\n\n')
        for place in range(3)
    ]
    if last:
        done = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        reads.append(Read(first + 30_000_000, 90, 80, done))
    return Segment(
        stream,
        number,
        _OPENING if number == 0 else None,
        RequestFacts(stream=True) if number == 0 else None,
        _HEAD if number == 0 else None,
        reads,
        None,
        StreamEnding(Ending.COMPLETE, first + 31_000_000, client_bytes=500) if last else None,
    )


def assembled(log: Iterable[Any], limits: Limits | None = None) -> dict[str, bytes]:
    """The records that the log of a whole topic gives, by stream id: every worker must produce these."""
    assemblers: dict[int, Assembler] = {}
    records: dict[str, bytes] = {}
    for message in log:
        assembler = assemblers.setdefault(message.partition, Assembler(limits))
        try:
            bundle = decode_bundle(message.value)
        except UnreadableBundle:
            continue
        for record in assembler.apply(message.offset, message.timestamp, bundle):
            assert record.stream_id not in records
            records[record.stream_id] = encode_record(record)
    return records


def opened_in(log: Iterable[Any]) -> set[str | None]:
    """The trace ids of the streams whose beginning a log holds."""
    found: set[str | None] = set()
    for message in log:
        with contextlib.suppress(UnreadableBundle):
            segments = decode_bundle(message.value).segments
            found |= {segment.opening.trace_id for segment in segments if segment.opening is not None}
    return found


def distinct(records: Iterable[Any]) -> dict[str, set[bytes]]:
    """The different records of each stream in the records topic."""
    found: dict[str, set[bytes]] = {}
    for message in records:
        found.setdefault(message.key.decode(), set()).add(message.value)
    return found
