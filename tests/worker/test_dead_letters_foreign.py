"""When a partition stops because of foreign messages."""

from streamgauge.worker.dead_letters import ForeignRun
from streamgauge.worker.settings import FOREIGN_ALONE_S


def test_a_partition_stops_when_nothing_was_readable_for_a_minute() -> None:
    run = ForeignRun(limit=3)
    assert [
        run.foreign(at) for at in (0.0, 1.0, 2.0, 3.0, FOREIGN_ALONE_S - 1, FOREIGN_ALONE_S, FOREIGN_ALONE_S + 1)
    ] == [
        *[False] * 5,
        True,
        True,
    ]


def test_a_flood_between_two_heartbeats_stops_nothing() -> None:
    run = ForeignRun(limit=3)
    for beat in range(100):
        run.readable()
        assert not any(run.foreign(beat * 5.0 + 0.001 * number) for number in range(100))


def test_no_limit_never_stops() -> None:
    run = ForeignRun(limit=0)
    assert not any(run.foreign(float(at)) for at in range(1_000))
