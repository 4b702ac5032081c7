"""The soak's provider and its clients: streams at a pace through a tap, each held against what the provider sends."""

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from bench.soak_load import LAST_CHUNK, TOKEN, Stream, chunks, token

# Between the events of a stream (seconds): some thousand streams come and go in ten minutes.
PACE_S = 0.02
# Of a stream that nobody leaves in so many events (20 s), the tap has not told the provider that its client is gone.
_ENDLESS = 1000
# A stream whose client hears nothing for so long is lost (seconds).
_SILENCE_S = 30.0
_READ_BYTES = 65_536
_PATH = "/v1/chat/completions"
_NUMBER = b"x-soak"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Load:
    """Provider and clients, in one event loop; `streams` are all that were begun, by number."""

    streams: list[Stream] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def provider(self) -> AsyncIterator[str]:
        """The provider's URL, while it listens."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            yield f"http://{host}:{port}"

    async def keep(self, url: str, side_by_side: int, over: Callable[[], bool]) -> None:
        """So many streams at a time, one after the other, until `over()`; those that have begun come to their end."""

        async def one_after_the_other() -> None:
            while not over():
                self.streams.append(one := Stream(len(self.streams)))
                await _ask(url, one)

        await asyncio.gather(*(one_after_the_other() for _ in range(side_by_side)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                await self._serve_one(reader, writer)
        writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(_field(head, b"content-length"))
        one = self.streams[_field(head, _NUMBER)]
        await _paced(writer, one)
        if one.outcome == "client_abort":
            await _until_left(writer, one)
        elif one.outcome == "upstream_reset":
            _break(writer, reset=one.other_way)


def _field(head: bytes, name: bytes) -> int:
    found = re.search(rb"\r\n%b: *(\d+)" % name, head)
    if found is None:
        raise ConnectionError(f"no {name.decode()}")
    return int(found[1])


# --- the provider ---------------------------------------------------------------------------------------------------


async def _paced(writer: asyncio.StreamWriter, one: Stream) -> None:
    writer.write(_HEAD)
    for chunk in chunks(one):
        writer.write(chunk)
        one.sent += TOKEN in chunk
        await writer.drain()
        await asyncio.sleep(PACE_S)


async def _until_left(writer: asyncio.StreamWriter, one: Stream) -> None:
    """Goes on until the tap closes the connection, since its client has left."""
    for place in range(one.events, _ENDLESS):
        writer.write(token(one, place))
        one.sent += 1
        await writer.drain()  # raises ConnectionError when it is closed
        await asyncio.sleep(PACE_S)
    one.fault = f"{one.name}: nobody told the provider that its client has left"


def _break(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Ends amid an answer: by a reset, or as if all had been said."""
    if reset:
        taken: socket.socket = writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


# --- a client -------------------------------------------------------------------------------------------------------


async def _ask(url: str, one: Stream) -> None:
    """One request and its answer; whatever is wrong with it stands in the stream's `fault`."""
    try:
        data = await _answer(url, one)
    except (OSError, TimeoutError) as error:
        one.fault = f"{one.name}: its client got {type(error).__name__}"
        return
    body = data.partition(b"\r\n\r\n")[2]
    one.got = body.count(TOKEN)
    sent = b"".join(chunks(one))
    if one.outcome == "client_abort":
        sent += b"".join(token(one, place) for place in range(one.events, max(one.got + 1, one.sent)))
    if not (sent.startswith(body) if one.cut else body == sent):
        one.fault = f"{one.name}: its client got other bytes than the provider sent"


async def _answer(url: str, one: Stream) -> bytes:
    """What a client reads: all, or so much that it leaves. Raises OSError, TimeoutError."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    data = b""
    try:
        writer.write(_request(address.path, one))
        while not _enough(data, one):
            async with asyncio.timeout(_SILENCE_S):
                more = await _read(reader, one)
            data += more
            if not more:
                break
    finally:
        await _leave(writer, one)
    return data


def _enough(data: bytes, one: Stream) -> bool:
    if one.outcome == "client_abort":
        return data.count(TOKEN) >= one.events
    return data.endswith(LAST_CHUNK)


async def _read(reader: asyncio.StreamReader, one: Stream) -> bytes:
    try:
        return await reader.read(_READ_BYTES)
    except ConnectionResetError:
        if one.outcome != "upstream_reset":
            raise
        return b""


async def _leave(writer: asyncio.StreamWriter, one: Stream) -> None:
    """Half of those who leave amid an answer do so by a reset."""
    if one.outcome == "client_abort" and one.other_way:
        writer.transport.abort()
    else:
        writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _request(path: str, one: Stream) -> bytes:
    body = msgspec.json.encode({"model": "m-1", "stream": True, "messages": []})
    head = f"POST {path}{_PATH} HTTP/1.1\r\nhost: soak\r\n{_NUMBER.decode()}: {one.number}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
