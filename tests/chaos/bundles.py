"""A synthetic tap: bundles for every partition of the segments topic, in the order in which a faulty network delivers
them.

A real tap of a test's size uses one slot, so one partition. This load uses all partitions, resends bundles, reorders
some, and crashes its instance repeatedly with open streams, which its successor then reports as ended.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import Bundle, Ending, Head, Opening, Read, RequestFacts, Segment, StreamEnding
from tests.chaos.load import ClientStream, Truth

SOURCE = "log"
# The interval of bundles of each slot (seconds), like that of taps.
TICK_S = 0.25
# Streams open at a time in each slot, and how many segments they have: they last from one to ten seconds.
STREAMS = 10
SEGMENTS = range(4, 40)
# Of ten bundles one is sent twice, and one after its successor.
_RESEND = _SWAP = 0.1
# The interval of crashes of the instance (ticks).
_LIFE = 60
# For a broker that stops and starts (milliseconds): the producer keeps its messages.
_REQUEST_TIMEOUT_MS = 120_000

_HEAD = Head(200, 5_000_000, True)
_WORD = b'data: {"choices":[{"index":0,"delta":{"content":"xxxx"}}]}\n\n'
_STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_WORDS = 3  # token events a segment
_READ_NS = 50_000_000


@dataclass
class _Open:
    """A stream that is open."""

    stream: bytes
    client_stream: ClientStream
    segments: int
    sent: int = 0

    def next(self) -> Segment:
        first, is_last = self.sent == 0, self.sent + 1 == self.segments
        begin = self.sent * (_WORDS + 1) * _READ_NS + 10_000_000
        reads = [Read(begin + place * _READ_NS, 120, 110, _WORD) for place in range(_WORDS)]
        if is_last:
            reads.append(Read(begin + _WORDS * _READ_NS, 90, 80, _STOP))
        started, trace = int(self.client_stream.began_at * 1e9), self.client_stream.trace_id
        self.sent += 1
        return Segment(
            self.stream,
            self.sent - 1,
            Opening("proxy", "1", "masked", SOURCE, "/chat/completions", started, trace) if first else None,
            RequestFacts(stream=True) if first else None,
            _HEAD if first else None,
            reads,
            None,
            StreamEnding(Ending.COMPLETE, begin + (_WORDS + 1) * _READ_NS, client_bytes=500) if is_last else None,
        )


class _Slot:
    """One slot of an instance: its streams, and the bundle that is sent late."""

    def __init__(self) -> None:
        self.number = 0
        self.open: list[_Open] = []
        self.late: tuple[bytes, list[ClientStream]] | None = None


class LogLoad:
    """`partitions`: of the topic, one slot each. It runs until `over` is set; then its streams end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, truth: Truth, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._truth = truth
        self._chance = random.Random(seed)
        self._sent: set[asyncio.Future[Any]] = set()
        self.bundles = self.resent = self.swapped = self.deaths = 0
        self._be_born([])

    def _be_born(self, dead: list[bytes]) -> None:
        self._instance, self._dead = uuid.uuid4().bytes, dead
        self._slots = [_Slot() for _ in range(self._partitions)]

    async def run(self, over: asyncio.Event) -> None:
        """Returns when everything is in the log. Raises KafkaError if a message could not be delivered."""
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        await self._producer.start()
        try:
            ticks = 0
            while not over.is_set() or any(slot.open for slot in self._slots):
                ticks += 1
                if ticks % _LIFE == 0 and not over.is_set():
                    await self._die()
                await self._tick(refill=not over.is_set())
                await asyncio.sleep(TICK_S)
            await self._flush(farewell=True)
            await asyncio.gather(*self._sent)
        finally:
            await self._producer.stop()

    async def _tick(self, *, refill: bool) -> None:
        for place, slot in enumerate(self._slots):
            while refill and len(slot.open) < STREAMS:
                slot.open.append(self._begin())
            segments = [one.next() for one in slot.open]
            ended = [one.client_stream for one in slot.open if one.sent == one.segments]
            slot.open = [one for one in slot.open if one.sent < one.segments]
            await self._deliver(place, slot, self._bundle(place, slot, segments), ended)

    def _begin(self) -> _Open:
        segments = self._chance.choice(SEGMENTS)
        values = {"outcome": "completed", "finish_reason": "stop", "token_events": segments * _WORDS}
        return _Open(uuid.uuid4().bytes, self._truth.begin(SOURCE, values), segments)

    def _bundle(self, place: int, slot: _Slot, segments: list[Segment], *, farewell: bool = False) -> bytes:
        dead = self._dead if slot.number == 0 else []
        made = Bundle(self._instance, place, slot.number, time.monotonic_ns(), segments, farewell, dead)
        slot.number += 1
        self.bundles += 1
        return encode_bundle(made)

    async def _deliver(self, place: int, slot: _Slot, value: bytes, ended: list[ClientStream]) -> None:
        """Sends a bundle, in order or late, once or twice. An instance's first bundle is never late, since it introduces
        the instance.
        """
        late, slot.late = slot.late, None
        if late is None and slot.number > 1 and self._chance.random() < _SWAP:
            slot.late = (value, ended)
            self.swapped += 1
            return
        await self._send(place, value, ended)
        if late is not None:
            await self._send(place, *late)
        if self._chance.random() < _RESEND:
            await self._send(place, value, [])
            self.resent += 1

    async def _send(self, place: int, value: bytes, ended: list[ClientStream]) -> None:
        while True:
            try:
                future = await self._producer.send(self._topic, value, partition=place)
                break
            except KafkaTimeoutError:  # no room while the broker is unreachable
                continue
        future.add_done_callback(_stamped(ended))
        self._sent = {one for one in self._sent if not one.done() or one.exception()} | {future}

    async def _flush(self, *, farewell: bool) -> None:
        """Sends the late bundles; then, in order, the last bundle of each slot."""
        for place, slot in enumerate(self._slots):
            late, slot.late = slot.late, None
            if late is not None:
                await self._send(place, *late)
            if farewell:
                await self._send(place, self._bundle(place, slot, [], farewell=True), [])

    async def _die(self) -> None:
        """The instance crashes; its successor reports it in its first bundle of each slot."""
        await self._flush(farewell=False)
        for slot in self._slots:
            for one in slot.open:
                words = one.sent * _WORDS
                one.client_stream.truth |= {"outcome": "abandoned", "finish_reason": None, "token_events": words}
        self.deaths += 1
        self._be_born([self._instance])


def _stamped(ended: list[ClientStream]) -> Callable[[Any], None]:
    def stamp(_: Any) -> None:
        for client_stream in ended:
            client_stream.ended_at = time.time()

    return stamp
