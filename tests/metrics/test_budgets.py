"""The budgets of a page: five hundred pairs of upstream and model, upstreams that stay, and what is given back.

`tests/dashboards/test_scrape.py` scrapes such a page with a real Prometheus.
"""

import tracemalloc
from collections import Counter
from typing import Any

import pytest

from streamgauge.core.record import Error, Record
from streamgauge.metrics import budgets, table
from streamgauge.metrics.declarations import (
    DETAIL_SERIES,
    DETAIL_SERIES_OF_A_METRIC,
    IDLE_S,
    MODEL_SERIES,
    OTHER,
    PAGE_SERIES,
    RESERVED_SERIES,
    SERIES_OF_A_PAIR,
    UNSERVED_SERIES,
    Kind,
    Metric,
)
from streamgauge.metrics.otel_names import OtelNames
from streamgauge.metrics.prometheus import Metrics
from tests.metrics.pages import ReadPage, read_at_once
from tests.metrics.records import ABSENT, make_counts, make_record, make_timing

PAIRS = MODEL_SERIES // SERIES_OF_A_PAIR
# Those that upstreams with many models can have.
SHARED_PAIRS = (MODEL_SERIES - RESERVED_SERIES) // SERIES_OF_A_PAIR
STREAMS = "streamgauge_streams_total"
CUT = "streamgauge_metric_labels_cut_total"
LATENCIES: tuple[Metric, ...] = tuple(
    metric for metric in table.TABLE if metric.kind is Kind.HISTOGRAM and "model" in metric.labels
)
EACH_KIND = make_timing(first_reasoning_s=0.2, first_content_s=0.3, first_tool_s=0.4)


class Clock:
    """A clock that the test moves (seconds)."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def record_of(upstream: str, model: str, **changes: Any) -> Record:
    return make_record(upstream=upstream, request_model=model, response_model=model, timing=EACH_KIND, **changes)


def pairs_of(page: ReadPage, name: str) -> set[tuple[str, str]]:
    """The upstreams and models of a metric's series that are not `other`."""
    found = {(dict(labels)["upstream"], dict(labels)["model"]) for shown, labels in page.samples if shown == name}
    return {(upstream, model) for upstream, model in found if model not in (OTHER, "unknown")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("upstreams", "models", "names"), [(1, 500, "off"), (20, 25, "v1.41"), (20, 25, "latest"), (100, 5, "off")]
)
def test_a_page_holds_500_pairs_in_each_histogram_of_latency(upstreams: int, models: int, names: OtelNames) -> None:
    metrics = Metrics(otel_names=names, attributes=["agent"])
    wanted = {(f"upstream-{u}", f"model-{u}-{m}") for u in range(upstreams) for m in range(models)}
    for number, (upstream, model) in enumerate(sorted(wanted)):
        metrics.observe(record_of(upstream, model, attributes={"agent": f"agent-{number % 40}"}))
    page = read_at_once(metrics.render())
    for metric in LATENCIES:
        assert pairs_of(page, f"{metric.name}_count") == wanted, metric.name
    assert pairs_of(page, STREAMS) == wanted
    assert len(page.samples) < PAGE_SERIES
    assert page.value(CUT, label="model") == page.value(CUT, label="upstream") == 0


@pytest.mark.slow
def test_10_000_hostile_models_leave_every_upstream_its_own_numbers() -> None:
    metrics, sent = Metrics(), Counter[str]()
    for number in range(10_000):
        upstream = f"upstream-{number % 100}"
        sent[upstream] += 1
        metrics.observe(record_of(upstream, f"{number}-" + "m" * 90))
        if number == 5_000:
            tracemalloc.start()
        if number == 9_000:
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert held < 4_000 * 90 / 2, "names are kept"
    page = read_at_once(metrics.render())
    for name in (STREAMS, *(f"{metric.name}_count" for metric in LATENCIES)):
        seen = Counter[str]()
        for (shown, labels), value in page.samples.items():
            if shown == name:
                seen[dict(labels)["upstream"]] += int(value)
        gaps = 4 if "inter_chunk" in name else 1
        assert seen == {upstream: count * gaps for upstream, count in sent.items()}, name
    assert len(pairs_of(page, STREAMS)) == SHARED_PAIRS
    assert page.value(CUT, label="model") == 10_000 - SHARED_PAIRS
    assert page.value(CUT, label="upstream") == 0


@pytest.mark.slow
def test_what_is_idle_is_given_back_where_a_new_name_needs_it() -> None:
    clock = Clock()
    metrics = Metrics(clock=clock)
    for number in range(SHARED_PAIRS):
        metrics.observe(record_of("u", f"old-{number}"))
    metrics.observe(record_of("u", "new"))
    assert ("u", "new") not in pairs_of(read_at_once(metrics.render()), STREAMS)
    clock.now += IDLE_S - 1
    metrics.observe(record_of("u", "old-7"))
    before = read_at_once(metrics.render())
    clock.now += 2
    assert pairs_of(read_at_once(metrics.render()), STREAMS) == pairs_of(before, STREAMS)  # no new name needs the room
    metrics.observe(record_of("u", "new"))
    page = read_at_once(metrics.render())
    for name in (STREAMS, *(f"{metric.name}_count" for metric in LATENCIES)):
        assert pairs_of(page, name) == {("u", "old-7"), ("u", "new")}, name
    assert page.value("streamgauge_time_to_first_token_seconds_count", upstream="u", model="old-7") == 2
    assert page.value("streamgauge_time_to_first_token_seconds_count", upstream="u", model=OTHER) == 1


