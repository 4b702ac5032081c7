"""The ledger: absent, whole, of an earlier or a later version, read-only, or something else."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from streamgauge.ledger import open_ledger
from streamgauge.ledger.inspection import inspect_ledger
from streamgauge.ledger.schema import SCHEMA_VERSION
from tests.doctor.examined import FAIL, OK, WARN, installation, only
from tests.faults.small_disk import SmallDisk, small_disk

__all__ = ["small_disk"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger in the data directory of `installation`."""
    (tmp_path / "data").mkdir(mode=0o700)
    path = tmp_path / "data" / "ledger.sqlite"
    open_ledger(f"sqlite:///{path}").close()
    return path


def set_version(file: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA user_version = {version}")


def test_a_ledger_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    assert only("ledger", installation("up", tmp_path)).level is OK
    assert list(tmp_path.iterdir()) == []
    seen = only("ledger", installation("worker", tmp_path, ledger=f"sqlite:///{tmp_path}/no/ledger"))
    assert (seen.level, seen.cure) == (FAIL, "create it")


@pytest.mark.parametrize(
    ("version", "level", "says"),
    [
        (SCHEMA_VERSION, OK, f"opens, can be written, and has tables of version {SCHEMA_VERSION}"),
        (SCHEMA_VERSION - 1, WARN, f"the next start converts them to {SCHEMA_VERSION}"),
        (SCHEMA_VERSION + 1, FAIL, f"this program knows up to {SCHEMA_VERSION}"),
    ],
)
def test_versions(version: int, level: str, says: str, file: Path, tmp_path: Path) -> None:
    set_version(file, version)
    seen = only("ledger", installation("worker", tmp_path))
    assert (seen.level, says in seen.says) == (level, True), seen
    state = inspect_ledger(f"sqlite:///{file}")
    assert state is not None
    assert (state.version, state.writable) == (version, True), "and it was not converted"


@pytest.mark.slow
def test_a_ledger_that_another_process_writes_to_is_ok(file: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert only("ledger", installation("up", tmp_path)).level is OK


@pytest.mark.parametrize("content", [b"no database at all, but text that is long enough", None])
def test_a_file_of_another_program_is_a_failure(content: bytes | None, file: Path, tmp_path: Path) -> None:
    if content is None:
        file.unlink()
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE other(x)")
    else:
        file.write_bytes(content)
    seen = only("ledger", installation("up", tmp_path))
    assert (seen.level, str(file) in seen.says) == (FAIL, True), seen


def test_a_ledger_on_a_read_only_disk_is_a_failure(small_disk: SmallDisk) -> None:
    (small_disk.path / "data").mkdir(mode=0o700)
    with open_ledger(f"sqlite:///{small_disk.path}/data/ledger.sqlite"):
        pass
    small_disk.read_only()
    assert only("ledger", installation("up", small_disk.path)).level is FAIL


def test_a_ledger_in_postgresql(postgres_url: str, tmp_path: Path) -> None:
    examined = installation("worker", tmp_path, ledger=postgres_url)
    assert only("ledger", examined).level is OK
    assert inspect_ledger(postgres_url) is not None
    open_ledger(postgres_url).close()
    assert "has tables of version" in only("ledger", examined).says
    away = installation("worker", tmp_path, ledger="postgresql://user:CANARY@127.0.0.1:1/db")
    seen = only("ledger", away)
    assert (seen.level, "CANARY" in f"{seen}") == (FAIL, False)


def test_a_url_of_another_database(tmp_path: Path) -> None:
    for url in ("mysql://user:CANARY@h/db", "postgresql://user:CANARY@h:port:port/db"):
        seen = only("ledger", installation("worker", tmp_path, ledger=url))
        assert (seen.level, "CANARY" in f"{seen}") == (FAIL, False)
