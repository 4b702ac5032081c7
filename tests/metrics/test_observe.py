"""What a record adds to the metrics, and what it does not add."""

from typing import Any

import pytest

from streamgauge.core.record import Error, Gaps, Record
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import OUTCOMES, PHASES, TRANSPORT_CAUSES
from tests.metrics.pages import read_page
from tests.metrics.records import ABSENT, gap_buckets, make_counts, make_integrity, make_record, make_timing, make_usage

LATENCIES = (
    "streamgauge_time_to_first_byte_seconds",
    "streamgauge_time_to_first_token_seconds",
    "streamgauge_time_to_first_content_seconds",
    "streamgauge_longest_gap_seconds",
    "streamgauge_output_tokens_per_second",
    "streamgauge_inter_chunk_latency_seconds",
    "streamgauge_inter_token_latency_seconds",
    "streamgauge_stream_duration_seconds",
)
UP = {"upstream": "nimbus"}
BY_MODEL = {"upstream": "nimbus", "model": "gpt-4o"}


def page_of(*records: Record) -> Any:
    metrics = Metrics()
    for record in records:
        metrics.observe(record)
    return read_page(metrics.render())


def observations(page: Any) -> dict[str, float]:
    return {name: page.total(f"{name}_count") for name in LATENCIES}


def test_a_completed_stream() -> None:
    page = page_of(make_record())
    labels = {**BY_MODEL, "dialect": "openai-chat", "outcome": "completed"}
    assert page.value("streamgauge_streams_total", **labels) == 1
    assert page.value("streamgauge_finish_reasons_total", **BY_MODEL, finish_reason="stop") == 1
    assert page.value("streamgauge_token_events_total", **UP) == 5
    assert page.value("streamgauge_body_bytes_total", **UP) == 700
    assert page.value("streamgauge_usage_sources_total", **UP, source="final") == 1
    assert page.total("streamgauge_stream_errors_total") == 0


def test_each_latency_goes_into_its_bucket() -> None:
    page = page_of(make_record())
    first_token = "streamgauge_time_to_first_token_seconds"
    assert page.value(f"{first_token}_bucket", **BY_MODEL, le="0.15") == 0
    assert page.value(f"{first_token}_bucket", **BY_MODEL, le="0.2") == 1  # bounds are inclusive
    assert page.value(f"{first_token}_sum", **BY_MODEL) == 0.2
    assert page.value("streamgauge_time_to_first_byte_seconds_sum", **UP) == 0.15
    assert page.value("streamgauge_inter_token_latency_seconds_sum", **BY_MODEL) == 0.025
    assert page.value("streamgauge_stream_duration_seconds_sum", **UP, outcome="completed") == 0.35


def test_gaps_are_added_bucket_by_bucket_over_streams() -> None:
    gaps = "streamgauge_inter_chunk_latency_seconds"
    page = page_of(make_record(), make_record())
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="0.001") == 2
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="0.02") == 6
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="0.05") == 6
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="0.075") == 8
    assert page.value(f"{gaps}_count", **BY_MODEL) == 8
    assert page.value(f"{gaps}_sum", **BY_MODEL) == pytest.approx(0.2)


def test_gaps_above_every_bound_are_counted() -> None:
    timing = make_timing(last_token_s=161.2)
    timing.gaps.buckets = gap_buckets(40.0, 60.0, 61.0)
    gaps = "streamgauge_inter_chunk_latency_seconds"
    page = page_of(make_record(timing=timing))
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="30.0") == 0
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="60.0") == 2
    assert page.value(f"{gaps}_bucket", **BY_MODEL, le="+Inf") == 3


