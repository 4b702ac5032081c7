"""Which price a record gets: from the list of genai-prices, as pinned, and from the operator's file."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
import msgspec
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice, Usage
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.cli.commands import COMMANDS
from streamgauge.core.record import ReportedCost
from streamgauge.ledger import Cost
from streamgauge.ledger.cost import Unpriced, usd
from streamgauge.prices import Prices
from streamgauge.prices.catalogue import Offer, _rate
from streamgauge.prices.price_file import load_prices
from streamgauge.prices.rates import Rates
from tests.ledger.rows import make_row
from tests.metrics.records import ABSENT, make_usage

VERSION = genai_prices.__version__


def failing(error: Exception) -> None:
    raise error


def found(prices: Prices | None = None, **changes: Any) -> Cost | Unpriced:
    return (prices or Prices(report=failing)).cost_of(make_row(1, **{"host": "api.openai.com", **changes}))


def cost(prices: Prices | None = None, **changes: Any) -> Cost | None:
    known = found(prices, **changes)
    return known if isinstance(known, Cost) else None


def source(prices: Prices | None = None, **changes: Any) -> str | None:
    found = cost(prices, **changes)
    return None if found is None else found.source


CLAUDE: dict[str, Any] = {
    "host": "api.anthropic.com",
    "dialect": "anthropic-messages",
    "response_model": "claude-sonnet-4-5-20250929",
}


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


OWN_SERVERS = (
    "10.0.0.5",
    "vllm.internal",
    "localhost",
    "api.openai.com.example.org",
    "gateway.ai.cloudflare.com",
    "::1",
    # Customers of these run what they like there.
    "team--llama.modal.run",
    "team--llama.modal.direct",
    "gateway.azure-api.net",
    # They begin or end as the host of a company.
    "api.moonshot.example",
    "api.openai.community",
    "xapi.openai.com",
    "api.anthropic.com.example.org",
    "eu.api.openai.com.example.org",
    "prod.openai.azure.com.example.org",
    "aiplatform.googleapis.com.example.org",
    "examplegoogleapis.com",
    "api.openai.com/",
    "example.org/api.openai.com",
)


@pytest.mark.parametrize("host", OWN_SERVERS)
@pytest.mark.parametrize("upstream", ["vllm", "openai", "api.openai.com"])
def test_an_own_server_or_a_gateway_has_no_list_price_whatever_its_name_and_models_are(
    host: str, upstream: str
) -> None:
    assert found(upstream=upstream, host=host) is Unpriced.NO_SELLER
    assert found(upstream=upstream, host=host, response_model=None) is Unpriced.NO_SELLER


@pytest.mark.parametrize(
    ("host", "model", "name"),
    [
        ("api.openai.com", "gpt-4o", "openai/gpt-4o"),
        ("API.OpenAI.com", "gpt-4o", "openai/gpt-4o"),
        ("api.anthropic.com", "claude-opus-4-8", "anthropic/claude-opus-4-8"),
        ("generativelanguage.googleapis.com", "gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("aiplatform.googleapis.com", "gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("api.moonshot.ai", "kimi-k2-0711-preview", "moonshotai/kimi-k2-0711-preview"),
        ("bedrock-mantle.us-east-1.api.aws", "openai.gpt-5.6-luna", "aws/regional.openai.gpt-5.6-luna"),
        ("openrouter.ai", "deepseek/deepseek-v3.2", "openrouter/deepseek/deepseek-v3.2"),
    ],
)
def test_a_companys_own_host_has_its_list_price(host: str, model: str, name: str) -> None:
    changes: dict[str, Any] = {"host": host, "request_model": model, "response_model": model}
    assert source(upstream="nimbus", **changes) == f"genai-prices {VERSION}: {name}"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"upstream": "openai"}, "openai/gpt-4o"),
        ({"upstream": "api.openai.com"}, "openai/gpt-4o"),
        ({"upstream": "openai", "response_model": None}, "openai/gpt-4o"),
        ({"upstream": "openai", "response_model": "=cmd()"}, Unpriced.NO_MODEL),
        ({"upstream": "groq"}, Unpriced.NO_MODEL),
        ({"upstream": "openai-proxy"}, Unpriced.NO_SELLER),
        ({"upstream": "nimbus"}, Unpriced.NO_SELLER),
        ({"upstream": None}, Unpriced.NO_SELLER),
        ({"upstream": "openai", "tap": "asgi"}, Unpriced.NO_SELLER),
    ],
)
def test_without_a_host_the_upstreams_name_counts_if_it_is_a_host_or_a_sellers(
    changes: dict[str, Any], name: str | Unpriced
) -> None:
    """Taps of earlier versions report no host. An application that serves by itself has none."""
    known = found(host=None, **changes)
    assert (known.source.partition(": ")[2] if isinstance(known, Cost) else known) == name


@pytest.mark.parametrize("tier", [None, "default", "standard", "auto"])
def test_standard_tiers_cost_the_standard_price(tier: str | None) -> None:
    assert cost(service_tier=tier) == cost()


def test_vertexs_traffic_on_demand_costs_the_standard_price_and_other_traffic_has_none() -> None:
    """Its enum may come as a number (`$alt=json;enum-encoding=int`)."""
    vertex: dict[str, Any] = {"host": "aiplatform.googleapis.com", "response_model": "gemini-2.5-pro"}
    assert cost(**vertex, service_tier="ON_DEMAND") == cost(**vertex, service_tier="1") == cost(**vertex)
    assert cost(**vertex) is not None
    for tier in ("PROVISIONED_THROUGHPUT", "ON_DEMAND_FLEX", "ON_DEMAND_PRIORITY", "2"):
        assert found(**vertex, service_tier=tier) is Unpriced.NO_TIER_PRICE


@pytest.mark.parametrize("tier", ["priority", "flex", "scale", "batch", "tomorrow", "masked"])
def test_a_tier_that_the_list_does_not_price_has_no_price(tier: str) -> None:
    assert found(**{**CLAUDE, "started_at": "2026-01-01T00:00:00Z"}, service_tier=tier) is Unpriced.NO_TIER_PRICE


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
        known = cost(prices, **OPUS, usage=make_usage(1000, 100, raw={"speed": speed}))
        return None if known is None else known.source

    assert source("fast") == "prices.toml: claude-opus-5"
    assert str(source("standard")).startswith("genai-prices")


@pytest.mark.parametrize("at", range(1, 6))
def test_another_thread_may_clear_the_known_prices_at_any_time(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """As the prices of one more model do, when as many are known as are kept: before any look for a known price."""
    from streamgauge.prices import pricing

    looks = 0

    class Raced(Offer):
        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            if looks == at:
                cost(prices, request_model="gpt-4o", response_model="gpt-4o")
            return super().__hash__()

    monkeypatch.setattr(pricing, "_KEPT", 1)
    expected = cost()
    prices = Prices(report=failing)
    monkeypatch.setattr(pricing, "Offer", Raced)
    assert cost(prices) == cost(prices) == cost(prices) == expected
    assert looks >= at


def test_without_model_start_or_usage_there_is_no_price() -> None:
    assert found(request_model=None, response_model=None) is Unpriced.NO_MODEL
    assert found(started_at=None) is Unpriced.NO_START
    assert found(usage=ABSENT) is Unpriced.NO_USAGE


def test_a_fault_of_the_list_is_reported_once_and_keeps_no_record_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.prices import pricing

    monkeypatch.setattr(pricing, "rates_of", lambda *_: 1 / 0)
    reported: list[Exception] = []
    prices = Prices(report=reported.append)
    assert [found(prices), found(prices)] == [Unpriced.NO_LIST] * 2
    assert [type(error) for error in reported] == [ZeroDivisionError]


PRICED = [
    (provider, model)
    for provider in get_snapshot().providers
    for model in provider.models
    if provider.id in ("openai", "anthropic", "google", "mistral", "groq", "deepseek")
]


@settings(max_examples=4 * settings().max_examples)
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
    assert isinstance(found, Cost)
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


def test_a_price_may_be_for_hours_and_weekdays(tmp_path: Path) -> None:
    prices = own(
        tmp_path,
        '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-01-01\ninput = 2\noutput = 0\n'
        '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-01-01\ninput = 1\noutput = 0\n'
        'hours = "00:30-08:30"\nweekdays = ["sat", "sun"]\ntimezone = "Asia/Shanghai"\n',
    )
    starts = ("2026-03-06T16:29:00Z", "2026-03-06T16:30:00Z", "2026-03-07T00:29:59Z", "2026-03-07T00:30:00Z")
    found = [cost(prices, usage=make_usage(1, 0), started_at=started) for started in starts]
    assert [one and one.input for one in found] == [2 * 10**6, 10**6, 10**6, 2 * 10**6]


def test_a_price_may_change_at_noon(tmp_path: Path) -> None:
    prices = own(
        tmp_path,
        '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-01-01\ninput = 1\noutput = 0\n'
        '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-03-15\nuntil = 2026-03-16\nhours = "12:00-24:00"\ninput = 2\noutput = 0\n'
        '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-03-16\ninput = 2\noutput = 0\n',
    )
    starts = ("2026-03-15T11:59:59Z", "2026-03-15T12:00:00Z", "2026-03-16T00:00:00Z", "2026-03-16T11:00:00Z")
    found = [cost(prices, usage=make_usage(1, 0), started_at=started) for started in starts]
    assert [one and one.input for one in found] == [10**6, 2 * 10**6, 2 * 10**6, 2 * 10**6]


# --- discounts ---------------------------------------------------------------------------------------------------------


DISCOUNT = """
[[discount]]
provider = "openai"
model = "gpt-4o*"
from = 2026-03-01
until = 2026-04-01
percent = 12.5
"""


def test_a_discount_makes_list_prices_lower_and_the_cost_says_so(tmp_path: Path) -> None:
    prices, usage = own(tmp_path, DISCOUNT), make_usage(1_000_000, 100_000, input_cached_tokens=1_000)
    listed, found = cost(usage=usage), cost(prices, usage=usage)
    assert listed is not None
    assert found is not None
    assert found.total * 1_000 == listed.total * 875
    assert found.source == f"{listed.source}; prices.toml: 12.5 % off"
    assert found.date == "2026-03-01"
    for started in ("2026-02-28T23:59:59Z", "2026-04-01T00:00:00Z"):
        assert cost(prices, usage=usage, started_at=started) == cost(usage=usage, started_at=started)


def test_a_discount_is_for_what_it_names(tmp_path: Path) -> None:
    def share(text: str, **changes: Any) -> Decimal | None:
        found, listed = cost(own(tmp_path, text), **changes), cost(**changes)
        return None if found is None or listed is None else Decimal(found.total) / listed.total

    assert share(DISCOUNT) == Decimal("0.875")
    assert share(DISCOUNT, response_model="gpt-4.1") == 1
    assert share(DISCOUNT.replace('model = "gpt-4o*"', ""), response_model="gpt-4.1") == Decimal("0.875")
    assert share(DISCOUNT.replace('model = "gpt-4o*"', ""), **CLAUDE) == 1
    assert share(DISCOUNT.replace('provider = "openai"', 'upstream = "nimbus"')) == Decimal("0.875")
    assert share(DISCOUNT.replace('provider = "openai"', 'upstream = "other"')) == 1
    assert share(DISCOUNT + 'service_tier = "priority"') == 1
    assert share(DISCOUNT + 'service_tier = "default"', service_tier="default") == Decimal("0.875")
    later = DISCOUNT + DISCOUNT.replace("2026-03-01", "2026-02-01").replace("12.5", "50")
    assert share(later) == Decimal("0.875"), "the one with the latest first day holds, alone"
    assert share(DISCOUNT + DISCOUNT.replace("12.5", "50")) == Decimal("0.5"), "of equal ones the last"


def test_a_discount_is_on_list_prices_alone(tmp_path: Path) -> None:
    price = '[[price]]\nmodel = "gpt-4o*"\nfrom = 2026-01-01\ninput = 1\noutput = 1\n'
    assert cost(own(tmp_path, price + DISCOUNT)) == cost(own(tmp_path, price))
    usage = msgspec.structs.replace(make_usage(10, 5), reported_cost=ReportedCost(usd="0.5", byok=None, source="x"))
    found = cost(own(tmp_path, DISCOUNT), usage=usage)
    assert found is not None
    assert (found.total, found.listed) == (5 * 10**11, 65_625_000)
    assert cost(own(tmp_path, DISCOUNT), response_model="unknown") is None


def test_a_web_search_has_the_discount_too(tmp_path: Path) -> None:
    parts = [{"type": "server_tool", "name": "web_search", "requests": 3}]
    usage = msgspec.structs.replace(make_usage(0, 0), parts=parts)
    text = DISCOUNT.replace("openai", "anthropic").replace("gpt-4o*", "claude*")
    listed, found = cost(**CLAUDE, usage=usage), cost(own(tmp_path, text), **CLAUDE, usage=usage)
    assert listed is not None
    assert found is not None
    assert 0 < found.total * 1_000 == listed.total * 875


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


def test_the_operator_may_name_the_seller_of_an_upstream_or_say_that_it_has_none(tmp_path: Path) -> None:
    prices = own(tmp_path, '[upstreams]\nvllm = "none"\ngateway = "anthropic"\nopenai = "none"\n')
    at_home: dict[str, Any] = {"host": "10.0.0.5"}
    assert found(prices, upstream="vllm", **at_home) is Unpriced.NO_SELLER
    assert found(prices, upstream="openai") is Unpriced.NO_SELLER, "a company's own host, too"
    named = source(prices, upstream="gateway", response_model="claude-sonnet-4-5", **at_home)
    assert named == f"genai-prices {VERSION}: anthropic/claude-sonnet-4-5"
    assert found(prices, upstream="gateway", **at_home) is Unpriced.NO_MODEL
    assert found(prices, upstream="other", response_model="claude-sonnet-4-5", **at_home) is Unpriced.NO_SELLER


def test_the_guide_and_the_help_name_every_reason_without_a_cost() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/usage.md").read_text(encoding="utf-8")
    for reason in Unpriced:
        assert f"`{reason.value}`" in guide
        assert reason.value in COMMANDS["ledger query"].examples


# --- regions -----------------------------------------------------------------------------------------------------------


def at_host(host: str, model: str) -> Cost | Unpriced:
    return found(host=host, response_model=model, request_model=model, usage=make_usage(10**6, 10**5))


@pytest.mark.parametrize("region", ["us", "eu", "au", "in", "jp", "some-new-region"])
def test_openais_regional_hosts_cost_a_tenth_more_for_models_since_march_2026(region: str) -> None:
    """developers.openai.com/api/docs/guides/data-residency: models released on or after 5 March 2026."""
    host = f"{region}.api.openai.com"
    for model in ("gpt-5.4", "gpt-5.5", "gpt-6.1-sol"):
        regional, everywhere = at_host(host, model), at_host("api.openai.com", model)
        assert isinstance(regional, Cost)
        assert isinstance(everywhere, Cost)
        assert regional.total * 10 == everywhere.total * 11
    for model in ("gpt-4o", "gpt-4.1-mini", "gpt-5", "gpt-5.3-codex", "o3", "o4-mini", "gpt-3.5-turbo"):
        assert at_host(host, model) == at_host("api.openai.com", model)
    for model in ("gpt-audio", "gpt-realtime-2", "gpt-chat-latest"):
        assert at_host(host, model) is Unpriced.NO_REGION_PRICE, "its name does not say when it was released"


@pytest.mark.parametrize("host", ["us-central1-aiplatform.googleapis.com", "aiplatform.eu.rep.googleapis.com"])
def test_regions_of_vertex_have_their_own_price_or_none(host: str) -> None:
    assert at_host(host, "gemini-2.5-pro") is Unpriced.NO_REGION_PRICE
    for model, tenths in (
        ("claude-sonnet-4-5@20250929", 11),
        ("claude-opus-5-5", 11),
        ("claude-3-7-sonnet@20250219", 10),
    ):
        regional, everywhere = at_host(host, model), at_host("aiplatform.googleapis.com", model)
        assert isinstance(regional, Cost)
        assert isinstance(everywhere, Cost)
        assert regional.total * 10 == everywhere.total * tenths


def test_bedrocks_regions_have_their_own_price_or_none() -> None:
    """The list has prices of the US, but for Anthropic's models, whose request names a region or none at all."""
    usage = make_usage(10**6, 0)
    here: dict[str, Any] = {"response_model": "claude-sonnet-4-5-20250929", "usage": usage}
    for region in ("us-east-1", "eu-central-1"):
        host = f"bedrock-runtime.{region}.amazonaws.com"
        for asked, price in (("global", "3"), ("eu", "3.3"), ("us", "3.3")):
            model = f"{asked}.anthropic.claude-sonnet-4-5-20250929-v1:0"
            known = cost(host=host, request_model=model, **here)
            assert known is not None
            assert usd(known.total) == price, (region, asked)
    profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcdef123456"
    there: dict[str, Any] = {"host": "bedrock-runtime.us-east-1.amazonaws.com"}
    for asked_for in (profile, None):
        assert found(**there, **here, request_model=asked_for) is Unpriced.NO_DEPLOYMENT, "its region is not named"
        nova = found(**there, response_model="amazon.nova-pro-v1:0", request_model=asked_for)
        assert isinstance(nova, Cost), "the list has one price of it"
    assert found(**there, response_model="unheard-of", request_model=profile) is Unpriced.NO_MODEL
    assert isinstance(at_host("bedrock-runtime.us-east-1.amazonaws.com", "amazon.nova-pro-v1:0"), Cost)
    assert at_host("bedrock-runtime.sa-east-1.amazonaws.com", "amazon.nova-pro-v1:0") is Unpriced.NO_REGION_PRICE


