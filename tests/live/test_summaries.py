"""Percentiles, and the summary of a process without a ledger."""

import pytest

from streamgauge.live.answers import Latency
from streamgauge.live.summaries import latency_of
from tests.live.shown import busy_process, partly_priced_process
from tests.live.streams import Process


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], None),
        ([2.0], Latency(2.0, 2.0, 1)),
        ([3.0, 1.0, 2.0, 4.0], Latency(2.0, 4.0, 4)),
        ([float(number) for number in range(100, 0, -1)], Latency(50.0, 95.0, 100)),
    ],
)
def test_percentiles_are_times_of_streams(times: list[float], expected: Latency | None) -> None:
    assert latency_of(times) == expected


def test_a_process_without_streams_knows_no_times() -> None:
    summary = Process().view.summary()
    assert (summary.hour.streams, summary.hour.first_token, summary.minutes) == (0, None, [])
    assert (summary.models, summary.tenants, summary.yesterday) == (None, None, None)


def test_percentiles_of_counted_minutes_lie_in_their_buckets() -> None:
    summary = busy_process().view.summary()
    first = summary.hour.first_token
    assert first is not None
    assert first.streams == 41
    assert 0.2 < first.p50_s <= 0.25  # the first tokens came after 70, 77, ... 343 ms
    assert 0.3 < first.p95_s <= 0.35
    assert summary.hour.outcomes == {"completed": 37, "upstream_reset": 4}
    assert sum(summary.broken) == 4
    assert sum(summary.streams) == 41
    assert [(group.name, group.numbers.streams) for group in summary.upstreams or ()] == [("sim", 41)]


def test_a_cost_is_of_the_streams_that_have_a_price() -> None:
    hour = partly_priced_process().view.summary().hour
    assert hour.cost_usd == pytest.approx(0.03)
    assert (hour.priced, hour.unpriced) == (1, 1)
