"""Prices that costs imply: exact, or not known."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.money import cost_at, folded, rates_of
from streamgauge.audit.ours import GroupKey, OurStream

PRICES = (Decimal("0.0000025"), Decimal("0.00000125"), Decimal("0.000003"), Decimal("0.00001"))


def stream(tokens: Tokens, usd: Decimal | None = None) -> OurStream:
    cost = sum((count * price for count, price in zip(tokens, PRICES, strict=True)), Decimal(0)) if usd is None else usd
    return OurStream(
        "id", GroupKey("2026-03-01", "p", "m", None, None), 0, 0, tokens, tokens, cost, 0, True, True, True, True, True,
        None, None, None, 0, False,
    )  # fmt: skip


counts = st.builds(Tokens, *[st.integers(0, 10**6)] * 4)


@given(st.lists(counts, max_size=8))
def test_known_prices_are_the_true_ones(tokens: Sequence[Tokens]) -> None:
    found = rates_of(map(stream, tokens))
    assert found is not None
    for rate, price in zip(found, PRICES, strict=True):
        assert rate in (None, Fraction(price))


def test_four_streams_that_differ_give_all_prices() -> None:
    some = [Tokens(100, 0, 0, 7), Tokens(10, 5, 0, 1), Tokens(3, 2, 9, 4), Tokens(8, 1, 1, 90)]
    assert rates_of(map(stream, some)) == tuple(map(Fraction, PRICES))


def test_costs_that_depend_on_more_than_the_kind_give_none() -> None:
    assert rates_of([stream(Tokens(100, 0, 0, 0)), stream(Tokens(200, 0, 0, 0), Decimal(1))]) is None


def test_the_cost_of_tokens_needs_their_prices_alone() -> None:
    rates = rates_of([stream(Tokens(0, 0, 0, 7))])
    assert cost_at(rates, Tokens(0, 0, 0, 100)) == Fraction(1, 1000)
    assert cost_at(rates, Tokens(1, 0, 0, 100)) is None
    assert cost_at(None, Tokens()) == 0


def test_input_that_includes_the_cache_has_a_price_only_if_both_cost_the_same() -> None:
    one, two = Fraction(1), Fraction(2)
    assert folded((one, two, None, one), frozenset()) == (None, two, None, one)
    assert folded((one, two, None, one), frozenset({"input_cached"})) == (one, two, None, one)
    assert folded(None, frozenset()) is None
