"""A company's year: what happened is named, on its days, and nothing else is; the totals are those of the bills."""

import contextlib
import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from streamgauge.cli.main import main
from tests.audit.company.year import FIRST, Year, make_year
from tests.audit.world.traffic import later

pytestmark = pytest.mark.slow

# From the noon of the price on until after the outage of the tap.
DAYS = 290


def run(*words: str) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(list(words))
    return code, printed.getvalue(), errors.getvalue()


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Year, int, Mapping[str, Any]]:
    """The year, and the exit code and result of its audit."""
    folder, year = tmp_path_factory.mktemp("company"), make_year(DAYS)
    invoices = year.write(folder)
    data = ("--data-dir", str(folder / "data"))
    code, _, errors = run(
        "ledger", "import", str(folder / "records.jsonl"), "--prices", str(folder / "prices.toml"), *data
    )
    assert code == 0, errors
    files = [word for name in invoices for word in ("--invoice", str(folder / name))]
    more = [word for name in ("map", "rates", "scope") for word in (f"--{name}", str(folder / f"{name}.toml"))]
    period = ("--from", FIRST, "--to", later(FIRST, DAYS))
    code, printed, errors = run("audit", *data, *files, *more, *period, "--output", "json")
    assert printed, errors
    return year, code, json.loads(printed)


def days_of(result: Mapping[str, Any], cause: str) -> set[str]:
    return {line["day"] for line in result["lines"] for one in line["explanations"] if one["cause"] == cause}


def test_what_happened_is_named_and_nothing_else(audited: tuple[Year, int, Mapping[str, Any]]) -> None:
    year, code, result = audited
    named = {one["cause"] for one in result["causes"]}
    assert named == {*year.causes, "tax"}
    assert {cause: days_of(result, cause) for cause in year.causes} == year.causes
    assert code == 1
    assert [line for line in result["lines"] if line["alternatives"]] == []


def test_all_tokens_and_almost_all_money_are_explained(audited: tuple[Year, int, Mapping[str, Any]]) -> None:
    _, _, result = audited
    assert result["unexplained"]["tokens"]["total"] == 0
    assert abs(Decimal(result["unexplained"]["usd"])) < Decimal("0.000001")  # amounts in euros and yuan are rounded


def test_the_totals_are_those_of_each_provider(audited: tuple[Year, int, Mapping[str, Any]]) -> None:
    _, _, result = audited
    names = [total["provider"] for total in result["totals"]]
    assert names == [None, "anthropic", "aws", "deepseek", "microsoft", "openai", "openrouter"]
    billed = sum(Decimal(total["billed"]["usd"]) for total in result["totals"][1:])
    assert billed == Decimal(result["totals"][0]["billed"]["usd"])


def test_the_known_tax_is_no_news(audited: tuple[Year, int, Mapping[str, Any]]) -> None:
    _, _, result = audited
    assert any("VAT of the subscription" in sentence for sentence in result["accepted"])
    assert "tax" not in (result["verdicts"]["money"]["reason"] or "")
