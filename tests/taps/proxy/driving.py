"""Runs stories through a real relay on loopback sockets, and records what the upstream and the clients saw.

Clients, relay and upstream share one event loop: what one writes has arrived when another runs, so that the same stories
run in nearly the same way each time, and many of them per second.
"""

import asyncio
import re
import socket
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import httptools

from streamgauge.taps.proxy.relay import serve
from streamgauge.taps.proxy.relay_settings import RelaySettings
from tests.taps.proxy.readings import Collector, Read, Reading, by_h11
from tests.taps.proxy.refusals import MAX_BODY, MAX_HEAD
from tests.taps.proxy.stories import Story, Talk

# How long an expected response may take (seconds); later it counts as missing. The machine is shared.
PATIENCE_S = 20.0
# How often the loop turns while a client waits for something optional: an early response, the end of its connection.
LOOKS = 12
# Concurrent stories.
AT_A_TIME = 12

POISON = b"HTTP/1.1 200 OK\r\nX-Answers: 999999999\r\nContent-Length: 6\r\n\r\npoison"
_PLAN = re.compile(rb"/k[0-9a-f]{10}/([a-z]+)")
_HEAD_ENDS = b"\r\n\r\n"


# --- the upstream ---------------------------------------------------------------------------------------------------


def body_of(serial: int, plan: bytes) -> bytes:
    """The body of a response."""
    if plan == b"empty":
        return b""
    return b"answer %d " % serial * (40 if plan == b"slow" else 1)


class Received(NamedTuple):
    """A request as the upstream got it. `serial`: its number; `plan`: what the upstream does with it."""

    serial: int
    plan: bytes
    read: Read


class Recorded(NamedTuple):
    """A connection of the upstream. `fault`: why llhttp refused the bytes."""

    raw: bytes
    received: list[Received]
    fault: bool


class Origin:
    """An upstream server: records the bytes of each connection, and responds to the requests that llhttp finds in them."""

    def __init__(self) -> None:
        self.connections: list[OriginConnection] = []
        self.open = 0
        self.serial = 0
        self.changed = asyncio.Event()

    async def all_over(self) -> None:
        """Waits until no connection is open."""
        while self.open:
            self.changed.clear()
            await self.changed.wait()

    def connect(self) -> "OriginConnection":
        self.connections.append(OriginConnection(self))
        return self.connections[-1]


class OriginConnection(Collector, asyncio.Protocol):
    """One connection. `planned`: number and plan of each request."""

    def __init__(self, origin: Origin) -> None:
        super().__init__()
        self.planned: list[tuple[int, bytes]] = []
        self.transport: asyncio.Transport
        self._raw = bytearray()
        self._fault = False
        self._origin = origin
        self._loop = asyncio.get_running_loop()

    @property
    def recorded(self) -> Recorded:
        """The recorded connection."""
        reads = self.reading("whole").requests
        received = [Received(*planned, read) for planned, read in zip(self.planned, reads, strict=True)]
        return Recorded(bytes(self._raw), received, self._fault)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._origin.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._origin.open -= 1
        self._origin.changed.set()

    def data_received(self, data: bytes) -> None:
        self._raw += data
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fault = True
            self.transport.abort()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._origin.serial += 1
        read = self.requests[-1]
        found = _PLAN.search(read.target)
        self.planned.append((self._origin.serial, found[1] if found else b"ok"))
        if self.planned[-1][1].startswith(b"early"):
            self._answer(read)
        elif read.values(b"expect"):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_message_complete(self) -> None:
        super().on_message_complete()
        serial, plan = self.planned[-1]
        if plan == b"drop":
            self.transport.abort()
        elif plan == b"late":
            self._loop.call_later(0.001 * (serial % 3), self._answer, self.requests[-1])
        elif not plan.startswith(b"early"):
            self._answer(self.requests[-1])

    def _answer(self, read: Read) -> None:
        serial, plan = self.planned[-1]
        keeps = self.parser.should_keep_alive() and plan not in (b"close", b"eof", b"earlyclose")
        status = {b"early": (b"401 No", b"404 No", b"405 No")[serial % 3], b"empty": b"204 No"}.get(plan, b"200 OK")
        fields = [b"X-Answers: %d" % serial]
        if not keeps:
            fields.append(b"Connection: close")
        elif read.version == b"1.0":
            fields.append(b"Connection: keep-alive")
        body = body_of(serial, plan)
        pieces = [body[at : at + 60] for at in range(0, len(body), 60)]
        if plan in (b"chunked", b"slow"):
            fields.append(b"Transfer-Encoding: chunked")
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]
        elif plan not in (b"eof", b"empty"):
            fields.append(b"Content-Length: %d" % len(body))
        head = b"\r\n".join((b"HTTP/1.1 " + status, *fields, b"", b""))
        if plan == b"hints":
            head = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + head
        if read.method == b"HEAD":
            pieces = []
        if plan == b"slow" and pieces:
            self._write([head, *pieces], not keeps)
            return
        self._write([head + b"".join(pieces) + (POISON if plan == b"stray" else b"")], not keeps)

    def _write(self, pieces: list[bytes], close: bool) -> None:
        """Writes each piece for a separate read, so that the pump takes part."""
        if self.transport.is_closing():
            return
        self.transport.write(pieces[0])
        if len(pieces) > 1:
            self._loop.call_later(0.0005, self._write, pieces[1:], close)
        elif close:
            self.transport.close()


