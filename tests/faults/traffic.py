"""Streams in pairs, one directly from a provider and one through a tap at the same time, and how they compare.

The provider sends the same bytes to both at the same rate. So the tap's effect on a stream is compared with the
machine's.
"""

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

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
    return b"".join(map(_chunk, events(number, size))) + _LAST_CHUNK


_LAST_CHUNK = b"0\r\n\r\n"


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


async def _answer(size: int, count: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        number = msgspec.json.decode(await reader.readexactly(length))["user_number"]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        for event in events(number, size, count):
            writer.write(_chunk(event))
            await writer.drain()
            await asyncio.sleep(PACE_S)
        writer.write(_LAST_CHUNK)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def provider(size: int = TEXT_BYTES, count: int = EVENTS) -> AsyncIterator[str]:
    """A provider's URL. `size`: of each event's text (bytes); `count`: a stream's events."""
    server = await asyncio.start_server(partial(_answer, size, count), "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


@dataclass
class Received:
    """What a client received: the bytes, when the first arrived, and the longest wait between two reads (seconds).

    `began_s`, `ended_s`: when it sent its request and when it had everything, by the monotonic clock.
    """

    data: bytes = b""
    first_s: float = 0.0
    gap_s: float = 0.0
    began_s: float = 0.0
    ended_s: float = 0.0


async def ask(url: str, number: int) -> Received:
    """One request and its whole response."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    received = Received()
    body = msgspec.json.encode({"model": "m-1", "stream": True, "user_number": number, "messages": []})
    head = f"POST {address.path}{PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    last = began = received.began_s = time.monotonic()
    try:
        writer.write(head.encode() + body)
        while data := await reader.read(65_536):
            now = time.monotonic()
            if received.data:
                received.gap_s = max(received.gap_s, now - last)
            else:
                received.first_s = now - began
            received.data, last = received.data + data, now
    finally:
        writer.close()
    received.ended_s = time.monotonic()
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
            assert _body(tapped.data) == _body(direct.data)
            assert tapped.data.endswith(_LAST_CHUNK)

    def judge(self) -> None:
        """Every byte is the provider's; first bytes and gaps are the provider's within BOUND_S."""
        self.judge_bytes()
        for measure in ("first_s", "gap_s"):
            straight = statistics.median(getattr(direct, measure) for direct, _ in self.pairs)
            through = statistics.median(getattr(tapped, measure) for _, tapped in self.pairs)
            assert through - straight < BOUND_S, (
                f"{measure}: {through:.3f} s through the tap, {straight:.3f} s straight"
            )


def _body(answer: bytes) -> bytes:
    """The response's body without its framing."""
    return answer.partition(b"\r\n\r\n")[2]
