"""Slots, numbers, heartbeats and final bundles: what an assembler may rely on, for any input."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import (
    BUNDLE_BYTES,
    BUNDLE_NS,
    SLOTS,
    Bundle,
    Ending,
    Opening,
    Read,
    Segment,
    StreamEnding,
)
from streamgauge.recorder.bundler import (
    HEARTBEAT_NS,
    SLOT_BYTES_PER_S,
    Bundler,
    size_of,
)

INSTANCE = bytes(15) + b"\x05"
SECOND = 1_000_000_000
OPENING = Opening("proxy", "1", "full", path="/chat/completions")


def stream(number: int) -> bytes:
    return number.to_bytes(16)


def segment(number: int, place: int = 0, *, size: int = 10, end: bool = False) -> Segment:
    return Segment(
        stream(number),
        place,
        opening=OPENING if place == 0 else None,
        reads=[Read(1, size, size, bytes(size))],
        end=StreamEnding(Ending.COMPLETE) if end else None,
    )


def test_the_first_bundle_is_a_heartbeat() -> None:
    bundler = Bundler(INSTANCE, 0)
    assert bundler.take(7) == [Bundle(INSTANCE, 5, 0, 7)]
    assert bundler.take(8) == []
    assert bundler.slots == [5]


def test_a_bundle_is_closed_by_its_age() -> None:
    bundler = Bundler(INSTANCE, 0)
    bundler.take(0)
    bundler.add([segment(1)], 1000)
    assert bundler.take(1000 + BUNDLE_NS - 1) == []
    bundler.add([segment(2)], 2000)
    (bundle,) = bundler.take(1000 + BUNDLE_NS)
    assert [one.stream for one in bundle.segments] == [stream(1), stream(2)]
    assert (bundle.number, bundle.tap_ns) == (1, 1000 + BUNDLE_NS)


def test_the_age_is_that_of_the_oldest_read() -> None:
    bundler = Bundler(INSTANCE, 0)
    bundler.take(0)
    bundler.add([segment(1)], BUNDLE_NS, since_ns=0)
    assert len(bundler.take(BUNDLE_NS)) == 1


def test_a_bundle_is_closed_by_its_size() -> None:
    bundler = Bundler(INSTANCE, 0)
    bundler.take(0)
    bundler.add([segment(number, size=BUNDLE_BYTES // 10) for number in range(25)], 1)
    first, second = bundler.take(1)
    assert [len(bundle.segments) for bundle in (first, second)] == [9, 9]
    (rest,) = bundler.take(1 + BUNDLE_NS)
    assert [bundle.number for bundle in (first, second, rest)] == [1, 2, 3]
    everything = [one.stream for bundle in (first, second, rest) for one in bundle.segments]
    assert everything == [stream(number) for number in range(25)]


def test_a_large_segment_has_its_own_bundle() -> None:
    bundler = Bundler(INSTANCE, 0)
    bundler.take(0)
    bundler.add([segment(1), segment(2, size=BUNDLE_BYTES * 3), segment(3)], 1)
    assert [[one.stream for one in bundle.segments] for bundle in bundler.take(1)] == [[stream(1)], [stream(2)]]


def test_a_quiet_slot_gives_a_heartbeat() -> None:
    bundler = Bundler(INSTANCE, 0)
    bundler.take(0)
    assert bundler.take(HEARTBEAT_NS - 1) == []
    (beat,) = bundler.take(HEARTBEAT_NS)
    assert (beat.number, beat.segments) == (1, [])
    bundler.add([segment(1)], HEARTBEAT_NS + 1)
    bundler.take(HEARTBEAT_NS + SECOND)
    assert bundler.take(2 * HEARTBEAT_NS + SECOND - 1) == []
    assert [bundle.number for bundle in bundler.take(2 * HEARTBEAT_NS + SECOND)] == [3]


def test_streams_use_more_slots_as_the_rate_grows_and_keep_theirs() -> None:
    bundler = Bundler(INSTANCE, 0)
    slot_of: dict[bytes, set[int]] = defaultdict(set)
    number = 0
    for tick in range(50):
        now = tick * SECOND // 10
        fresh = [segment(number + place, size=SLOT_BYTES_PER_S // 100) for place in range(40)]
        last = [segment(number + place - 40, 1, end=True) for place in range(40) if number]
        number += 40
        bundler.add([*fresh, *last], now)
        for bundle in bundler.take(now):
            for one in bundle.segments:
                slot_of[one.stream].add(bundle.slot)
    assert all(len(slots) == 1 for slots in slot_of.values())
    used = {slot for slots in slot_of.values() for slot in slots}
    assert 4 <= len(used) <= 6  # four slots' worth of bytes per second
    assert used <= set(bundler.slots)
    assert {slot for stream_slots in list(slot_of.values())[-100:] for slot in stream_slots} == used


def test_a_quiet_instance_stays_in_one_slot() -> None:
    bundler = Bundler(INSTANCE, 0)
    for tick in range(100):
        bundler.add([segment(tick, end=True)], tick * BUNDLE_NS)
        bundler.take(tick * BUNDLE_NS)
    assert bundler.slots == [5]


def test_instances_begin_in_different_slots() -> None:
    assert {Bundler(bytes(15) + bytes([byte]), 0).slots[0] for byte in range(256)} == set(range(SLOTS))


def test_ended_instances_are_named_once_in_their_slots_and_these_are_used_first() -> None:
    dead = {b"a" * 16: [9, 3], b"b" * 16: [9, 60]}
    bundler = Bundler(INSTANCE, 0, dead)
    first = {bundle.slot: bundle for bundle in bundler.take(0)}
    assert {slot: bundle.dead for slot, bundle in first.items()} == {
        3: [b"a" * 16],
        9: [b"a" * 16, b"b" * 16],
        60: [b"b" * 16],
    }
    assert {bundle.number for bundle in first.values()} == {0}
    bundler.add([segment(1, end=True)], 1)
    (second,) = bundler.take(BUNDLE_NS + 1)
    assert (second.slot, second.dead, second.number) == (3, [], 1)
    assert [bundle.slot for bundle in bundler.farewell(2 * SECOND)] == [3, 9, 60]


def test_ended_instances_are_named_with_the_first_segments_too() -> None:
    bundler = Bundler(INSTANCE, 0, {b"a" * 16: [9]})
    bundler.add([segment(1)], 0)
    (first,) = bundler.take(BUNDLE_NS)
    assert (first.dead, len(first.segments)) == ([b"a" * 16], 1)


def test_a_final_bundle_is_the_last_one_of_every_slot() -> None:
    bundler = Bundler(INSTANCE, 0, {b"a" * 16: [9, 3]})
    bundler.take(0)
    bundler.add([segment(1)], 5)
    one, two = bundler.farewell(6)
    assert (one.farewell, two.farewell) == (True, True)
    assert (len(one.segments), len(two.segments)) == (1, 0)


Steps = list[tuple[int, list[tuple[int, int, bool]]]]
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(
        st.integers(0, 3 * SECOND),
        st.lists(st.tuples(st.integers(0, 12), st.sampled_from([1, 1000, 30_000, 300_000]), st.booleans()), max_size=8),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(STEPS, st.integers(1, 255), st.booleans())
def test_with_any_input_an_assembler_gets_each_stream_whole(steps: Steps, byte: int, restarted: bool) -> None:
    """Every bundle once and in order, each stream in one slot, no slot silent for long; and everything ends with the
    final bundles.
    """
    bundler = Bundler(bytes([byte]) * 16, 0, {bytes(16): [1, 2]} if restarted else None)  # never its own instance
    now, number = 0, 0
    open_streams: dict[int, tuple[int, int]] = {}
    bundles: list[Bundle] = []
    began = ended = 0
    for wait, reported in steps:
        now += wait
        segments = []
        for which, size, end in reported:
            if which not in open_streams:
                number += 1
                began += 1
                open_streams[which] = number, 0
            identity, place = open_streams[which]
            segments.append(segment(identity, place, size=size, end=end))
            open_streams[which] = identity, place + 1
            if end:
                ended += 1
                del open_streams[which]
        bundler.add(segments, now)
        bundles += bundler.take(now)
    assert bundler.open_streams == began - ended
    bundles += bundler.farewell(now)

    by_slot: dict[int, list[Bundle]] = defaultdict(list)
    for bundle in bundles:
        by_slot[bundle.slot].append(bundle)
    assert sorted(by_slot) == bundler.slots
    for in_slot in by_slot.values():
        assert [bundle.number for bundle in in_slot] == list(range(len(in_slot)))
        assert [bundle.farewell for bundle in in_slot] == [False] * (len(in_slot) - 1) + [True]
        assert all(one.tap_ns <= two.tap_ns for one, two in pairwise(in_slot))
        for bundle in in_slot:
            assert len(bundle.segments) <= 1 or sum(map(size_of, bundle.segments)) <= BUNDLE_BYTES
    assembler = Assembler()
    records = [record for offset, bundle in enumerate(bundles) for record in assembler.apply(offset, 0, bundle)]
    assert len(records) == began
    assert sum(record.outcome == "abandoned" for record in records) == began - ended
    assert all(record.integrity.complete for record in records if record.outcome != "abandoned")
    assert set(assembler.counts) == {"bundles"}