# --- the clients ----------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a client got. `serial`: the request that it answers, `code`: why the relay refused; one of them is set."""

    status: int
    serial: int | None
    code: bytes | None
    body: bytes
    closes: bool


class FinishedTalk(NamedTuple):
    """A finished talk. `owed`: the client's requests as h11 reads them; `closed`: by the relay; `hangs`: an expected
    response did not come; `rest`: what came after the last whole response; `began`: how many requests the upstream had
    got before.
    """

    talk: Talk
    owed: Reading
    answers: list[Answer]
    closed: bool
    hangs: bool
    rest: bytes
    began: int


class Client(asyncio.Protocol):
    """A client's connection. `methods`: of the requests, since these decide which responses have no body."""

    def __init__(self, methods: list[bytes]) -> None:
        self.answers: list[Answer] = []
        self.interims = 0
        self.closed = False
        self.rest = b""
        self.transport: asyncio.Transport
        self._methods = methods
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while self._take(ended=False):
            pass
        self._changed.set()

    def eof_received(self) -> None:
        self._over()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()

    def _over(self) -> None:
        self.closed = True
        if self.rest:
            self._take(ended=True)
        self._changed.set()

    async def until_answered(self, count: int) -> None:
        """Waits until this many responses came, or the relay ended the connection."""
        while len(self.answers) < count and not self.closed:
            self._changed.clear()
            await self._changed.wait()

    async def look(self, answers: int, interims: int) -> None:
        """Waits briefly for more responses or interim ones, or the end of the connection."""
        for turn in range(LOOKS):
            if len(self.answers) > answers or self.interims > interims or self.closed:
                return
            await asyncio.sleep(0 if turn < LOOKS - 2 else 0.001)

    def _take(self, *, ended: bool) -> bool:
        """Removes a response, or an interim one, from the beginning of `rest`. Returns False if none is complete."""
        end = self.rest.find(_HEAD_ENDS)
        if end < 0:
            return False
        head, body = self.rest[: end + 2], self.rest[end + 4 :]
        status = int(head[9:12])
        if status < 200:
            self.interims += 1
            self.rest = body
            return True
        at = len(self.answers)
        length = re.search(rb"\nContent-Length: ([0-9]+)\r", head)
        serial = re.search(rb"\nX-Answers: ([0-9]+)\r", head)
        if status in (204, 304) or (at < len(self._methods) and self._methods[at] == b"HEAD"):
            # The relay cannot know that a request that it could not read is a HEAD request.
            content, self.rest = (b"", body) if serial else (body, b"")
        elif b"\nTransfer-Encoding: chunked\r" in head:
            if _HEAD_ENDS not in body:
                return False
            chunks, _, self.rest = body.partition(_HEAD_ENDS)
            content = b"".join(chunks.split(b"\r\n")[1::2])  # each after its size line
        elif length is not None:
            if len(body) < int(length[1]):
                return False
            content, self.rest = body[: int(length[1])], body[int(length[1]) :]
        elif ended:
            content, self.rest = body, b""
        else:
            return False
        code = re.search(rb'"code":"([a-z_]+)"', content)
        self.answers.append(
            Answer(
                status,
                int(serial[1]) if serial else None,
                None if serial else code[1] if code else b"%d" % status,
                content,
                b"\nConnection: close\r" in head or length is None,
            )
        )
        return True


