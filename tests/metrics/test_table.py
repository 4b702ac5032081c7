"""The table of metrics by itself: names, labels, and that its shares of the page fit."""

import re

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.outcome import FINISH_REASONS
from streamgauge.core.record import REQUEST_CAPPED
from streamgauge.metrics import table
from streamgauge.metrics.declarations import LABELS, OTHER, PAGE_BYTES, UNKNOWN, Kind
from streamgauge.metrics.observe import USAGE_KINDS
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
        assert re.fullmatch(r"streamgauge_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        in_seconds = metric.unit == "seconds" and metric.kind is not Kind.COUNTER
        assert metric.name.endswith("_seconds") == in_seconds, metric.name
        assert in_seconds or metric.kind is not Kind.HISTOGRAM, metric.name
        assert metric.help.endswith("."), metric.name


def test_bounds_rise_and_belong_to_histograms_alone() -> None:
    for metric in table.TABLE:
        assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)
        assert list(metric.bounds) == sorted(set(metric.bounds))


def test_gaps_have_the_records_own_bounds() -> None:
    assert table.INTER_CHUNK.bounds is GAP_BOUNDS_S


def test_every_label_is_declared_and_used() -> None:
    assert {label for metric in table.TABLE for label in metric.labels} == set(LABELS)


def test_closed_labels_have_room_for_their_whole_vocabulary() -> None:
    """A label's budget is one for all metrics of a page."""
    spare = {OTHER, UNKNOWN}
    assert len({*FINISH_REASONS.values(), *spare}) <= LABELS["finish_reason"].budget
    counted = {"unparsed", "unterminated", "oversized", "bad_value", "identity", *USAGE_KINDS.values()}
    assert len({*counted, *map(str, Incident), *spare}) <= LABELS["kind"].budget
    incomplete = {
        *("no_end", "missing_segments", "dropped_reads", "oversized_event", "decode_error", "body_capped", "log_gap"),
        *("state_limit", REQUEST_CAPPED),
    }
    assert len({*incomplete, *map(str, DropReason), *map(str, Refusal), *spare}) <= LABELS["reason"].budget
    assert len({*map(str, Activity), *spare}) <= LABELS["activity"].budget
    assert len({*LABELS, *spare}) <= LABELS["label"].budget


def test_shares_fit_the_page_and_hold_their_reserve() -> None:
    assert sum(metric.page_bytes for metric in table.TABLE) <= PAGE_BYTES
    for metric in table.TABLE:
        assert metric.reserve_bytes <= metric.page_bytes, metric.name