def test_a_stream_without_a_token_is_counted_and_in_no_latency_of_tokens() -> None:
    timing = make_timing(first_token_s=None, last_token_s=None, inter_token_latency_s=None, burst=False)
    timing.gaps.buckets = gap_buckets()
    page = page_of(make_record(timing=timing, counts=make_counts(token_events=0), outcome="truncated"))
    without = "streamgauge_streams_without_token_total"
    assert page.value(without, **UP, outcome="truncated", streaming="true") == 1
    seen = observations(page)
    assert seen["streamgauge_time_to_first_token_seconds"] == 0
    assert seen["streamgauge_inter_chunk_latency_seconds"] == 0
    assert seen["streamgauge_inter_token_latency_seconds"] == 0


def test_resumed_stream_is_counted_and_in_no_histogram() -> None:
    page = page_of(make_record(resumed_from="evt_17"))
    assert page.total("streamgauge_streams_total") == 1
    assert page.value("streamgauge_resumed_streams_total", **UP) == 1
    assert set(observations(page).values()) == {0}


@pytest.mark.parametrize("outcome", ["completed", "stream_error", "http_error"])
def test_resumed_stream_adds_no_burst_and_no_stall(outcome: str) -> None:
    timing = make_timing(burst=True)
    timing.gaps.stalls = 3
    page = page_of(make_record(timing=timing, resumed_from="17", outcome=outcome))
    assert page.total("streamgauge_bursts_total") == page.total("streamgauge_stalls_total") == 0
    assert page.value("streamgauge_streams_total", **BY_MODEL, dialect="openai-chat", outcome=outcome) == 1


def tokens(page: Any) -> dict[str, float]:
    name = "streamgauge_usage_tokens_total"
    return {dict(labels)["kind"]: value for (found, labels), value in page.samples.items() if found == name}


def test_usage_of_a_stream_that_broke_early_comes_from_its_resumed_stream() -> None:
    broken = make_record(dialect="openai-responses", outcome="truncated", usage=ABSENT)
    resumed = make_record(dialect="openai-responses", usage=make_usage(30, 12, input_cached_tokens=8), resumed_from="4")
    assert tokens(page_of(broken, resumed)) == {
        "input_uncached": 22,
        "input_cached": 8,
        "output_text": 12,
    }


def test_usage_at_the_beginning_is_not_counted_again_for_a_resumed_stream() -> None:
    parts: dict[str, Any] = {"input_cached_tokens": 8, "input_cache_write_tokens": 7}
    partial = make_usage(41, None, source="partial", **parts)
    broken = make_record(dialect="anthropic-messages", outcome="truncated", usage=partial)
    resumed = make_record(
        dialect="anthropic-messages", usage=make_usage(41, 20, reasoning_tokens=5, **parts), resumed_from="17"
    )
    assert tokens(page_of(broken, resumed)) == {
        "input_uncached": 26,
        "input_cached": 8,
        "input_cache_write": 7,
        "output_text": 15,
        "reasoning": 5,
    }


def test_repeated_usage_of_a_resumed_stream_counts_once_under_the_origins_model() -> None:
    broken = make_record(response_id="r", outcome="truncated", usage=make_usage(30, 3, source="partial"))
    resumed = make_record(
        response_id="r", resumed_from="4", request_model=None, usage=make_usage(30, 12, input_cached_tokens=8)
    )
    page = page_of(broken, resumed, resumed)
    # Counters cannot go down: what was counted as uncached stays so, and the sum is the input.
    kinds = {"input_uncached": 30, "input_cached": 0, "output_text": 12}
    assert {kind: page.value("streamgauge_usage_tokens_total", **BY_MODEL, kind=kind) for kind in kinds} == kinds
    assert page.total("streamgauge_usage_tokens_total") == sum(kinds.values())
    assert page.value("streamgauge_usage_sources_total", **UP, source="final") == 2


def test_two_requests_that_share_a_response_id_are_counted_twice() -> None:
    shared = make_record(response_id="chatcmpl-same", request_digest="d")
    assert tokens(page_of(shared, shared)) == {"input_uncached": 20, "output_text": 10}


