"""A ledger in PostgreSQL has a partition for each day: writers make them, retention drops them, queries read few of them."""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Select, select
from sqlalchemy.dialects import postgresql

from streamgauge.ledger import (
    Cost,
    Expired,
    Filter,
    Inserted,
    LedgerRow,
    LedgerUnavailableError,
    NewCost,
    open_ledger,
)
from streamgauge.ledger import partitions as module
from streamgauge.ledger.keys import range_of
from streamgauge.ledger.partitions import (
    AFTER_ALL_IDS,
    HIGHEST,
    LOWEST,
    days_of,
    ids_between,
    lowest_id,
    moment_us,
    names_another_time,
)
from streamgauge.ledger.schema import records
from streamgauge.recorder.stream_id import stream_id
from tests.ledger.rows import make_row
from tests.ledger.test_migrations import Database, earlier

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAY = timedelta(days=1)
_COUNT = "SELECT tableoid::regclass::text, count(*) FROM records GROUP BY 1 ORDER BY 1"


def id_at(moment: datetime, number: int = 0) -> str:
    raw = stream_id(moment_us(moment) * 1_000, number).hex()
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


def row_at(moment: datetime, number: int = 0, **changes: Any) -> LedgerRow:
    """A row as taps make them: its id has the time of its start."""
    started = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return make_row(0, **{"stream_id": id_at(moment, number), "started_at": started, **changes})


def table_of(moment: datetime) -> str:
    return f"records_{moment:%Y%m%d}"


def ids(records_of: Iterator[bytes]) -> list[str]:
    return [json.loads(record)["stream_id"] for record in records_of]


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def database(url: str) -> Database:
    open_ledger(url).close()
    return Database(url)


def counts(database: Database) -> dict[str, int]:
    return {str(table).rpartition(".")[2]: count for table, count in database.rows(_COUNT)}


def tables(database: Database) -> list[str]:
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'records'::regclass ORDER BY 1"
    return [str(name).rpartition(".")[2] for (name,) in database.rows(query)]


# --- ids ----------------------------------------------------------------------------------------------------------------


def test_a_days_lowest_id_is_between_the_ids_of_two_milliseconds() -> None:
    for day in (TODAY, datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 12, 31, tzinfo=UTC)):
        assert id_at(day - timedelta(milliseconds=1), 2**74 - 1) < lowest_id(day) < id_at(day)
        assert days_of([id_at(day), id_at(day + DAY - timedelta(milliseconds=1), 2**74 - 1)]) == [f"{day:%Y-%m-%d}"]


def test_ids_without_a_time_of_a_stream_have_no_day() -> None:
    assert days_of([id_at(datetime(1970, 1, 1, tzinfo=UTC)), "ffffffff-ffff-4fff-bfff-ffffffffffff"]) == []
    assert days_of([id_at(datetime(2019, 12, 31, tzinfo=UTC)), id_at(datetime(2100, 1, 1, tzinfo=UTC))]) == []


@pytest.mark.parametrize("microsecond", [0, 1, 999, 1_000, 1_001])
def test_every_start_in_a_range_has_its_id_in_the_range(microsecond: int) -> None:
    start = TODAY + timedelta(microseconds=microsecond)
    at = moment_us(start)
    low, high = ids_between(at, at + 1)
    assert low <= id_at(start) < high
    assert ids_between(at + 1_000, None)[0] > id_at(start)
    assert ids_between(None, moment_us(TODAY))[1] <= id_at(start)


def test_an_end_that_is_no_time_of_a_stream_is_open() -> None:
    assert ids_between(None, None) == ("", AFTER_ALL_IDS)
    assert ids_between(moment_us(datetime(1999, 1, 1, tzinfo=UTC)), 2**63 - 1) == ("", AFTER_ALL_IDS)
    assert ids_between(2**63 - 1, 2**63) == ("", AFTER_ALL_IDS)
    assert LOWEST < HIGHEST