@pytest.mark.parametrize(
    ("host", "everywhere", "model"),
    [
        ("us.api.x.ai", "api.x.ai", "grok-4.6"),
        ("api.eu.mistral.ai", "api.mistral.ai", "mistral-large-latest"),
        ("api.us.mistral.ai", "api.mistral.ai", "mistral-large-latest"),
    ],
)
def test_a_regional_host_of_xai_and_mistral_costs_a_tenth_more(host: str, everywhere: str, model: str) -> None:
    regional, usual = at_host(host, model), at_host(everywhere, model)
    assert isinstance(regional, Cost)
    assert isinstance(usual, Cost)
    assert regional.total * 10 == usual.total * 11


@pytest.mark.parametrize(
    ("host", "model"),
    [
        ("eu-west-1.api.x.ai", "grok-4.6"),
        ("api.moonshot.cn", "kimi-k2-0711-preview"),
        ("api.minimaxi.com", "MiniMax-M2"),
    ],
)
def test_a_host_for_a_region_whose_price_is_not_known_has_none(host: str, model: str) -> None:
    """The two for China have prices in yuan."""
    assert at_host(host, model) is Unpriced.NO_REGION_PRICE


# --- kinds of deployments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "model", "seller"),
    [
        ("prod.openai.azure.com", "gpt-4o", "azure"),
        ("PROD.OpenAI.Azure.com", "gpt-4o", "azure"),
        ("prod.cognitiveservices.azure.com", "gpt-4o", "azure"),
        ("prod.services.ai.azure.com", "gpt-4o", "azure"),
        ("dbc-1.cloud.databricks.com", "databricks-gpt-oss-120b", "databricks"),
        ("adb-1.azuredatabricks.net", "databricks-gpt-oss-120b", "databricks"),
    ],
)
def test_where_the_host_does_not_show_the_deployment_the_operator_has_to_name_the_seller(
    tmp_path: Path, host: str, model: str, seller: str
) -> None:
    """Azure's global, data zone and regional deployments have several prices at one host; Databricks' regions, too."""
    there: dict[str, Any] = {"host": host, "upstream": "prod", "response_model": model}
    assert found(**there) is Unpriced.NO_DEPLOYMENT
    assert found(**{**there, "host": None, "upstream": host}) is Unpriced.NO_DEPLOYMENT
    assert found(**{**there, "host": None, "upstream": seller}) is Unpriced.NO_DEPLOYMENT
    named = source(own(tmp_path, f'[upstreams]\nprod = "{seller}"\n'), **there)
    assert named == f"genai-prices {VERSION}: {seller}/{model}"
    price = '[[price]]\nmodel = "*"\nfrom = 2020-01-01\ninput = 1\noutput = 1\n'
    assert source(own(tmp_path, price), **there) == "prices.toml: *"
    assert found(own(tmp_path, '[upstreams]\nprod = "none"\n'), **there) is Unpriced.NO_SELLER


