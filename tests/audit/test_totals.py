"""The totals: exact, together and by provider, with what is in dispute."""

from collections.abc import Callable
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import EXACT, ZERO_USD
from streamgauge.audit.result import Amount, Line, ProviderTotal
from streamgauge.audit.totals import totals_of
from tests.audit.sample_lines import amount, counts, explained, line, some_lines, undecided


def tokens_of(part: Amount) -> int | None:
    return None if part.tokens is None else part.tokens.total


def test_totals_are_exact_and_by_provider() -> None:
    lines = [
        line(explained("coverage", 100, "0.000000000001"), ours=amount(900, "10.1"), rest=amount(0, "0")),
        line(
            explained("late_across_midnight", -5, "-0.20"),
            ours=amount(50, "0.50"),
            rest=amount(7, "0.07"),
            provider="anthropic",
        ),
        line(undecided(("coverage", "tier"), 30, "3"), ours=amount(0, "0"), rest=amount(-2, "-0.02")),
    ]
    together, anthropic, openai = totals_of(lines)
    assert (together.provider, anthropic.provider, openai.provider) == (None, "anthropic", "openai")
    assert together.ours == amount(950, "10.6")
    assert together.billed == amount(1080, "13.450000000001")
    assert together.difference == amount(130, "2.850000000001")
    assert together.explained == amount(95, "-0.199999999999")
    assert together.undecided == amount(30, "3")
    assert together.unexplained == amount(5, "0.05")
    assert anthropic.difference == amount(2, "-0.13")
    assert openai.explained == amount(100, "0.000000000001")


def test_in_dispute_is_what_the_provider_has_to_answer_for_and_a_surplus_hides_no_lack() -> None:
    lines = [
        line(
            explained("duplicate_lines", 400, "4"),
            explained("coverage", 50, "0.5"),
            explained("tax", None, "19"),
            ours=amount(10, "1"),
            rest=amount(-20, "-0.2"),
        ),
        line(undecided(("coverage", "tier"), -3, "-0.03"), ours=amount(10, "1"), rest=amount(20, "0.2")),
        line(explained("price_changed", 0, "-7"), ours=amount(10, "1"), rest=amount(0, "0")),
    ]
    together, openai = totals_of(lines)
    assert together.in_dispute == openai.in_dispute == amount(400 + 20 + 3 + 20, "11.43")
    assert together.unexplained == amount(0, "0")


def test_kinds_that_were_exchanged_are_in_dispute_though_their_sum_is_0() -> None:
    moved = explained("cache_counted_differently", 0, "0.7")
    moved.tokens = counts(500, -500)
    (together, _) = totals_of([line(moved, ours=amount(0, "0"), rest=amount(0, "0"))])
    assert together.in_dispute.tokens == counts(500, 500)
    assert tokens_of(together.explained) == 0


def test_what_no_line_knows_is_unknown_and_what_one_knows_is_not() -> None:
    only_money = line(explained("credit", None, "-5"), ours=amount(None, "0"), rest=amount(None, "0"))
    (together, _) = totals_of([only_money])
    assert together.billed == together.explained == amount(None, "-5")
    assert (together.undecided, together.in_dispute) == (amount(None, "0"), amount(None, "0"))
    no_cost = line(ours=amount(8, None), rest=amount(2, None))
    no_cost.theirs.usd = "3"
    (together, _) = totals_of([no_cost])
    assert (together.billed, together.ours) == (amount(10, "3"), amount(8, None))
    assert (together.difference, together.explained) == (amount(2, None), amount(0, None))
    (together, _) = totals_of([only_money, no_cost])
    assert (together.billed, together.ours) == (amount(10, "-2"), amount(8, "0"))
    assert together.difference == amount(2, "-5")


def test_a_kind_that_no_line_counts_apart_stays_null() -> None:
    without = line(ours=Amount(counts(5, None, None, 1), "1"), rest=Amount(counts(2, None, None, 3), "0"))
    without.theirs = without.difference = without.unexplained
    (together, _) = totals_of([without])
    assert together.billed.tokens == counts(2, None, None, 3)
    assert together.in_dispute.tokens == counts(2, None, None, 3)


def test_what_is_not_compared_is_beside_each_side() -> None:
    unpriced = line(ours=amount(8, None), rest=amount(2, None))
    unpriced.theirs.usd = "3"
    unbilled = line(ours=amount(5, "0.5"), rest=Amount(None, None))
    unbilled.theirs = Amount(None, None)
    (together, _) = totals_of([line(ours=amount(1, "1"), rest=amount(1, "0.2")), unpriced, unbilled])
    assert (together.billed.usd, together.ours.usd, together.difference.usd) == ("4.2", "1.5", "0.2")
    assert together.billed_not_compared == Amount(None, "3")
    assert together.ours_not_compared == amount(5, "0.5")


_SIDE = st.tuples(st.none() | st.integers(0, 10**9), st.none() | st.integers(0, 10**9))


@given(st.lists(st.tuples(_SIDE, _SIDE), min_size=1, max_size=6))
def test_billed_minus_ours_is_the_difference_of_what_is_compared(
    sides: list[tuple[tuple[int | None, int | None], ...]],
) -> None:
    lines = []
    for ours, theirs in sides:
        less = [
            None if mine is None or other is None else other - mine for mine, other in zip(ours, theirs, strict=True)
        ]
        one = line(ours=_amount(*ours), rest=_amount(*less))
        one.theirs = _amount(*theirs)
        lines.append(one)
    (together, _) = totals_of(lines)
    for known in (lambda part: tokens_of(part) or 0, usd_of):
        billed = known(together.billed) - known(together.billed_not_compared)
        assert billed - (known(together.ours) - known(together.ours_not_compared)) == known(together.difference)


def _amount(tokens: int | None, usd: int | None) -> Amount:
    return amount(tokens, None if usd is None else str(usd))


def test_without_a_line_there_are_no_totals() -> None:
    assert totals_of([]) == []


@given(some_lines())
def test_each_total_is_the_sum_of_its_parts_and_of_its_providers(lines: list[Line]) -> None:
    totals = totals_of(lines)
    assert totals == totals_of(lines[::-1])
    if not lines:
        return
    together, *named = totals
    assert [total.provider for total in named] == sorted({one.provider for one in lines})
    for total in totals:
        parts = (total.explained, total.undecided, total.unexplained)
        if total.difference.tokens is not None:
            assert total.difference.tokens.total == sum(tokens_of(part) or 0 for part in parts)
        if total.difference.usd is not None:
            assert Decimal(total.difference.usd) == sum((usd_of(part) for part in parts), ZERO_USD)
        disputed = total.in_dispute
        assert (tokens_of(disputed) or 0) >= abs(tokens_of(total.unexplained) or 0)
        assert usd_of(disputed) >= abs(usd_of(total.unexplained))
    columns: tuple[Callable[[ProviderTotal], Amount], ...] = (
        lambda total: total.billed,
        lambda total: total.ours,
        lambda total: total.difference,
        lambda total: total.in_dispute,
    )
    for column in columns:
        assert usd_of(column(together)) == sum((usd_of(column(total)) for total in named), ZERO_USD)
        assert (tokens_of(column(together)) or 0) == sum(tokens_of(column(total)) or 0 for total in named)


def usd_of(part: Amount) -> Decimal:
    return EXACT.create_decimal(part.usd or 0)
