"""Tap instances: how long they are remembered, how many, and when the streams of a silent one are abandoned."""

import pytest

from streamgauge.core.assembly import tap_instances
from streamgauge.core.assembly.assembler import PRODUCERS, TICK_INSTANCE, Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Segment, StreamEnding
from streamgauge.core.limits import Limits
from tests.streams import INSTANCE, bundles_of, chat_segments, opening, quiet_hours, stream_id

ABANDON_MS = 3_600_000
TICK = Bundle(TICK_INSTANCE, 0, 0, 0)
OPENED = Bundle(INSTANCE, 0, 0, 0, [Segment(stream_id(1), 0, opening=opening())])


def test_a_bundle_that_is_resent_after_days_of_silence_is_recognised() -> None:
    assembler = Assembler()
    bundles = bundles_of(chat_segments(1), per_bundle=2)
    records = [one for at, bundle in enumerate(bundles) for one in assembler.apply(at, at, bundle)]
    assert len(records) == 1
    day_ms = 24 * ABANDON_MS
    assert quiet_hours(assembler, 50, 0, day_ms) == []
    again = [one for at, bundle in enumerate(bundles) for one in assembler.apply(5_000 + at, day_ms, bundle)]
    assert again + quiet_hours(assembler, 6_000, day_ms, 2 * day_ms) == []
    assert assembler.open_streams == 0


def test_instances_are_bounded_and_a_removed_one_leaves_no_open_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_instances, "MAX_INSTANCES", 5)
    assembler = Assembler(Limits(abandon_after=1e9))
    finished, sizes = [], []
    for number in range(20):
        segment = Segment(stream_id(number), 0, opening=opening())
        finished += assembler.apply(number, number, Bundle(bytes(15) + bytes((number + 1,)), 0, 0, 0, [segment]))
        sizes.append(len(assembler.dump(PRODUCERS)))
    finished += assembler.apply(20, 20, TICK)
    assert [one.stream_id[-2:] for one in finished] == [f"{number:02x}" for number in range(15)]
    assert {one.outcome for one in finished} == {"abandoned"}
    assert assembler.open_streams == 5
    assert max(sizes) < 6 * 60


def without_producers() -> Assembler:
    """A bucket was durable, producers were not, and the messages between them have expired from the log."""
    dying, second = Assembler(), Assembler()
    dying.apply(7, 7, OPENED)
    key = stream_id(1)[-1] % PRODUCERS
    second.load(key, dying.dump(key))
    return second


def test_an_instance_known_only_from_the_lost_part_of_the_log_is_abandoned_too() -> None:
    second = without_producers()
    assert second.apply(8, 8, TICK) == []
    assert quiet_hours(second, 9, 8, 8 + ABANDON_MS - 1) == []
    [record] = second.apply(100, 8 + ABANDON_MS, TICK)
    assert record.outcome == "abandoned"


def test_a_stream_whose_tap_still_writes_continues_after_such_a_loss() -> None:
    second = without_producers()
    assert second.apply(8, 2 * ABANDON_MS, TICK) == []
    assert quiet_hours(second, 9, 2 * ABANDON_MS, 3 * ABANDON_MS - 1) == []
    end = Segment(stream_id(1), 1, end=StreamEnding(Ending.COMPLETE))
    [record] = second.apply(100, 3 * ABANDON_MS - 1, Bundle(INSTANCE, 0, 2, 0, [end]))
    assert record.integrity.complete
