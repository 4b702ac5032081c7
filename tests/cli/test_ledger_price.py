"""`streamgauge ledger price` and `ledger costs`: other costs for stored records, and the earlier ones."""

import contextlib
import itertools
import json
import random
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.cli import ledger_price
from streamgauge.core.record import ReportedCost
from streamgauge.ledger import LedgerUnavailableError, SqliteLedger
from streamgauge.ledger.sqlite import SqliteLedger as Opened
from streamgauge.prices import Prices
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_usage
from tests.running import here

PRICES = '[[price]]\nmodel = "new-model"\nfrom = 2026-01-01\ninput = 2\noutput = 4\n'
DEARER = '[[price]]\nmodel = "*"\nfrom = 2026-01-01\ninput = 20\noutput = 40\n'
USAGE = make_usage(1_000, 500)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger: a record with a list price, one of a model without one, one without usage, and one with a reported cost."""
    own = msgspec.structs.replace(USAGE, reported_cost=ReportedCost(usd="0.5", byok=None, source="openrouter"))
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        ledger.insert(
            [
                make_row(1, usage=USAGE),
                make_row(2, usage=USAGE, response_model="new-model"),
                make_row(3, usage=ABSENT),
                make_row(4, usage=own),
            ]
        )
    (tmp_path / "prices.toml").write_text(PRICES)
    (tmp_path / "dearer.toml").write_text(DEARER)
    return tmp_path


def price(folder: Path, *words: str, prices: str = "prices.toml") -> tuple[int, list[dict[str, Any]], str]:
    given = ("--data-dir", str(folder), "--prices", str(folder / prices), "--output", "json")
    done = here("ledger", "price", *given, *words)
    return done.returncode, json.loads(done.stdout or "[]"), done.stderr


def costs(folder: Path) -> list[str | None]:
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        found = [json.loads(record)["cost"] for record in ledger.query()]
    return [cost and cost["usd"] for cost in found]


def history(folder: Path, number: int) -> list[dict[str, Any]]:
    done = here("ledger", "costs", stream_id(number), "--data-dir", str(folder), "--output", "json")
    assert done.returncode == 0
    return list(json.loads(done.stdout))


BEFORE = ["0.0075", None, None, "0.5"]


def test_a_price_that_is_found_later_is_applied(folder: Path) -> None:
    code, rows, said = price(folder, "--only-unpriced")
    assert code == 0
    assert said == (
        "Of 2 records, 1 got a cost that had none, and 0 got another one; 0 have no known price, and stay as they are.\n"
    )
    assert [row for row in rows if row["new_cost"]] == [
        {
            "upstream": "nimbus", "model": "new-model", "records": 1, "new_cost": 1, "changed_cost": 0, "without_price": 0,
            "usd_before": "0", "usd_after": "0.004", "usd_change": "0.004",
        }
    ]  # fmt: skip
    assert costs(folder) == ["0.0075", "0.004", None, "0.5"]
    earlier, now = history(folder, 2)
    assert (earlier["cost_usd"], earlier["cost_unknown"], earlier["reason"]) == (None, "no_model", None)
    assert earlier["replaced_at"].endswith("Z")
    assert (now["cost_usd"], now["price_source"], now["price_date"]) == (
        "0.004",
        "prices.toml: new-model",
        "2026-01-01",
    )
    assert (now["cost_unknown"], now["replaced_at"]) == (None, None)


def test_a_known_cost_changes_with_a_reason_and_a_reported_one_never(folder: Path) -> None:
    code, rows, said = price(folder, "--reason", "new contract", prices="dearer.toml")
    assert code == 0
    assert costs(folder) == ["0.04", "0.04", None, "0.5"]
    assert "1 got a cost that had none, and 1 got another one" in said
    assert {row["model"]: row["usd_change"] for row in rows}["new-model"] == "0.04"
    earlier, now = history(folder, 1)
    assert (earlier["cost_usd"], earlier["reason"], now["cost_usd"]) == ("0.0075", "new contract", "0.04")
    assert earlier["price_source"].startswith("genai-prices ")
    assert history(folder, 4)[0]["price_source"] == "provider"
    listed = here("ledger", "costs", "--data-dir", str(folder), "--output", "json")
    assert [(one["records"], one["reason"]) for one in json.loads(listed.stdout)] == [(2, "new contract")]


def test_a_dry_run_says_what_would_change_and_changes_nothing(folder: Path) -> None:
    code, rows, said = price(folder, "--dry-run", prices="dearer.toml")
    assert (code, costs(folder)) == (0, BEFORE)
    (known,) = [row for row in rows if row["changed_cost"]]
    assert (known["usd_before"], known["usd_after"], known["usd_change"]) == ("0.0075", "0.04", "0.0325")
    assert said.endswith(
        "would get another one; 0 have no known price, and stay as they are.\nNothing was changed (--dry-run).\n"
    )


def test_a_lower_price_is_a_negative_change(folder: Path) -> None:
    price(folder, "--reason", "wrong", prices="dearer.toml")
    _, rows, _ = price(folder, "--dry-run")
    (known,) = [row for row in rows if row["changed_cost"] and row["model"] != "new-model"]
    assert known["usd_change"] == "-0.0325"


def test_a_cost_whose_price_is_not_known_now_stays(folder: Path) -> None:
    price(folder, "--only-unpriced")
    done = here("ledger", "price", "--data-dir", str(folder), "--reason", "list", "--output", "json")
    assert "1 have no known price, and stay as they are" in done.stderr
    assert costs(folder) == ["0.0075", "0.004", None, "0.5"]


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("--where", "model=new-model"), [2]),
        (("--where", "model=new-model", "--where", "model=gpt-4o-2024-08-06"), [1, 2]),
        (("--where", "upstream=nobody"), []),
        (("--where", "upstream=nimbus", "--since", "2026-03-01T00:00:02Z"), [2]),
        (("--until", "2026-03-01T00:00:02Z"), [1]),
        (("--month", "2026-03"), [1, 2]),
        (("--month", "2026-02"), []),
    ],
)
def test_only_the_chosen_records_change(folder: Path, words: tuple[str, ...], changed: list[int]) -> None:
    price(folder, *words, "--reason", "x", prices="dearer.toml")
    assert [number for number in (1, 2, 3, 4) if len(history(folder, number)) > 1] == changed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--reason is missing: say why costs change"),
        (("--reason", " "), "--reason is missing"),
        (("--reason", "a\nb"), "--reason must be one line"),
        (("--reason", "a" * 501), "--reason must be one line of at most 500 characters"),
        (("--since", "yesterday", "--only-unpriced"), "--since yesterday is not a time"),
        (("--where", "nothing=1", "--only-unpriced"), "nothing is not a key"),
        (("--only-unpriced", "--timezone", "Mars"), "--timezone Mars is not a time zone"),
        (("--only-unpriced", "--ledger", "sqlite:///a", "--ledger", "sqlite:///b"), "--ledger is given more than once"),
        (("--only-unpriced", "--prices", "/nowhere/prices.toml"), "/nowhere/prices.toml cannot be read"),
    ],
)
def test_wrong_usage_is_one_sentence(folder: Path, words: tuple[str, ...], says: str) -> None:
    code, rows, said = price(folder, *words)
    assert (code, rows, said.count("\n"), costs(folder)) == (2, [], 1, BEFORE)
    assert says in said


def test_a_stream_that_is_not_there(folder: Path) -> None:
    done = here("ledger", "costs", "nothing", "--data-dir", str(folder))
    assert done.returncode == 2
    assert "has no record of the stream nothing" in done.stderr


def test_one_that_is_broken_off_continues(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.insert([make_row(number, usage=USAGE) for number in range(10, 30)])
    monkeypatch.setattr(ledger_price, "_BATCH", 3)
    calls = itertools.count()
    whole = Opened.reprice

    def failing(self: Opened, *words: Any) -> int:
        if next(calls) == 2:
            raise LedgerUnavailableError("the ledger cannot be written: its disk is full")
        return whole(self, *words)

    with monkeypatch.context() as patched:
        patched.setattr(Opened, "reprice", failing)
        code, _, said = price(folder, "--only-unpriced", prices="dearer.toml")
    assert (code, costs(folder).count("0.04")) == (3, 6)
    assert "6 records have their new cost. Run the command again" in said
    assert price(folder, "--only-unpriced", prices="dearer.toml")[0] == 0
    assert costs(folder).count("0.04") == 21
    assert all(len(history(folder, number)) == 2 for number in range(10, 30))


def test_a_writer_goes_on_beside_it(folder: Path) -> None:
    rows = [make_row(number, usage=USAGE) for number in range(10, 2_000)]
    random.Random(3).shuffle(rows)
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.insert(rows[:1_000])
    stop = threading.Event()

    def write() -> None:
        with SqliteLedger(folder / "ledger.sqlite") as writer:
            for at in range(1_000, len(rows), 10):
                writer.insert(rows[at : at + 10])
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    with contextlib.ExitStack() as stack:
        stack.callback(thread.join)
        while not stop.is_set():
            assert price(folder, "--only-unpriced", prices="dearer.toml")[0] == 0
    assert price(folder, "--only-unpriced", prices="dearer.toml")[0] == 0
    assert costs(folder).count("0.04") == len(rows) + 1
