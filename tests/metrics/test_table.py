"""The table of metrics by itself: names, labels, and that its series fit the page."""

import re
from collections import Counter
from typing import get_args

import pytest

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.outcome import FINISH_REASONS
from streamgauge.core.record import REQUEST_CAPPED
from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS
from streamgauge.metrics import table
from streamgauge.metrics.budgets import reserve_of
from streamgauge.metrics.declarations import (
    LABELS,
    MODEL_SERIES,
    OTHER,
    PAGE_SERIES,
    RESERVED_SERIES,
    SERIES_OF_A_PAIR,
    UNKNOWN,
    UNSERVED_SERIES,
    Kind,
)
from streamgauge.metrics.otel_names import OTEL_TABLE, OtelNames, otel_metrics
from streamgauge.spool.read_counters import DropReason, Incident, Refusal
from streamgauge.worker.activity_clock import Activity

PROMISED = {
    "streamgauge_streams_total",
    "streamgauge_time_to_first_token_seconds",
    "streamgauge_inter_chunk_latency_seconds",
    "streamgauge_inter_token_latency_seconds",
    "streamgauge_tap_reads_seen_total",
    "streamgauge_tap_reads_delivered_total",
    "streamgauge_tap_reads_dropped_total",
    "streamgauge_tap_reads_waiting",
}


def test_promised_names_are_there() -> None:
    assert set(table.BY_NAME) >= PROMISED
    assert "outcome" in table.STREAMS.labels


def test_every_metric_of_the_module_is_in_the_table_once() -> None:
    declared = [value for value in vars(table).values() if isinstance(value, type(table.STREAMS))]
    assert len(table.TABLE) == len(table.BY_NAME) == len(declared)


def test_names_say_kind_and_unit() -> None:
    for metric in table.TABLE:
        assert re.fullmatch(r"(streamgauge|process)_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        in_seconds = metric.unit == "seconds" and metric.kind is not Kind.COUNTER
        assert metric.name.endswith("_seconds") == in_seconds, metric.name
        assert re.fullmatch(r"[ !#-\[\]-~]+\.", metric.help), f"{metric.name}: the page shows help without escapes"


def test_l3_no_gauge_is_kept_for_a_model_or_a_stream() -> None:
    """Models come and go. What ends or leaves takes its gauges off the page, which is tested beside each of these labels."""
    labels = {label for metric in table.TABLE if metric.kind is Kind.GAUGE for label in metric.labels}
    assert labels == {
        "budget_key", "budget_value", "credential_id", "kind", "partition", "process", "provider", "setting",
        "upstream", "version",
    }  # fmt: skip


def test_bounds_rise_and_belong_to_histograms_alone() -> None:
    for metric in table.TABLE:
        assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)
        assert list(metric.bounds) == sorted(set(metric.bounds))


def test_gaps_have_the_records_own_bounds() -> None:
    assert table.INTER_CHUNK.bounds is GAP_BOUNDS_S


def test_every_label_is_declared_and_used() -> None:
    ours = {label for metric in table.TABLE for label in metric.labels}
    assert ours | {label for row in OTEL_TABLE for label in row.labels} == set(LABELS)


def test_closed_labels_have_room_for_their_whole_vocabulary() -> None:
    """A label's budget is one for all metrics of a page."""
    spare = {OTHER, UNKNOWN}
    assert len({*FINISH_REASONS.values(), *spare}) <= LABELS["finish_reason"].budget
    counted = {*table.UNREAD_KINDS, *table.ANOMALIES, *INPUT_KINDS, *OUTPUT_KINDS, "requests", "tokens"}
    assert len({*counted, *map(str, Incident), *spare}) <= LABELS["kind"].budget
    incomplete = {
        *("no_end", "missing_segments", "dropped_reads", "oversized_event", "decode_error", "body_capped", "log_gap"),
        *("state_limit", REQUEST_CAPPED),
    }
    assert len({*incomplete, *map(str, DropReason), *map(str, Refusal), *spare}) <= LABELS["reason"].budget
    assert len({*table.OUTCOMES, *spare}) <= LABELS["outcome"].budget
    assert len({*table.PHASES, *spare}) <= LABELS["phase"].budget
    assert len({*table.TRANSPORT_CAUSES, "loop", "commit", "group", "stop", *spare}) <= LABELS["cause"].budget
    assert len({*map(str, Activity), *spare}) <= LABELS["activity"].budget
    assert len({*LABELS, *spare}) <= LABELS["label"].budget


@pytest.mark.parametrize("names", get_args(OtelNames))
def test_the_series_of_other_leave_nearly_all_of_the_page_to_names(names: OtelNames) -> None:
    assert sum(map(reserve_of, (*table.TABLE, *otel_metrics(names)))) < PAGE_SERIES / 50


def test_a_pair_is_counted_with_the_lines_that_it_takes() -> None:
    lines = Counter[bool]()
    for metric in table.TABLE:
        if "model" in metric.labels:
            lines[metric.kind is Kind.HISTOGRAM] += metric.lines
    kinds = 2 * len({*INPUT_KINDS, *OUTPUT_KINDS})  # tokens, and streams that reported them
    counters = len(table.OUTCOMES) + kinds + len(table.SIDES) + 3 + 5  # costs and savings; a few finish reasons
    assert lines[True] + counters <= SERIES_OF_A_PAIR
    assert (MODEL_SERIES - UNSERVED_SERIES - RESERVED_SERIES) // SERIES_OF_A_PAIR >= 500


def test_series_that_start_have_values_of_labels_that_the_metric_has() -> None:
    for metric in table.TABLE:
        if metric.starts is not None:
            assert "upstream" in metric.labels, metric.name
            assert set(metric.starts) <= set(metric.labels), metric.name
            for label, values in metric.starts.items():
                assert all(len(value) <= LABELS[label].max_chars for value in values)


def test_bounds_are_where_objectives_are() -> None:
    first_token = table.FIRST_TOKEN.bounds
    assert 2.0 in first_token
    assert first_token[-1] == 300.0
    assert len([bound for bound in first_token if 0.1 <= bound <= 0.5]) >= 9
    assert (GAP_BOUNDS_S[0], GAP_BOUNDS_S[-1]) == (0.001, 60.0)


def test_conventions_of_opentelemetry_have_their_names() -> None:
    def names(convention: OtelNames) -> set[str]:
        return {metric.name for metric in otel_metrics(convention)}

    assert names("off") == set()
    assert names("v1.41") == {
        "gen_ai.client.operation.duration_seconds",
        "gen_ai.client.operation.time_to_first_chunk_seconds",
        "gen_ai.client.operation.time_per_output_chunk_seconds",
        "gen_ai.client.token.usage",
        "mcp.client.operation.duration_seconds",
    }
    inference = "gen_ai.client.inference."
    assert names("latest") == {
        *(f"{inference}{name}_seconds" for name in ("duration", "time_to_first_chunk", "time_per_output_chunk")),
        *(f"{inference}usage.{name}_tokens_total" for name in ("input", "output", "cache_read.input")),
        *(f"{inference}usage.{name}_tokens_total" for name in ("cache_write.input", "reasoning.output")),
        f"{inference}operation.input_tokens",
        f"{inference}operation.output_tokens",
        "mcp.client.operation.duration_seconds",
    }
    assert {row.ours for row in OTEL_TABLE} - {None} <= set(table.BY_NAME)
