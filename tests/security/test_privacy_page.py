"""What docs/privacy.md says about deletion does delete, on both databases, and what it says about a key is so."""

import hmac
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamgauge.ledger import Cost, LedgerRow, NewCost, open_ledger
from streamgauge.recorder.installation_key import installation_key
from streamgauge.recorder.request import digest
from tests.ledger.rows import make_row, stream_id

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "privacy.md").read_text()
KEY_ID = "0123456789abcdef0123456789abcdef"


def fences(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def fill(url: str) -> None:
    with open_ledger(url) as ledger:
        ledger.insert(
            [
                make_row(1, tenant="acme"),
                make_row(2, tenant="other", credential_id=KEY_ID),
                make_row(3, tenant="other", attributes={"session": "user-17"}),
                make_row(4, tenant="other", attributes={"session": "user-18"}, credential_id="f" * 32),
            ]
        )
        read = [NewCost(record, LedgerRow.of_stored(record), Cost(1, 2, "list", None)) for record in ledger.query()]
        ledger.reprice(read, 10, None)


def check_left(url: str) -> None:
    with open_ledger(url) as ledger:
        assert [re.search(rb'"stream_id":"([^"]+)"', record)[1].decode() for record in ledger.query()] == [stream_id(4)]  # type: ignore[index]
        assert [total.streams for total in ledger.totals(["tenant"])] == [1]
        assert [one.records for one in ledger.repricings()] == [1]


def statements() -> list[str]:
    deleting, vacuum = fences("sql")
    found = [one.strip() for one in (deleting + vacuum).split(";") if one.strip()]
    assert len(found) == 5
    return found


def test_the_statements_delete_from_a_sqlite_ledger_and_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    fill(f"sqlite:///{file}")
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        assert "PRAGMA secure_delete = ON" in PAGE
        database.execute("PRAGMA secure_delete = ON")
        for statement in statements():
            database.execute(statement)
    check_left(f"sqlite:///{file}")
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for gone in (b"acme", KEY_ID.encode(), b"user-17"):
        assert gone not in left
    assert b"user-18" in left


def test_the_statements_delete_from_postgresql(postgres_url: str) -> None:
    fill(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in statements():
            connection.execute(statement.encode())
    check_left(postgres_url)


def test_the_id_of_a_key_is_what_the_page_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / ".local" / "state" / "streamgauge"
    data_dir.mkdir(parents=True, mode=0o700)
    key = installation_key(data_dir)
    monkeypatch.setenv("HOME", str(tmp_path))
    names: dict[str, Any] = {"input": lambda _: "sk-1"}
    (program,) = fences("python")
    exec(compile(program, "docs/privacy.md", "exec"), names)
    printed = capsys.readouterr().out.strip()
    assert printed == digest(key, b"sk-1") == hmac.digest(key, b"sk-1", "sha256").hex()[:32]


def test_the_page_names_every_field_that_can_concern_a_person() -> None:
    for field in ("tenant", "attributes", "credential_id", "request_digest", "trace_id", "parent_span_id"):
        assert f"`{field}`" in PAGE
    for field in ("provider_organization", "provider_project"):
        assert f"`{field}`" in PAGE
