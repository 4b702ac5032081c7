"""Attributes are labels where they are asked for, within a budget, and never at the cost of the other labels."""

from typing import Any

import msgspec
import pytest

from streamgauge.core.record import Error
from streamgauge.metrics import table
from streamgauge.metrics.declarations import ATTRIBUTE, OTHER, PAGE_SERIES, UNKNOWN
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import ATTRIBUTED
from tests.metrics.pages import MOST_S, cpu_seconds_of, lines_of, read_page
from tests.metrics.records import make_record

STREAMS = "streamgauge_streams_total"
BY_MODEL = {"upstream": "nimbus", "model": "gpt-4o"}


def page_of(metrics: Metrics) -> Any:
    return read_page(metrics.render())


def test_the_metrics_exist() -> None:
    assert set(ATTRIBUTED) <= set(table.BY_NAME)


def test_an_attribute_is_a_label_only_where_it_is_asked_for() -> None:
    record = make_record(attributes={"agent": "planner", "session": "s-1"}, error=Error("in_stream", "overloaded"))
    plain, asked = Metrics(), Metrics(attributes=["agent"], cost_of=lambda *_: StreamCost(1.0, 1.0, 0.0, 0.0))
    for metrics in (plain, asked):
        metrics.observe(record)
    assert page_of(plain).label_values("agent") == set()
    page = page_of(asked)
    assert page.label_values("session") == set()
    names = {name.removesuffix("_count") for name, labels in page.samples if ("agent", "planner") in labels}
    assert {name for name in names if not name.endswith(("_bucket", "_sum"))} == set(ATTRIBUTED)
    labels = {**BY_MODEL, "dialect": "openai-chat", "outcome": "completed"}
    assert page.value(STREAMS, **labels, agent="planner") == 1
    assert page.value("streamgauge_time_to_first_token_seconds_count", **BY_MODEL, agent="planner") == 1


def test_a_stream_adds_one_series_of_its_attributes() -> None:
    """Without attributes all outcomes of its model begin at 0."""
    metrics = Metrics(attributes=["agent"])
    metrics.observe(make_record(attributes={"agent": "planner"}))
    page = page_of(metrics)
    assert [name for name, labels in page.samples if name == STREAMS and ("agent", "planner") in labels] == [STREAMS]
    assert page.value("streamgauge_stream_outcomes_total", upstream="nimbus", outcome="timeout") == 0


def test_the_tenant_is_a_label_where_it_is_asked_for() -> None:
    metrics = Metrics(attributes=["tenant", "agent"])
    metrics.observe(make_record(tenant="search-team", attributes={"agent": "planner", "tenant": "forged"}))
    metrics.observe(make_record(tenant=None))
    page = page_of(metrics)
    labels = {**BY_MODEL, "dialect": "openai-chat", "outcome": "completed"}
    assert page.value(STREAMS, **labels, tenant="search-team", agent="planner") == 1
    assert page.value(STREAMS, **labels, tenant=UNKNOWN, agent=UNKNOWN) == 1
    assert "tenant" not in {name for _, labels in page_of(Metrics()).samples for name, _ in labels}


def test_a_request_without_the_attribute_and_a_caller_that_knows_none() -> None:
    metrics = Metrics(attributes=["agent"])
    metrics.observe(make_record())
    metrics.add(STREAMS, 0, upstream="u", model="m", dialect="d", outcome="o")
    assert page_of(metrics).label_values("agent") == {UNKNOWN}
    with pytest.raises(ValueError, match="has the labels"):
        metrics.add(STREAMS, 0, upstream="u", model="m", dialect="d")


@pytest.mark.slow
def test_20_000_values_stay_within_their_budget_and_the_page() -> None:
    metrics, record = Metrics(attributes=["agent", "session"]), make_record()
    for number in range(20_000):
        attributes = {"agent": f"{number}-" + "a" * 90, "session": '\n"{}é' * 40}
        metrics.observe(msgspec.structs.replace(record, attributes=attributes))
    assert cpu_seconds_of(metrics.render) < MOST_S
    body = metrics.render()
    page = read_page(body)
    assert lines_of(body) < PAGE_SERIES
    assert len(page.label_values("agent")) <= ATTRIBUTE.budget
    assert page.total(STREAMS) == 20_000
    assert OTHER in page.label_values("agent")
    assert page.value("streamgauge_metric_labels_cut_total", label="agent") > 70_000


@pytest.mark.slow
def test_attributes_leave_the_models_their_series() -> None:
    """Three hundred models times fifty agents do not fit: then new series lose their agent, and keep their model."""
    metrics = Metrics(attributes=["agent"])
    for number in range(15_000):
        model = f"m-{number // 50}"
        metrics.observe(
            make_record(request_model=model, response_model=model, attributes={"agent": f"agent-{number % 48}"})
        )
    page = page_of(metrics)
    models = {dict(labels)["model"] for name, labels in page.samples if name == STREAMS}
    assert models - {UNKNOWN} == {f"m-{number}" for number in range(300)}
    assert page.total(STREAMS) == 15_000
    assert page.total("streamgauge_usage_tokens_total") == 15_000 * 15
    assert page.value("streamgauge_metric_labels_cut_total", label="agent") > 0