def test_an_id_that_names_another_time_than_the_start() -> None:
    at = moment_us(TODAY)
    assert not names_another_time(id_at(TODAY, 7), at)
    assert not names_another_time(id_at(TODAY), None)
    assert not names_another_time(make_row(1).stream_id, at), "an id of 1970 lies in no day, and is always looked for"
    assert names_another_time(id_at(TODAY), at + 1_000)
    assert names_another_time(id_at(TODAY), at - 1)
    assert names_another_time(id_at(TODAY), 0)


# --- writers ------------------------------------------------------------------------------------------------------------


def test_each_day_of_a_batch_gets_a_partition_and_other_ids_share_one(database: Database) -> None:
    days = [TODAY - 40 * DAY, TODAY - DAY, TODAY]
    rows = [row_at(day + timedelta(hours=hour), hour) for day in days for hour in (0, 23)]
    others = [make_row(1), make_row(2, started_at=None), row_at(TODAY + 9 * DAY)]
    with open_ledger(database.url) as ledger:
        assert ledger.insert([*rows, *others]) == Inserted(new=9)
        assert ledger.insert([*rows, *others]) == Inserted(same=9)
        assert sorted(ids(ledger.query())) == sorted(row.stream_id for row in (*rows, *others))
    assert counts(database) == {"records_default": 3, **dict.fromkeys(map(table_of, days), 2)}
    assert table_of(TODAY + DAY) in tables(database), "tomorrow's is made before midnight"


def test_records_with_ids_of_another_time_are_stored_with_a_warning(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row_at(TODAY), row_at(TODAY - DAY, started_at="2026-02-01T00:00:00Z")]
    with open_ledger(database.url) as ledger:
        assert ledger.insert(rows) == Inserted(new=2)
        assert len(list(ledger.query())) == 2
    assert "1 of 2 records have ids of another time than their start" in caplog.text


def test_sinks_of_several_hosts_make_a_partition_once(database: Database) -> None:
    results: list[Inserted] = []
    start = threading.Barrier(4)

    def work() -> None:
        with open_ledger(database.url) as ledger:
            start.wait(60)
            for back in range(10):
                results.append(ledger.insert([row_at(TODAY - back * DAY, number) for number in range(10)]))

    sinks = [threading.Thread(target=work) for _ in range(4)]
    for sink in sinks:
        sink.start()
    for sink in sinks:
        sink.join()
    assert len(results) == 40
    assert (sum(one.new for one in results), sum(one.same for one in results)) == (100, 300)
    assert counts(database) == {table_of(TODAY - back * DAY): 10 for back in range(10)}


