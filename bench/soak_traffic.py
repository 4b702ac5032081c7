"""The soak's provider and its clients: paced streams through a tap, each compared with what the provider sends."""

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

# Between the events of a stream (seconds): some thousand streams begin and end in ten minutes.
PACE_S = 0.02
# If the provider can send this many events (20 s) after the client has left, the tap has not closed the connection.
_ENDLESS = 1000
# A stream is lost if its client receives nothing for this long (seconds).
_SILENCE_S = 30.0
_READ_BYTES = 65_536
_PATH = "/v1/chat/completions"
_NUMBER = b"x-soak"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Load:
    """Provider and clients, in one event loop. `streams`: all that were begun, by number."""

    streams: list[Stream] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def provider(self) -> AsyncIterator[str]:
        """Runs the provider and yields its URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            yield f"http://{host}:{port}"

    async def keep(self, url: str, concurrent: int, over: Callable[[], bool]) -> None:
        """Keeps `concurrent` streams open, one after the other, until `over()`. Then waits for the open ones to end."""

        async def one_after_the_other() -> None:
            while not over():
                self.streams.append(stream := Stream(len(self.streams)))
                await _request_stream(url, stream)

        await asyncio.gather(*(one_after_the_other() for _ in range(concurrent)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                await self._serve_one(reader, writer)
        writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(_field(head, b"content-length"))
        stream = self.streams[_field(head, _NUMBER)]
        await _send_paced(writer, stream)
        if stream.outcome == "client_abort":
            await _send_until_closed(writer, stream)
        elif stream.outcome == "upstream_reset":
            _break(writer, reset=stream.second_variant)


def _field(head: bytes, name: bytes) -> int:
    found = re.search(rb"\r\n%b: *(\d+)" % name, head)
    if found is None:
        raise ConnectionError(f"no {name.decode()}")
    return int(found[1])


# --- the provider ---------------------------------------------------------------------------------------------------


async def _send_paced(writer: asyncio.StreamWriter, stream: Stream) -> None:
    writer.write(_HEAD)
    for chunk in chunks(stream):
        writer.write(chunk)
        stream.sent += TOKEN in chunk
        await writer.drain()
        await asyncio.sleep(PACE_S)


async def _send_until_closed(writer: asyncio.StreamWriter, stream: Stream) -> None:
    """Sends events until the tap closes the connection, because its client has left."""
    for place in range(stream.events, _ENDLESS):
        writer.write(token(stream, place))
        stream.sent += 1
        await writer.drain()  # raises ConnectionError when it is closed
        await asyncio.sleep(PACE_S)
    stream.fault = f"{stream.name}: the tap did not close the provider's connection after its client left"


def _break(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """Ends the connection within the response, by a reset or in order."""
    if reset:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


# --- a client -------------------------------------------------------------------------------------------------------


async def _request_stream(url: str, stream: Stream) -> None:
    """Runs one request. Anything wrong with its response is in the stream's `fault`."""
    try:
        data = await _response(url, stream)
    except (OSError, TimeoutError) as error:
        stream.fault = f"{stream.name}: its client raised {type(error).__name__}"
        return
    body = data.partition(b"\r\n\r\n")[2]
    stream.received = body.count(TOKEN)
    sent = b"".join(chunks(stream))
    if stream.outcome == "client_abort":
        sent += b"".join(token(stream, place) for place in range(stream.events, max(stream.received + 1, stream.sent)))
    if not (sent.startswith(body) if stream.cut else body == sent):
        stream.fault = f"{stream.name}: its client received other bytes than the provider sent"


async def _response(url: str, stream: Stream) -> bytes:
    """What a client reads until the end, or until it leaves. Raises OSError, TimeoutError."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    data = b""
    try:
        writer.write(_request(address.path, stream))
        while not _enough(data, stream):
            async with asyncio.timeout(_SILENCE_S):
                more = await _read(reader, stream)
            data += more
            if not more:
                break
    finally:
        await _leave(writer, stream)
    return data


def _enough(data: bytes, stream: Stream) -> bool:
    if stream.outcome == "client_abort":
        return data.count(TOKEN) >= stream.events
    return data.endswith(LAST_CHUNK)


async def _read(reader: asyncio.StreamReader, stream: Stream) -> bytes:
    try:
        return await reader.read(_READ_BYTES)
    except ConnectionResetError:
        if stream.outcome != "upstream_reset":
            raise
        return b""


async def _leave(writer: asyncio.StreamWriter, stream: Stream) -> None:
    """Closes the client's connection; half of the clients that leave early do so by a reset."""
    if stream.outcome == "client_abort" and stream.second_variant:
        writer.transport.abort()
    else:
        writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _request(path: str, stream: Stream) -> bytes:
    body = msgspec.json.encode({"model": "m-1", "stream": True, "messages": []})
    head = f"POST {path}{_PATH} HTTP/1.1\r\nhost: soak\r\n{_NUMBER.decode()}: {stream.number}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
