"""The worst streams of the last hour, against all streams of the hour."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.record import Record
from streamgauge.live.reads import Track
from streamgauge.live.worst import CATEGORIES, KEEP_S, PERIOD_S, RECENT, WORST, WorstStreams
from tests.metrics.records import make_integrity, make_record, make_timing


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
    expected = sorted((value for value, at in all_of_them if at > now - KEEP_S), reverse=True)[:WORST]
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


def test_memory_is_bounded_and_all_that_is_kept_is_found() -> None:
    worst = WorstStreams()
    for number in range(20_000):
        worst.add(record(number, number % 977, outcome="truncated"), Track(1), number * 2.0)
    kept = [one for number in range(20_000) if (one := worst.find(str(UUID(int=number)))) is not None]
    assert 3 * WORST < len(kept) <= (KEEP_S / PERIOD_S + 2) * len(CATEGORIES) * WORST + RECENT
    assert len(worst.recent()) == RECENT
    assert worst.recent()[0].record.stream_id == str(UUID(int=19_999))
    assert worst.find("nothing") is None
