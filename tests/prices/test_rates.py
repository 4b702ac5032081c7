"""What a record costs by given prices, exactly."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from streamgauge.ledger import Cost
from streamgauge.ledger.cost import Unpriced
from streamgauge.prices.rates import Rate, Rates, of_request
from tests.ledger.rows import make_row
from tests.metrics.records import ABSENT, make_usage


def rate(price: str, *above: tuple[int, str]) -> Rate:
    return Rate.of(Decimal(price), tuple((start, Decimal(one)) for start, one in above))


CHEAP = Rates("test", "2026-01-01", input=rate("3"), output=rate("15"))
CACHED = Rates(
    "test",
    None,
    input=rate("3"),
    output=rate("15"),
    input_cached=rate("0.3"),
    cache_write=rate("3.75"),
    cache_write_1h=rate("6"),
)


def cost(rates: Rates, **usage: Any) -> Cost | None:
    known = rates.cost_of(make_row(1, usage=make_usage(**usage)))
    return known if isinstance(known, Cost) else None


def test_a_token_costs_a_millionth_of_the_price() -> None:
    assert cost(CHEAP, input_tokens=1, output_tokens=1) == Cost(3_000_000, 15_000_000, "test", "2026-01-01")


def test_the_cache_has_its_own_prices_on_disjoint_tokens() -> None:
    """Anthropic: 3 new tokens, 800 read, 200 written, of which 50 for an hour. The record's input is their sum."""
    usage = {"input_tokens": 1003, "input_cached_tokens": 800, "input_cache_write_tokens": 200}
    found = cost(CACHED, **usage, input_cache_write_1h_tokens=50, output_tokens=5)
    assert found == Cost(int(Decimal("0.0011115") * 10**12), 75_000_000, "test", None)
    five_minutes = cost(CACHED, **usage, output_tokens=5)
    assert five_minutes is not None
    assert five_minutes.input == int(Decimal("0.000999") * 10**12)


def test_a_kind_without_a_price_costs_what_its_side_costs() -> None:
    whole = {"input_tokens": 100, "output_tokens": 50}
    parts = {
        "input_cached_tokens": 40,
        "input_cache_write_tokens": 30,
        "audio_input_tokens": 10,
        "reasoning_tokens": 20,
    }
    assert cost(CHEAP, **whole, **parts, audio_output_tokens=5) == cost(CHEAP, **whole)
    only_write = Rates("test", None, input=rate("3"), output=rate("1"), cache_write=rate("4"))
    written = cost(only_write, **whole, input_cache_write_tokens=100, input_cache_write_1h_tokens=100)
    assert written is not None
    assert written.input == 400_000_000


def test_in_a_list_only_reasoning_costs_what_its_side_costs() -> None:
    of_list = replace(CHEAP, is_list=True)
    whole = {"input_tokens": 100, "output_tokens": 50}
    assert cost(of_list, **whole, reasoning_tokens=20) == cost(CHEAP, **whole)
    for kind in ("input_cached_tokens", "input_cache_write_tokens", "audio_input_tokens", "audio_output_tokens"):
        assert cost(of_list, **whole, **{kind: 1}) is None
        assert cost(of_list, **whole, **{kind: 0}) == cost(CHEAP, **whole)
    for_minutes = replace(of_list, cache_write=rate("4"))
    assert cost(for_minutes, **whole, input_cache_write_tokens=9) is not None
    assert cost(for_minutes, **whole, input_cache_write_tokens=9, input_cache_write_1h_tokens=1) is None


def test_reasoning_and_audio_have_their_own_prices() -> None:
    rates = Rates(
        "test",
        None,
        input=rate("1"),
        output=rate("2"),
        reasoning=rate("5"),
        output_audio=rate("7"),
        input_audio=rate("9"),
    )
    found = cost(
        rates, input_tokens=10, audio_input_tokens=4, output_tokens=10, reasoning_tokens=3, audio_output_tokens=2
    )
    assert found == Cost((6 + 4 * 9) * 10**6, (5 * 2 + 3 * 5 + 2 * 7) * 10**6, "test", None)


