"""T4 and T5: clients that read slowly, and connections that send nothing or little. Other streams are not affected."""

import asyncio
import contextlib
import itertools
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamgauge_demo.provider import LAST_CHUNK, Provider, answer, chunk, head
from tests.faults.lengths import FULL, length
from tests.faults.rig import MEMORY_BYTES, assert_balanced, assert_no_secret
from tests.faults.traffic import EVENTS, PACE_S, PATH, SECRET, Traffic, chunks_of, provider
from tests.running import Running, off_loop, start_up

# What a slow client takes in a second (bytes).
BYTES_A_SECOND = 1024
# How long a client reads slowly (seconds), the events of the large response that it reads, and the size of each (bytes):
# more than all buffers of the sockets on the way, which the kernel lets grow to some MiB each.
SLOW_S = length(12.0, 120.0)
LARGE_EVENTS, EVENT_BYTES = 60_000, 1000
# What the upstream may still send after the first seconds, while the client takes next to nothing (bytes).
THROTTLED_BYTES = 1024**2
# The connections of T5, a third of each kind; the time after which a request's head is late, with the machine's (seconds).
CONNECTIONS, HEADER_TIMEOUT_S = 1000, 60.0 + 20.0


@contextlib.asynccontextmanager
async def up(folder: Path, **upstreams: str) -> AsyncIterator[Running]:
    """`streamgauge up`, stopped in order, and checked for what holds under every fault."""
    async with off_loop(start_up(upstreams, folder / "data")) as tap:
        yield tap
        assert await asyncio.to_thread(tap.stop) == 0, tap.log
        assert_balanced(tap.data_dir)
        assert_no_secret(folder)


def slow_client(tap: Running, upstream: str) -> socket.socket:
    """A client with the smallest buffer that has sent its request."""
    address = urlsplit(tap.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((address.hostname, address.port))
    body = b'{"model":"m-1","stream":true,"user_number":1,"messages":[]}'
    head = f"POST /{upstream}{PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\nconnection: close\r\n"
    client.sendall(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    return client


def read_slowly(client: socket.socket, seconds: float) -> Iterator[bytes]:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and (data := client.recv(BYTES_A_SECOND // 4)):
        yield data
        time.sleep(0.25)


def read_the_rest(client: socket.socket) -> Iterator[bytes]:
    while data := client.recv(2**16):
        yield data


def body_of(received: bytes) -> bytes:
    return received.partition(b"\r\n\r\n")[2]


def test_t4_gaps_of_a_slow_clients_stream_are_those_of_its_upstream(tmp_path: Path) -> None:
    """The buffers hold the whole stream: its record has the upstream's times, although the client needs far longer."""

    async def run() -> None:
        async with provider() as upstream, up(tmp_path, p=upstream.url) as tap:
            with slow_client(tap, "p") as client:
                data = await asyncio.to_thread(lambda: b"".join(read_slowly(client, 60.0)))
            assert body_of(data) == chunks_of(1)
            (record,) = await asyncio.to_thread(tap.wait_for_records, 1)
        assert record["outcome"] == "completed"
        assert record["integrity"]["complete"]
        slowly_s = len(data) / BYTES_A_SECOND
        assert slowly_s > 5 * EVENTS * PACE_S
        assert record["timing"]["last_token_s"] < slowly_s / 2
        assert record["timing"]["gaps"]["count"] == EVENTS - 1
        assert record["timing"]["gaps"]["mean_s"] < 5 * PACE_S

    asyncio.run(run())


LARGE_EVENT = chunk(
    b'data: {"id":"c-1","model":"m-1","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * EVENT_BYTES)
)
LARGE_END = (
    chunk(b'data: {"id":"c-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    + LAST_CHUNK
)


def large_response() -> Iterator[bytes]:
    yield head()
    yield from itertools.repeat(LARGE_EVENT, LARGE_EVENTS)
    yield LARGE_END


def sent_by(large: Provider) -> int:
    """The bytes of a provider's one response so far."""
    (exchange,) = large.exchanges
    return sum(len(piece.data) for piece in exchange.sent)


@pytest.mark.timeout(length(180, 600))
def test_t4_a_client_that_reads_a_kilobyte_a_second_throttles_its_upstream(tmp_path: Path) -> None:
    """Memory stays flat meanwhile, and other streams are as fast as without it. Then it reads all."""

    async def run() -> None:
        large = Provider(answer(more=large_response, end="close"))
        async with large, provider() as upstream, up(tmp_path, p=upstream.url, large=large.url) as tap:
            traffic = Traffic(upstream.url, f"{tap.url}/p")
            before = tap.memory()
            with slow_client(tap, "large") as client:
                slow = asyncio.create_task(asyncio.to_thread(lambda: b"".join(read_slowly(client, SLOW_S))))
                await traffic.run_for(SLOW_S / 2)
                at_half = sent_by(large)
                await traffic.run_for(SLOW_S / 4)
                assert sent_by(large) - at_half < THROTTLED_BYTES
                assert sent_by(large) < LARGE_EVENTS * len(LARGE_EVENT) / 2
                assert tap.memory() - before < MEMORY_BYTES
                data = await slow
                data += await asyncio.to_thread(lambda: b"".join(read_the_rest(client)))
            traffic.judge()
            assert body_of(data) == LARGE_EVENTS * LARGE_EVENT + LARGE_END
            records = await asyncio.to_thread(tap.wait_for_records, 1 + len(traffic.pairs))
        (record,) = [one for one in records if one["upstream"] == "large"]
        assert len(records) == 1 + len(traffic.pairs)
        assert (record["outcome"], record["counts"]["token_events"]) == ("completed", LARGE_EVENTS)
        assert record["timing"]["client_blocked_s"] > SLOW_S / 2

    asyncio.run(run())


def test_t5_a_thousand_silent_or_slow_connections(tmp_path: Path) -> None:
    """A third sends nothing, a third half a head, a third a byte of its head each second. Pairs of streams run beside."""
    pieces = [b"", b"POST /p/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-half: ", b"GET /p/"]

    async def run() -> None:
        async with provider() as upstream, up(tmp_path, p=upstream.url) as tap:
            traffic = Traffic(upstream.url, f"{tap.url}/p")
            address = urlsplit(tap.url)
            assert address.hostname and address.port
            before = tap.memory()
            with ExitStack() as stack:
                clients = []
                for number in range(CONNECTIONS):
                    client = stack.enter_context(socket.create_connection((address.hostname, address.port)))
                    client.sendall(pieces[number % 3])
                    clients.append(client)
                over = asyncio.Event()
                slow = asyncio.create_task(send_slowly(clients[2::3], over))
                await traffic.run_for(length(5.0, HEADER_TIMEOUT_S))
                over.set()
                await slow
                assert tap.memory() - before < MEMORY_BYTES
                if FULL:
                    assert_late(clients)
            traffic.judge()
            records = await asyncio.to_thread(tap.wait_for_records, len(traffic.pairs))
        assert {record["outcome"] for record in records} == {"completed"}
        assert len(records) == len(traffic.pairs)

    asyncio.run(run())


async def send_slowly(clients: list[socket.socket], over: asyncio.Event) -> None:
    while not over.is_set():
        for client in clients:
            with contextlib.suppress(OSError):  # the relay has closed it
                client.sendall(b"x")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), 1.0)


def assert_late(clients: list[socket.socket]) -> None:
    """Each head that did not come in time was answered with a 408, also one that came byte by byte."""
    for number, client in enumerate(clients):
        client.settimeout(5)
        if number % 3:
            assert re.match(rb"HTTP/1.1 408 ", client.recv(2**16)), number
