"""The time from a stream's terminal on the wire to its record in the topic, and in the ledger: tap, spool, broker, worker
and SQLite.

Upstream, clients and the readers of topic and ledger are in one process with one clock. The number of a stream is the
`x-request-id` of the upstream's response, which the record repeats.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.running import start, start_tap, wait_until_ready

from bench.load.answer import LAST_CHUNK, chunk
from bench.wires import wire
from bench.worker_kafka import PATIENCE_S, Arrived, Kafka, Records, UnexpectedError
from bench.worker_logs import CHAT

_BODY = b'{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"How is the water?"}]}'
_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"x-number: %d\r\ncontent-length: %d\r\n\r\n"
)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: %b\r\ntransfer-encoding: chunked\r\n\r\n"
# The largest response that a client accepts (bytes), far above their size.
_ANSWER_BYTES = 4 * 1024 * 1024
# How often the ledger is read (seconds), which is the largest error of its times.
_CHECK_S = 0.01


@dataclass(frozen=True)
class Pace:
    """`clients`: concurrent ones, each with `streams` one after the other; `interval_s`: between two deltas of a stream."""

    clients: int = 50
    streams: int = 8
    deltas: int = 100
    interval_s: float = 0.02


class Upstream:
    """Sends paced streams. `ended`: when it wrote a stream's last bytes, by number."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._chunks = [chunk(event) for event in wire(CHAT, pace.deltas).events]
        self.ended: dict[str, float] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                number = _header(head, b"x-number")
                await reader.readexactly(int(_header(head, b"content-length")))
                await self._stream(number, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _stream(self, number: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(_HEAD % number)
        for event in self._chunks[:-1]:
            writer.write(event)
            await asyncio.sleep(self._pace.interval_s)
        self.ended[number.decode()] = time.monotonic()
        writer.write(self._chunks[-1] + LAST_CHUNK)
        await writer.drain()


def _header(head: bytes, name: bytes) -> bytes:
    return head.lower().partition(b"\r\n" + name + b":")[2].partition(b"\r\n")[0].strip()


@dataclass(frozen=True)
class Latencies:
    """Seconds from the last bytes of each stream to its record in the topic, and durable in the ledger; both sorted."""

    topic: list[float]
    ledger: list[float]


async def latencies(kafka: Kafka, directory: Path, pace: Pace) -> Latencies:
    """Measures both. Raises UnexpectedError unless each stream has one complete record in topic and ledger."""
    prefix = await kafka.make_topics()
    records = await kafka.records(prefix)
    upstream = Upstream(pace)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    streams = pace.clients * pace.streams
    async with server, _chain(kafka.bootstrap, prefix, directory, server.sockets[0].getsockname()[1]) as address:
        with closing(_Ledger(_ledger_in(directory))) as ledger:
            _, topic, rows = await asyncio.gather(
                asyncio.gather(*(_client(address, place, pace) for place in range(pace.clients))),
                _until(streams, records),
                _until(streams, ledger),
            )
    return Latencies(_delays(upstream.ended, topic, "the topic"), _delays(upstream.ended, rows, "the ledger"))


class _Ledger:
    """Reads the rows of a ledger's file once they are committed, and so durable (SQLite's WAL)."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._last = 0

    async def next(self) -> list[Arrived]:
        """Waits briefly, and returns the rows that arrived since."""
        await asyncio.sleep(_CHECK_S)
        return list(self._rows())

    def _rows(self) -> Iterator[Arrived]:
        cursor = self._database.execute(
            "SELECT rowid, record FROM records WHERE rowid > ? ORDER BY rowid", (self._last,)
        )
        rows, now = cursor.fetchall(), time.monotonic()
        for self._last, record in rows:
            yield Arrived(record, now)

    def close(self) -> None:
        self._database.close()


async def _until(streams: int, source: Records | _Ledger) -> list[Arrived]:
    """Reads records until there are as many as streams, at most PATIENCE_S."""
    arrived: list[Arrived] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(arrived) < streams and time.monotonic() < deadline:
        arrived += await source.next()
    return arrived


def _delays(ended: Mapping[str, float], arrived: list[Arrived], where: str) -> list[float]:
    times = {record.request_id or "": record.at_s for record in arrived}
    if times.keys() != ended.keys():
        raise UnexpectedError(f"{len(times)} records of {len(ended)} streams in {where}")
    if incomplete := sum(not record.whole for record in arrived):
        raise UnexpectedError(f"{incomplete} of {len(arrived)} records in {where} are not complete")
    return sorted(times[number] - at for number, at in ended.items())


def _ledger_in(directory: Path) -> Path:
    return directory / "ledger.sqlite"


@asynccontextmanager
async def _chain(bootstrap: str, prefix: str, directory: Path, upstream: int) -> AsyncIterator[tuple[str, int]]:
    """Runs a tap and a worker as users start them. Yields the address of the tap."""
    kafka = ["--kafka", bootstrap, "--topic-prefix", prefix]
    tap = start_tap("tap", f"http://127.0.0.1:{upstream}", directory / "tap", *kafka)
    data_dir = directory / "worker"
    options = ["--admin", "127.0.0.1:0", "--data-dir", str(data_dir), "--ledger", f"sqlite:///{_ledger_in(directory)}"]
    with tap as running, start("worker", [*kafka, *options], data_dir) as worker:
        wait_until_ready(worker)
        url = urlsplit(running.url)
        yield url.hostname or "", url.port or 0


async def _client(address: tuple[str, int], place: int, pace: Pace) -> None:
    await asyncio.sleep(place * pace.interval_s * pace.deltas / pace.clients)  # so that streams do not all end together
    reader, writer = await asyncio.open_connection(*address, limit=_ANSWER_BYTES)
    try:
        for number in range(pace.streams):
            writer.write(_REQUEST % (place * pace.streams + number, len(_BODY)) + _BODY)
            await asyncio.wait_for(reader.readuntil(b"\r\n" + LAST_CHUNK), PATIENCE_S)
    finally:
        writer.close()
