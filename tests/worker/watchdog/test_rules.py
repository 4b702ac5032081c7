"""The rules for a stuck worker, one by one: the table in the docstring of `rules.py`."""

import pytest

from streamgauge.worker.watchdog.rules import Cause, PartitionProgress, Probe, Stuck, StuckDetector, TopicPartition

_LIMIT_S = 60.0
_SPOT = TopicPartition("streamgauge.segments", 3)


def probe(committed: int, end: int, tries: int = 0, *, is_assigned: bool = True, recovery_progress: int = 0) -> Probe:
    return Probe(True, is_assigned, (recovery_progress,), {_SPOT: PartitionProgress(committed, end, tries)})


AWAY = Probe(broker_answers=False)


def judged(*looks: Probe, every_s: float = 20.0) -> Stuck | None:
    """The first verdict over these looks."""
    detector = StuckDetector(_LIMIT_S)
    detector.apply(looks[0], every_s)  # the first one moves: there was none before
    return next((verdict for look in looks if (verdict := detector.apply(look, every_s))), None)


def test_an_offset_that_stays_while_messages_wait_is_stuck() -> None:
    verdict = judged(*[probe(5, 9)] * 5)
    assert verdict == Stuck(
        Cause.COMMIT, "streamgauge.segments/3 has stayed at offset 5 for 60 s, although 4 messages wait"
    )


def test_offset_that_stays_while_the_log_grows_is_stuck() -> None:
    assert judged(*[probe(5, end) for end in range(9, 15)])


def test_offset_that_moves_slowly_is_not_stuck() -> None:
    assert judged(*[probe(at, 100) for at in range(20)], every_s=50) is None


@pytest.mark.parametrize("look", [probe(9, 9), probe(12, 9)])
def test_worker_without_work_is_not_stuck(look: Probe) -> None:
    assert judged(*[look] * 20) is None


def test_retries_are_not_stuck() -> None:
    assert judged(*[probe(5, 9, tries) for tries in range(20)], every_s=50) is None
    assert judged(*[probe(5, 9, min(tries, 10)) for tries in range(20)], every_s=50)


def test_unreachable_broker_restarts_all_times() -> None:
    assert judged(*[AWAY] * 20) is None
    assert judged(probe(5, 9), probe(5, 9), AWAY, probe(5, 9), probe(5, 9), AWAY, probe(5, 9), probe(5, 9)) is None


def test_rebalance_restarts_the_times() -> None:
    assert judged(*[probe(5, 9, recovery_progress=number) for number in range(20)]) is None


def test_no_partitions_for_too_long_is_stuck_and_a_recovery_that_goes_on_is_not() -> None:
    out = Probe(True, is_assigned=False)
    verdict = judged(*[out] * 5)
    assert verdict is not None
    assert verdict.cause is Cause.GROUP
    assert judged(out, out, AWAY, out, out) is None
    assert judged(*[Probe(True, is_assigned=False, recovery_progress=(1, offset)) for offset in range(20)]) is None


def test_worker_without_partitions_is_not_stuck() -> None:
    assert judged(*[Probe(True, is_assigned=True)] * 20) is None


def test_a_partition_that_comes_later_is_given_its_time() -> None:
    other = TopicPartition("streamgauge.records", 0)
    detector = StuckDetector(_LIMIT_S)
    first = Probe(True, True, (), {_SPOT: PartitionProgress(9, 9)})
    for _ in range(10):
        assert detector.apply(first, 20) is None
    both = Probe(True, True, (), {_SPOT: PartitionProgress(9, 9), other: PartitionProgress(0, 1)})
    assert [detector.apply(both, 20) is None for _ in range(4)] == [True, True, True, False]
