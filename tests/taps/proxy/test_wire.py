"""wire.py: what is written is given to the socket at once, in order, and complete."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from streamgauge.taps.proxy.wire import Wire

Play = Callable[[Callable[[asyncio.Transport, Wire, socket.socket], Awaitable[None]]], None]


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a function with a connection's transport, its wire and the other end."""

    def run(what: Callable[[asyncio.Transport, Wire, socket.socket], Awaitable[None]]) -> None:
        async def within() -> None:
            listening = socket.create_server(("127.0.0.1", 0))
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
            theirs.settimeout(10)
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
            try:
                await what(transport, Wire(transport), theirs)
            finally:
                transport.abort()
                theirs.close()
                listening.close()
                await asyncio.sleep(0)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(within())

    return run


def test_it_does_not_wait_for_the_loop(play: Play) -> None:
    async def what(transport: asyncio.Transport, wire: Wire, theirs: socket.socket) -> None:
        wire.write(b"now")
        assert theirs.recv(10) == b"now"  # the loop has had no turn
        assert wire.idle_socket == transport.get_extra_info("socket").fileno()

    play(what)


def test_bytes_that_the_socket_does_not_take_follow_in_order(play: Play) -> None:
    pieces = [bytes([number]) * 700_000 for number in range(20)]

    async def what(transport: asyncio.Transport, wire: Wire, theirs: socket.socket) -> None:
        for number, piece in enumerate(pieces):
            (wire if number % 3 else transport).write(piece)
        assert transport.get_write_buffer_size() and wire.idle_socket is None
        loop, received = asyncio.get_running_loop(), b""
        while len(received) < sum(map(len, pieces)):
            received += await loop.run_in_executor(None, theirs.recv, 1 << 20)
        assert received == b"".join(pieces)
        wire.write(b"again")
        assert theirs.recv(10) == b"again"

    play(what)


def test_writing_to_an_ended_connection_does_not_raise(play: Play) -> None:
    async def what(transport: asyncio.Transport, wire: Wire, theirs: socket.socket) -> None:
        transport.abort()
        assert wire.idle_socket is None
        wire.write(b"x")
        await asyncio.sleep(0.01)
        wire.write(b"x")
        theirs.setblocking(False)
        assert not theirs.recv(10)

    play(what)


def test_a_connection_that_broke_raises_nothing_and_ends(play: Play) -> None:
    async def what(transport: asyncio.Transport, wire: Wire, theirs: socket.socket) -> None:
        transport.pause_reading()  # so that only a write can notice it
        theirs.close()
        async with asyncio.timeout(10):
            while not transport.is_closing():
                wire.write(b"x" * 1000)
                await asyncio.sleep(0.01)

    play(what)
