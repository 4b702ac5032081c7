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

from tests.client import Line, Received, request
from tests.running import start_tap, start_worker, wait_until_ready

from bench.wires import wire
from bench.worker_kafka import PATIENCE_S, Arrived, Kafka, Records, UnexpectedError
from bench.worker_logs import CHAT
from streamgauge_demo.provider import LAST_CHUNK, Exchange, Provider, chunk, head

_BODY = b'{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"How is the water?"}]}'
# How often the ledger is read (seconds), which is the largest error of its times.
_CHECK_S = 0.01


@dataclass(frozen=True)
class Pace:
    """`clients`: concurrent ones, each with `streams` one after the other; `interval_s`: between two deltas of a stream."""

    clients: int = 50
    streams: int = 8
    deltas: int = 100
    interval_s: float = 0.02


class Upstream(Provider):
    """Sends paced streams. `ended`: when it wrote a stream's last bytes, by number."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(self._play, keeps=False)
        self._pace = pace
        self._chunks = [chunk(event) for event in wire(CHAT, pace.deltas).events]
        self.ended: dict[str, float] = {}

    async def _play(self, exchange: Exchange) -> None:
        number = exchange.request.headers["x-number"]
        await exchange.read_body()
        await exchange.send(head(headers={"x-request-id": number}))
        for event in self._chunks[:-1]:
            await exchange.send(event)
            await asyncio.sleep(self._pace.interval_s)
        self.ended[number] = time.monotonic()
        await exchange.send(self._chunks[-1] + LAST_CHUNK)


@dataclass(frozen=True)
class Latencies:
    """Seconds from the last bytes of each stream to its record in the topic, and durable in the ledger; both sorted."""

    topic: list[float]
    ledger: list[float]


async def latencies(kafka: Kafka, directory: Path, pace: Pace) -> Latencies:
    """Measures both. Raises UnexpectedError unless each stream has one complete record in topic and ledger."""
    prefix = await kafka.make_topics()
    records = await kafka.records(prefix)
    streams = pace.clients * pace.streams
    async with Upstream(pace) as upstream, _chain(kafka.bootstrap, prefix, directory, upstream.url) as url:
        with closing(_Ledger(_ledger_in(directory))) as ledger:
            _, topic, rows = await asyncio.gather(
                asyncio.gather(*(_client(url, place, pace) for place in range(pace.clients))),
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
async def _chain(bootstrap: str, prefix: str, directory: Path, upstream: str) -> AsyncIterator[str]:
    """Runs a tap and a worker as users start them. Yields the URL of the tap."""
    kafka = ["--kafka", bootstrap, "--topic-prefix", prefix]
    tap = start_tap("tap", upstream, directory / "tap", *kafka)
    ledger = ("--ledger", f"sqlite:///{_ledger_in(directory)}")
    with tap as running, start_worker(bootstrap, prefix, directory / "worker", *ledger) as worker:
        wait_until_ready(worker)
        yield running.url


async def _client(url: str, place: int, pace: Pace) -> None:
    await asyncio.sleep(place * pace.interval_s * pace.deltas / pace.clients)  # so that streams do not all end together
    async with Line(url) as line:
        for number in range(place * pace.streams, (place + 1) * pace.streams):
            received = Received()
            await line.send(received, [request("/v1/chat/completions", _BODY, headers=f"x-number: {number}\r\n")])
            await line.read_answer(received, patience_s=PATIENCE_S)
            if received.end != "done":
                raise UnexpectedError(f"the response of stream {number} ended by {received.end}")
