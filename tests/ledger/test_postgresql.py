"""What is PostgreSQL's own: its URL, a server that goes away, writers of several processes."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from streamgauge.ledger import (
    Inserted,
    LedgerRow,
    LedgerUnavailableError,
    UnreadableRecordError,
    UnsupportedLedgerError,
    open_ledger,
)
from tests.ledger.rows import make_row, stream_id
from tests.postgres.server import PostgresServer

ROOT = Path(__file__).parents[2]
# Stores overlapping batches until it is killed; prints each batch once it is confirmed.
WRITER = """
import sys
from streamgauge.ledger import open_ledger
from tests.ledger.rows import make_row

first, last = int(sys.argv[2]), int(sys.argv[3])
with open_ledger(sys.argv[1]) as ledger:
    for begin in range(first, last, 10):
        ledger.insert([make_row(number) for number in range(begin, begin + 20)])
        print(begin, flush=True)
"""


def test_writers_that_are_killed_lose_nothing_that_was_confirmed_and_store_nothing_twice(postgres_url: str) -> None:
    chance = random.Random(5)
    confirmed: set[int] = set()
    for _ in range(4):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, postgres_url, str(first), "100000"], cwd=ROOT, stdout=subprocess.PIPE
            )
            for first in (0, 5)
        ]
        for writer in writers:
            assert writer.stdout is not None
            confirmed.add(int(writer.stdout.readline()))
        time.sleep(chance.uniform(0.0, 0.5))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            confirmed |= {int(line) for line in writer.communicate(timeout=60)[0].splitlines()}
    with open_ledger(postgres_url) as ledger:
        stored = [json.loads(record)["stream_id"] for record in ledger.query()]
        assert len(stored) == len(set(stored))
        owed = {stream_id(number) for begin in confirmed for number in range(begin, begin + 20)}
        assert owed <= set(stored)


def test_threads_that_open_an_empty_database_at_once_make_its_tables_once(postgres: PostgresServer) -> None:
    """A cached lookup of a table that was not there yet once made the second one create it again."""
    for turn in range(5):
        url = postgres.fresh(f"at_once_{turn}")
        opened: list[bool] = []

        def work(url: str = url, opened: list[bool] = opened) -> None:
            with open_ledger(url) as ledger:
                opened.append(list(ledger.query()) == [])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert opened == [True] * 4


def test_two_writers_of_the_same_streams_in_any_order_wait_for_each_other(postgres_url: str) -> None:
    """Without one order of the rows, PostgreSQL would end one of them as a deadlock."""
    results: list[Inserted] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with open_ledger(postgres_url) as ledger:
            for batch in range(10):
                rows = [make_row(100 * batch + number) for number in range(100)]
                chance.shuffle(rows)
                results.append(ledger.insert(rows))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.new for result in results) == 1_000
    assert sum(result.same for result in results) == 3_000


def test_it_works_again_after_a_crash_of_the_server(own_postgres: PostgresServer) -> None:
    with open_ledger(own_postgres.url) as ledger:
        assert ledger.insert([make_row(1)]) == Inserted(new=1)
        own_postgres.stop(signal.SIGQUIT)
        with pytest.raises(LedgerUnavailableError, match=r"cannot be written") as refused:
            ledger.insert([make_row(2)])
        assert "gauge" not in str(refused.value).replace("streamgauge", "")
        own_postgres.start()
        assert ledger.insert([make_row(1), make_row(2)]) == Inserted(new=1, same=1)


def test_a_server_that_is_away_is_one_sentence_without_the_password() -> None:
    with pytest.raises(LedgerUnavailableError) as refused:
        open_ledger("postgresql://me:secret@127.0.0.1:1/records?connect_timeout=5")
    sentence = str(refused.value)
    assert sentence.startswith("the ledger postgresql://127.0.0.1:1/records cannot be opened: ")
    assert "secret" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("rest", ["me:secret@host/db?nonsense=1", "me:secret@[::1/db", "me:x@secret@host/db"])
def test_a_wrong_url_is_refused_without_being_quoted(rest: str) -> None:
    with pytest.raises(UnsupportedLedgerError) as refused:
        open_ledger(f"postgresql://{rest}")
    assert "secret" not in str(refused.value)


def test_a_read_only_user_can_query(postgres: PostgresServer, postgres_url: str) -> None:
    schema = postgres_url.rpartition("%3D")[2]
    with open_ledger(postgres_url) as ledger:
        ledger.insert([make_row(1, response_id="r"), make_row(2, response_id="r", resumed_from="4")])
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            connection.execute("CREATE ROLE reader LOGIN")
        connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO reader'.encode())
        connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO reader'.encode())
    with open_ledger(postgres_url.replace("gauge@", "reader@"), create=False) as ledger:
        assert len(list(ledger.query())) == 2
        assert [total.streams for total in ledger.totals(["day"])] == [2]
        with pytest.raises(LedgerUnavailableError, match="permission denied"):
            ledger.insert([make_row(3)])


def test_a_name_with_a_nul_is_no_record() -> None:
    """PostgreSQL refuses it: the sink would try for ever."""
    record = make_row(1, tenant="x").record
    forged = record.replace(b'"tenant":"x"', b'"tenant":"a\\u0000b"').replace(b',"cost":null}', b"}")
    with pytest.raises(UnreadableRecordError, match="NUL"):
        LedgerRow.of_json(forged)
    for attribute in (b'{"agent":"a\\u0000"}', b'{"a\\u0000":"b"}'):
        forged = record.replace(b'"attributes":{}', b'"attributes":' + attribute).replace(b',"cost":null}', b"}")
        with pytest.raises(UnreadableRecordError, match="NUL"):
            LedgerRow.of_json(forged)


def test_a_nul_elsewhere_in_a_record_is_stored(postgres_url: str) -> None:
    record = make_row(1).record.replace(b'"capture":"masked"', b'"capture":"\\u0000"').replace(b',"cost":null}', b"}")
    with open_ledger(postgres_url) as ledger:
        assert ledger.insert([LedgerRow.of_json(record)]).new == 1
        assert [stored[: len(record) - 1] for stored in ledger.query()] == [record[:-1]]
