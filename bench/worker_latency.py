"""From a stream's terminal on the wire to its record in the topic, and in the ledger: tap, spool, broker, worker, SQLite.

Upstream, clients and whoever reads topic and ledger are in one process and have one clock. An upstream's answer bears its
stream's number as `x-request-id`, which its record repeats.
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
from bench.worker_kafka import PATIENCE_S, AmissError, Arrived, Kafka, Records
from bench.worker_logs import CHAT

_BODY = b'{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"How is the water?"}]}'
_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"x-number: %d\r\ncontent-length: %d\r\n\r\n"
)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: %b\r\ntransfer-encoding: chunked\r\n\r\n"
# An answer as a client holds it (bytes): far above what one has.
_ANSWER_BYTES = 4 * 1024 * 1024
# How often the ledger is looked at (seconds): it is told late by this at most.
_LOOK_S = 0.01


@dataclass(frozen=True)
class Pace:
    """`clients` at once, one stream behind the other; deltas of each, seconds between two of them."""

    clients: int = 50
    streams: int = 8
    deltas: int = 100
    interval_s: float = 0.02


class Upstream:
    """Answers at a pace. `ended`: when it wrote a stream's last bytes, by its number."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._chunks = [chunk(event) for event in wire(CHAT, pace.deltas).events]
        self.ended: dict[str, float] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
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
        for one in self._chunks[:-1]:
            writer.write(one)
            await asyncio.sleep(self._pace.interval_s)
        self.ended[number.decode()] = time.monotonic()
        writer.write(self._chunks[-1] + LAST_CHUNK)
        await writer.drain()


def _header(head: bytes, name: bytes) -> bytes:
    return head.lower().partition(b"\r\n" + name + b":")[2].partition(b"\r\n")[0].strip()


@dataclass(frozen=True)
class Latencies:
    """Seconds from the last bytes of each stream to its record, in rising order: in its topic, and durable in the ledger."""

    topic: list[float]
    ledger: list[float]


async def latencies(kafka: Kafka, directory: Path, pace: Pace) -> Latencies:
    """Raises AmissError unless each stream comes to one whole record in both places."""
    prefix = await kafka.make_topics()
    records = await kafka.records(prefix)
    upstream = Upstream(pace)
    server = await asyncio.start_server(upstream.answer, "127.0.0.1", 0)
    streams = pace.clients * pace.streams
    async with server, _chain(kafka.bootstrap, prefix, directory, server.sockets[0].getsockname()[1]) as address:
        with closing(_Ledger(_ledger_in(directory))) as ledger:
            _, topic, rows = await asyncio.gather(
                asyncio.gather(*(_client(address, place, pace) for place in range(pace.clients))),
                _until(streams, records),
                _until(streams, ledger),
            )
    return Latencies(_behind(upstream.ended, topic, "the topic"), _behind(upstream.ended, rows, "the ledger"))


class _Ledger:
    """The rows of a ledger's file, as they are committed: what is not yet durable is not seen (SQLite's WAL)."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._last = 0

    async def next(self) -> list[Arrived]:
        """Those that have come since; waits a moment."""
        await asyncio.sleep(_LOOK_S)
        return list(self._rows())

    def _rows(self) -> Iterator[Arrived]:
        found = self._database.execute(
            "SELECT rowid, record FROM records WHERE rowid > ? ORDER BY rowid", (self._last,)
        )
        rows, now = found.fetchall(), time.monotonic()
        for self._last, record in rows:
            yield Arrived(record, now)

    def close(self) -> None:
        self._database.close()


async def _until(streams: int, place: Records | _Ledger) -> list[Arrived]:
    """What comes, until so many are there or nobody waits any longer."""
    found: list[Arrived] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < streams and time.monotonic() < deadline:
        found += await place.next()
    return found


def _behind(ended: Mapping[str, float], arrived: list[Arrived], where: str) -> list[float]:
    found = {one.request_id or "": one.at_s for one in arrived}
    if found.keys() != ended.keys():
        raise AmissError(f"{len(found)} records of {len(ended)} streams in {where}")
    if broken := sum(not one.whole for one in arrived):
        raise AmissError(f"{broken} of {len(arrived)} records in {where} are not whole")
    return sorted(found[number] - at for number, at in ended.items())


def _ledger_in(directory: Path) -> Path:
    return directory / "ledger.sqlite"


@asynccontextmanager
async def _chain(bootstrap: str, prefix: str, directory: Path, upstream: int) -> AsyncIterator[tuple[str, int]]:
    """A tap and a worker, as users start them; gives where the tap listens."""
    kafka = ["--kafka", bootstrap, "--topic-prefix", prefix]
    tap = start_tap("tap", f"http://127.0.0.1:{upstream}", directory / "tap", *kafka)
    data_dir = directory / "worker"
    place = ["--admin", "127.0.0.1:0", "--data-dir", str(data_dir), "--ledger", f"sqlite:///{_ledger_in(directory)}"]
    with tap as running, start("worker", [*kafka, *place], data_dir) as worker:
        wait_until_ready(worker)
        listens = urlsplit(running.url)
        yield listens.hostname or "", listens.port or 0


async def _client(address: tuple[str, int], place: int, pace: Pace) -> None:
    await asyncio.sleep(place * pace.interval_s * pace.deltas / pace.clients)  # streams do not end all at once
    reader, writer = await asyncio.open_connection(*address, limit=_ANSWER_BYTES)
    try:
        for number in range(pace.streams):
            writer.write(_REQUEST % (place * pace.streams + number, len(_BODY)) + _BODY)
            await asyncio.wait_for(reader.readuntil(b"\r\n" + LAST_CHUNK), PATIENCE_S)
    finally:
        writer.close()
