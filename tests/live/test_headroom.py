"""The newest rate limits of each upstream and API key."""

from streamgauge.core.record import RateLimit, Record
from streamgauge.live.headroom import MAX_PAIRS, Headroom
from streamgauge.metrics.rate_limits import KEEP_S
from tests.metrics.records import make_record


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