def test_a_partition_that_cannot_be_made_now_is_made_later_with_the_records_of_its_day(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long report uses the table: nothing waits for it longer than two seconds, and nothing is lost."""
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    with open_ledger(database.url) as ledger:
        with psycopg.connect(database.url) as report:
            report.execute("SELECT count(*) FROM records").fetchone()
            assert ledger.insert([row_at(TODAY - DAY), row_at(TODAY - DAY, 1)]) == Inserted(new=2)
            assert counts(database) == {"records_default": 2}
        assert "so its records are stored in records_default: long statements use the table" in caplog.text
        assert ledger.insert([row_at(TODAY - DAY), row_at(TODAY - DAY, 2)]) == Inserted(new=1, same=1)
    assert counts(database) == {table_of(TODAY - DAY): 3}


def test_the_pause_after_a_failed_attempt(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A table with the partition's name, as DETACH leaves one: the records are stored, and a sentence says what to do."""
    caplog.set_level(logging.WARNING)
    database.run(f"CREATE TABLE {table_of(TODAY - DAY)} (id integer)")
    with open_ledger(database.url) as ledger:
        for number in range(3):
            assert ledger.insert([row_at(TODAY - DAY, number)]) == Inserted(new=1)
    assert caplog.text.count(f"the table {table_of(TODAY - DAY)} is no partition; rename it") == 1
    assert counts(database) == {"records_default": 3}


def test_a_right_that_is_missing_is_one_sentence(database: Database) -> None:
    schema = database.url.rpartition("%3D")[2]
    database.run(
        "DO $$ BEGIN CREATE ROLE sink LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        f'GRANT USAGE ON SCHEMA "{schema}" TO sink',
        "GRANT SELECT, INSERT ON records, ledger_version TO sink",
    )
    with (
        open_ledger(database.url.replace("gauge@", "sink@")) as ledger,
        pytest.raises(LedgerUnavailableError, match="permission denied for function streamgauge_make_day"),
    ):
        ledger.insert([row_at(TODAY)])
    assert counts(database) == {}


def test_a_day_out_of_reach_is_refused_by_the_database(database: Database) -> None:
    """So a writer's password makes at most one table for each day of the past."""
    for day in ("2019-12-31", f"{TODAY + 2 * DAY:%Y-%m-%d}"):
        with pytest.raises(psycopg.errors.RaiseException, match="a ledger has no partition for"):
            database.run(f"SELECT streamgauge_make_day('{day}')")


# --- retention ----------------------------------------------------------------------------------------------------------


def test_retention_drops_days_and_deletes_no_row_of_them(database: Database) -> None:
    rows = [row_at(TODAY - back * DAY + timedelta(hours=5), number) for back in range(5) for number in range(3)]
    with open_ledger(database.url) as ledger:
        ledger.insert(rows)
        database.run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a row is deleted'; END $$",
            "CREATE TRIGGER refuse BEFORE DELETE ON records FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        before = moment_us(TODAY - 2 * DAY + timedelta(hours=23))
        steps = [ledger.expire(before, 1) for _ in range(3)]
        dropped = [f"{TODAY - back * DAY:%Y-%m-%d}" for back in (4, 3)]
        assert steps == [Expired(0, (dropped[0],), more=True), Expired(0, (dropped[1],), more=True), Expired(0)]
        assert ids(ledger.query()) == sorted(row.stream_id for row in rows[:9]), "a day that has not ended stays"
        assert ledger.insert(rows[-1:]) == Inserted(new=1), "a record that comes again makes its day again"
    assert counts(database)[table_of(TODAY - 4 * DAY)] == 1


def test_the_earlier_costs_of_a_day_go_with_it(database: Database) -> None:
    with open_ledger(database.url) as ledger:
        ledger.insert([row_at(TODAY), row_at(TODAY - 3 * DAY)])
        read = [NewCost(record, LedgerRow.of_stored(record), Cost(1, 2, "list", None)) for record in ledger.query()]
        assert ledger.reprice(read, 10, None) == 2
        assert ledger.expire(moment_us(TODAY), 1).days == (f"{TODAY - 3 * DAY:%Y-%m-%d}",)
        assert [one.records for one in ledger.repricings()] == [1]


def test_old_records_without_a_day_are_deleted_one_by_one(database: Database) -> None:
    with open_ledger(database.url) as ledger:
        ledger.insert([make_row(1), make_row(2), make_row(3, started_at=None), row_at(TODAY)])
        assert ledger.expire(moment_us(TODAY), 1) == Expired(1, more=True)
        assert ledger.expire(moment_us(TODAY), 2) == Expired(1)
        assert len(list(ledger.query())) == 2


def test_retention_waits_for_a_report_two_seconds_and_says_so(database: Database) -> None:
    with open_ledger(database.url) as ledger:
        ledger.insert([row_at(TODAY - 9 * DAY)])
        with psycopg.connect(database.url) as report:
            report.execute("SELECT count(*) FROM records").fetchone()
            with pytest.raises(LedgerUnavailableError, match="lock timeout"):
                ledger.expire(moment_us(TODAY), 10)
        assert ledger.expire(moment_us(TODAY), 10).days == (f"{TODAY - 9 * DAY:%Y-%m-%d}",)


# --- queries ------------------------------------------------------------------------------------------------------------


def scanned(database: Database, statement: Select[Any]) -> set[str]:
    """The partitions that PostgreSQL reads for a statement, by its own plan."""
    compiled = statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
    lines = "\n".join(str(line) for (line,) in database.rows(f"EXPLAIN {compiled}"))
    return {name for name in tables(database) if name in lines}


def test_a_month_reads_its_own_partitions_alone(database: Database) -> None:
    first, last = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    days = [first + back * DAY for back in range(-31, 59)]
    month = Filter(since_us=moment_us(first), until_us=moment_us(last))
    with open_ledger(database.url) as ledger:
        ledger.insert([row_at(day + timedelta(hours=12)) for day in days])
        odd = [make_row(1, started_at="2026-02-03T00:00:00Z"), row_at(first, 1), row_at(last), make_row(2)]
        ledger.insert(odd)
        chosen = [
            *(id_at(day + timedelta(hours=12)) for day in days if first <= day < last),
            *(row.stream_id for row in odd[:2]),
        ]
        assert sorted(ids(ledger.query(chosen=month))) == sorted(chosen)
        assert sorted(ids(ledger.query(chosen=month, newest_first=True))) == sorted(chosen)
        (total,) = ledger.totals(["month"], month)
        assert (total.keys, total.streams) == (("2026-02",), 30)
        assert sum(total.streams for total in ledger.totals(["day"])) == len(days) + len(odd)
    own = {table_of(day) for day in days if first <= day < last} | {"records_default"}
    assert len(own) == 29
    assert scanned(database, select(records.c.outcome).where(range_of(month))) == own


# --- conversion ---------------------------------------------------------------------------------------------------------


def test_a_table_without_partitions_is_copied_with_its_rows_and_its_rights(url: str) -> None:
    days = [TODAY - 3 * DAY, TODAY]
    rows = [*(row_at(day, number) for day in days for number in range(3)), make_row(1), row_at(TODAY + 30 * DAY)]
    old = earlier(5, url, *rows)
    schema = url.rpartition("%3D")[2]
    roles = [f"{name}_{schema}" for name in ("reader", "writer", "deleter")]
    old.run(
        *(f"CREATE ROLE {role} LOGIN" for role in roles),
        f'GRANT USAGE ON SCHEMA "{schema}" TO {", ".join(roles)}',
        f"GRANT SELECT ON ledger_version TO {', '.join(roles)}",
        f"GRANT SELECT ON records TO {', '.join(roles)}",
        f"GRANT INSERT ON records TO {roles[1]}, {roles[2]}",
        f"GRANT DELETE ON records TO {roles[2]}",
    )
    with open_ledger(url) as ledger:
        assert sorted(ids(ledger.query())) == sorted(row.stream_id for row in rows)
        assert ledger.insert(rows) == Inserted(same=len(rows))
    assert counts(old) == {"records_default": 2, **dict.fromkeys(map(table_of, days), 3)}
    assert old.rows(
        "SELECT count(*) FROM pg_class WHERE relname = 'records_unpartitioned' AND pg_table_is_visible(oid)"
    ) == [(0,)]
    more = row_at(TODAY - 9 * DAY)
    with open_ledger(url.replace("gauge@", f"{roles[0]}@")) as reader:
        assert len(list(reader.query())) == len(rows)
        with pytest.raises(LedgerUnavailableError, match="permission denied"):
            reader.insert([more])
    with open_ledger(url.replace("gauge@", f"{roles[1]}@")) as writer:
        assert writer.insert([more]) == Inserted(new=1)
        with pytest.raises(LedgerUnavailableError, match="permission denied"):
            writer.expire(moment_us(TODAY), 1)
    with open_ledger(url.replace("gauge@", f"{roles[2]}@")) as deleter:
        assert deleter.expire(moment_us(TODAY), 1).days == (f"{TODAY - 9 * DAY:%Y-%m-%d}",)
