"""The form of the last hour, without any stream; `test_history.py` has those with streams."""

from streamgauge.live.hour import hour_of

SINCE = "2026-01-02T03:04:05Z"


def test_an_hour_without_streams_has_no_minutes() -> None:
    hour = hour_of([], since=SINCE)
    assert (hour.minutes, hour.streams, hour.upstreams, hour.tokens) == ([], 0, [], [])
    assert (hour.cost_usd, hour.unpriced, hour.priced) == ([], 0, 0)
    without = hour_of([], since=SINCE, prices=False)
    assert (without.cost_usd, without.unpriced, without.priced) == (None, None, None)
    assert hour.first_token.counts == hour.gaps.counts == []
    assert len(hour.first_token.bounds_s) > 10
