"""Totals as a report: rounded money, a total line, and what the period lacks."""

from typing import Any

import pytest

from streamgauge.cli.totals_report import Report, notes, print_report, report_page, value_of
from streamgauge.ledger import Total

DOLLAR = 10**12
DAY_US = 86_400_000_000
# 2026-11-01T00:00:00Z
NOVEMBER_US = 1_793_491_200_000_000


def total(*keys: str | None, **changes: Any) -> Total:
    return Total(keys, **{"streams": 1, "with_usage": 1, "input_tokens": None, "output_tokens": None, "total_tokens": None,
                          "with_cost": 1, **changes})  # fmt: skip


def report(*totals: Total, **changes: Any) -> Report:
    known: dict[str, Any] = {
        "by": ["tenant"],
        "totals": totals,
        "shown": len(totals),
        "period": (None, None),
        "about": ["Month 2026-11, time zone UTC."],
        "now_us": NOVEMBER_US + 60 * DAY_US,
    }
    return Report(**known | changes)


def lines(capsys: pytest.CaptureFixture[str], printed: Report, width: int | None = None) -> list[list[str]]:
    print_report(printed, width)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_money_is_rounded_to_cents_and_the_total_is_of_the_exact_amounts(capsys: pytest.CaptureFixture[str]) -> None:
    half_cent = DOLLAR * 4 // 1_000
    head, first, second, third, rule, last, *_ = lines(
        capsys, report(total("a", cost=half_cent), total("b", cost=half_cent), total(None, cost=12 * DOLLAR + 1))
    )
    assert head == ["tenant", "streams", "input_tokens", "output_tokens", "cost_usd"]
    assert [first[-1], second[-1], third[-1]] == ["<0.01", "<0.01", "12.00"]
    assert third[0] == "-"
    assert set("".join(rule)) == {"-"}
    assert (last[0], last[1], last[-1]) == ("total", "3", "12.01")
    assert value_of(total("a", cost=half_cent), "cost_usd") == "0.004"


def test_a_total_is_that_of_all_lines_when_some_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, report(*(total(name, streams=2) for name in "abc"), shown=1))
    assert [line[0] for line in printed[:2]] == ["tenant", "a"]
    assert printed[3][:2] == ["total", "6"]
    assert " ".join(printed[-1]) == "The total is that of all 3 lines."


def test_no_record_has_no_total(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(capsys, report())) == 1
    assert list(notes(report())) == ["There is no record."]
    assert "<tfoot" not in report_page(report())


def test_a_month_that_was_captured_from_its_middle_on_is_no_whole_month() -> None:
    month = NOVEMBER_US, NOVEMBER_US + 30 * DAY_US
    half = total("a", first_us=NOVEMBER_US + 14 * DAY_US, last_us=NOVEMBER_US + 28 * DAY_US)
    assert list(notes(report(half, period=month))) == [
        "First record 2026-11-15T00:00:00Z, last 2026-11-29T00:00:00Z.",
        "No record is of the first 14 days and the last 2 days of the period.",
    ]
    begun = report(half, period=month, now_us=NOVEMBER_US + 28 * DAY_US + 1)
    assert list(notes(begun))[1:] == ["No record is of the first 14 days of the period."], "the month goes on"
    whole = total("a", first_us=NOVEMBER_US + 5, last_us=NOVEMBER_US + 30 * DAY_US - 1)
    assert len(list(notes(report(whole, period=month)))) == 1
    assert len(list(notes(report(half)))) == 1, "without a period nothing is missing"


def test_streams_without_cost_or_usage_are_said() -> None:
    said = list(notes(report(total("a", streams=2_000, with_cost=1_500, without_cost=500, without_usage=1))))
    assert said == ["The cost is that of 1,500 of 2,000 streams.", "1 stream of 2,000 reported no tokens."]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_report_fits_its_terminal(capsys: pytest.CaptureFixture[str], width: int) -> None:
    long = total(
        "a-tenant-with-a-name-of-some-length",
        "a-model-with-a-name-of-some-length",
        streams=10**6,
        cost=DOLLAR,
        input_tokens=10**12,
        output_tokens=10**10,
        without_price=5,
        without_usage=7,
        longest_wait_us=10**7,
    )
    left_out = print_report(report(long, by=["tenant", "model"]), width)
    table = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert max(map(len, table)) <= width
    assert "1,000,000,000,000" in table[1] or "input_tokens" in left_out
    assert table[1].split()[-1] != "1.00" or left_out


def test_the_page_has_the_exact_amounts_and_loads_nothing() -> None:
    page = report_page(report(total("<b>", cost=DOLLAR // 3)))
    assert '<data value="0.333333333333" title="0.333333333333 USD">0.33</data>' in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "default-src 'none'" in page
    assert "Month 2026-11, time zone UTC." in page
