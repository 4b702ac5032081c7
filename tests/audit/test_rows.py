"""A result as rows and sentences: what a terminal and a spreadsheet show."""

import pytest

from streamgauge.audit.parts import explained_parts, undecided_parts, unexplained_parts
from streamgauge.audit.result import RateChange, Verdict, Verdicts
from streamgauge.audit.rows import (
    LINE_COLUMNS,
    line_rows,
    part_details,
    part_rows,
    said_verdicts,
    shown_totals,
    summary,
    total_rows,
    verdict_sentence,
)
from streamgauge.audit.totals import totals_of
from tests.audit.sample_lines import amount, counts, explained, line, result_of, undecided

OURS, NONE = amount(100, "1"), amount(0, "0")


def test_a_line_has_its_undecided_part_in_the_last_columns() -> None:
    one = line(
        explained("tier", 5, "0.5"),
        undecided(("aborted_without_usage", "coverage"), 7, "0.0000000001"),
        undecided(("coverage", "tier"), 1, "0"),
        ours=OURS,
        rest=amount(-1, "-2"),
    )
    (row,) = line_rows(result_of([one]))
    shown = dict(zip(LINE_COLUMNS, map(str, row), strict=True))
    assert LINE_COLUMNS[-3:] == ("undecided_tokens", "undecided_usd", "alternatives")
    assert (shown["causes"], shown["unexplained_tokens"], shown["unexplained_usd"]) == ("tier", "-1", "-2")
    assert (shown["undecided_tokens"], shown["undecided_usd"]) == ("8", "0.0000000001")
    assert shown["alternatives"] == "aborted_without_usage|coverage coverage|tier"
    assert shown["usd_difference"] == "-1.4999999999"


def test_parts_as_rows_have_identifiers_rounded_money_and_days() -> None:
    lines = [
        line(explained("coverage", 1_234, "1.005"), ours=OURS, rest=NONE, day=day) for day in ("2026-11-02", "2026-11-09")
    ] + [
        line(undecided(("coverage", "tier"), 1, "0.001", "s"), ours=OURS, rest=amount(3, "4"), day=None),
        line(explained("tax", None, "9", labels=("VAT",)), ours=amount(None, "0"), rest=amount(None, "0"), model=None),
    ]  # fmt: skip
    result = result_of(lines)
    assert part_rows(explained_parts(result)) == [
        ["coverage", "openai", "gpt-5", "2,468", "2.01", None, "2026-11-02 to 2026-11-09"],
        ["tax", "openai", "VAT", None, "9.00", None, "2026-11-03"],
    ]
    assert part_rows(undecided_parts(result)) == [["coverage or tier", "openai", "gpt-5", "1", "<0.01", "1", None]]
    assert part_rows(unexplained_parts(result)) == [["unexplained", "openai", "gpt-5", "3", "4.00", None, None]]


def test_prices_and_exchanged_kinds_are_told_in_sentences() -> None:
    changed, moved = explained("price_changed", 0, "2"), explained("cache_counted_differently", 0, "0.7")
    changed.rates = [RateChange("input_cached", None, "1", "2026-11-15"), RateChange("total", "10", "12", "2026-11-16")]
    moved.tokens = counts(1_500, -1_500)
    parts = explained_parts(result_of([line(changed, moved, ours=OURS, rest=NONE)]))
    assert list(part_details(parts)) == [
        "price_changed of openai gpt-5: input cached: an unknown price a million tokens by our costs, 1 USD billed, first"
        " seen 2026-11-15",
        "price_changed of openai gpt-5: all tokens: 10 USD a million tokens by our costs, 12 USD billed, first"
        " seen 2026-11-16",
        "cache_counted_differently of openai gpt-5: input uncached 1,500, input cached -1,500",
    ]


def test_what_was_moved_from_line_to_line_is_told_where_the_sum_says_nothing() -> None:
    def both(cause: str, usd: str) -> list[str]:
        lines = [
            line(explained(cause, tokens, amount), ours=OURS, rest=NONE, key=key)
            for tokens, amount, key in ((1_200, usd, "river"), (-1_200, "-0.37", "delta"))
        ]
        return list(part_details(explained_parts(result_of(lines))))

    assert both("other_key", "0.37") == ["other_key of openai gpt-5: moved from line to line: 1,200 tokens, 0.37 USD"]
    assert both("tier", "0.74") == ["tier of openai gpt-5: moved from line to line: 1,200 tokens"]


def test_totals_leave_out_what_is_unknown_and_what_stands_twice() -> None:
    one = line(ours=amount(5, None), rest=amount(0, None))
    result = result_of([one])
    (total,) = shown_totals(result)
    assert total.provider == "openai"
    assert [row[0] for row in total_rows([total])] == [
        f"{name}, tokens"
        for name in ("billed", "ours", "difference", "explained", "undecided", "unexplained", "in dispute")
    ]
    two = [one, line(ours=OURS, rest=NONE, provider="anthropic")]
    assert [total.provider for total in shown_totals(result_of(two, totals=[]))] == [None, "anthropic", "openai"]
    assert total_rows(totals_of(two))[0] == ["billed, USD", "1.00", "1.00", None]


@pytest.mark.parametrize(
    ("subject", "verdict", "sentence"),
    [
        ("Tokens", Verdict("agrees", None), "Tokens agree."),
        ("Money", Verdict("differs", "tier; 3 USD undecided"), "Money differs: tier; 3 USD undecided."),
        (
            "Tokens",
            Verdict("not_compared", "no invoice has tokens."),
            "Tokens are not compared: no invoice has tokens.",
        ),
    ],
)
def test_a_verdict_is_one_sentence(subject: str, verdict: Verdict, sentence: str) -> None:
    assert verdict_sentence(subject, verdict) == sentence


def test_a_result_that_compared_nothing_does_not_begin_with_a_verdict_on_the_bill() -> None:
    nothing = Verdicts(Verdict("not_compared", "no row"), Verdict("not_compared", "no row"))
    first, *others = summary(result_of([], verdicts=nothing, accepted=["accepted."], notes=["a note."]))
    assert first == "2026-11-01 to 2026-12-01 (UTC, last day excluded): nothing was compared."
    assert others == ["Tokens are not compared: no row.", "Money is not compared: no row.", "accepted.", "a note."]
    assert summary(result_of([], agrees=True))[0].endswith("the bill agrees with the ledger.")
    assert said_verdicts(result_of([]).verdicts) is None