# --- hours and days ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["deepseek-flash", "deepseek-v4-pro", "deepseek-v4-flash"])
@pytest.mark.parametrize(
    ("started", "is_peak"),
    [
        ("2026-11-27T02:00:00Z", True),  # a Friday
        ("2026-11-27T09:59:59Z", True),
        ("2026-11-27T05:00:00Z", False),
        ("2026-11-27T10:00:00Z", False),
        ("2026-11-28T02:00:00Z", False),  # Saturday
        ("2026-11-29T09:00:00Z", False),  # Sunday
        ("2026-11-30T01:00:00Z", True),  # Monday
        ("2026-10-01T02:00:00Z", False),  # National Day of China, a Thursday
        ("2026-10-08T02:00:00Z", True),
        ("2027-01-01T02:00:00Z", False),  # New Year's Day, a Friday
    ],
)
def test_deepseeks_peak_holds_on_working_days(model: str, started: str, is_peak: bool) -> None:
    """api-docs.deepseek.com/quick_start/pricing: 01:00 to 04:00 and 06:00 to 10:00 UTC, Monday to Friday, at twice it."""
    there: dict[str, Any] = {
        "host": "api.deepseek.com",
        "response_model": model,
        "usage": make_usage(10**6, 10**5),
    }
    known = cost(**there, started_at=started)
    off_peak = cost(**there, started_at=f"{started[:10]}T12:00:00Z")
    assert known is not None
    assert off_peak is not None
    assert known.total == (2 if is_peak else 1) * off_peak.total


