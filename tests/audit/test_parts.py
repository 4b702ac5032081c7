"""What lines add up to: one part a cause and model, one price change told once, days with their providers."""

import pytest
from hypothesis import given

from streamgauge.audit.parts import explained_parts, is_zero, time_totals, undecided_parts, unexplained_parts
from streamgauge.audit.result import Amount, Line, RateChange
from streamgauge.audit.totals import AmountSum, totals_of
from tests.audit.sample_lines import amount, counts, explained, line, result_of, some_lines, undecided


def test_a_part_has_its_money_streams_and_days_and_comes_in_the_order_of_causes() -> None:
    ours = amount(100, "1")
    lines = [
        line(explained("coverage", 10, "0.1"), ours=ours, rest=amount(0, "0"), day="2026-11-02"),
        line(explained("missing_from_invoice", -4, "-0.04", "s1", "s2"), ours=ours, rest=amount(0, "0")),
        line(explained("coverage", 20, "0.25"), ours=ours, rest=amount(0, "0"), day="2026-11-09"),
        line(explained("missing_from_invoice", -5, None, "s2", "s3"), ours=ours, rest=amount(0, "0"), day="2026-11-04"),
        line(explained("coverage", 1, "0.01"), ours=ours, rest=amount(0, "0"), model="gpt-5-mini"),
        line(explained("tax", None, "9.5", labels=("VAT 19 %",)), ours=amount(None, "0"), rest=amount(None, "0"), model=None),
    ]  # fmt: skip
    missing, coverage, mini, tax = explained_parts(result_of(lines))
    assert (missing.causes, missing.amount, missing.span) == (
        ("missing_from_invoice",), amount(-9, "-0.04"), ("2026-11-03", "2026-11-04")
    )  # fmt: skip
    assert list(missing.streams) == ["s1", "s2", "s3"]
    assert (coverage.model, coverage.amount, coverage.span) == (
        "gpt-5",
        amount(30, "0.35"),
        ("2026-11-02", "2026-11-09"),
    )
    assert mini.model == "gpt-5-mini"
    assert (tax.causes, list(tax.labels), tax.amount) == (("tax",), ["VAT 19 %"], amount(None, "9.5"))


def test_a_price_change_is_told_once_with_its_first_moment() -> None:
    lines = []
    for day in ("2026-11-16", "2026-11-15", "2026-11-17"):
        changed = explained("price_changed", 0, "2")
        changed.rates = [
            RateChange("output", "10", "12", f"{day}T12:00:00Z"),
            RateChange("input_cached", None, "1", day),
        ]
        lines.append(line(changed, ours=amount(5, "1"), rest=amount(0, "0"), day=day))
    (part,) = explained_parts(result_of(lines))
    assert [(rate.kind, rate.first_seen) for rate in part.rates.values()] == [
        ("output", "2026-11-15T12:00:00Z"), ("input_cached", "2026-11-15")
    ]  # fmt: skip


def test_undecided_and_unexplained_parts() -> None:
    one_of = ("aborted_without_usage", "coverage")
    lines = [
        line(undecided(one_of, 7, "0.7", "s1"), ours=amount(1, "1"), rest=amount(0, "0")),
        line(undecided(one_of, 3, "0.3", "s2"), ours=amount(1, "1"), rest=amount(0, "0.001"), day=None),
        line(undecided(("coverage", "tier"), 1, "0"), ours=amount(1, "1"), rest=amount(-1, "0"), provider="anthropic"),
    ]
    first, second = undecided_parts(result_of(lines))
    assert (first.causes, first.provider, first.amount) == (one_of, "openai", amount(10, "1"))
    assert (first.span, list(first.streams)) == (("2026-11-03", "2026-11-03"), ["s1", "s2"])
    assert second.causes == ("coverage", "tier")
    rest, money = unexplained_parts(result_of(lines))
    assert (rest.provider, rest.amount, rest.causes) == ("anthropic", amount(-1, "0"), ())
    assert (money.provider, money.amount, money.span) == ("openai", amount(0, "0.001"), None)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (amount(0, "0"), True),
        (amount(None, None), True),
        (Amount(counts(5, -5), "0"), False),
        (amount(0, "0.000001"), False),
        (amount(None, "-1"), False),
    ],
)
def test_is_zero(one: Amount, expected: bool) -> None:
    assert is_zero(one) is expected


def test_a_year_is_shown_by_months_and_a_month_by_days() -> None:
    days = [f"2026-{month:02}-{day:02}" for month in (1, 2, 3) for day in range(1, 29)]
    lines = [line(ours=amount(1, "0.5"), rest=amount(0, "0"), day=day) for day in days]
    lines.append(line(ours=amount(1, "0.5"), rest=amount(0, "0"), day=None, provider="anthropic"))
    unit, months = time_totals(result_of(lines))
    assert (unit, [month for month, _ in months]) == ("Month", [None, "2026-01", "2026-02", "2026-03"])
    assert months[1][1][0].ours == amount(28, "14")
    unit, found = time_totals(result_of(lines[:31]))
    assert (unit, [day for day, _ in found]) == ("Day", days[:31])


@given(some_lines())
def test_parts_and_days_add_up_to_the_totals(lines: list[Line]) -> None:
    result = result_of(lines)
    for parts, of in (
        (explained_parts(result), [part for one in lines for part in one.explanations]),
        (undecided_parts(result), [part for one in lines for part in one.alternatives]),
    ):
        by_parts, by_lines = AmountSum(), AmountSum()
        for part in parts:
            by_parts.add(part.amount)
        for single in of:
            by_lines.add(single)
        assert by_parts.amount() == by_lines.amount()
    by_days, together = AmountSum(), totals_of(lines)
    for _, providers in time_totals(result)[1]:
        for total in providers:
            by_days.add(total.difference)
    assert by_days.amount() == (together[0].difference if together else Amount(None, None))
