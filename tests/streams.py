"""Captured streams made by hand: segments and bundles for tests of the parts after a tap."""

import random
from uuid import UUID

from streamgauge.core.assembly.assembler import TICK_INSTANCE, Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Head, Opening, Read, RequestFacts, Segment, StreamEnding
from streamgauge.core.record import Record

MS = 1_000_000
INSTANCE = bytes(range(16))


def stream_id(number: int) -> bytes:
    """A UUIDv7-shaped id, spread over the buckets by its number."""
    return UUID(int=(0x0190_0000_0000_7000_8000 << 48) | number).bytes


def chat_event(**delta: object) -> bytes:
    import msgspec

    return b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) + b"\n\n"


FINISH = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}\n\ndata: [DONE]\n\n'
)


def chat_segments(number: int, tokens: int = 5, cut: int = 3) -> list[Segment]:
    """One whole chat stream: an opening, `tokens` events at 10 ms, a finish, an end; a segment for each `cut` reads."""
    contents = [chat_event(role="assistant", content="")]
    contents += [chat_event(content=f"token {index} ") for index in range(tokens)]
    contents.append(FINISH)
    reads = [Read(10 * MS * index, len(one), len(one), one) for index, one in enumerate(contents)]
    runs = [reads[start : start + cut] for start in range(0, len(reads), cut)]
    stream = stream_id(number)
    segments = [
        Segment(
            stream,
            place,
            opening=opening() if place == 0 else None,
            request=RequestFacts(body_bytes=10, model="m", stream=True) if place == 0 else None,
            head=Head(200, 0, True) if place == 0 else None,
            reads=run,
        )
        for place, run in enumerate(runs)
    ]
    end = StreamEnding(Ending.COMPLETE, stamp_ns=10 * MS * len(contents), client_bytes=sum(map(len, contents)))
    return [*segments, Segment(stream, len(runs), end=end)]


def opening() -> Opening:
    return Opening(
        "proxy", "0", "full", upstream="sim", path="/chat/completions", started_at_ns=1_700_000_000_000_000_000
    )


def bundles_of(segments: list[Segment], per_bundle: int = 7, instance: bytes = INSTANCE, slot: int = 0) -> list[Bundle]:
    """The segments as bundles of one instance and slot, numbered from 0, a tap's 100 ms apart."""
    runs = [segments[start : start + per_bundle] for start in range(0, len(segments), per_bundle)]
    return [Bundle(instance, slot, number, number * 100 * MS, run) for number, run in enumerate(runs)]


def interleaved(streams: int, seed: int = 0, tokens: int = 5) -> list[Segment]:
    """Segments of many streams, mixed, each stream's own in order."""
    queues = [chat_segments(number, tokens) for number in range(streams)]
    chance = random.Random(seed)
    mixed: list[Segment] = []
    while queues:
        queue = chance.choice(queues)
        mixed.append(queue.pop(0))
        queues = [one for one in queues if one]
    return mixed


def quiet_hours(assembler: Assembler, offset: int, since_ms: int, until_ms: int) -> list[Record]:
    """Reads only a worker's ticks, one per minute and one at `until_ms`; gives the records that this completed.

    They are at the offsets from `offset` on, one for each minute that has begun.
    """
    times = [*range(since_ms + 60_000, until_ms, 60_000), until_ms]
    tick = Bundle(TICK_INSTANCE, 0, 0, 0)
    return [one for at, log_ms in enumerate(times, offset) for one in assembler.apply(at, log_ms, tick)]
