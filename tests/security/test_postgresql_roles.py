"""The roles of docs/guides/postgresql-roles.md, made by the SQL of that page on a real PostgreSQL."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from streamgauge.audit.runs import Runs
from streamgauge.ledger import Cost, Ledger, LedgerRow, LedgerUnavailableError, NewCost, open_ledger
from tests.cli.test_ledger_watch import an_audit
from tests.ledger.rows import make_row
from tests.ledger.test_partitions import TODAY, row_at, table_of
from tests.postgres.server import USER, PostgresServer
from tests.running import here

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "postgresql-roles.md"
ROLES = ("owner", "writer", "reader", "auditor", "pricer")
DENIED = "permission denied"


def blocks() -> list[str]:
    """The blocks of SQL of the page: roles and database; grants; the grant of --ledger-age."""
    return re.findall(r"^```sql\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def statements(block: str) -> list[str]:
    return [one.strip() for one in block.split(";") if one.strip()]


@dataclass
class Database:
    """The database that the page describes, with its tables and grants."""

    server: PostgresServer

    def url(self, role: str, database: str = "streamgauge") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.server.port}/{database}"

    def run(self, role: str, *lines: str, database: str = "streamgauge") -> None:
        with psycopg.connect(self.url(role, database), autocommit=True) as connection:
            for line in lines:
                connection.execute(line.encode())

    def ledger(self, role: str) -> Ledger:
        return open_ledger(self.url(f"streamgauge_{role}"), create=role in ("owner", "writer"))


@pytest.fixture
def empty(own_postgres: PostgresServer) -> Database:
    """The roles and the database, without tables."""
    made = Database(own_postgres)
    made.run(USER, *statements(blocks()[0]), database="postgres")
    return made


@pytest.fixture
def database(empty: Database) -> Iterator[Database]:
    command = re.search(r"^streamgauge (ledger import \S+) --ledger", GUIDE.read_text(), re.MULTILINE)
    assert command
    done = here(*command[1].split(), "--ledger", empty.url("streamgauge_owner"))
    assert (done.returncode, done.stderr.count("0 new records")) == (0, 1)
    empty.run("streamgauge_owner", *statements(blocks()[1]))
    yield empty


_DAYS = itertools.count()


def write(database: Database) -> None:
    """What a worker does with the ledger: it stores records, known ones too, those of a new day too, and reads the audit that
    was kept last.
    """
    with database.ledger("writer") as ledger:
        ledger.insert([make_row(1), row_at(TODAY - next(_DAYS) * timedelta(days=1))])
        ledger.insert([make_row(1)])
        Runs(ledger).last_compared()


def read(database: Database) -> None:
    """What `ledger query`, `export`, `budgets` and `audit` do with it."""
    with database.ledger("reader") as ledger:
        list(ledger.query())
        ledger.totals(["tenant", "model"])


def audit(database: Database) -> None:
    """What `audit --save` and `audit list` do with it."""
    with database.ledger("auditor") as ledger:
        list(ledger.query())
        Runs(ledger).add(an_audit("2026-01-01T00:00:00Z", agrees=True))
        assert Runs(ledger).all()


_TIMES = itertools.count(1)


def price(database: Database) -> None:
    """What `ledger price` and `ledger costs` do with it."""
    with database.ledger("pricer") as ledger:
        record = next(ledger.query())
        cost = Cost(next(_TIMES), None, "list", None)
        assert ledger.reprice([NewCost(record, LedgerRow.of_stored(record), cost)], cost.total, "why") == 1
        assert ledger.costs_of(LedgerRow.of_stored(record).stream_id)


def expire(database: Database) -> None:
    with database.ledger("writer") as ledger:
        while ledger.expire(2**62, 100).more:
            pass


JOBS: dict[str, Callable[[Database], None]] = {"writer": write, "reader": read, "auditor": audit, "pricer": price}


def each_right(block: str) -> Iterator[tuple[str, str, str]]:
    """Each single right of a block of grants: right, object, role."""
    for line in statements(block):
        if granted := re.fullmatch(
            r"GRANT (\w+(?: \([\w, ]+\))?) ON (SEQUENCE |FUNCTION )?([\w, ()]+) TO streamgauge_(\w+)", line
        ):
            yield from ((granted[1], (granted[2] or "") + one, granted[4]) for one in granted[3].split(", "))
        else:
            assert line == "REVOKE CREATE ON SCHEMA public FROM PUBLIC"


def test_each_role_does_its_job_and_needs_each_of_its_rights(database: Database) -> None:
    for job in JOBS.values():
        job(database)
    rights = list(each_right(blocks()[1]))
    assert len(rights) == 17
    for right, what, role in rights:
        database.run("streamgauge_owner", f"REVOKE {right} ON {what} FROM streamgauge_{role}")
        with pytest.raises(LedgerUnavailableError, match=DENIED):
            JOBS[role](database)
        database.run("streamgauge_owner", f"GRANT {right} ON {what} TO streamgauge_{role}")
        JOBS[role](database)


def test_the_writer_drops_old_days_only_with_a_right_of_its_own(database: Database) -> None:
    write(database)
    with pytest.raises(LedgerUnavailableError, match=DENIED):
        expire(database)
    database.run("streamgauge_owner", *statements(blocks()[2]))
    expire(database)
    with database.ledger("reader") as ledger:
        assert list(ledger.query()) == []


FORBIDDEN = {
    "writer": (
        "UPDATE records SET tenant = 'other'", "DELETE FROM records", "TRUNCATE records", "DROP TABLE records",
        "ALTER TABLE records ADD COLUMN more text", "UPDATE ledger_version SET version = 1",
        "INSERT INTO audit_runs VALUES (9, '')", "CREATE TABLE mine (one text)", "CREATE TEMP TABLE mine (one text)",
        "CREATE SCHEMA mine", "SELECT streamgauge_expire(0, 1)", f"DROP TABLE {table_of(TODAY + timedelta(days=1))}",
        f"DELETE FROM {table_of(TODAY + timedelta(days=1))}", "ALTER TABLE records DETACH PARTITION records_default",
        f"INSERT INTO {table_of(TODAY + timedelta(days=1))} (stream_id) VALUES ('x')",
    ),
    "reader": (
        "INSERT INTO records (stream_id, outcome, record) VALUES ('x', 'completed', '')", "UPDATE records SET tenant = ''",
        "DELETE FROM records", "SELECT * FROM audit_runs", "CREATE TABLE mine (one text)",
        "SELECT streamgauge_make_day('2026-01-01')", "SELECT streamgauge_expire(0, 1)",
    ),
    "auditor": (
        "INSERT INTO records (stream_id, outcome, record) VALUES ('x', 'completed', '')", "DELETE FROM records",
        "UPDATE audit_runs SET run = ''", "DELETE FROM audit_runs", "CREATE TABLE mine (one text)",
    ),
    "pricer": (
        "UPDATE records SET tenant = ''", "DELETE FROM records", "UPDATE earlier_costs SET cost = 'null'",
        "DELETE FROM earlier_costs", "SELECT * FROM audit_runs", "CREATE TABLE mine (one text)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", FORBIDDEN)
def test_a_role_may_do_nothing_else(database: Database, role: str) -> None:
    """What an attacker gets who has its password."""
    with database.ledger("writer") as ledger:
        ledger.insert([row_at(TODAY)])
    for statement in FORBIDDEN[role]:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"permission denied|must be owner"):
            database.run(f"streamgauge_{role}", statement)


def test_other_users_of_the_server_cannot_connect(database: Database) -> None:
    database.run(USER, "CREATE ROLE somebody LOGIN", database="postgres")
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        database.run("somebody", "SELECT 1")


def test_without_its_owner_nothing_is_created_or_converted_and_the_command_is_named(empty: Database) -> None:
    with pytest.raises(LedgerUnavailableError, match="may not create the tables") as refused:
        empty.ledger("writer")
    assert "`streamgauge ledger import /dev/null --ledger URL`" in str(refused.value)
    with empty.ledger("owner"):
        pass
    empty.run("streamgauge_owner", *statements(blocks()[1]), "UPDATE ledger_version SET version = 4")
    with pytest.raises(LedgerUnavailableError, match="may not convert the tables"):
        empty.ledger("writer")
