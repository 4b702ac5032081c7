"""Whole streams and cut ones: bytes to the client, records, times and counts, compared with an independent reading."""

import asyncio
import statistics
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard

from streamgauge_demo import provider
from streamgauge_demo.provider import stream
from tests.blackbox.compare import time_pairs
from tests.blackbox.rig import Rig, judged
from tests.client import Line
from tests.events import STREAMS, chat, chat_many, chat_tools

# Every seventh byte: each kind of place is cut in some stream, in seconds instead of minutes.
STRIDE = 7
# By how much the median of a stamp may be off on a machine with other load (seconds).
MEDIAN_S = 0.05
# After an upstream's first response, for longer than the relay checks whether the connection stays open (seconds).
WATCHED_S = 0.4


async def cut(rig: Rig, dialect: str, at: int, ending: str) -> None:
    """The first `at` bytes of a stream, then its end: proper, close, length, early, short or rst."""
    body, name = b"".join(STREAMS[dialect](dialect))[:at], f"{dialect} {ending} {at}"
    framing = {"close": "close", "length": str(at), "short": str(at + 5)}.get(ending, "chunked")
    pieces = [provider.head(framing=framing), provider.chunk(body) if framing == "chunked" and body else body]
    if ending == "proper":
        pieces.append(provider.LAST_CHUNK)
    end: provider.End = "keep" if ending in ("proper", "length") else "reset" if ending == "rst" else "close"
    script = provider.answer(*pieces, end=end)
    ended = {"early": "early", "short": "early", "rst": "rst"}.get(ending, "proper")
    await rig.run(name, dialect, script, ended=ended)


@pytest.mark.parametrize("dialect", STREAMS)
def test_u2_a_stream_cut_anywhere_in_any_way(tmp_path: Path, dialect: str) -> None:
    size = len(b"".join(STREAMS[dialect](dialect)))
    endings = ["proper", "close", "length", "early", "short", "rst"]

    async def work(rig: Rig) -> None:
        await asyncio.gather(
            *(cut(rig, dialect, at, endings[at % 6]) for at in range(0, size, STRIDE)),
            *(cut(rig, dialect, size, ending) for ending in endings),
        )
        assert await rig.findings() == []

    judged(tmp_path, work)


async def leave(rig: Rig, dialect: str, after: int) -> float:
    """The client leaves after `after` bytes; the upstream waits. Returns the time until the upstream was cancelled."""
    pieces = [provider.head()]
    for piece in STREAMS[dialect](dialect):
        if sum(map(len, pieces)) < after:
            pieces.append(provider.chunk(piece))
    case = f"{dialect} left after {after}"
    one = await rig.run(case, dialect, provider.answer(*pieces, pause_s=0.002, end="stay"), ended="left",
                        talk={"leave_after": after, "leave_after_s": 0.05})  # fmt: skip
    assert one.played is not None
    assert await one.played.left_within(10), f"{case}: the upstream was not cancelled"
    assert one.played.left_at is not None and one.received.left_at is not None
    return one.played.left_at - one.received.left_at


