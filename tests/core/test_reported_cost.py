"""The cost that a response reports: exact decimal digits, and the name of who reports it; none if that is not known."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Head
from streamgauge.core.formats.json_text import parse
from streamgauge.core.record import ReportedCost
from streamgauge.core.reported_cost import reported_cost
from streamgauge.core.safe_values import decimal_text

LITELLM = Head(200, gateway="litellm")


def of(raw: dict[str, object] | None, head: Head | None = None, response_id: str | None = None) -> ReportedCost | None:
    return reported_cost(raw, head, response_id)


@pytest.mark.parametrize(
    ("raw", "cost"),
    [
        ({"cost": 1.13e-05, "is_byok": False}, ReportedCost("0.0000113", False, "openrouter")),
        (
            {"cost": 0.0076509169000000005, "cost_details": {}},
            ReportedCost("0.0076509169000000005", None, "openrouter"),
        ),
        ({"cost": 0.002, "is_byok": True}, ReportedCost("0.002", True, "openrouter")),
        ({"cost": 0, "is_byok": False}, ReportedCost("0", False, "openrouter")),
        ({"cost": 0.5, "is_byok": False, "market_cost": 0.5}, ReportedCost("0.5", False, "vercel")),
        ({"cost_in_usd_ticks": 1707000}, ReportedCost("0.0001707", False, "xai")),
        ({"cost_in_usd_ticks": 123_0000000001}, ReportedCost("123.0000000001", False, "xai")),
        ({"cost_in_usd_ticks": 100_000_000_000}, ReportedCost("10", False, "xai")),
        ({"cost_in_usd_ticks": 0}, ReportedCost("0", False, "xai")),
        ({"cost": {"total_cost": 0.00601}}, ReportedCost("0.00601", False, "perplexity")),
        ({"cost": {"total_cost": 0.25, "currency": "USD"}}, ReportedCost("0.25", False, "perplexity")),
        ({"cost": {"total_cost": 0.25, "currency": "EUR"}}, None),
        ({"cost": {"input_cost": 0.25}}, None),
        ({"cost": 0.25}, None),  # neither the seller nor the currency is known
        ({"is_byok": False}, None),
        ({}, None),
        (None, None),
    ],
)
def test_each_reporter_by_its_own_members(raw: dict[str, object] | None, cost: ReportedCost | None) -> None:
    assert of(raw) == cost


def test_the_response_id_shows_openrouter() -> None:
    assert of({"cost": 0.0003287}, None, "gen-1750000000-aB") == ReportedCost("0.0003287", None, "openrouter")
    assert of({"cost": 0.0003287}, None, "chatcmpl-1") is None


def test_litellm_reports_in_usage_or_in_its_head() -> None:
    assert of({"cost": 5.52e-05}, LITELLM, "chatcmpl-1") == ReportedCost("0.0000552", False, "litellm")
    with_cost = Head(200, gateway="litellm", cost="0.0000345")
    assert of(None, with_cost) == of({"prompt_tokens": 1}, with_cost) == ReportedCost("0.0000345", False, "litellm")
    assert of({"cost": 5.52e-05}, with_cost) == ReportedCost("0.0000552", False, "litellm")  # of the whole stream
    assert of(None, LITELLM) is None
    assert of(None, Head(200, cost="0.1")) is None  # the reporter is unknown


@pytest.mark.parametrize(
    ("given", "text"),
    [
        *[(0.1, "0.1"), (0.1 + 0.2, "0.30000000000000004"), (1e-07, "0.0000001"), (5, "5"), (100, "100"), (10.0, "10")],
        *[("3.45e-05", "0.0000345"), ("1E2", "100"), ("0012.50", "12.5"), ("0.000", "0"), ("0e5", "0")],
        ("0.1234567890123456789012345678901234567891", "0.1234567890123456789012345678901234567891"),
        *dict.fromkeys((None, True, -0.1, "-1", "", "NaN", "1e999999999", ".5", "5.", " 1", "1_0")).items(),
        *[
            (2.0**53, None),
            (2**53, None),
            (float("nan"), None),
            (float("inf"), None),
            ("9" * 16, None),
            ([], None),
            ({}, None),
        ],
    ],
)
def test_decimal_digits(given: object, text: str | None) -> None:
    assert decimal_text(given) == text


@given(st.decimals(min_value=0, max_value=10**6, places=12, allow_nan=False), st.booleans())
def test_the_digits_of_the_json_are_those_of_the_record(amount: Decimal, as_exponent: bool) -> None:
    """Also where the binary fraction that stands for them has others: up to 15 significant digits a double keeps each."""
    amount = Decimal(f"{amount:.15g}")
    value = parse(f"{amount:e}".encode() if as_exponent else f"{amount:f}".encode())
    text = decimal_text(value)
    assert text is not None and Decimal(text) == amount
    assert re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", text)


@given(st.integers(min_value=0, max_value=2**53))
def test_ticks_are_exact(ticks: int) -> None:
    cost = of({"cost_in_usd_ticks": ticks})
    assert cost is not None and Decimal(cost.usd) * 10**10 == ticks