@pytest.mark.parametrize(("tokens", "price"), [(200_000, 3), (200_001, 6), (400_000, 6), (400_001, 8)])
def test_a_long_context_costs_more_for_all_tokens(tokens: int, price: int) -> None:
    long = Rates("test", None, input=rate("3", (200_000, "6"), (400_000, "8")), output=rate("1", (200_000, "2")))
    found = cost(long, input_tokens=tokens, output_tokens=10)
    assert found == Cost(tokens * price * 10**6, 10 * (1 if tokens <= 200_000 else 2) * 10**6, "test", None)


def test_without_the_input_a_price_by_context_is_not_known() -> None:
    long = Rates("test", None, input=rate("3"), output=rate("1", (200_000, "2")))
    assert cost(long, input_tokens=None, output_tokens=10) is None
    assert cost(CHEAP, input_tokens=None, output_tokens=10) == Cost(None, 150_000_000, "test", "2026-01-01")
    assert cost(CHEAP, input_tokens=10, output_tokens=None) == Cost(30_000_000, None, "test", "2026-01-01")


def test_a_missing_price_is_no_price_unless_no_token_needs_it() -> None:
    embeddings = Rates("test", None, input=rate("0.02"))
    assert cost(embeddings, input_tokens=10, output_tokens=5) is None
    assert cost(embeddings, input_tokens=10, output_tokens=0) == Cost(200_000, 0, "test", None)
    assert cost(Rates("test", None), input_tokens=10, output_tokens=0) is None


def test_what_was_not_reported_costs_nothing_that_is_known() -> None:
    assert CHEAP.cost_of(make_row(1, usage=ABSENT)) is Unpriced.NO_USAGE


def test_a_request_is_paid_once() -> None:
    rates = Rates("test", None, input=rate("1"), output=rate("1"), request=of_request(Decimal("0.012")))
    assert cost(rates, input_tokens=0, output_tokens=0) == Cost(12 * 10**9, 0, "test", None)
    assert cost(rates, input_tokens=None, output_tokens=0) == Cost(None, 12 * 10**9, "test", None)


def test_a_factor_multiplies_everything_and_a_fraction_is_rounded_once() -> None:
    factor = Decimal("1.1")
    us = Rates("test", None, input=Rate.of(Decimal(3), factor=factor), output=Rate.of(Decimal(15), factor=factor))
    assert cost(us, input_tokens=1, output_tokens=1) == Cost(3_300_000, 16_500_000, "test", None)
    tiny = Rates("test", None, input=rate("0.0000005"), output=rate("0.0000015"))
    assert cost(tiny, input_tokens=1, output_tokens=1) == Cost(0, 2, "test", None), "half to even: 0.5 and 1.5"
    assert cost(tiny, input_tokens=3, output_tokens=0) == Cost(2, 0, "test", None), "1.5: not three times 0"


def test_a_forged_count_has_no_cost_that_a_database_could_not_hold() -> None:
    assert cost(CHEAP, input_tokens=2**53, output_tokens=1) is None


def test_what_a_cache_saves_and_what_writing_to_it_adds() -> None:
    usage = {"input_tokens": 1003, "input_cached_tokens": 800, "input_cache_write_tokens": 200}
    row = make_row(1, usage=make_usage(**usage, input_cache_write_1h_tokens=50, output_tokens=5))
    found = CACHED.cache_effect_of(row)
    assert found == (800 * 2_700_000, 150 * 750_000 + 50 * 3_000_000)
    # Without a cache all input has one price.
    with_cache = CACHED.cost_of(row)
    without = cost(CACHED, input_tokens=1003, output_tokens=5)
    assert isinstance(with_cache, Cost)
    assert without is not None
    assert with_cache.total == without.total - found.saved + found.added


def test_a_cache_without_prices_of_its_own_changes_nothing() -> None:
    row = make_row(1, usage=make_usage(100, 5, input_cached_tokens=40, input_cache_write_tokens=30))
    assert CHEAP.cache_effect_of(row) == (0, 0)
    assert Rates("test", None).cache_effect_of(row) == (0, 0)


def test_a_cache_that_costs_more_than_other_input_saves_nothing() -> None:
    dear = Rates("test", None, input=rate("3"), input_cached=rate("4"), cache_write=rate("1"))
    row = make_row(1, usage=make_usage(100, 5, input_cached_tokens=40, input_cache_write_tokens=30))
    assert dear.cache_effect_of(row) == (0, 0)
