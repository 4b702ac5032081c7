"""A result as rows and sentences: what a terminal and a spreadsheet show."""

import pytest

from streamgauge.audit.parts import explained_parts, undecided_parts, unexplained_parts
from streamgauge.audit.result import Alternatives, RateChange, Verdict, Verdicts
from streamgauge.audit.rows import (
    LINE_COLUMNS,
    headline,
    line_rows,
    part_details,
    part_rows,
    said_verdicts,
    shown_totals,
    summary,
    total_rows,
    verdict_sentence,
    what_to_do,
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


def test_the_first_sentence_says_where_less_than_the_period_was_compared() -> None:
    agrees, differs, none = (Verdict(word, None) for word in ("agrees", "differs", "not_compared"))
    limited = "the bill agrees with the ledger, as far as it was compared"
    assert headline(result_of([], agrees=True, verdicts=Verdicts(agrees, agrees))) == "the bill agrees with the ledger"
    assert headline(result_of([], agrees=True, verdicts=Verdicts(agrees, none))) == limited
    assert headline(result_of([], agrees=True, verdicts=Verdicts(none, agrees))) == limited
    members = {"agrees": True, "verdicts": Verdicts(agrees, agrees)}
    assert headline(result_of([], uncovered_days={"openai": 29}, **members)) == limited
    assert headline(result_of([], uncovered_days={"openai": 0}, **members)) == "the bill agrees with the ledger"
    differing = result_of([], uncovered_days={"openai": 29}, verdicts=Verdicts(differs, none))
    assert headline(differing) == "the bill does not agree with the ledger"


def test_the_share_that_taps_saw_is_a_limit_where_tokens_are_open() -> None:
    def said(*parts: Alternatives, rest: int) -> str:
        lines = [line(*parts, ours=OURS, rest=amount(rest, "0")), line(ours=OURS, rest=NONE, provider="aws")]
        *_, share, of_aws = summary(result_of(lines, coverage={"openai": "0.9989", "aws": "1.0000"}))
        assert of_aws == "The ledger has records of 100.00 % of the tokens that aws billed."
        return share

    assert said(rest=0) == "The ledger has records of 99.89 % of the tokens that openai billed."
    assert said(rest=-5) == "The ledger has records of 99.89 % of the tokens that openai billed."
    assert said(rest=5) == "The ledger has records of at most 99.89 % of the tokens that openai billed."
    open_part = undecided(("coverage", "tier"), 7, "0")
    assert said(open_part, rest=0) == "The ledger has records of at most 99.89 % of the tokens that openai billed."


def test_each_group_of_causes_has_its_meaning_and_an_action() -> None:
    lines = [line(explained("coverage", 1, "1"), ours=OURS, rest=amount(1, "0"), model=model) for model in ("a", "b")]
    result = result_of([*lines, line(undecided(("coverage", "tier"), 1, "0"), ours=OURS, rest=NONE)])
    (without_record,) = what_to_do(explained_parts(result))
    assert without_record.startswith("coverage (Billed without a record): The provider bills requests")
    assert "What to do: Look at " in without_record
    (one_of,) = what_to_do(undecided_parts(result))
    assert one_of.startswith("coverage or tier: Billed without a record: ")
    assert "What to do: Claim nothing yet" in one_of
    (no_cause,) = what_to_do(unexplained_parts(result))
    assert no_cause.startswith("unexplained: What to do: Ask the provider for the requests")
    assert "within the tolerance" in next(what_to_do(unexplained_parts(result), is_tolerated=True))


def test_totals_say_what_is_not_compared_so_that_they_add_up() -> None:
    unpriced = line(ours=amount(8, None), rest=amount(0, None))
    unpriced.theirs.usd = "3"
    rows = total_rows(totals_of([unpriced, line(ours=OURS, rest=amount(0, "0.5"))])[1:])
    assert rows[:4] == [
        ["billed, USD", "4.50"],
        ["  not compared, USD", "3.00"],
        ["ours, USD", "1.00"],
        ["difference, USD", "0.50"],
    ]


def test_a_result_that_compared_nothing_does_not_begin_with_a_verdict_on_the_bill() -> None:
    nothing = Verdicts(Verdict("not_compared", "no row"), Verdict("not_compared", "no row"))
    first, *others = summary(result_of([], verdicts=nothing, accepted=["accepted."], notes=["a note."]))
    assert first == "2026-11-01 to 2026-12-01 (UTC, last day excluded): nothing was compared."
    assert others == ["Tokens are not compared: no row.", "Money is not compared: no row.", "accepted.", "a note."]
    assert summary(result_of([], agrees=True))[0].endswith("the bill agrees with the ledger.")
    line_of_a_lack = line(ours=NONE, rest=amount(180, "0.58"))
    sentences = summary(result_of([line_of_a_lack], verdicts=nothing, coverage={"openai": "0.0000"}))
    assert len(sentences) == 3, "nothing is said of amounts that were not compared"
    assert said_verdicts(result_of([]).verdicts) is None
