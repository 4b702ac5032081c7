"""What an operator knows beforehand: within its limit and until its last day it is no news."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.cells import Cell, Explanation, Undecided
from streamgauge.audit.conclude import conclude, nothing_compared
from streamgauge.audit.period import Period
from streamgauge.audit.result import CAUSES, Result, Tolerance
from streamgauge.audit.scope import Known, accept, accepted, load_scope
from streamgauge.errors import UsageFault
from tests.audit.test_explain import DAY, GROUP, SHAPE, a_cell, ten

PERIOD = Period("2026-03-01", "2026-04-01", "UTC")
BATCH = Tokens(3_015, 0, 0, 375)


def a_batch_cell() -> Cell:
    """A cell with a batch of one cent."""
    usd = Decimal("0.01")
    cell = a_cell(ten(), BATCH)
    cell.theirs.usd = cell.ours.usd + usd
    cell.explanations = [Explanation("batch", BATCH, usd)]
    return cell


def result_of(cells: Sequence[Cell], scope: Sequence[Known] = (), tolerance: Tolerance | None = None) -> Result:
    return conclude(cells, {"openai": SHAPE}, [], PERIOD, tolerance or Tolerance(0, "0.01"), scope)


def test_a_known_cause_within_its_limit_is_no_news() -> None:
    known = Known("batch", usd=Decimal("0.01"), tokens=3_390, until=DAY, reason="evaluation")
    assert not result_of([a_batch_cell()]).agrees
    result = result_of([a_batch_cell()], [known])
    assert result.agrees
    assert result.accepted == ["batch: 3,390 tokens, 0.01 USD are known by --scope (evaluation)."]
    assert [cause.cause for cause in result.causes] == ["batch"]  # it is still told


@pytest.mark.parametrize(
    "known",
    [
        Known("batch", usd=Decimal("0.009"), until=DAY),
        Known("batch", tokens=3_389, until=DAY),
        Known("batch", until="2026-03-01"),
        Known("batch", provider="anthropic", until=DAY),
        Known("batch", model="gpt-4o", until=DAY),
        Known("batch", key="river", until=DAY),
        Known("coverage", until=DAY),
    ],
)
def test_beyond_its_limit_its_last_day_or_its_cells_it_is_news(known: Known) -> None:
    assert not result_of([a_batch_cell()], [known]).agrees


def test_an_entry_that_concerns_no_line_of_its_cause_is_said() -> None:
    for known, subject in (
        (Known("batch", provider="open-ai", until=DAY), "batch of open-ai"),
        (Known("batch", until="2026-02-28"), "batch"),
    ):
        said = result_of([a_batch_cell()], [known]).accepted
        assert said == [f"{subject} is known until {known.until} by --scope: this concerns no line here."]
    assert result_of([a_batch_cell()], [Known("tax", until=DAY)]).accepted == [], "the cause does not occur"
    assert result_of([a_batch_cell()], accept(["tax"])).accepted == []


def test_a_limit_that_is_passed_is_said() -> None:
    result = result_of([a_batch_cell()], [Known("batch", usd=Decimal("0.009"), until=DAY)])
    assert result.accepted == ["batch: 3,390 tokens, 0.01 USD, which is more than the known limit of 0.009 USD."]


def test_money_that_is_not_compared_is_not_said_to_be_known() -> None:
    cell = a_batch_cell()
    cell.explanations = [replace(cell.explanations[0], usd=None)]
    cell.shape = replace(SHAPE, has_money=False)
    result = conclude([cell], {"openai": cell.shape}, [], PERIOD, Tolerance(0, "0"), accept(["batch"]))
    assert result.accepted == ["batch: 3,390 tokens are known by --accept."]


def test_the_limit_is_for_all_lines_together() -> None:
    other = a_batch_cell()
    other.group = GROUP._replace(model="gpt-4o")
    limit = Known("batch", usd=Decimal("0.015"), until=DAY)
    assert result_of([a_batch_cell()], [limit]).agrees
    assert not result_of([a_batch_cell(), other], [limit]).agrees


def test_an_undecided_part_is_known_if_each_of_its_causes_is() -> None:
    cell = a_cell(ten(), BATCH)
    cell.undecided = [Undecided(("aborted_without_usage", "coverage"), BATCH, cell.usd)]
    assert not result_of([cell]).agrees
    assert not result_of([cell], accept(["aborted_without_usage"])).agrees
    assert result_of([cell], accept(["aborted_without_usage", "coverage"])).agrees


def test_what_is_unexplained_is_never_accepted() -> None:
    assert not result_of([a_cell(ten(), BATCH)], accept(CAUSES)).agrees


def test_verdicts_say_what_differs() -> None:
    verdicts = result_of([a_cell(ten(), Tokens(0, 0, 0, 1))]).verdicts
    assert (verdicts.tokens.verdict, verdicts.tokens.reason) == ("differs", "1 token unexplained")
    assert verdicts.money.verdict == "agrees"  # within the tolerance
    verdicts = result_of([a_batch_cell()], tolerance=Tolerance(0, "0")).verdicts
    assert (verdicts.money.verdict, verdicts.money.reason) == ("differs", "batch")


def test_nothing_was_compared() -> None:
    assert nothing_compared(result_of([])) == "the invoices have no row in the period"
    unseen = a_cell([], BATCH)
    assert nothing_compared(result_of([unseen])) == "the ledger has no stream of these providers in the period"
    assert nothing_compared(result_of([a_cell(ten())])) is None


def test_tokens_agree_and_money_is_not_compared() -> None:
    cell = a_cell(ten())
    cell.shape = replace(SHAPE, has_money=False)
    result = conclude([cell], {"openai": cell.shape}, [], PERIOD, Tolerance(0, "0"))
    assert (result.agrees, result.verdicts.tokens.verdict) == (True, "agrees")
    assert (result.verdicts.money.verdict, result.verdicts.money.reason) == ("not_compared", "no invoice has money")


def test_money_without_a_rate_is_not_said_to_be_absent() -> None:
    cell = a_cell(ten())
    cell.shape = replace(SHAPE, has_money=False, lacks_rate=True)
    result = conclude([cell], {"openai": cell.shape}, [], PERIOD, Tolerance(0, "0"))
    assert result.verdicts.money.verdict == "not_compared"
    assert "currencies" in (result.verdicts.money.reason or "")
    other = conclude([cell], {"openai": cell.shape, "aws": SHAPE}, [], PERIOD, Tolerance(0, "0"))
    assert other.notes == [], "no sentence that openai has no money"


def test_money_without_our_cost_is_said_in_cents() -> None:
    cell = a_cell(ten())
    cell.theirs.usd, cell.theirs.money_rows, cell.ours.unpriced = Decimal("0.0161"), 1, 1
    verdict = result_of([cell]).verdicts.money
    assert verdict.reason == "0.02 USD are billed for 1 line with streams that have no cost"


def test_taps_saw_nothing_of_a_provider_without_a_stream() -> None:
    unseen = a_cell([], BATCH)
    assert result_of([unseen]).coverage == {"openai": "0.0000"}
    assert result_of([a_cell(ten())]).coverage == {"openai": "1.0000"}


def test_a_provider_without_money_beside_others_is_said() -> None:
    shapes = {"openai": SHAPE, "anthropic": replace(SHAPE, has_money=False), "aws": replace(SHAPE, has_tokens=False)}
    result = conclude([a_cell(ten())], shapes, [], PERIOD, Tolerance(0, "0"))
    assert result.notes == [
        "No invoice of aws has tokens, so its tokens are not compared.",
        "No invoice of anthropic has money, so its money is not compared.",
    ]
    assert conclude([a_cell(ten())], {"openai": SHAPE}, [], PERIOD, Tolerance(0, "0")).notes == []


def write(path: Path, text: str) -> Path:
    (path / "scope.toml").write_text(text)
    return path / "scope.toml"


def test_a_scope_file_is_read(tmp_path: Path) -> None:
    text = '[[known]]\ncause = "tax"\nprovider = "OpenAI"\nusd = "12.50"\nuntil = 2026-12-31\nreason = "VAT"\n'
    assert load_scope(write(tmp_path, text)) == (
        Known("tax", "openai", usd=Decimal("12.50"), until="2026-12-31", reason="VAT"),
    )
    assert load_scope(write(tmp_path, "")) == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "holds [[known]] alone"),
        ("[[known", "is not TOML"),
        ('[[known]]\ncause = "sun"', "is no cause"),
        ('[[known]]\ncause = "tax"\nusd = "1"', "until is missing"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31', "has no limit"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31\nusd = "-1"', "is not an amount"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31\nusd = "NaN"', "is not an amount"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31\ntokens = -1', "is not a number"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31\ntokens = true', "is not a number"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31\nusd = 1\nkind = "x"', "kind is not known"),
        ('[[known]]\ncause = "tax"\nuntil = 2026-12-31\nusd = 1\nmodel = 1', "model is not text"),
        ("known = [1]", "is not a table"),
    ],
)
def test_a_scope_file_that_is_wrong_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"scope\.toml") as refused:
        load_scope(write(tmp_path, text))
    assert sentence in str(refused.value)


def test_a_scope_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="cannot be read"):
        load_scope(tmp_path / "none.toml")
    with pytest.raises(UsageFault, match="is no cause"):
        accept(["sun"])


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with NamedTemporaryFile() as file:
        file.write(text.encode("utf-8", "surrogatepass"))
        file.flush()
        with suppress(UsageFault):
            load_scope(Path(file.name))


@given(st.lists(st.tuples(st.sampled_from(CAUSES), st.integers(0, 100)), max_size=6), st.integers(0, 200))
def test_parts_are_accepted_exactly_up_to_the_limit(parts: list[tuple[str, int]], limit: int) -> None:
    cell = a_cell(ten())
    cell.explanations = [Explanation(cause, Tokens(output=count), None) for cause, count in parts]
    found = accepted([cell], [Known("batch", tokens=limit, until=DAY)], DAY)
    batches = [one for one in cell.explanations if one.cause == "batch"]
    fits = sum(one.tokens.output for one in batches) <= limit
    assert [one for one in cell.explanations if found.has(one)] == (batches if fits else [])
