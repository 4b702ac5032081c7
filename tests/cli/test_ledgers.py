"""Ledgers that commands open: prices, retention, and what is said if one cannot be opened."""

import json
import logging
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamgauge.cli import ledgers
from streamgauge.cli.ledgers import ledger_to_read, opened_ledger
from streamgauge.cli.stream_costs import prices_of
from streamgauge.errors import Unavailable, UsageFault
from streamgauge.ledger import Expired, LedgerUnavailableError, SqliteLedger
from streamgauge.prices import Prices
from streamgauge.settings.sources import load
from tests.ledger.rows import make_row, stream_id
from tests.running import wait_for

DAY_S = 86_400


def aged(number: int, days: float) -> Any:
    started = datetime.now(UTC) - timedelta(days=days)
    return make_row(number, started_at=started.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def ids(path: Path) -> list[str]:
    with SqliteLedger(path) as ledger:
        return [json.loads(record)["stream_id"] for record in ledger.query()]


def test_records_are_priced_by_the_list_and_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[[price]]\nmodel = "own"\nfrom = 2026-01-01\ninput = 1\noutput = 1\n')
    settings = load({"data_dir": str(tmp_path), "prices": str(tmp_path / "prices.toml")})
    with opened_ledger(settings, prices_of(settings)) as ledger:
        ledger.insert([make_row(1), make_row(2, response_model="own")])
        assert [json.loads(record)["cost"]["usd"] for record in ledger.query()] == ["0.000075", "0.000015"]


def test_old_records_are_deleted_at_once_and_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_EXPIRE_EVERY_S", 0.05)
    monkeypatch.setattr(ledgers, "_EXPIRE_ROWS", 2)
    monkeypatch.setattr(ledgers, "_EXPIRE_PAUSE_S", 0.0)
    path = tmp_path / "ledger.sqlite"
    with SqliteLedger(path) as before:
        before.insert([aged(number, 3) for number in range(5)])
        before.insert([aged(10, 1.9), make_row(11, started_at=None)])
    with opened_ledger(load({"data_dir": str(tmp_path), "ledger_age": 2 * DAY_S}), Prices()) as ledger:
        wait_for(lambda: ids(path) == [stream_id(10), stream_id(11)], "ledger without old records")
        ledger.insert([aged(20, 2.5)])
        wait_for(lambda: ids(path) == [stream_id(10), stream_id(11)], "ledger without old records")
    assert ids(path) == [stream_id(10), stream_id(11)]


def test_days_that_were_dropped_are_logged_until_there_is_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamgauge.ledger")
    monkeypatch.setattr(ledgers, "_EXPIRE_PAUSE_S", 0.0)
    steps = [Expired(0, ("2026-01-01",), more=True), Expired(0, ("2026-01-02",), more=True), Expired(7)]
    left = iter(steps)
    monkeypatch.setattr(SqliteLedger, "expire", lambda *_: next(left))
    with opened_ledger(load({"data_dir": str(tmp_path), "ledger_age": DAY_S}), Prices()):
        wait_for(lambda: "2026-01-02" in caplog.text, "the second day")
        wait_for(lambda: next(left, None) is None, "no further step")
    assert "the ledger dropped the records of 2026-01-01 (--ledger-age)" in caplog.text


def test_without_an_age_nothing_is_deleted(tmp_path: Path) -> None:
    with opened_ledger(load({"data_dir": str(tmp_path)}), Prices()) as ledger:
        ledger.insert([make_row(1, started_at="1999-01-01T00:00:00Z")])
        time.sleep(0.2)
    assert ids(tmp_path / "ledger.sqlite") == [stream_id(1)]


def test_a_full_ledger_keeps_its_records_and_goes_on_with_more_room(tmp_path: Path) -> None:
    """And a record that was refused is stored later, as after any fault of the disk."""
    small = load({"data_dir": str(tmp_path), "ledger_bytes": 1024**2})
    rows = [make_row(number) for number in range(2_000)]
    stored = 0
    with opened_ledger(small, Prices()) as ledger:
        with pytest.raises(LedgerUnavailableError, match=r"largest size \(--ledger-bytes\)"):
            for at in range(0, len(rows), 20):
                ledger.insert(rows[at : at + 20])
                stored += 20
        assert (tmp_path / "ledger.sqlite").stat().st_size <= 1024**2
        used, most = [sample.value for sample in ledgers.ledger_size(small)()]
        assert 0.8 * most < used <= most == 1024**2
    assert 100 < stored < 2_000
    assert ids(tmp_path / "ledger.sqlite") == [stream_id(number) for number in range(stored)]
    larger = load({"data_dir": str(tmp_path), "ledger_bytes": 64 * 1024**2})
    with opened_ledger(larger, Prices()) as ledger:
        assert ledger.insert(rows).new == len(rows) - stored


def test_a_ledger_leaves_a_part_of_its_disk_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [500]

    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(total=1_000 * 1024**3, free=free[0] * 1024**3)

    monkeypatch.setattr("shutil.disk_usage", usage)
    settings = load({"data_dir": str(tmp_path)})
    assert ledgers.most_bytes(settings) == 499 * 1024**3
    free[0] = 1  # what another program has left is shared
    assert ledgers.most_bytes(settings) == 1024**3 // 2
    (tmp_path / "ledger.sqlite").write_bytes(bytes(1_000))
    assert ledgers.most_bytes(settings) == 1024**3 // 2 + 1_000
    assert ledgers.most_bytes(load({"ledger": ["postgresql://a/b"]})) is None
    assert list(ledgers.ledger_size(load({"ledger": ["postgresql://a/b"]}))()) == []


def test_a_ledger_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledgers, "_EXPIRE_EVERY_S", 0.05)
    calls: list[int] = []

    def fail(*_: object) -> Expired:
        calls.append(1)
        raise LedgerUnavailableError("the disk is full")

    monkeypatch.setattr(SqliteLedger, "expire", fail)
    with opened_ledger(load({"data_dir": str(tmp_path), "ledger_age": DAY_S}), Prices()):
        wait_for(lambda: len(calls) >= 2, "second try")
    assert "old records cannot be deleted now, trying again in an hour: the disk is full" in caplog.text


def test_one_ledger_is_written_to_and_several_are_read(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.sqlite" for name in "ab"]
    for name in "ab":
        SqliteLedger(tmp_path / f"{name}.sqlite").close()
    settings = load({"ledger": urls})
    with pytest.raises(UsageFault, match="records are stored in one ledger"), opened_ledger(settings, Prices()):
        pass
    with ledger_to_read(settings) as reader:
        assert list(reader.query()) == []


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "streamgauge.ledger.postgresql", raising=False)
    with (
        pytest.raises(Unavailable, match=r"run pip install 'streamgauge\[postgres\]'"),
        ledger_to_read(load({"ledger": "postgresql://h/d"})),
    ):
        pass
