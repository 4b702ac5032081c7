"""What the page remembers of finished streams: minutes, the hour's answer, worst streams, rate limits."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.record import RateLimit, Record
from streamgauge.live.finished import (
    CATEGORIES,
    KEPT_S,
    MAX_PAIRS,
    MAX_UPSTREAMS,
    MINUTES,
    OTHER,
    PERIOD_S,
    RECENT,
    WORST,
    Headroom,
    History,
    WorstStreams,
    hour_of,
)
from streamgauge.live.reads import Track
from streamgauge.metrics.observe import StreamCost
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.rate_limits import KEEP_S
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


def test_an_hour_without_streams_has_no_minutes() -> None:
    hour = hour_of([], since=SINCE)
    assert (hour.minutes, hour.streams, hour.upstreams, hour.tokens) == ([], 0, [], [])
    assert (hour.cost_usd, hour.unpriced, hour.priced) == ([], 0, 0)
    without = hour_of([], since=SINCE, prices=False)
    assert (without.cost_usd, without.unpriced, without.priced) == (None, None, None)
    assert hour.first_token.counts == hour.gaps.counts == []
    assert len(hour.first_token.bounds_s) > 10


def record(number: int, first_token_s: float = 0.2, **changes: object) -> Record:
    stream_id = str(UUID(int=number))
    return make_record(stream_id=stream_id, timing=make_timing(first_token_s=first_token_s), **changes)


@given(st.lists(st.tuples(st.floats(0.0, 400.0), st.integers(1, 60)), max_size=120))
def test_the_ten_slowest_of_the_hour_are_exact(streams: list[tuple[float, int]]) -> None:
    worst, now, all_of_them = WorstStreams(), 0.0, []
    for number, (pause_s, first_token_s) in enumerate(streams):
        now += pause_s
        worst.add(record(number, first_token_s), None, now)
        all_of_them.append((first_token_s, now))
    expected = sorted((value for value, at in all_of_them if at > now - KEPT_S), reverse=True)[:WORST]
    found = [one.record.timing.first_token_s for one in worst.worst("first_token", now)]
    assert found == expected


def test_broken_streams_are_the_newest_and_no_client_that_left() -> None:
    worst = WorstStreams()
    for number in range(40):
        worst.add(record(number, outcome="truncated"), None, float(number))
    worst.add(record(100, outcome="client_abort"), None, 50.0)
    found = [one.record.stream_id for one in worst.worst("broken", 60.0)]
    assert found == [str(UUID(int=number)) for number in range(39, 39 - WORST, -1)]


def test_what_is_not_measured_is_not_slow() -> None:
    worst = WorstStreams()
    worst.add(record(1, 99.0, integrity=make_integrity("no_end")), None, 0.0)
    worst.add(record(2, 99.0, resumed_from="4"), None, 0.0)
    assert worst.worst("first_token", 1.0) == worst.worst("gap", 1.0) == []


@pytest.mark.slow
def test_memory_is_bounded_and_all_that_is_kept_is_found() -> None:
    worst = WorstStreams()
    for number in range(20_000):
        worst.add(record(number, number % 977, outcome="truncated"), Track(1), number * 2.0)
    kept = [one for number in range(20_000) if (one := worst.find(str(UUID(int=number)))) is not None]
    assert 3 * WORST < len(kept) <= (KEPT_S / PERIOD_S + 2) * len(CATEGORIES) * WORST + RECENT
    assert len(worst.recent()) == RECENT
    assert worst.recent()[0].record.stream_id == str(UUID(int=19_999))
    assert worst.find("nothing") is None


def limited(
    remaining: int, started_at: str = "2026-03-01T12:00:00.000000Z", key: str = "k", reset_s: float = 1
) -> Record:
    limit = RateLimit(100, remaining, reset_s, None, None, None)
    return make_record(rate_limit=limit, started_at=started_at, credential_id=key)


def left(headroom: Headroom, now_s: float) -> list[int | None]:
    return [limit.requests_remaining for _, limit in headroom.limits(now_s)]


def test_the_newest_response_decides() -> None:
    headroom = Headroom()
    headroom.add(limited(50, "2026-03-01T12:00:05.000000Z"), 0.0)
    headroom.add(limited(90, "2026-03-01T12:00:00.000000Z"), 1.0)
    assert left(headroom, 2.0) == [50]
    headroom.add(limited(40, "2026-03-01T12:00:09.000000Z"), 3.0)
    assert left(headroom, 4.0) == [40]


def test_a_stream_without_limits_changes_nothing() -> None:
    headroom = Headroom()
    headroom.add(limited(50), 0.0)
    headroom.add(make_record(), 1.0)
    assert left(headroom, 2.0) == [50]


def test_an_old_value_expires_after_its_reset() -> None:
    headroom = Headroom()
    headroom.add(limited(50), 0.0)
    headroom.add(limited(60, key="long", reset_s=1_000.0), 0.0)
    assert left(headroom, KEEP_S - 1) == [50, 60]
    assert left(headroom, KEEP_S + 1) == [60]
    assert left(headroom, 1_001) == []


def test_keys_are_told_apart_and_bounded() -> None:
    headroom = Headroom()
    for number in range(200):
        headroom.add(limited(number, key=f"k{number}"), 0.0)
    assert left(headroom, 1.0) == list(range(200 - MAX_PAIRS, 200))