def test_an_incomplete_capture_is_counted_with_its_reasons_and_in_no_histogram() -> None:
    page = page_of(make_record(integrity=make_integrity("dropped_reads", "log_gap", dropped_reads=3)))
    assert page.value("streamgauge_incomplete_records_total", **UP) == 1
    assert page.value("streamgauge_incomplete_reasons_total", reason="dropped_reads") == 1
    assert page.value("streamgauge_incomplete_reasons_total", reason="log_gap") == 1
    assert set(observations(page).values()) == {0}


def test_a_burst_has_a_first_token_and_no_gaps() -> None:
    page = page_of(make_record(timing=make_timing(burst=True)))
    seen = observations(page)
    assert page.value("streamgauge_bursts_total", **UP) == 1
    assert seen["streamgauge_time_to_first_token_seconds"] == 1
    assert seen["streamgauge_inter_chunk_latency_seconds"] == 0
    assert seen["streamgauge_inter_token_latency_seconds"] == 0


def test_a_recording_without_stamps_adds_no_time() -> None:
    timing = make_timing(
        headers_s=None, first_byte_s=None, first_event_s=None, first_token_s=None, first_content_s=None,
        last_token_s=None, end_s=None, inter_token_latency_s=None, burst=None,
    )  # fmt: skip
    timing.gaps = Gaps(4)
    page = page_of(make_record(timing=timing))
    assert set(observations(page).values()) == {0}
    assert page.total("streamgauge_streams_without_token_total") == 0


def test_time_per_token_needs_final_usage() -> None:
    page = page_of(make_record(usage=make_usage(source="partial")))
    assert observations(page)["streamgauge_inter_token_latency_seconds"] == 0


def test_absent_usage_adds_no_tokens_and_no_series_of_zero() -> None:
    page = page_of(make_record(usage=ABSENT))
    assert page.value("streamgauge_usage_sources_total", **UP, source="absent") == 1
    assert page.names_with_samples().isdisjoint({"streamgauge_usage_tokens_total"})


def test_kinds_of_tokens_are_disjoint_and_add_up() -> None:
    usage = make_usage(100, 50, input_cached_tokens=60, reasoning_tokens=20, input_cache_write_tokens=7)
    page = page_of(make_record(usage=usage), make_record())
    kinds = {"input_uncached": 43, "input_cached": 60, "input_cache_write": 7, "output_text": 35, "reasoning": 20}
    assert tokens(page) == kinds
    assert page.total("streamgauge_usage_tokens_total") == 110 + 55


def test_a_reported_0_is_a_series_and_what_is_not_reported_is_none() -> None:
    page = page_of(make_record(usage=make_usage(input_cached_tokens=0)), make_record())
    assert tokens(page) == {"input_uncached": 20, "input_cached": 0, "output_text": 10}
    name = "streamgauge_usage_reported_streams_total"
    assert page.value(name, **BY_MODEL, kind="input_cached") == 1
    assert page.value(name, **BY_MODEL, kind="input_uncached") == 2
    assert page.value(name, **BY_MODEL, kind="output_text") == 2
    assert "reasoning" not in {dict(labels)["kind"] for found, labels in page.samples if found == name}


@pytest.mark.parametrize(
    ("changes", "anomaly"),
    [
        ({"input_cached_tokens": 11}, "part_above_whole"),
        ({"reasoning_tokens": 6}, "part_above_whole"),
        ({"input_cached_tokens": 6, "audio_input_tokens": 6}, "parts_overlap"),
        ({"input_cached_tokens": 6, "input_cache_write_tokens": 5}, "parts_overlap"),
    ],
)
def test_parts_that_do_not_fit_their_whole_are_cut_and_counted(changes: dict[str, int], anomaly: str) -> None:
    page = page_of(make_record(usage=make_usage(10, 5, **changes)))
    assert sum(tokens(page).values()) == 15
    assert page.value("streamgauge_usage_anomalies_total", **UP, kind=anomaly) == 1
    assert page.total("streamgauge_usage_anomalies_total") == 1