def test_u1_a_client_that_leaves_anywhere_cancels_the_upstream(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        places = [
            (dialect, after)
            for dialect, make in STREAMS.items()
            for after in range(1, len(provider.head() + b"".join(map(provider.chunk, make(dialect)))), 29)
        ]
        late = await asyncio.gather(*(leave(rig, dialect, after) for dialect, after in places))
        assert statistics.median(late) < 1
        assert await rig.findings() == []

    judged(tmp_path, work)


def flushed(events: list[bytes], feed: Callable[[bytes], bytes], last: Callable[[], bytes]) -> list[bytes]:
    return [*(feed(event) for event in events), last()]


def coded(coding: str, events: list[bytes]) -> list[bytes]:
    """Each event is flushed, as by providers."""
    if coding == "br":
        br = brotli.Compressor()
        return flushed(events, lambda event: br.process(event) + br.flush(), br.finish)
    if coding == "zstd":
        zstd = zstandard.ZstdCompressor().compressobj()
        block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return flushed(events, lambda event: zstd.compress(event) + zstd.flush(block), zstd.flush)
    deflate = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    return flushed(events, lambda event: deflate.compress(event) + deflate.flush(zlib.Z_SYNC_FLUSH), deflate.flush)


async def shapes(rig: Rig, dialect: str) -> None:
    events = STREAMS[dialect](dialect)
    whole = b"".join(events)
    framed = provider.head() + b"".join(map(provider.chunk, events)) + provider.LAST_CHUNK
    extended = [provider.chunk(event, b';a="b"') for event in events]
    early = [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", provider.head()]
    scripts = {
        "paced": stream(*events, pause_s=0.01),
        "bytes": stream(*(bytes([byte]) for byte in whole), pause_s=0.001),
        "sevens": provider.answer(*(framed[at : at + 7] for at in range(0, len(framed), 7)), pause_s=0.001),
        "one piece": provider.answer(framed),
        "extensions": provider.answer(provider.head(), *extended, b"0\r\nX-Trailer: v\r\n\r\n", pause_s=0.002),
        "length": provider.answer(provider.head(framing=len(whole)), *events, pause_s=0.002),
        "1xx": provider.answer(*early, *map(provider.chunk, events), provider.LAST_CHUNK, pause_s=0.005),
        "crlf": stream(*(event.replace(b"\n", b"\r\n") for event in events), pause_s=0.005),
        "cr": stream(*(event.replace(b"\n", b"\r") for event in events), pause_s=0.005),
        "bom": stream(b"\xef", b"\xbb", b"\xbf" + events[0], *events[1:], pause_s=0.005),
        "comments": stream(b": hi\n\n", events[0], b":\n\n", b": ping\n", *events[1:], pause_s=0.005),
        "no blank line": stream(*events[:-1], events[-1][:-1], pause_s=0.005),
        "no line end": stream(*events[:-1], events[-1][:-2], pause_s=0.005),
    }
    for coding in ("gzip", "deflate", "br", "zstd"):
        scripts[coding] = stream(*coded(coding, events), headers={"Content-Encoding": coding}, pause_s=0.005)
    ended = {"reset at the end": "rst", "closed at the end": "early"}
    for name, how in ended.items():
        scripts[name] = stream(*events, end="reset" if how == "rst" else "close", pause_s=0.005)
    await asyncio.gather(
        *(rig.run(f"{dialect} {n}", dialect, script, ended=ended.get(n, "proper")) for n, script in scripts.items()),
        rig.run(f"{dialect} slow client", dialect, stream(*events), talk={"slow_s": 0.01, "chunk": 50}),
    )


def test_p2_every_framing_coding_and_line_end(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        await asyncio.gather(*(shapes(rig, dialect) for dialect in STREAMS))
        await rig.run("tools", "openai-chat", stream(*chat_tools("t"), pause_s=0.005))
        await rig.run("many", "openai-chat", stream(*chat_many("t"), pause_s=0.005))
        await rig.run("long", "openai-chat", stream(*chat("t", ["x" * 300_000, "😀", "\u2028"]), pause_s=0.005))
        assert await rig.findings() == []

    judged(tmp_path, work)


def test_stamps_are_the_providers(tmp_path: Path) -> None:
    """On kept connections, one stream at a time: only the tap is between the two clocks."""

    async def work(rig: Rig) -> None:
        async with Line(rig.running.url) as line:
            await rig.run("first", "openai-chat", stream(*STREAMS["openai-chat"]("t")), line=line)
            await asyncio.sleep(WATCHED_S)  # until the relay has seen that the upstream keeps connections open
            before = rig.provider.connections
            for number in range(40):
                dialect = list(STREAMS)[number % 4]
                await rig.run(f"{number}", dialect, stream(*STREAMS[dialect]("t"), pause_s=0.003), line=line)
        assert rig.provider.connections == before + 1
        assert await rig.findings() == []
        records = await rig.records()
        off: dict[str, list[float]] = {}
        for exchange in rig.exchanges.values():
            for name, (ours, theirs) in time_pairs(exchange, records[exchange.trace][0]).items():
                if ours is not None and theirs is not None:
                    off.setdefault(name, []).append(abs(ours - theirs))
        assert {name for name, values in off.items() if statistics.median(values) > MEDIAN_S} == set()
        assert len(off["first_token_s"]) == 41

    judged(tmp_path, work)
