"""Workers with a real broker and a real PostgreSQL, killed at random: no record is lost, none is stored twice."""

import itertools
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamgauge.ledger import open_ledger
from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import log_of, write
from tests.integration.workers import WorkerProcess, worker
from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.kafka

STREAMS = 300
# Time until all records are stored, with room for a machine that runs other tests (seconds).
PATIENCE_S = 90.0


def rows_of(url: str) -> list[tuple[str, bytes]]:
    with psycopg.connect(url) as connection:
        try:
            return [
                (stream, bytes(record))
                for stream, record in connection.execute("SELECT stream_id, record FROM records")
            ]
        except psycopg.errors.UndefinedTable:
            return []


def wait_for_rows(url: str, count: int) -> list[tuple[str, bytes]]:
    deadline = time.monotonic() + PATIENCE_S
    while len(rows := rows_of(url)) < count and time.monotonic() < deadline:
        time.sleep(0.2)
    return rows


def test_sinks_that_are_killed_lose_no_record_and_store_none_twice(
    kafka: str, prefix: str, postgres_url: str, tmp_path: Path
) -> None:
    """Two workers share one ledger, as on two hosts; now the one is killed, now the other, while records come."""
    tap, chance = SyntheticTap(5), random.Random(5)
    bundles = list(tap.bundles(STREAMS, segments=6))
    settings: dict[str, Any] = {"bootstrap": kafka, "prefix": prefix, "ledger": postgres_url, "checkpoint_s": 0.2}
    edges = [len(bundles) * place // 6 for place in range(7)]
    with worker(tmp_path / "a", **settings) as first, worker(tmp_path / "b", **settings) as second:
        workers: list[tuple[Path, WorkerProcess]] = [(tmp_path / "a", first), (tmp_path / "b", second)]
        for start, end in itertools.pairwise(edges):
            for _, process in workers:
                process.wait_ready()
            write(kafka, prefix, bundles[start:end])
            time.sleep(chance.uniform(0.1, 1.0))
            place = chance.randrange(2)
            directory, killed = workers[place]
            killed.kill()
            workers[place] = directory, WorkerProcess(directory, **settings)
        try:
            rows = wait_for_rows(postgres_url, STREAMS)
            time.sleep(1.0)  # for a record that would come twice
            rows = rows_of(postgres_url)
        finally:
            for _, process in workers:
                process.kill()
    expected = assembled(log_of(kafka, f"{prefix}.segments"))
    assert Counter(stream for stream, _ in rows) == Counter(list(expected))
    stored = {stream: record.replace(b',"cost":null}', b"}") for stream, record in rows}
    assert stored == expected


def test_a_ledger_that_is_away_for_a_while_gets_every_record(
    kafka: str, prefix: str, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    tap = SyntheticTap(6)
    write(kafka, prefix, list(tap.bundles(50)))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, ledger=own_postgres.url, checkpoint_s=0.2) as process:
        process.wait_ready()
        assert len(wait_for_rows(own_postgres.url, 50)) == 50
        own_postgres.stop()
        write(kafka, prefix, list(SyntheticTap(7).bundles(50)))
        time.sleep(3.0)
        own_postgres.start()
        rows = wait_for_rows(own_postgres.url, 100)
        assert process.stop() == 0
        assert len(rows) == len({stream for stream, _ in rows}) == 100
        assert process.log.count("records cannot be stored, trying again") == 1
        assert "records can be stored again" in process.log
    with open_ledger(own_postgres.url, create=False) as ledger:
        assert len({json.loads(record)["stream_id"] for record in ledger.query()}) == 100
