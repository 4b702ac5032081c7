"""The last hour by minute: which streams count, and where."""

import msgspec
import pytest

from streamgauge.live.history import MAX_UPSTREAMS, MINUTES, OTHER, History
from streamgauge.live.hour import hour_of
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import FIRST_TOKEN
from tests.live.streams import WALL_S
from tests.metrics.pages import read_page
from tests.metrics.records import ABSENT, gap_buckets, make_integrity, make_record, make_timing, make_usage

SINCE = "2026-01-02T03:04:05Z"

MINUTE_S = WALL_S // 60 * 60


def test_a_stream_counts_in_the_bucket_of_the_metric() -> None:
    history = History()
    history.add(make_record(timing=make_timing(first_token_s=0.2)), None, WALL_S)
    hour = hour_of(history.minutes(WALL_S), since=SINCE)
    [column] = hour.first_token.counts
    assert column.index(1) == FIRST_TOKEN.bounds.index(0.2)
    assert sum(column) == 1
    assert hour.minutes == [MINUTE_S]


def test_gaps_count_each_and_equal_the_records() -> None:
    history = History()
    for _ in range(3):
        history.add(make_record(), None, WALL_S)
    [column] = hour_of(history.minutes(WALL_S), since=SINCE).gaps.counts
    cumulative = [total for _, total in gap_buckets(0.0, 0.02, 0.02, 0.06)]
    assert column == [3 * (total - before) for before, total in zip([0, *cumulative], cumulative, strict=False)]
    assert sum(column) == 12


@pytest.mark.parametrize(
    "changes",
    [{"resumed_from": "41"}, {"integrity": make_integrity("no_end")}],
    ids=["resumed", "incomplete"],
)
def test_what_is_not_measured_counts_as_a_stream_alone(changes: dict[str, object]) -> None:
    history = History()
    history.add(make_record(**changes), None, WALL_S)
    hour = hour_of(history.minutes(WALL_S), since=SINCE)
    assert hour.streams == 1
    assert sum(hour.first_token.counts[0]) == sum(hour.gaps.counts[0]) == 0


def test_a_burst_has_no_gaps() -> None:
    history = History()
    history.add(make_record(timing=make_timing(burst=True)), None, WALL_S)
    hour = hour_of(history.minutes(WALL_S), since=SINCE)
    assert (sum(hour.first_token.counts[0]), sum(hour.gaps.counts[0])) == (1, 0)


def test_outcomes_by_minute_and_by_upstream() -> None:
    history = History()
    history.add(make_record(), None, WALL_S)
    history.add(make_record(upstream="b", outcome="truncated"), None, WALL_S + 60)
    history.add(make_record(upstream=None, outcome="truncated"), None, WALL_S + 60)
    hour = hour_of(history.minutes(WALL_S + 60), since=SINCE)
    assert hour.outcomes == [{"completed": 1}, {"truncated": 2}]
    assert {one.upstream: one.outcomes for one in hour.upstreams} == {
        None: {"truncated": 1},
        "b": {"truncated": 1},
        "nimbus": {"completed": 1},
    }


def test_an_hour_is_kept_and_no_more() -> None:
    history = History()
    for minute in range(200):
        history.add(make_record(), None, WALL_S + 60 * minute)
    kept = history.minutes(WALL_S + 60 * 199)
    assert len(kept) == MINUTES
    assert history.minutes(WALL_S + 60 * 10_000) == []


def test_a_step_back_of_the_wall_clock_loses_nothing() -> None:
    history = History()
    history.add(make_record(), None, WALL_S)
    history.add(make_record(), None, WALL_S - 7_200)
    assert hour_of(history.minutes(WALL_S), since=SINCE).streams == 2


def test_upstreams_beyond_the_limit_are_others() -> None:
    history = History()
    for number in range(1_000):
        history.add(make_record(upstream=f"u{number}"), None, WALL_S)
    upstreams = hour_of(history.minutes(WALL_S), since=SINCE).upstreams
    assert len(upstreams) == MAX_UPSTREAMS + 1
    assert next(one.outcomes for one in upstreams if one.upstream == OTHER) == {"completed": 1_000 - MAX_UPSTREAMS}


def test_an_upstream_that_is_gone_leaves_its_name_to_another() -> None:
    """The names of the first 20 upstreams were kept for good, so each later one was `other`."""
    history = History()
    for number in range(MAX_UPSTREAMS):
        history.add(make_record(upstream=f"old{number}"), None, WALL_S)
    history.add(make_record(upstream="new"), None, WALL_S + 60)
    history.add(make_record(upstream="new"), None, WALL_S + 60 * MINUTES)
    upstreams = hour_of(history.minutes(WALL_S + 60 * MINUTES), since=SINCE).upstreams
    assert {one.upstream for one in upstreams} == {OTHER, "new"}


def test_a_resumed_stream_adds_only_the_tokens_that_its_origin_has_not() -> None:
    """As in the metrics: both report the usage of the whole."""
    history, metrics = History(), Metrics()
    whole = {"response_id": "r", "credential_id": "c", "request_digest": "d"}
    for record in (
        make_record(**whole, outcome="client_abort", last_event_id="4", usage=make_usage(10, 3)),
        make_record(**whole, resumed_from="4", usage=make_usage(10, 5)),
    ):
        history.add(record, None, WALL_S)
        metrics.observe(record)
    [tokens] = hour_of(history.minutes(WALL_S), since=SINCE).tokens
    page = read_page(metrics.render())
    counted = {
        dict(labels)["kind"]: value
        for (name, labels), value in page.samples.items()
        if name == "streamgauge_usage_tokens_total"
    }
    assert tokens == counted == {"input_uncached": 10, "output_text": 5}


def test_streams_without_usage_are_counted() -> None:
    history = History()
    history.add(make_record(), None, WALL_S)
    history.add(make_record(usage=msgspec.structs.replace(ABSENT)), None, WALL_S)
    hour = hour_of(history.minutes(WALL_S), since=SINCE)
    assert (hour.streams, hour.with_usage, hour.tokens) == (2, 1, [{"input_uncached": 10, "output_text": 5}])


def test_cost_by_upstream_and_streams_without_a_price() -> None:
    history = History()
    for upstream, cost in (("a", StreamCost(1.0, 0.5, 0, 0)), ("a", StreamCost(None, 0.25, 0, 0)), (None, None)):
        history.add(make_record(upstream=upstream), cost, WALL_S)
    history.add(make_record(usage=ABSENT), None, WALL_S)
    history.add(make_record(upstream="b"), StreamCost(unknown="no_seller"), WALL_S + 60)
    history.add(make_record(upstream="free"), StreamCost(0.0, 0.0, 0, 0), WALL_S + 60)
    hour = hour_of(history.minutes(WALL_S + 60), since=SINCE)
    assert hour.cost_usd == [{"a": 1.75}, {"free": 0.0}]
    assert (hour.unpriced, hour.priced, hour.streams) == (2, 3, 6)
