"""Clients and upstreams that use as much as they can, next to an ordinary one, through a real `streamgauge up`."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from streamgauge_demo.provider import Exchange, Provider, head
from tests.client import request, talk
from tests.faults.scripted import CHAT, connect
from tests.running import Running, wait_for

ORDINARY = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

# Half of what the relay holds for a recorder that is behind (bytes).
_STEP_BYTES = 8 * 1024 * 1024


class Upstream(Provider):
    """Answers `/N/v1/chat/completions` with flood number N, any other path with an ordinary response."""

    def __init__(self, floods: Sequence[bytes] = ()) -> None:
        super().__init__(self._play)
        self._floods = floods

    async def _play(self, exchange: Exchange) -> None:
        await exchange.read_body(keep=False)
        first = exchange.request.path.split("/")[1]
        body = self._floods[int(first)] if first.isdigit() else ORDINARY
        await exchange.send(head(framing=len(body), headers={"connection": "close"}) + body)
        await exchange.end("close")

    def has_received(self, size: int) -> bool:
        return self.received >= size

    @property
    def received(self) -> int:
        """The bytes of all requests' bodies so far."""
        return sum(exchange.received for exchange in self.exchanges)


def ask(up: Running, path: str = "", body: bytes = b'{"model":"m-1","n":1}') -> int:
    """A chat through the tap, to its end; gives the bytes of the response."""
    asked = request(f"{path}{CHAT}", body, headers="Connection: close\r\n")
    return asyncio.run(talk(up.url, [asked], to_close=True)).size


@contextlib.contextmanager
def stalled_uploads(up: Running, upstream: Upstream, count: int) -> Iterator[int]:
    """Requests of which 16 MiB have been sent, and more are announced. The relay has read all of these bytes, and its
    recorder reads them before those of a later request. Yields how many ordinary requests were made.
    """
    opening = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {2 * _STEP_BYTES + 1_000_000}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for step in range(2 * count):
            if step:
                # The record of a later request shows that the recorder has read the step before: little waits for it.
                ask(up)
                up.wait_for_records(step)
            if step % 2 == 0:
                client = stack.enter_context(connect(up))
                client.sendall(opening)
            expected = upstream.received + _STEP_BYTES
            client.sendall(b"a" * _STEP_BYTES)
            wait_for(partial(upstream.has_received, expected), f"{expected} bytes at the upstream")
        yield step
