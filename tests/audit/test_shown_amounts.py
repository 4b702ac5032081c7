"""Amounts for people: rounded to cents by one stated rule, never to a zero that is none."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import usd_text
from streamgauge.audit.shown_amounts import dollars, grouped


@pytest.mark.parametrize(
    ("exact", "shown"),
    [
        ("0", "0.00"),
        ("1234567.891", "1,234,567.89"),
        ("0.005", "0.01"),
        ("-0.005", "-0.01"),
        ("0.015", "0.02"),
        ("2.675", "2.68"),
        ("0.004999999999", "<0.01"),
        ("-0.000000000001", ">-0.01"),
        ("-1234.5", "-1,234.50"),
        ("999999999999999999.999999999999999999999999", "1,000,000,000,000,000,000.00"),
    ],
)
def test_dollars(exact: str, shown: str) -> None:
    assert dollars(exact) == shown


def test_counts_are_grouped() -> None:
    assert (grouped(-1234567), grouped(12)) == ("-1,234,567", "12")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=24, min_value=-(10**18), max_value=10**18))
def test_what_is_shown_is_never_further_than_half_a_cent_from_the_exact_amount(exact: Decimal) -> None:
    shown = dollars(usd_text(exact))
    if shown in ("<0.01", ">-0.01"):
        assert 0 < abs(exact) < Decimal("0.005")
    else:
        assert abs(Decimal(shown.replace(",", "")) - exact) <= Decimal("0.005")
