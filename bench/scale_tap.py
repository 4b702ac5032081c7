"""CPU of a real tap's relay and collector for streams that come event by event.

`streamgauge tap` forwards to an upstream in this process; this process also has the clients, and its own CPU does not count.
No broker can be reached, so that the collector records and does nothing else: its rows stay in the spool.
"""

import asyncio
import itertools
from contextlib import closing
from pathlib import Path

from tests.client import request, talk
from tests.running import Running, off_loop, start_tap, wait_for

from bench.measure import cpu_seconds, tree
from bench.scale_streams import PACE, REQUEST, stream_of
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.spool import Spool
from streamgauge.spool.read_counters import read_balance
from streamgauge_demo.provider import LAST_CHUNK, Exchange, Provider, chunk, head

# How long the clients wait for a stream besides its own time (seconds).
_PATIENCE_S = 120.0
_ASKED = request("/v1/chat/completions", REQUEST)
_PARTS = {"relay": "streamgauge.taps.proxy", "collector": "cli.collector"}


def measure(directory: Path, streams: int, events: int, capture: str, pace: float = PACE) -> dict[str, float]:
    """CPU seconds of each part for 1,000 streams; `streams` run at the same time. Raises SystemExit if one has no record."""
    return asyncio.run(_measure(directory, streams, events, capture, pace))


async def _measure(directory: Path, streams: int, events: int, capture: str, pace: float) -> dict[str, float]:
    texts = [stream_of(events, number) for number in range(min(streams, 50))]

    numbers = itertools.count(1)

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(head())
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        for place, event in enumerate(texts[next(numbers) % len(texts)]):
            await asyncio.sleep(max(0.0, began + place / pace - loop.time()))
            await exchange.send(chunk(event))
        await exchange.send(LAST_CHUNK)

    async with (
        Provider(play, keeps=False) as upstream,
        off_loop(start_tap("tap", upstream.url, directory, "--kafka", "127.0.0.1:1", "--capture", capture)) as running,
    ):
        await asyncio.gather(*(_ask(running, delay=0.0) for _ in range(2)))  # connections and code are warm
        parts = _parts(running)
        before = {part: cpu_seconds(pid) for part, pid in parts.items()}
        spread = min(1.0, events / pace)
        await asyncio.wait_for(
            asyncio.gather(*(_ask(running, delay=spread * number / streams) for number in range(streams))),
            events / pace + _PATIENCE_S,
        )
        ends = streams + 2
        await asyncio.to_thread(wait_for, lambda: _ended(directory) == ends, f"{ends} streams with an end in the spool")
        spent = {part: cpu_seconds(pid) - before[part] for part, pid in parts.items()}
    if sum(read_balance(directory / "counters").dropped.values()):
        raise SystemExit("the tap dropped reads of its load")
    return {part: seconds / streams * 1_000 for part, seconds in spent.items()}


async def _ask(running: Running, delay: float) -> None:
    await asyncio.sleep(delay)
    received = await talk(running.url, [_ASKED], patience_s=_PATIENCE_S)
    if received.end != "done":
        raise SystemExit(f"a stream through the tap ended by {received.end}")


def _ended(directory: Path) -> int:
    """The streams whose end is in the spool."""
    with closing(Spool(directory / "spool.sqlite")) as spool:
        bundles = [decode_bundle(row.value) for row in spool.peek(0, 1 << 40)]
    return sum(segment.end is not None for bundle in bundles for segment in bundle.segments)


def _parts(running: Running) -> dict[str, int]:
    lines = tree(running.process.pid)
    found = {part: [pid for pid, line in lines.items() if module in line] for part, module in _PARTS.items()}
    if any(len(pids) != 1 for pids in found.values()):
        raise SystemExit(f"the processes of the tap are not those expected: {found}")
    return {part: pids[0] for part, pids in found.items()}