def test_before_there_was_a_peak_there_is_no_peak_price() -> None:
    there: dict[str, Any] = {"host": "api.deepseek.com", "response_model": "deepseek-v4-pro"}
    friday = "2026-08-14T"
    morning, noon = (cost(**there, started_at=f"{friday}{hour}:00:00Z") for hour in ("02", "12"))
    assert morning is not None
    assert morning == noon


def test_deepseeks_earlier_night_price_held_every_day() -> None:
    there: dict[str, Any] = {"host": "api.deepseek.com", "response_model": "deepseek-chat"}
    day, night = cost(**there, started_at="2025-03-01T12:00:00Z"), cost(**there, started_at="2025-03-01T20:00:00Z")
    assert day is not None
    assert night is not None
    assert day.total == 2 * night.total


# --- kinds of tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"audio_input_tokens": 10},
        {"audio_output_tokens": 10},
        {"input_cache_write_tokens": 10},
        {"input_cache_write_tokens": 10, "input_cache_write_1h_tokens": 10},
    ],
)
def test_a_kind_of_tokens_that_the_list_does_not_price_makes_the_cost_unknown(parts: dict[str, int]) -> None:
    """gpt-4o has a price of input, output and cached input."""
    assert found(usage=make_usage(100, 100, **parts)) is Unpriced.NO_KIND_PRICE
    assert isinstance(found(usage=make_usage(100, 100, **dict.fromkeys(parts, 0))), Cost), "0 of them cost nothing"


