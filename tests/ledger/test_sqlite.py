"""The ledger's file: who may read it, that processes share it, that a kill loses nothing that was confirmed."""

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.ledger import (
    Inserted,
    LedgerUnavailableError,
    SqliteLedger,
    UnsupportedLedgerError,
    open_ledger,
)
from streamgauge.ledger.inspection import inspect_ledger
from tests.damaged_schema import damaged_in_turn
from tests.ledger.rows import make_row

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from streamgauge.ledger import SqliteLedger
from tests.ledger.rows import make_row

path, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with SqliteLedger(path) as ledger:
    for number in range(first, last):
        result = ledger.insert([make_row(number)])
        print(number, result.new, result.same, result.different, flush=True)
"""


def start_writer(path: Path, first: int, last: int) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", WRITER, str(path), str(first), str(last)]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_the_file_and_its_log_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
            ledger.insert([make_row(1)])
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"), 0o600)


@pytest.mark.slow
def test_processes_share_one_file_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    writers = [start_writer(path, first, first + 200) for first in (0, 100, 200)]
    lines = [line.split() for writer in writers for line in writer.communicate(timeout=100)[0].splitlines()]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sum(int(new) for _, new, _, _ in lines) == 400
    assert sum(int(same) for _, _, same, _ in lines) == 200
    assert not any(int(different) for _, _, _, different in lines)
    with SqliteLedger(path) as ledger:
        assert len(list(ledger.query())) == 400


@pytest.mark.slow
def test_what_was_confirmed_before_a_kill_is_there(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    writer = start_writer(path, 0, 100_000)
    assert writer.stdout is not None
    confirmed = [writer.stdout.readline() for _ in range(50)]
    writer.send_signal(signal.SIGKILL)
    confirmed += writer.communicate(timeout=100)[0].splitlines()
    with SqliteLedger(path) as ledger:
        assert len(list(ledger.query())) >= len(confirmed) >= 50
        assert ledger.insert([make_row(number) for number in range(50)]) == Inserted(same=50)


def test_a_failed_insert_stores_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with SqliteLedger(path) as ledger:
        with sqlite3.connect(path) as database:
            database.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON records WHEN new.tenant = 'bad' BEGIN SELECT raise(FAIL, 'no'); END"
            )
        database.close()
        with pytest.raises(LedgerUnavailableError, match=r"ledger\.sqlite cannot be written"):
            ledger.insert([make_row(1), make_row(2, tenant="bad")])
        assert list(ledger.query()) == []
        assert ledger.insert([make_row(1)]) == Inserted(new=1)


def test_a_query_left_halfway_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with SqliteLedger(path) as ledger:
        ledger.insert([make_row(number) for number in range(1_200)])
        records = ledger.query()
        next(records)
        with sqlite3.connect(path, timeout=5) as other:
            busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        other.close()
        records.close()  # type: ignore[attr-defined]
    assert busy == 0, "a reader between two pages keeps the log from being folded back"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///some/ledger.sqlite", "some/ledger.sqlite"),
        ("sqlite:////tmp/x/ledger.sqlite", "/tmp/x/ledger.sqlite"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url: str, path: str) -> None:
    assert SqliteLedger.path_of(url.partition("://")[2]) == Path(path)


def test_a_relative_url_is_relative_to_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    open_ledger("sqlite:///a/b/ledger.sqlite").close()
    assert (tmp_path / "a/b/ledger.sqlite").is_file()


def test_f13_no_directory_is_created_for_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "slip" / "ledger.sqlite"
    with pytest.raises(LedgerUnavailableError, match=f"the ledger {path} cannot be opened: No such file") as refused:
        open_ledger(f"sqlite:///{path}")
    assert isinstance(refused.value.__cause__, FileNotFoundError)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///:memory:",
        "sqlite:///./:memory:",
        "",
        "ledger.sqlite",
        "mysql://u:secret@h/db",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/file",
        "sqlite:///d/",
    ],
)
def test_other_urls_are_refused_with_what_is_supported(url: str) -> None:
    with pytest.raises(UnsupportedLedgerError, match="sqlite:///FILE") as refused:
        open_ledger(url)
    assert "secret" not in str(refused.value)


def test_a_ledger_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="cannot be opened"):
        open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(LedgerUnavailableError, match="cannot be opened"):
        SqliteLedger(path)


def test_a_damaged_schema_makes_the_ledger_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    SqliteLedger(path).close()
    for _ in damaged_in_turn(path):
        with contextlib.suppress(LedgerUnavailableError):
            inspect_ledger(f"sqlite:///{path}")
        with contextlib.suppress(LedgerUnavailableError), SqliteLedger(path) as ledger:
            list(ledger.query())


def test_a_ledger_of_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    SqliteLedger(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(LedgerUnavailableError, match="later version"):
        SqliteLedger(path)


def test_a_directory_that_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailableError, match="cannot be opened"):
        SqliteLedger(tmp_path / "file" / "ledger.sqlite")
