"""Which price a record gets: from the list of genai-prices, as pinned, and from the operator's file."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice, Usage
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.ledger import Cost
from streamgauge.ledger.cost import usd
from streamgauge.prices import Prices
from streamgauge.prices.catalogue import _rate
from streamgauge.prices.price_file import load_prices
from streamgauge.prices.rates import Rates
from tests.few import examples
from tests.ledger.rows import make_row
from tests.metrics.records import ABSENT, make_usage

VERSION = genai_prices.__version__


def failing(error: Exception) -> None:
    raise error


def cost(prices: Prices | None = None, **changes: Any) -> Cost | None:
    return (prices or Prices(report=failing)).cost_of(make_row(1, **changes))


def source(prices: Prices | None = None, **changes: Any) -> str | None:
    found = cost(prices, **changes)
    return None if found is None else found.source


CLAUDE: dict[str, Any] = {"dialect": "anthropic-messages", "response_model": "claude-sonnet-4-5-20250929"}


# --- the list ----------------------------------------------------------------------------------------------------------


def test_gpt_4o_costs_its_list_price() -> None:
    """2.50 USD a million input tokens, 10 USD a million output tokens."""
    found = cost(usage=make_usage(1_000_000, 100_000))
    assert found == Cost(25 * 10**11, 10**12, f"genai-prices {VERSION}: openai/gpt-4o", None)
    assert usd(found.total) == "3.5"


def test_anthropics_input_holds_its_cache_and_each_part_has_its_price() -> None:
    """3 USD input, 0.30 read, 3.75 written for 5 minutes, 6 for an hour, 15 output; counted once each."""
    usage = make_usage(1003, 5, input_cached_tokens=800, input_cache_write_tokens=200, input_cache_write_1h_tokens=50)
    found = cost(**CLAUDE, usage=usage)
    assert found is not None
    assert usd(found.total) == "0.0011865"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"upstream": "openai"}, "openai/gpt-4o"),
        ({"upstream": "api.openai.com"}, "openai/gpt-4o"),
        ({"upstream": "nimbus"}, "openai/gpt-4o"),
        ({"upstream": None}, "openai/gpt-4o"),
        ({"upstream": "groq"}, None),
        ({"upstream": "nimbus", "response_model": "llama-3.1-8b"}, None),
        ({"upstream": "nimbus", "dialect": "tgi-native"}, None),
        ({"response_model": None}, "openai/gpt-4o"),
        ({"response_model": "=cmd()"}, None),
    ],
)
def test_the_provider_is_found_by_the_upstreams_name_or_host_or_the_dialect(
    changes: dict[str, Any], name: str | None
) -> None:
    assert source(**changes) == (None if name is None else f"genai-prices {VERSION}: {name}")


@pytest.mark.parametrize("tier", [None, "default", "standard", "auto"])
def test_standard_tiers_cost_the_standard_price(tier: str | None) -> None:
    assert cost(service_tier=tier) == cost()


@pytest.mark.parametrize("tier", ["priority", "flex", "scale", "batch", "tomorrow", "masked"])
def test_a_tier_that_the_list_does_not_price_has_no_price(tier: str) -> None:
    assert cost(**{**CLAUDE, "started_at": "2026-01-01T00:00:00Z"}, service_tier=tier) is None


def test_a_tier_has_its_own_price_from_its_first_day() -> None:
    batch = {**CLAUDE, "response_model": "claude-fable-5-1", "service_tier": "batch"}
    assert cost(**batch, started_at="2026-10-13T23:59:59Z") is None
    standard = cost(**{**batch, "service_tier": "standard"}, started_at="2026-10-14T00:00:00Z")
    halved = cost(**batch, started_at="2026-10-14T00:00:00Z")
    assert standard is not None
    assert halved is not None
    assert standard.total == 2 * halved.total


def test_the_price_is_that_of_the_streams_start() -> None:
    """o3 cost 10 USD a million input tokens until 9 June 2025, and 2 USD since."""
    before = cost(response_model="o3", started_at="2025-06-09T23:59:59.999999Z", usage=make_usage(10**6, 0))
    since = cost(response_model="o3", started_at="2025-06-10T00:00:00Z", usage=make_usage(10**6, 0))
    assert before is not None
    assert since is not None
    assert (usd(before.total), before.date) == ("10", None)
    assert (usd(since.total), since.date) == ("2", "2025-06-10")


def test_inference_in_the_us_costs_a_tenth_more_and_an_unknown_region_has_no_price() -> None:
    def in_region(region: str | None) -> Cost | None:
        return cost(**CLAUDE, usage=make_usage(1000, 100, raw={"inference_geo": region}))

    everywhere, us = in_region("global"), in_region("us")
    assert everywhere is not None
    assert us is not None
    assert us.total * 10 == everywhere.total * 11
    assert in_region("not_available") == in_region(None) == everywhere
    assert in_region("mars") is None


OPUS = {**CLAUDE, "response_model": "claude-opus-5"}


def at_speed(speed: object, region: str | None = None, **changes: Any) -> Cost | None:
    return cost(**{**OPUS, **changes}, usage=make_usage(1000, 100, raw={"speed": speed, "inference_geo": region}))


def test_fast_mode_has_its_own_price_and_an_unknown_speed_has_none() -> None:
    """genai-prices lists claude-opus-5 at 10 and 50 USD in fast mode, which is twice the standard price."""
    standard, fast, fast_us = at_speed("standard"), at_speed("fast"), at_speed("fast", "us")
    assert standard is not None
    assert fast is not None
    assert fast_us is not None
    assert (usd(fast.total), fast.total) == ("0.015", 2 * standard.total)
    assert fast_us.total * 10 == fast.total * 11
    assert at_speed(None) == at_speed(5) == standard
    assert at_speed("ultra") is None
    assert at_speed("masked") is None


def test_fast_mode_of_a_model_or_a_tier_without_a_price_for_it_has_no_price() -> None:
    assert at_speed("fast", response_model="claude-sonnet-5") is None
    assert at_speed("fast", service_tier="batch", started_at="2026-11-01T00:00:00Z") is None
    assert at_speed("fast", service_tier="standard") == at_speed("fast")


def test_a_price_of_the_operator_may_be_for_one_speed(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('[[price]]\nmodel = "claude-opus-5"\nspeed = "fast"\nfrom = 2020-01-01\ninput = 1\noutput = 1\n')
    prices = Prices(load_prices(file))

    def source(speed: str) -> str | None:
        row = make_row(1, **OPUS, usage=make_usage(1000, 100, raw={"speed": speed}))
        found = prices.cost_of(row)
        return None if found is None else found.source

    assert source("fast") == "prices.toml: claude-opus-5"
    assert str(source("standard")).startswith("genai-prices")


class _Cleared(dict[Any, Any]):
    """Is cleared, as by another thread, after each look whether it has a key."""

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        self.clear()
        return found


def test_another_thread_may_clear_the_known_prices_at_any_time() -> None:
    prices = Prices(report=failing)
    prices._known = _Cleared()
    assert cost(prices) == cost(prices) == cost()


def test_without_model_start_or_usage_there_is_no_price() -> None:
    assert cost(request_model=None, response_model=None) is None
    assert cost(started_at=None) is None
    assert cost(usage=ABSENT) is None


def test_a_fault_of_the_list_is_reported_once_and_keeps_no_record_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.prices import pricing

    monkeypatch.setattr(pricing, "rates_of", lambda *_: 1 / 0)
    reported: list[Exception] = []
    prices = Prices(report=reported.append)
    assert [cost(prices), cost(prices)] == [None, None]
    assert [type(error) for error in reported] == [ZeroDivisionError]


PRICED = [
    (provider, model)
    for provider in get_snapshot().providers
    for model in provider.models
    if provider.id in ("openai", "anthropic", "google", "mistral", "groq", "deepseek")
]


@settings(max_examples=examples(300))
@given(st.data())
def test_costs_are_those_of_the_lists_own_calculation(data: st.DataObject) -> None:
    """For usage whose parts fit, and models without prices for what records do not have (images, searches)."""
    _, model = data.draw(st.sampled_from(PRICED))
    moment = data.draw(st.datetimes())
    prices: ModelPrice = model.get_prices(moment)
    text_keys = {"input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok"}
    if (
        prices.input_mtok is None
        or prices.output_mtok is None
        or set(vars(prices)) - text_keys - {"web_searches_kcount"}
    ):
        return
    uncached, cached, write, write_1h, output = (data.draw(st.integers(0, 10**6)) for _ in range(5))
    usage = Usage(
        input_tokens=uncached + cached + write + write_1h,
        cache_read_tokens=cached,
        cache_write_tokens=write + write_1h,
        cache_write_1h_tokens=write_1h,
        output_tokens=output,
    )
    expected = prices.calc_price(usage)["total_price"]
    names = {"input": "input_mtok", "output": "output_mtok", "input_cached": "cache_read_mtok",
             "cache_write": "cache_write_mtok", "cache_write_1h": "cache_write_1h_mtok"}  # fmt: skip
    known: dict[str, Any] = {ours: _rate(getattr(prices, theirs), Decimal(1)) for ours, theirs in names.items()}
    rates = Rates("test", None, **known)
    found = rates.cost_of(
        make_row(
            1,
            usage=make_usage(
                uncached + cached + write + write_1h,
                output,
                input_cached_tokens=cached,
                input_cache_write_tokens=write + write_1h,
                input_cache_write_1h_tokens=write_1h,
            ),
        )
    )
    assert found is not None
    assert Decimal(usd(found.total)) == expected


# --- the operator's file -----------------------------------------------------------------------------------------------


def own(tmp_path: Path, text: str) -> Prices:
    (tmp_path / "prices.toml").write_text(text)
    return Prices(load_prices(tmp_path / "prices.toml"), failing)


def test_own_prices_come_first_from_their_first_day_to_their_end(tmp_path: Path) -> None:
    prices = own(
        tmp_path,
        '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-03-01\nuntil = 2026-04-01\ninput = 1\noutput = "2"\ninput_cached = 0.25\n',
    )
    usage = make_usage(100, 10, input_cached_tokens=40)
    assert cost(prices, usage=usage) == Cost(70 * 10**6, 20 * 10**6, "prices.toml: gpt-4o*", "2026-03-01")
    for day in ("2026-02-28", "2026-04-01"):
        assert "genai-prices" in str(source(prices, started_at=f"{day}T12:00:00Z"))


def test_the_latest_price_holds_and_of_equal_ones_the_last(tmp_path: Path) -> None:
    text = "".join(
        f'[[price]]\nmodel = "gpt-4o*"\nfrom = {first}\ninput = {price}\noutput = 0\n'
        for first, price in (("2026-02-01", 1), ("2026-01-01", 2), ("2026-02-01", 3), ("2026-05-01", 4))
    )
    found = cost(own(tmp_path, text), usage=make_usage(1, 0))
    assert found is not None
    assert found.input == 3 * 10**6


def test_a_price_may_be_for_one_upstream_tier_and_region(tmp_path: Path) -> None:
    prices = own(
        tmp_path,
        '[[price]]\nmodel = "llama"\nupstream = "vllm"\nservice_tier = "flex"\nregion = "eu"\n'
        "from = 2026-01-01\ninput = 1\noutput = 1\n",
    )
    known: dict[str, Any] = {"response_model": "llama", "upstream": "vllm", "service_tier": "flex"}
    known["usage"] = make_usage(1, 1, raw={"inference_geo": "eu"})
    assert source(prices, **known) == "prices.toml: llama"
    for other in ({"upstream": "b"}, {"service_tier": None}, {"usage": make_usage()}, {"response_model": "llama-2"}):
        assert source(prices, **{**known, **other}) is None


def test_an_upstream_may_be_named_a_provider_or_have_no_list_price(tmp_path: Path) -> None:
    prices = own(tmp_path, '[upstreams]\nvllm = "none"\ngateway = "anthropic"\n')
    assert source(prices, upstream="vllm") is None
    assert source(prices, upstream="gateway", response_model="claude-sonnet-4-5") is not None
    assert source(prices, upstream="gateway") is None