def test_an_upstream_that_is_gone_makes_room_and_begins_at_0_when_it_returns() -> None:
    clock = Clock()
    metrics = Metrics(clock=clock)
    for number in range(200):
        metrics.observe(record_of(f"host-{number}", "m"))
    assert read_at_once(metrics.render()).value(CUT, label="upstream") > 0
    clock.now += IDLE_S + 1
    metrics.observe(record_of("the-new-one", "m"))
    page = read_at_once(metrics.render())
    assert {"the-new-one"} <= page.label_values("upstream") <= {"the-new-one", OTHER, "unknown"}
    assert page.value("streamgauge_bursts_total", upstream="the-new-one") == 0
    metrics.observe(record_of("host-3", "m"))
    assert read_at_once(metrics.render()).value("streamgauge_bursts_total", upstream="host-3") == 0


@pytest.mark.slow
def test_names_that_clients_invent_leave_500_pairs_to_served_models() -> None:
    metrics = Metrics()
    unserved = {"response_model": None, "usage": ABSENT, "counts": make_counts(token_events=0), "outcome": "http_error"}
    for number in range(1_000):
        metrics.observe(make_record(upstream="u", request_model=f"nonsense-{number}", **unserved))
    for number in range(500):
        metrics.observe(record_of("u", f"model-{number}"))
    shown = pairs_of(read_at_once(metrics.render()), STREAMS)
    assert {("u", f"model-{number}") for number in range(500)} <= shown
    assert len(shown) - 500 == UNSERVED_SERIES // SERIES_OF_A_PAIR


@pytest.mark.slow
def test_an_upstream_that_serves_any_name_leaves_room_for_the_models_of_others() -> None:
    """Nobody but the client who invents them uses these names, and each of them is served."""
    metrics = Metrics()
    unserved = {"response_model": None, "usage": ABSENT, "counts": make_counts(token_events=0), "outcome": "http_error"}
    for number in range(1_000):
        metrics.observe(record_of("own-server", f"nonsense-{number}"))
    for number in range(10):
        metrics.observe(make_record(upstream="openai", request_model=f"nonsense-{number}", **unserved))
    wanted = {("openai", f"gpt-{number}") for number in range(4)} | {(f"u-{number}", "m") for number in range(40)}
    for upstream, model in sorted(wanted):
        metrics.observe(record_of(upstream, model))
    shown = pairs_of(read_at_once(metrics.render()), STREAMS)
    assert wanted <= shown
    assert len(shown) == PAIRS
    metrics.observe(record_of("openai", "gpt-5"))
    assert pairs_of(read_at_once(metrics.render()), STREAMS) == shown


@pytest.mark.slow
def test_details_become_other_before_models_do() -> None:
    metrics = Metrics(attributes=["agent"])
    for number in range(20_000):
        error = Error("in_stream", type=f"error-{number % 90}")
        attributes = {"agent": f"agent-{number % 45}"}
        metrics.observe(record_of(f"u-{number % 10}", f"m-{number % 500}", error=error, attributes=attributes))
    page = read_at_once(metrics.render())
    for metric in LATENCIES:
        assert len(pairs_of(page, f"{metric.name}_count")) == 500, metric.name
    detailed = Counter(
        name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for name, labels in page.samples
        if dict(labels).get("agent") not in (None, OTHER) or dict(labels).get("error_type") not in (None, OTHER)
    )
    assert sum(detailed.values()) <= DETAIL_SERIES
    assert max(detailed.values()) <= DETAIL_SERIES_OF_A_METRIC
    assert page.value(CUT, label="agent") > 0
    assert page.value(CUT, label="model") == 0


@pytest.mark.slow
def test_an_idle_detail_makes_room_for_a_new_one() -> None:
    clock = Clock()
    metrics = Metrics(attributes=["agent"], clock=clock)
    for number in range(20_000):
        metrics.observe(record_of("u", f"m-{number % 500}", attributes={"agent": f"agent-{number % 45}"}))
    clock.now += IDLE_S + 1
    for number in range(500):  # all models and agents are in use, each agent with one of the models
        metrics.observe(record_of("u", f"m-{number}", attributes={"agent": f"agent-{number}"} if number < 45 else {}))
    metrics.observe(record_of("u", "m-1", attributes={"agent": "agent-new"}))
    page = read_at_once(metrics.render())
    assert page.value(
        "streamgauge_time_to_first_token_seconds_count", upstream="u", model="m-1", agent="agent-new"
    ) == 1  # fmt: skip


@pytest.mark.slow
def test_forged_values_of_closed_labels_stay_below_the_page() -> None:
    metrics = Metrics()
    for number in range(20_000):
        text = f"{number % 5_000}"
        metrics.observe(
            record_of(f"u-{number % 120}", f"m-{number % 5}", dialect=text, outcome=text, finish_reason=text)
        )
    assert len(read_at_once(metrics.render()).samples) < PAGE_SERIES


def test_a_page_that_is_full_counts_under_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a smaller page: the budgets of all labels together allow more series than it has."""
    monkeypatch.setattr(budgets, "PAGE_SERIES", 10_000)
    metrics = Metrics()
    for number in range(2_000):
        forged = {"dialect": f"{number % 19}", "outcome": f"{number % 17}", "finish_reason": f"{number % 13}"}
        metrics.observe(record_of(f"u-{number % 120}", f"m-{number % 5}", **forged))
    page = read_at_once(metrics.render())
    assert 8_000 < len(page.samples) < 10_000
    assert page.total(STREAMS) == 2_000
    assert page.value(CUT, label="upstream") > 0


def test_the_counter_of_cuts_begins_at_0() -> None:
    page = read_at_once(Metrics(attributes=["agent"]).render())
    assert {dict(labels)["label"] for name, labels in page.samples if name == CUT} >= {"model", "upstream", "agent"}
    assert page.total(CUT) == 0
