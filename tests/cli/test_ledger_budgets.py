"""`streamgauge ledger budgets` on a real ledger."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli.main import main
from streamgauge.ledger import SqliteLedger
from streamgauge.prices import Prices
from tests.ledger.rows import make_row
from tests.metrics.records import make_usage


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        ledger.insert([make_row(1, tenant="search", usage=make_usage(1_000_000, 0)), make_row(2, tenant="chat")])
    (tmp_path / "budgets.toml").write_text(
        '[[budget]]\ntenant = "search"\nmonth_usd = 2\n[[budget]]\ntenant = "chat"\nmonth_usd = 1\n'
    )
    return tmp_path


def states(data_dir: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main(
            (
                "ledger",
                "budgets",
                str(data_dir / "budgets.toml"),
                "--data-dir",
                str(data_dir),
                "--output",
                "json",
                *words,
            )
        )
    return code, json.loads(printed.getvalue())


def test_a_month_that_is_over(data_dir: Path) -> None:
    code, (search, chat) = states(data_dir, "--month", "2026-03")
    assert code == 1, "one is spent"
    assert search == {
        "key": "tenant", "value": "search", "month": "2026-03", "budget_usd": "2", "spent_usd": "2.5", "forecast_usd": "2.5",
        "reached_percent": 100, "streams": 1, "without_price": 0, "without_usage": 0,
    }  # fmt: skip
    assert (chat["spent_usd"], chat["reached_percent"]) == ("0.000075", 0)


def test_the_present_month_by_default(data_dir: Path) -> None:
    code, (search, _) = states(data_dir, "--timezone", "Europe/Berlin")
    assert (code, search["spent_usd"], search["streams"]) == (0, "0", 0)
