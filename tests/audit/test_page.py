"""The page of an audit: what stands first, exact amounts beside rounded ones, and texts of others as text."""

import re
from decimal import Decimal
from html.parser import HTMLParser

from hypothesis import given

from streamgauge.audit.page import MAX_STREAMS, Kept, escape, page
from streamgauge.audit.result import Amount, Days, FindingLine, InvoiceUsed, Line, Provenance, Verdict, Verdicts
from streamgauge.audit.totals import totals_of
from tests.audit.sample_lines import amount, company_result, explained, ids, line, result_of, some_lines, undecided

# Elements without an end tag.
_VOID = frozenset({"meta"})


class _Shape(HTMLParser):
    """Checks that every element is closed in its order; keeps the values of `data`."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.exact: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.exact += [value or "" for name, value in attrs if tag == "data" and name == "value"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shape_of(text: str) -> _Shape:
    shape = _Shape()
    shape.feed(text)
    shape.close()
    assert shape.open == []
    return shape


def test_texts_of_others_are_shown_and_not_obeyed() -> None:
    assert escape("<b>\u202etxt\x1b[2J\u2066 é 日本") == r"&lt;b&gt;\u202etxt\u001b[2J\u2066 é 日本"


def test_every_text_of_a_file_or_a_record_is_escaped() -> None:
    evil = "<i>\u202e\"'&"
    parts = (explained("tax", 1, "1", evil, labels=(evil,)), undecided(("coverage", "tier"), 1, "1", evil))
    text = page(
        result_of(
            [line(*parts, ours=amount(1, "1"), rest=amount(1, "1"), provider=evil, model=evil)],
            coverage={evil: "0.5"},
            accepted=[evil],
            notes=[evil],
            findings=[FindingLine(evil, evil, evil, 1, [], evil)],
            verdicts=Verdicts(Verdict("differs", evil), Verdict("not_compared", evil)),
            provenance=Provenance(
                evil,
                evil,
                evil,
                [InvoiceUsed(evil, evil, evil, 1, "2026-11-01", "2026-11-02")],
                {evil: evil},
                {evil: evil},
            ),
        )
    )
    assert "<i>" not in text
    assert "\u202e" not in text
    assert text.count("&lt;i&gt;") > 15
    shape_of(text)


def test_verdicts_and_totals_come_first_then_causes_undecided_days_streams_and_provenance() -> None:
    text = page(company_result(), Kept(3, "2026-12-04T08:00:00Z", True))
    shape_of(text)
    heads = re.findall(r"<h2>(.+?)</h2>", text)
    assert heads == [
        "Totals", "Causes", "Undecided", "Unexplained", "Days", "Streams", "Other findings", "What this was made of",
    ]  # fmt: skip
    assert text.index('<div class="verdict differs"><b>Tokens differ</b>') < text.index("<h2>Totals</h2>")
    assert "Money is shown in dollars and rounded to cents, half a cent away from zero" in text
    assert "run 3, 2026-12-04T08:00:00Z, preliminary" in text
    assert "genai-prices 0.0.47" in text
    assert text.count("ab" * 32) == 1
    assert "completions_usage_2026-11-01_2026-11-30.json" in text


def test_the_reason_of_a_verdict_has_plain_names() -> None:
    verdicts = Verdicts(Verdict("differs", "3 tokens undecided; missing_from_invoice, tier"), Verdict("agrees", None))
    text = page(result_of([], verdicts=verdicts))
    assert "<b>Tokens differ</b>: 3 tokens undecided; “Not billed”, “Another service tier”." in text
    assert '<div class="verdict agrees"><b>Money agrees</b>.' in text


def test_a_price_change_is_told_once_with_its_first_moment() -> None:
    text = page(company_result())
    assert text.count("first seen") == 1
    assert "output: 10 USD a million tokens by our costs, 12 USD billed, first seen 2026-11-15T12:00:00Z" in text
    assert text.count("2026-11-15") == 3, "its moment, its first day, and its row among the days"


def test_a_cause_has_its_meaning_and_one_action_and_its_models_below_it() -> None:
    lines = [
        line(explained("coverage", 10, "1.005"), ours=amount(1, "1"), rest=amount(0, "0"), model=model, day=day)
        for model, day in (("gpt-5", "2026-11-02"), ("gpt-5-mini", "2026-11-03"), ("gpt-5", "2026-11-09"))
    ]
    text = page(result_of(lines))
    assert text.count("Find the clients that use this key") == 1
    assert text.count('scope="rowgroup"') == 1
    assert '<data value="2.01" title="2.01 USD">2.01</data>' in text
    assert '<data value="1.005" title="1.005 USD">1.01</data>' in text
    assert re.search(r'First day">2026-11-02</td>.*Last day">2026-11-09</td>', text)


def test_a_page_lists_fifty_streams_of_a_cause_and_says_how_to_get_the_others() -> None:
    lines = [
        line(explained("aborted_without_usage", 1, "1", *ids(day, 60)), ours=amount(1, "1"), rest=amount(0, "0"), model=model)
        for day, model in ((1, "gpt-5"), (2, "gpt-5-mini"))
    ]  # fmt: skip
    text = page(result_of(lines), Kept(7, "2026-12-04T08:00:00Z", False))
    assert text.count("<li>0193") == MAX_STREAMS
    assert "<h3>Aborted streams (120)</h3>" in text
    assert "And 70 more. " in text
    assert "<code>streamgauge audit claim 7 --cause aborted_without_usage</code> writes all of them as CSV" in text
    assert "audit claim RUN --cause" in page(result_of(lines))


def test_few_streams_of_a_cause_are_also_said_to_be_of_the_ledger_and_how_a_claim_names_them() -> None:
    text = page(result_of([line(explained("tier", 1, "1", "s1"), ours=amount(1, "1"), rest=amount(0, "0"))]))
    assert "more." not in text[text.index("<h2>Streams</h2>") :]
    assert "These are the ledger's ids of responses" in text
    assert "<code>streamgauge audit claim RUN --cause tier</code>" in text


def test_the_period_stands_in_the_title_alone() -> None:
    text = page(result_of([]))
    assert "<h1>Billing audit, 2026-11-01 to 2026-11-30 (UTC)</h1>" in text
    assert "2026-12-01" not in text
    text = page(result_of([], period=Days("2026-11-29", "2026-11-30", "UTC")))
    assert "<h1>Billing audit, 2026-11-29 (UTC)</h1>" in text


def test_what_is_within_the_tolerance_asks_for_nothing() -> None:
    def said(usd: str, **members: object) -> str:
        text = page(result_of([line(ours=amount(1, "1"), rest=amount(0, usd))], **members))
        return text[text.index("<h2>Unexplained</h2>") :]

    assert "Ask the provider" in said("0.011")
    assert "within the tolerance" in said("-0.01")
    assert "Ask the provider" not in said("-0.01")
    assert "within the tolerance" in said("0.011", agrees=True), "an export that rounds adds to the tolerance"


def test_how_a_known_cause_is_accepted_is_said_unless_the_bill_agrees() -> None:
    lines = [line(explained("tax", 0, "1"), ours=amount(1, "1"), rest=amount(0, "0"))]
    assert "<code>--accept CAUSE</code>" in page(result_of(lines))
    assert "--accept CAUSE" not in page(result_of(lines, agrees=True))
    assert "--accept CAUSE" not in page(result_of([]))


def test_a_row_of_totals_says_what_is_not_compared() -> None:
    unpriced = line(ours=amount(8, None), rest=amount(0, None))
    unpriced.theirs.usd = "3.001"
    text = page(result_of([unpriced, line(ours=amount(1, "1"), rest=amount(0, "0"))]))
    assert text.count('<data value="3.001" title="3.001 USD">3.00</data>&nbsp;USD not compared') == 1


def test_unknown_amounts_are_neither_zero_nor_absent() -> None:
    text = page(result_of([line(ours=amount(5, None), rest=amount(0, None))]))
    assert text.count('title="unknown"') == 7
    assert "No difference: 1 day, counted" in text


def test_the_result_of_an_earlier_version_is_shown() -> None:
    old = result_of([line(explained("coverage", 10, "1"), ours=amount(1, "1"), rest=amount(0, "0"))], totals=[])
    for one in old.lines:
        one.undecided, one.alternatives = Amount(None, None), []
    text = page(old)
    assert "<b>The bill does not agree with the ledger.</b>" in text
    assert "The version that made this result did not write down its files." in text
    assert "Billed without a record" in text
    assert "<h2>Undecided</h2>" not in text
    assert re.search(r'data-label="in dispute"><data value="0" title="0 USD">0.00</data>', text)


@given(some_lines())
def test_any_result_is_well_formed_and_has_each_exact_amount(lines: list[Line]) -> None:
    exact = {Decimal(value) for value in shape_of(page(result_of(lines))).exact}
    for total in totals_of(lines):
        for one in (total.billed, total.ours, total.difference, total.in_dispute):
            assert one.usd is None or Decimal(one.usd) in exact
            assert one.tokens is None or one.tokens.total in exact