def test_parts_without_a_whole_stand_by_themselves() -> None:
    page = page_of(make_record(usage=make_usage(None, None, input_cached_tokens=4, reasoning_tokens=0)))
    assert tokens(page) == {"input_cached": 4, "reasoning": 0}
    assert page.total("streamgauge_usage_anomalies_total") == 0


def test_usage_that_cannot_be_is_counted() -> None:
    page = page_of(make_record(usage=make_usage(bad_values=2, identity_failed="input+output=total")))
    assert page.value("streamgauge_usage_anomalies_total", **UP, kind="bad_value") == 2
    assert page.value("streamgauge_usage_anomalies_total", **UP, kind="identity") == 1


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (Error("in_stream", type="overloaded_error", code="x"), "overloaded_error"),
        (Error("in_stream", code="rate_limit"), "rate_limit"),
        (Error("before_stream", status=529), "529"),
        (Error("transport"), "unknown"),
    ],
)
def test_errors_by_phase_and_type(error: Error, error_type: str) -> None:
    page = page_of(make_record(error=error, outcome="stream_error"))
    labels = {**UP, "phase": error.phase, "error_type": error_type}
    assert page.value("streamgauge_stream_errors_total", **labels) == 1


def test_an_error_page_does_not_make_the_first_byte_look_quick() -> None:
    page = page_of(make_record(outcome="http_error", streaming=False, counts=make_counts(token_events=0)))
    seen = observations(page)
    assert seen["streamgauge_time_to_first_byte_seconds"] == 0
    assert seen["streamgauge_stream_duration_seconds"] == 1


def test_events_that_could_not_be_read() -> None:
    record = make_record(
        counts=make_counts(unparsed_events=2, unterminated_events=1),
        integrity=make_integrity("oversized_event", oversized_events=4),
    )
    page = page_of(record)
    kinds = {"unparsed": 2, "unterminated": 1, "oversized": 4}
    assert {kind: page.value("streamgauge_unread_events_total", **UP, kind=kind) for kind in kinds} == kinds


def test_stalls_are_counted() -> None:
    timing = make_timing()
    timing.gaps.stalls = 3
    assert page_of(make_record(timing=timing)).value("streamgauge_stalls_total", **UP) == 3


def test_the_model_is_that_of_the_request_or_else_of_the_response() -> None:
    page = page_of(make_record(request_model=None), make_record(request_model=None, response_model=None))
    labels = {**UP, "dialect": "openai-chat", "outcome": "completed"}
    assert page.value("streamgauge_streams_total", **labels, model="gpt-4o-2024-08-06") == 1
    assert page.value("streamgauge_streams_total", **labels, model="unknown") == 1


def test_the_first_token_of_each_kind() -> None:
    timing = make_timing(first_reasoning_s=0.2, first_content_s=0.9, first_tool_s=None)
    page = page_of(make_record(timing=timing))
    assert page.value("streamgauge_time_to_first_reasoning_seconds_sum", **BY_MODEL) == 0.2
    assert page.value("streamgauge_time_to_first_content_seconds_sum", **BY_MODEL) == 0.9
    assert page.total("streamgauge_time_to_first_tool_seconds_count") == 0


def test_the_longest_gap_and_the_pace_of_a_stream() -> None:
    timing = make_timing(inter_token_latency_s=0.02)
    timing.gaps.max_s = 0.06
    page = page_of(make_record(timing=timing))
    assert page.value("streamgauge_longest_gap_seconds_sum", **UP) == 0.06
    assert page.value("streamgauge_output_tokens_per_second_sum", **BY_MODEL) == 50
    without_pace = page_of(make_record(timing=make_timing(inter_token_latency_s=0.0)))
    assert without_pace.total("streamgauge_output_tokens_per_second_count") == 0


def test_retries_are_requests_sent_again() -> None:
    page = page_of(*(make_record(attempt=attempt) for attempt in (None, 1, 2, 3)))
    assert page.value("streamgauge_retried_streams_total", **UP) == 2


