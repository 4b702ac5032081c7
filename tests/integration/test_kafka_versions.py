"""The whole chain on Kafka 3.9: a tap, two workers, one of them killed. All other tests run on the newest 4."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from bench.soak_records import findings_of
from bench.soak_traffic import Load

from streamgauge.core.record import Record
from tests.integration.synthetic import distinct
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.jars import KAFKA_3_9, NoBrokerError
from tests.kafka_broker.reading import read_all
from tests.running import Running, command, here, off_loop, start, start_tap, wait_for, wait_until_ready

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

# Concurrent streams, and for how long new ones begin (seconds): some dozens, with each kind of end.
STREAMS_AT_A_TIME = 12
LOAD_S = 5.0
# The oldest Fetch that a broker accepts identifies its line: 4.0 dropped what is older than Kafka 2.1 (KIP-896).
FETCH, API_VERSIONS = 1, 18
OLDEST_FETCH_OF_3_9 = 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of 3.9; asserts that it reports this version."""
    broker = Broker(tmp_path / "broker", pom=KAFKA_3_9)
    try:
        broker.start()
    except NoBrokerError as why:
        pytest.skip(f"no Kafka: {why}")
    assert oldest(broker.bootstrap)[FETCH] == OLDEST_FETCH_OF_3_9
    yield broker
    broker.kill()


def oldest(bootstrap: str) -> dict[int, int]:
    """The oldest accepted version of each request (ApiVersions v0)."""
    host, port = bootstrap.split(":")
    body = struct.pack(">hhih2s", API_VERSIONS, 0, 7, 2, b"sg")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        _, error, count, rest = *struct.unpack(">ihi", (data := answer.read(size))[:10]), data[10:]
    assert not error
    return {key: least for key, least, _ in struct.iter_unpack(">hhh", rest[: 6 * count])}


def test_the_whole_chain(broker: Broker, tmp_path: Path) -> None:
    kafka = ["--kafka", broker.bootstrap]
    made = command("topics", "create", *kafka, "--partitions", "4")
    assert made.returncode == 0, made.stderr
    ledger = tmp_path / "ledger.sqlite"
    with ExitStack() as running:

        def start_worker(name: str) -> Running:
            place = tmp_path / name
            flags = [*kafka, "--admin", "127.0.0.1:0", "--ledger", f"sqlite:///{ledger}", "--data-dir", str(place)]
            return running.enter_context(start("worker", flags, place))

        workers = {name: start_worker(name) for name in ("first", "second")}
        load = Load()
        asyncio.run(under_load(load, kafka, tmp_path / "tap", workers, start_worker))
        rows = wait_for(lambda: enough(records_in(ledger), len(load.streams)), "every record", 120)
        for worker in workers.values():
            assert worker.stop() == 0, worker.log
    assert {one.outcome for one in load.streams} >= {"completed", "client_abort", "upstream_reset", "truncated"}
    assert findings_of(rows, load.streams) == []
    versions = distinct(asyncio.run(read_all(broker.bootstrap, "streamgauge.records")))
    assert {stream: len(those) for stream, those in versions.items()} == {row.stream_id: 1 for row in rows}


async def under_load(
    load: Load, kafka: list[str], data_dir: Path, workers: dict[str, Running], start_again: Callable[[str], Running]
) -> None:
    """Streams through a tap, while the worker that has its partition is killed and started again."""
    async with load.provider() as upstream, off_loop(start_tap("tap", {"p": upstream.url}, data_dir, *kafka)) as tap:
        for worker in workers.values():
            await asyncio.to_thread(wait_until_ready, worker)
        ends = time.monotonic() + LOAD_S
        asking = asyncio.create_task(load.keep(f"{tap.url}/p", STREAMS_AT_A_TIME, lambda: time.monotonic() > ends))
        victim = await asyncio.to_thread(wait_for, lambda: at_work(workers), "worker that is at it")
        workers[victim].process.kill()
        workers[victim].process.wait()
        assert not asking.done(), "the streams ended before the kill"
        workers[victim] = start_again(victim)
        await asking
        assert await asyncio.to_thread(tap.stop) == 0, tap.log


def at_work(workers: dict[str, Running]) -> str | None:
    """The first worker that has made a checkpoint."""
    return next((name for name, worker in workers.items() if has_worked(worker)), None)


def has_worked(worker: Running) -> bool:
    return any(value for name, value in worker.metrics().items() if name.startswith("streamgauge_bundles_total"))


def records_in(ledger: Path) -> list[Record]:
    result = here("ledger", "query", "--ledger", f"sqlite:///{ledger}", "--output", "jsonl")
    return [msgspec.json.decode(line, type=Record) for line in result.stdout.splitlines()]


def enough(records: list[Record], count: int) -> list[Record]:
    return records if len(records) >= count else []