def test_cached_input_without_a_price_makes_the_cost_unknown() -> None:
    old: dict[str, Any] = {"response_model": "gpt-4-turbo"}
    assert found(**old, usage=make_usage(100, 10, input_cached_tokens=40)) is Unpriced.NO_KIND_PRICE
    assert isinstance(found(**old, usage=make_usage(100, 10, input_cached_tokens=0)), Cost)


def test_audio_has_its_own_price_where_the_list_has_it() -> None:
    """gpt-audio: 2.50 USD text in, 32 audio in, 10 text out, 64 audio out, a million tokens."""
    usage = make_usage(1_000_000, 1_000_000, audio_input_tokens=400_000, audio_output_tokens=500_000)
    known = cost(response_model="gpt-audio", usage=usage)
    assert known is not None
    assert usd(known.total) == "51.3"


# --- what the provider reports -----------------------------------------------------------------------------------------


def reported(dollars: str, *, byok: bool | None = None, **tokens: Any) -> dict[str, Any]:
    usage = make_usage(10**6, 0, **tokens)
    usage.reported_cost = ReportedCost(usd=dollars, byok=byok, source="openrouter")
    return {"usage": usage}


@pytest.mark.parametrize("byok", [None, False])
def test_a_reported_cost_comes_first_and_keeps_the_list_price_beside_it(byok: bool | None) -> None:
    known = cost(**reported("1.9", byok=byok))
    assert known is not None
    assert json.loads(known.as_json()) == {
        "usd": "1.9", "price_source": "provider", "price_date": None, "list_usd": "2.5"
    }  # fmt: skip


def test_an_own_gateways_reported_cost_has_no_list_price() -> None:
    known = cost(host="10.0.0.5", **reported("0.00000000000049"))
    assert known is not None
    assert (known.total, known.list_usd) == (0, None)


def test_a_fee_beside_a_key_of_the_callers_own_is_not_the_cost() -> None:
    known = cost(**reported("0.05", byok=True))
    assert known is not None
    assert (usd(known.total), known.source.partition(" ")[0], known.list_usd) == ("2.5", "genai-prices", "2.5")
    assert found(host="10.0.0.5", **reported("0.05", byok=True)) is Unpriced.NO_SELLER


def test_a_cost_may_be_reported_without_tokens() -> None:
    usage = msgspec.structs.replace(ABSENT, reported_cost=ReportedCost(usd="0.25", byok=None, source="litellm"))
    known = cost(usage=usage)
    assert known is not None
    assert (usd(known.total), known.list_usd) == ("0.25", None)