def test_a_finish_reason_without_a_normal_form_is_counted_as_unknown() -> None:
    page = page_of(
        make_record(finish_reason=None, finish_reason_raw="OTHER"),
        make_record(finish_reason=None, finish_reason_raw=None),
    )
    assert page.value("streamgauge_finish_reasons_total", **BY_MODEL, finish_reason="unknown") == 1
    assert page.total("streamgauge_finish_reasons_total") == 1


def test_transport_errors_by_cause() -> None:
    page = page_of(
        make_record(error=Error("transport", code="refused"), outcome="upstream_reset"),
        make_record(error=Error("transport"), outcome="timeout"),
        make_record(error=Error("in_stream", code="refused"), outcome="stream_error"),
    )
    name = "streamgauge_transport_errors_total"
    assert page.value(name, **UP, cause="refused") == page.value(name, **UP, cause="unknown") == 1
    assert page.total(name) == 2
    assert page.value("streamgauge_failed_streams_total", **UP, phase="transport") == 2
    assert page.value("streamgauge_failed_streams_total", **UP, phase="in_stream") == 1


# --- series of 0 ------------------------------------------------------------------------------------------------------


def test_every_outcome_and_error_of_a_configured_upstream_begins_at_0() -> None:
    metrics = Metrics()
    metrics.start_upstream("nimbus")
    page = read_page(metrics.render())
    for outcome in OUTCOMES:
        assert page.value("streamgauge_stream_outcomes_total", **UP, outcome=outcome) == 0
        unknown = {"dialect": "unknown", "model": "unknown"}
        assert page.value("streamgauge_streams_total", **UP, **unknown, outcome=outcome) == 0
    for phase in PHASES:
        assert page.value("streamgauge_failed_streams_total", **UP, phase=phase) == 0
        assert page.value("streamgauge_stream_errors_total", **UP, phase=phase, error_type="unknown") == 0
    for cause in TRANSPORT_CAUSES:
        assert page.value("streamgauge_transport_errors_total", **UP, cause=cause) == 0
    for name in ("bursts", "stalls", "retried_streams", "resumed_streams", "incomplete_records"):
        assert page.value(f"streamgauge_{name}_total", **UP) == 0


def test_counters_that_alerts_use_keep_twenty_upstreams_apart() -> None:
    metrics = Metrics()
    names = {f"provider-{number:03}" for number in range(20)}
    for name in sorted(names):
        metrics.start_upstream(name)
    page = read_page(metrics.render())
    for counter in ("stream_outcomes", "failed_streams", "transport_errors", "usage_sources", "stalls"):
        series = [dict(labels) for found, labels in page.samples if found == f"streamgauge_{counter}_total"]
        assert {labels["upstream"] for labels in series} == names, counter


def test_the_outcomes_of_an_upstream_and_of_a_model_begin_with_the_first_stream_of_it() -> None:
    page = page_of(make_record(outcome="completed"))
    assert page.value("streamgauge_stream_outcomes_total", **UP, outcome="completed") == 1
    assert page.value("streamgauge_stream_outcomes_total", **UP, outcome="http_error") == 0
    labels = {**BY_MODEL, "dialect": "openai-chat"}
    assert {outcome: page.value("streamgauge_streams_total", **labels, outcome=outcome) for outcome in OUTCOMES} == {
        outcome: int(outcome == "completed") for outcome in OUTCOMES
    }


def test_all_outcomes_of_each_served_model_begin_at_0() -> None:
    page = page_of(*(make_record(request_model=f"m-{number}") for number in range(150)))
    streams = [dict(labels) for name, labels in page.samples if name == "streamgauge_streams_total"]
    assert {labels["model"] for labels in streams} == {"unknown", *(f"m-{number}" for number in range(150))}
    for model in ("m-0", "m-149"):
        assert len([labels for labels in streams if labels["model"] == model]) == len(OUTCOMES)


def test_starting_an_upstream_again_changes_nothing() -> None:
    metrics = Metrics()
    metrics.observe(make_record())
    before = metrics.render()
    metrics.start_upstream("nimbus")
    assert metrics.render() == before
