"""The soak's provider and its clients: paced streams through a tap, each compared with what the provider sends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec
from tests.client import Received, request, talk

from bench.soak_load import TOKEN, Stream, chunks, token
from streamgauge_demo.provider import Exchange, Provider, head

# Between the events of a stream (seconds): some thousand streams begin and end in ten minutes.
PACE_S = 0.02
# If the provider can send this many events (20 s) after the client has left, the tap has not closed the connection.
_ENDLESS = 1000
# A stream is lost if it takes longer (seconds).
_PATIENCE_S = 60.0
_PATH = "/v1/chat/completions"
_NUMBER = "x-soak"
_BODY = msgspec.json.encode({"model": "m-1", "stream": True, "messages": []})


@dataclass
class Load:
    """Provider and clients, in one event loop. `streams`: all that were begun, by number."""

    streams: list[Stream] = field(default_factory=list)

    def provider(self) -> Provider:
        return Provider(self._play, keeps=False)

    async def keep(self, url: str, concurrent: int, over: Callable[[], bool]) -> None:
        """Keeps `concurrent` streams open, one after the other, until `over()`. Then waits for the open ones to end."""

        async def one_after_the_other() -> None:
            while not over():
                self.streams.append(stream := Stream(len(self.streams)))
                await _request_stream(url, stream)

        await asyncio.gather(*(one_after_the_other() for _ in range(concurrent)))

    async def _play(self, exchange: Exchange) -> None:
        await exchange.read_body()
        stream = self.streams[int(exchange.request.headers[_NUMBER])]
        await exchange.send(head())
        for chunk in chunks(stream):
            stream.sent += TOKEN in chunk
            await exchange.send(chunk)
            await asyncio.sleep(PACE_S)
        if stream.outcome == "client_abort":
            await _send_until_closed(exchange, stream)
        elif stream.outcome == "upstream_reset":
            await exchange.end("reset" if stream.second_variant else "close")


async def _send_until_closed(exchange: Exchange, stream: Stream) -> None:
    """Sends events until the tap closes the connection, because its client has left: then `send` raises ConnectionError."""
    for place in range(stream.events, _ENDLESS):
        stream.sent += 1
        await exchange.send(token(stream, place))
        await asyncio.sleep(PACE_S)
    stream.fault = f"{stream.name}: the tap did not close the provider's connection after its client left"


async def _request_stream(url: str, stream: Stream) -> None:
    """Runs one request. Anything wrong with its response is in the stream's `fault`."""
    asked = request(f"{urlsplit(url).path}{_PATH}", _BODY, headers=f"{_NUMBER}: {stream.number}\r\n")

    def leaves(received: Received) -> bool:
        return stream.outcome == "client_abort" and received.raw.count(TOKEN) >= stream.events

    how = "rst" if stream.second_variant else "fin"  # half of the clients that leave early do so by a reset
    try:
        received = await talk(url, [asked], leaves=leaves, leaves_by=how, patience_s=_PATIENCE_S)
    except OSError as error:
        stream.fault = f"{stream.name}: its client raised {type(error).__name__}"
        return
    if received.end == "silence" or (received.end == "rst" and stream.outcome != "upstream_reset"):
        stream.fault = f"{stream.name}: its client's connection ended by {received.end}"
        return
    stream.received = received.body.count(TOKEN)
    sent = b"".join(chunks(stream))
    if stream.outcome == "client_abort":
        sent += b"".join(token(stream, place) for place in range(stream.events, max(stream.received + 1, stream.sent)))
    if not (sent.startswith(received.body) if stream.cut else received.body == sent):
        stream.fault = f"{stream.name}: its client received other bytes than the provider sent"
