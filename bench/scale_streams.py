"""The typical streams of the benchmark of scale: chats whose texts differ, as requests, as messages of a tap, and as records.

A word is about one token. Words are drawn from a vocabulary in which few words are frequent, so that texts compress about
as much as those of a language; every stream has other words.
"""

import random
import re
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import msgspec

from bench.wires import wire
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Ending
from streamgauge.core.record import Record
from streamgauge.recorder.bundler import Bundler
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.recorder.stream_id import FREE_BITS, stream_id

CHAT = "openai-chat"
# Events a second of each stream, and how often the recorder makes bundles (four times a second).
PACE = 50
_FLUSHES_S = 4
_NS = 1_000_000_000
_WORDS = 5_000
_CONTENT = re.compile(rb'"content":"(?:[^"\\]|\\.)*"')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-request-id: req_%016x\r\n\r\n"
REQUEST = b'{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"hi"}]}'


def _vocabulary() -> list[bytes]:
    chance = random.Random(11)
    return [
        bytes(chance.choices(b"etaoinshrdlucmfwygpbvk", k=chance.choice((1, 2, 3, 4, 5, 6, 8)))) for _ in range(_WORDS)
    ]


_VOCABULARY = _vocabulary()


def stream_of(events: int, seed: int) -> list[bytes]:
    """The events of one chat with about this many events, each with its blank line. Another seed gives another text."""
    chance = random.Random(seed)
    first, *deltas, stop, usage, done = wire(CHAT, max(1, events - 4)).events
    own = b"chatcmpl-%05x" % (seed % 16**5)
    said = [
        _CONTENT.sub(b'"content":" %b"' % _VOCABULARY[int(_WORDS ** chance.random()) - 1], delta, count=1)
        for delta in deltas
    ]
    return [event.replace(b"chatcmpl-9xKq2", own) for event in (first, *said, stop, usage, done)]


def _messages(number: int, events: int) -> list[Message]:
    """What a tap tells its recorder of one stream; one event in a read."""
    began = number * _NS // 97  # streams begin at different times
    reads = [_HEAD % number, *(b"%x\r\n%b\r\n" % (len(event), event) for event in stream_of(events, number))]
    reads[-1] += b"0\r\n\r\n"
    started = RequestStarted(
        number, began, time.time_ns(), "up", "POST", "/v1/chat/completions", [("content-type", "application/json")]
    )
    stamped: list[Message] = [
        ResponseRead(number, began + 200_000_000 + place * _NS // PACE, data) for place, data in enumerate(reads)
    ]
    end = ExchangeEnding(number, began + 200_000_001 + len(reads) * _NS // PACE, Ending.COMPLETE)
    return [
        started,
        RequestBody(number, REQUEST),
        RequestSent(number, began + 2, began + 1, len(REQUEST), True),
        *stamped,
        end,
    ]


def bundles_of(streams: int, events: int, capture: str, share: float = 1.0) -> list[bytes]:
    """The Kafka messages of one busy tap with these concurrent streams, as its recorder makes them."""
    assert capture in ("masked", "full")
    settings = CaptureSettings("full" if capture == "full" else "masked", "0", bytes(32), full_share=share)
    chance = random.Random(events)
    recorder = Recorder(settings, lambda wall_ns: stream_id(wall_ns or 0, chance.getrandbits(FREE_BITS)))
    bundler = Bundler(bytes(15) + b"\1", 0)
    left = [iter(_messages(number, events)) for number in range(1, streams + 1)]
    messages: list[bytes] = []
    now = 0
    while left:
        now += _NS // _FLUSHES_S
        still = []
        for source in left:
            taken = list(islice(source, -(-PACE // _FLUSHES_S)))
            for message in taken:
                recorder.handle(message)
            if taken:
                still.append(source)
        left = still
        bundler.add(list(recorder.each_due()), now, now - _NS // _FLUSHES_S)
        messages += map(encode_bundle, bundler.take(now))
    bundler.add(recorder.segments(), now)
    return [*messages, *map(encode_bundle, bundler.farewell(now))]


def records_of(messages: Sequence[bytes]) -> list[Record]:
    """The records of a tap's messages, as a worker makes them: one assembler has all partitions."""
    assembler = Assembler()
    return [
        record
        for place, message in enumerate(messages)
        for record in assembler.apply(place, place, decode_bundle(message))
    ]


def many(records: Sequence[Record], count: int, began_ns: int, lasting_ns: int) -> Iterator[Record]:
    """As many records, each of a stream of its own, that began in order within a time. They repeat the given records."""
    chance = random.Random(count)
    for number, record in zip(range(count), cycle(records), strict=False):
        at = began_ns + lasting_ns * number // count
        raw = stream_id(at, chance.getrandbits(FREE_BITS)).hex()
        name = f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        yield msgspec.structs.replace(record, stream_id=name, started_at=_text(at))


def _text(at_ns: int) -> str:
    seconds, rest = divmod(at_ns // 1_000, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:06}Z"
