"""Streams in pairs, one directly from a provider and one through a tap at the same time, and how they compare.

The provider sends the same bytes to both at the same rate. So the tap's effect on a stream is compared with the
machine's.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from streamgauge_demo.provider import LAST_CHUNK, Exchange, Provider, chunk, stream
from tests.client import Received, request, talk

# A stream: this many events, this far apart (seconds), each with this much text (bytes).
EVENTS = 30
PACE_S = 0.02
TEXT_BYTES = 80
# How many pairs run at a time.
PAIRS = 4
PATH = "/v1/chat/completions"
# The API key of every request: it must not be stored anywhere.
SECRET = "sk-fault-4d1c7a90b2e85f63"
# What a tap may add to the median stream's first byte and longest gap (seconds). The faults here last seconds, so a
# stream that waited for one would exceed this; other programs may use the machine.
BOUND_S = 0.5
# How long something may take to happen under traffic (seconds).
PATIENCE_S = 90.0


def events(number: int, size: int, count: int = EVENTS) -> list[bytes]:
    """The events of one stream, ready to be sent: `count`, each with `size` bytes of text that does not compress well."""
    chance = random.Random(number)

    def chunk(**choice: Any) -> bytes:
        request = {
            "id": f"c-{number}",
            "object": "chat.completion.chunk",
            "model": "m-1",
            "choices": [{"index": 0, **choice}],
        }
        return b"data: " + msgspec.json.encode(request) + b"\n\n"

    texts = [
        chunk(delta={"content": f"text {number} {place} {chance.randbytes(size // 2).hex()}"}) for place in range(count)
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": count + 3}
    last = chunk(delta={}, finish_reason="stop") + b"data: " + msgspec.json.encode({"choices": [], "usage": usage})
    return [*texts, last + b"\n\n", b"data: [DONE]\n\n"]


def chunks_of(number: int, size: int = TEXT_BYTES) -> bytes:
    """The body of one stream's response, with its framing."""
    return b"".join(map(chunk, events(number, size))) + LAST_CHUNK


def provider(size: int = TEXT_BYTES, count: int = EVENTS) -> Provider:
    """A provider of these streams. `size`: of each event's text (bytes); `count`: a stream's events."""

    async def script(exchange: Exchange) -> None:
        number = msgspec.json.decode(await exchange.read_body())["user_number"]
        await stream(*events(number, size, count), headers={"connection": "close"}, pause_s=PACE_S)(exchange)
        await exchange.end("close")

    return Provider(script)


async def ask(url: str, number: int) -> Received:
    """One request and its whole response. Raises OSError if the connection is refused or breaks."""
    body = msgspec.json.encode({"model": "m-1", "stream": True, "user_number": number, "messages": []})
    asked = request(f"{urlsplit(url).path}{PATH}", body, headers=f"authorization: Bearer {SECRET}\r\n")
    received = await talk(url, [asked], to_close=True)
    if received.end != "fin":
        raise ConnectionResetError(f"the response ended by {received.end}")
    return received


@dataclass
class Traffic:
    """All pairs so far, as (straight, through the tap)."""

    direct: str
    tapped: str
    pairs: list[tuple[Received, Received]] = field(default_factory=list)

    async def run_until(self, enough: Callable[[], bool], *, most_s: float = PATIENCE_S) -> None:
        """Pairs of streams, PAIRS at a time, until `enough()`; at least one round."""
        deadline = time.monotonic() + most_s
        while True:
            round_ = [self._pair(len(self.pairs) + place) for place in range(PAIRS)]
            self.pairs += await asyncio.gather(*round_)
            if await asyncio.to_thread(enough):
                return
            assert time.monotonic() < deadline, "this did not happen in time"

    async def run_for(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        await self.run_until(lambda: time.monotonic() >= ends, most_s=seconds + PATIENCE_S)

    async def _pair(self, number: int) -> tuple[Received, Received]:
        direct, tapped = await asyncio.gather(ask(self.direct, number), ask(self.tapped, number))
        return direct, tapped

    def judge_bytes(self) -> None:
        """Every byte is the provider's."""
        for direct, tapped in self.pairs:
            assert tapped.body == direct.body
            assert tapped.raw.endswith(LAST_CHUNK)

    def judge(self) -> None:
        """Every byte is the provider's; first bytes and gaps are the provider's within BOUND_S."""
        self.judge_bytes()
        for measure in ("first_s", "gap_s"):
            straight = statistics.median(getattr(direct, measure) for direct, _ in self.pairs)
            through = statistics.median(getattr(tapped, measure) for _, tapped in self.pairs)
            assert through - straight < BOUND_S, (
                f"{measure}: {through:.3f} s through the tap, {straight:.3f} s straight"
            )