async def run_talk(talk: Talk, port: int, origin: Origin) -> FinishedTalk:
    """Runs one connection as its talk defines."""
    began = origin.serial
    owed = by_h11(talk.sent, tolerant=True)
    loop = asyncio.get_running_loop()
    client = Client([read.method for read in owed.requests])
    await loop.create_connection(lambda: client, "127.0.0.1", port)
    hangs = False
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _take_steps(talk, owed, client)
    except TimeoutError:
        hangs = True
    finished = FinishedTalk(talk, owed, client.answers, client.closed, hangs, client.rest, began)
    if talk.end == "reset":
        client.transport.abort()
    else:
        client.transport.close()
    return finished


async def _take_steps(talk: Talk, owed: Reading, client: Client) -> None:
    sent = 0
    seen = 0, 0
    for step in talk.steps:
        if client.closed:
            return
        if isinstance(step, bytes):
            seen = len(client.answers), client.interims
            client.transport.write(step)
            sent += len(step)
        elif isinstance(step, int):
            for _ in range(step):
                await asyncio.sleep(0)
        elif step == "answers":
            await client.until_answered(sum(read.whole and read.ends <= sent for read in owed.requests))
        else:
            await client.look(*seen)
    if talk.end == "wait":
        await client.until_answered(sum(read.whole for read in owed.requests))
        if owed.end != "whole":  # the relay may refuse what follows, respond early, or wait for the rest
            await client.look(len(client.answers), client.interims)


# --- all together ---------------------------------------------------------------------------------------------------


@dataclass(repr=False)
class Evidence:
    """The evidence of stories. `upstreams`: authority and base path, by name; `errors`: exceptions that reached the
    loop.
    """

    finished: list[tuple[Story, list[FinishedTalk]]]
    errors: list[dict[str, Any]]
    connections: list[Recorded]
    upstreams: dict[bytes, tuple[bytes, bytes]]


async def run(stories: list[Story], folder: Path, *, pump: bool) -> Evidence:
    """Runs all stories, several at a time, through one relay to one upstream."""
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    origin = Origin()
    server = await loop.create_server(origin.connect, "127.0.0.1", 0)
    authority = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listening.getsockname()[1]
    settings = RelaySettings(
        upstreams=[("u0", f"http://{authority}/base"), ("u1", f"http://{authority}")],
        recorder_socket=str(folder / "recorder.sock"),
        counters_path=str(folder / "counters"),
        max_request_head=MAX_HEAD,
        max_request_body=MAX_BODY,
        pump=pump,
        watch_s=0.0,  # connections are reused from the start
        connect_timeout=3 * PATIENCE_S,  # a machine that stands still is no fault of the relay
    )
    relay = await serve(settings, listening)
    finished: list[tuple[Story, list[FinishedTalk]]] = []
    waiting = deque(stories)

    async def some() -> None:
        while waiting:
            talks: list[FinishedTalk] = []
            story = waiting.popleft()
            finished.append((story, talks))
            for talk in story.talks:
                talks.append(await run_talk(talk, port, origin))
                if talks[-1].hangs:  # one is enough
                    waiting.clear()
                    break

    await asyncio.gather(*(some() for _ in range(AT_A_TIME)))
    await relay.drain(PATIENCE_S)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await origin.all_over()
    except TimeoutError:
        errors.append({"message": f"the drained relay has {origin.open} connections to the upstream open"})
    server.close()
    await server.wait_closed()
    base = authority.encode()
    return Evidence(
        finished,
        errors,
        [connection.recorded for connection in origin.connections],
        {b"u0": (base, b"/base"), b"u1": (base, b"")},
    )
