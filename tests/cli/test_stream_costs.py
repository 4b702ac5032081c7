"""The money that metrics show: the same as in the ledger, also where streams are resumed."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.cli.stream_costs import stream_costs
from streamgauge.core.record import Record, ReportedCost
from streamgauge.core.token_kinds import reported_tokens
from streamgauge.ledger import open_ledger, row_of
from streamgauge.ledger.cost import usd
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.prometheus import Metrics
from streamgauge.prices import Prices
from streamgauge.prices.price_file import load_prices
from tests.metrics.pages import read_page
from tests.metrics.records import ABSENT, make_record, make_usage

FILE = """
[upstreams]
own = "none"

[[price]]
model = "known"
from = 2026-01-01
input = 3
input_cached = 0.3
cache_write = 3.75
cache_write_1h = 6
output = 15
above = [{ input_tokens = 1000, input = 6, output = 30 }]
"""


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Prices:
    path = tmp_path_factory.mktemp("prices") / "prices.toml"
    path.write_text(FILE)
    return Prices(load_prices(path))


def a_record(number: int = 1, **changes: Any) -> Record:
    return make_record(stream_id=f"0190b4a0-0000-7000-8000-{number:012}", **{"response_model": "known", **changes})


COUNTS = st.integers(0, 2_000)
USAGES = st.builds(
    lambda given, made, cached, written, for_an_hour: make_usage(
        given + cached + written,
        made,
        input_cached_tokens=cached,
        input_cache_write_tokens=written,
        input_cache_write_1h_tokens=min(for_an_hour, written),
    ),
    COUNTS, COUNTS, COUNTS, COUNTS, COUNTS,
)  # fmt: skip


@given(usages=st.lists(USAGES, max_size=5))
def test_the_counters_show_what_the_ledger_adds_up(
    prices: Prices, tmp_path_factory: pytest.TempPathFactory, usages: list[Any]
) -> None:
    records = [a_record(number, usage=usage) for number, usage in enumerate(usages)]
    metrics = Metrics(cost_of=stream_costs(prices))
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    with open_ledger(f"sqlite:///{path}", prices=prices) as ledger:
        ledger.insert([row_of(record) for record in records])
        totals = ledger.totals(["tap"])
    for record in records:
        metrics.observe(record)
    page = read_page(metrics.render())
    shown = page.total("streamgauge_cost_usd_total")
    assert shown == pytest.approx(float(usd(totals[0].cost or 0)) if totals else 0.0)
    assert page.total("streamgauge_upstream_cost_usd_total") == pytest.approx(shown)
    assert page.total("streamgauge_unpriced_streams_total") == 0


def test_a_resumed_stream_costs_only_what_it_adds(prices: Prices, tmp_path: Path) -> None:
    """Its input passes the length from which all tokens are dearer, so it adds more than its own tokens."""
    first = a_record(1, outcome="truncated", request_digest="d", response_id="r", usage=make_usage(900, 10))
    second = a_record(2, request_digest="d", response_id="r", resumed_from="4", usage=make_usage(1_100, 60))
    metrics = Metrics(cost_of=stream_costs(prices))
    for one in (first, second):
        metrics.observe(one)
    page = read_page(metrics.render())
    assert page.total("streamgauge_cost_usd_total") == pytest.approx(float(Decimal(1_100 * 6 + 60 * 30) / 10**6))
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", prices=prices) as ledger:
        ledger.insert([row_of(first), row_of(second)])
        (total,) = ledger.totals(["tap"])
    assert page.total("streamgauge_usage_tokens_total") == (total.input_tokens or 0) + (total.output_tokens or 0)


def added(prices: Prices, **changes: Any) -> Any:
    record = a_record(**changes)
    return stream_costs(prices)(record, {}, reported_tokens(record.usage))


def test_what_is_known_of_a_price_decides(prices: Prices) -> None:
    assert added(prices, upstream="openai", response_model="unheard-of") == StreamCost(unknown="no_model")
    for upstream, host in (("own", "api.openai.com"), ("nimbus", "10.0.0.5")):
        unheard = added(prices, upstream=upstream, host=host, response_model="unheard-of")
        assert unheard == StreamCost(unknown="no_seller")
    assert added(prices, usage=ABSENT) is None
    assert added(prices, usage=make_usage(10, None))[:4] == pytest.approx((0.00003, None, 0, 0))
    cached = added(prices, usage=make_usage(110, 0, input_cached_tokens=100))
    assert cached[:4] == pytest.approx((0.00006, 0, 0.00027, 0))


def test_a_reported_cost_is_not_divided_and_is_added_once(prices: Prices) -> None:
    usage = msgspec.structs.replace(make_usage(10, 5), reported_cost=ReportedCost(usd="0.25", byok=None, source="xai"))
    record = a_record(usage=usage, endpoint="/responses/{id}", response_id="resp_1")
    metrics = Metrics(cost_of=stream_costs(prices))
    for _ in range(3):
        metrics.observe(record)
    page = read_page(metrics.render())
    assert page.value("streamgauge_cost_usd_total", side="undivided", upstream="nimbus", model="gpt-4o") == 0.25
    assert page.total("streamgauge_upstream_cost_usd_total") == 0.25


def test_a_response_that_is_polled_counts_once(prices: Prices) -> None:
    """A request in the background has no usage; the response has it whenever it is read after it is done."""
    asked = a_record(1, response_id="resp_1", endpoint="/responses", usage=ABSENT)
    polls = [a_record(number, response_id="resp_1", endpoint="/responses/{id}") for number in range(2, 5)]
    metrics = Metrics(cost_of=stream_costs(prices))
    for record in (asked, *polls):
        metrics.observe(record)
    page = read_page(metrics.render())
    usage = polls[0].usage
    assert page.total("streamgauge_usage_tokens_total") == (usage.input_tokens or 0) + (usage.output_tokens or 0)
    once = stream_costs(prices)(polls[0], {}, reported_tokens(usage))
    assert once is not None
    assert page.total("streamgauge_cost_usd_total") == pytest.approx(once.total)


@pytest.fixture
def metrics(prices: Prices) -> Iterator[Metrics]:
    yield Metrics(cost_of=stream_costs(prices), attributes=("tenant",))


def test_streams_without_a_price_are_counted_by_model_and_reason(metrics: Metrics) -> None:
    for model in ("known", "new-1", "new-1"):
        metrics.observe(a_record(upstream="openai", request_model=model, response_model=model))
    metrics.observe(a_record(upstream="openai", request_model="new-1", response_model="new-1", usage=ABSENT))
    for upstream in ("own", "nimbus"):
        own = a_record(request_model="own-1", response_model="own-1", upstream=upstream, host="10.0.0.5")
        metrics.observe(own)
    page = read_page(metrics.render())
    labels = {"upstream": "openai", "model": "new-1", "cost_unknown": "no_model"}
    assert page.value("streamgauge_unpriced_streams_total", **labels) == 2
    for upstream in ("own", "nimbus"):
        labels = {"upstream": upstream, "model": "own-1", "cost_unknown": "no_seller"}
        assert page.value("streamgauge_unpriced_streams_total", **labels) == 1
    assert page.total("streamgauge_unpriced_streams_total") == 4


def test_cost_by_tenant(metrics: Metrics) -> None:
    metrics.observe(a_record(tenant="search", usage=make_usage(100, 10)))
    page = read_page(metrics.render())
    labels = {"upstream": "nimbus", "model": "gpt-4o", "tenant": "search"}
    assert page.value("streamgauge_cost_usd_total", side="input", **labels) == pytest.approx(0.0003)
    assert page.value("streamgauge_cost_usd_total", side="output", **labels) == pytest.approx(0.00015)


def test_without_prices_no_money_is_shown() -> None:
    metrics = Metrics()
    metrics.observe(a_record())
    assert read_page(metrics.render()).total("streamgauge_cost_usd_total") == 0
