"""Costs as whole numbers and as decimal strings."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.ledger import Cost
from streamgauge.ledger.cost import usd


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (75_000_000, "0.000075"),
        (10**12, "1"),
        (1_250 * 10**9, "1.25"),
        (10**14, "100"),
    ],
)
def test_usd_is_exact_and_short(cost: int, text: str) -> None:
    assert usd(cost) == text


@given(st.integers(0, 2**63))
def test_usd_says_the_same_number(cost: int) -> None:
    assert Decimal(usd(cost)) * 10**12 == cost
    assert "E" not in usd(cost)


def test_a_cost_beyond_64_bits_is_refused() -> None:
    largest = {"usd": usd(2**63 - 1), "price_source": "x", "price_date": None}
    assert Cost.of_json(largest) == Cost(2**63 - 1, None, "x", None)
    with pytest.raises(msgspec.ValidationError):
        Cost.of_json({**largest, "usd": usd(2**63)})


@given(st.integers(0, 10**18) | st.none(), st.integers(0, 10**18))
def test_a_cost_comes_back_from_its_json(given_side: int | None, made: int) -> None:
    cost = Cost(given_side, made, "list 1", None)
    read = Cost.of_json(msgspec.json.decode(cost.as_json()))
    assert read == Cost(cost.total, None, "list 1", None)


@pytest.mark.parametrize(
    "value",
    [{}, {"usd": 1, "price_source": "x", "price_date": None}, {"usd": "1e3", "price_source": "x", "price_date": None},
     {"usd": "-1", "price_source": "x", "price_date": None}, {"usd": "1", "price_source": None, "price_date": None},
     {"usd": "1", "price_source": "x", "price_date": None, "more": 1}, "1", 5],
)  # fmt: skip
def test_another_value_is_no_cost(value: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        Cost.of_json(value)


def test_no_cost_is_none() -> None:
    assert Cost.of_json(None) is None
