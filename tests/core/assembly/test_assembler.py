"""Each stream gets one record, if bundles are repeated, reordered, lost or late, or the assembler is restarted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly import assembler as assembling
from streamgauge.core.assembly.assembler import (
    BUCKETS,
    PRODUCERS,
    TICK_INSTANCE,
    WAIT_NS,
    WAIT_SEGMENTS,
    Assembler,
)
from streamgauge.core.assembly.reorder_buffer import MAX_WAITING_BYTES
from streamgauge.core.assembly.state_codec import offset_of
from streamgauge.core.capture.segments import Bundle, Read, Segment
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record, encode_record
from tests.streams import (
    INSTANCE,
    MS,
    bundles_of,
    chat_event,
    chat_segments,
    interleaved,
    opening,
    quiet_hours,
    stream_id,
)

SECOND_MS = 1_000
ABANDON_MS = 3_600 * SECOND_MS


def run(bundles: list[Bundle], assembler: Assembler | None = None) -> list[Record]:
    assembler = assembler or Assembler()
    return [record for offset, bundle in enumerate(bundles) for record in assembler.apply(offset, offset, bundle)]


def by_id(records: list[Record]) -> dict[str, bytes]:
    encoded = {record.stream_id: encode_record(record) for record in records}
    assert len(encoded) == len(records), "a stream has two records"
    return encoded


def test_every_stream_has_its_record() -> None:
    records = run(bundles_of(interleaved(40)))
    assert len(by_id(records)) == 40
    assert {record.outcome for record in records} == {"completed"}
    assert {record.counts.token_events for record in records} == {5}
    assert {record.usage.output_tokens for record in records} == {7}
    assert all(record.integrity.complete for record in records)


@given(st.integers(0, 2**32), st.integers(1, 20), st.lists(st.integers(0, 10_000), max_size=30))
def test_repeated_bundles_change_nothing(seed: int, per_bundle: int, repeats: list[int]) -> None:
    bundles = bundles_of(interleaved(10, seed), per_bundle)
    log = list(bundles)
    for repeat in repeats:
        position = repeat % len(log)
        log.insert(position + 1 + repeat % (len(log) - position), log[position])
    assert by_id(run(log)) == by_id(run(bundles))


@given(st.integers(0, 2**32), st.permutations(range(12)))
def test_bundles_out_of_order_give_the_same_records(seed: int, order: list[int]) -> None:
    bundles = bundles_of(interleaved(6, seed), per_bundle=2)
    shuffled = [bundles[place] for place in order if place < len(bundles)] + bundles[12:]
    assert by_id(run(shuffled)) == by_id(run(bundles))


@given(st.integers(0, 2**32), st.sets(st.integers(0, 60), max_size=8), st.integers(1, 9))
def test_a_restart_from_any_checkpoint_gives_each_record_once_or_again_the_same(
    seed: int, crashes: set[int], every: int
) -> None:
    """State is saved after some messages. After a crash the log is read again from the saved offset."""
    bundles = bundles_of(interleaved(12, seed), per_bundle=3)
    wanted = by_id(run(bundles))
    saved: dict[int, bytes] = {}
    records: dict[str, bytes] = {}
    assembler, offset, committed = Assembler(), 0, 0
    crashes = {crash for crash in crashes if crash < len(bundles)}
    while offset < len(bundles):
        for record in assembler.apply(offset, offset, bundles[offset]):
            assert records.setdefault(record.stream_id, encode_record(record)) == encode_record(record)
        offset += 1
        if offset % every == 0:
            saved |= {key: assembler.dump(key) for key in assembler.changed()}
            committed = offset
        if offset in crashes:
            crashes.discard(offset)
            assembler, offset = Assembler(), max(0, committed - offset % 3)  # these messages are applied again
            for key, value in saved.items():
                assembler.load(key, value)
    assert records == wanted


def test_a_crash_between_buckets_and_producers_repeats_no_record() -> None:
    """Buckets are durable, but producers and the acknowledgement are not: the messages come again, also a resent one."""
    bundles = bundles_of(chat_segments(1), per_bundle=1)
    log = [*bundles[:2], bundles[1], *bundles[2:]]
    assembler = Assembler()
    for offset, bundle in enumerate(log):
        assembler.apply(offset, offset, bundle)
    saved = {key: assembler.dump(key) for key in assembler.changed() if key != PRODUCERS}
    again = Assembler()
    for key, value in saved.items():
        again.load(key, value)
    assert run(log, again) == []
    assert again.open_streams == 0


def test_offset_of_a_dumped_value() -> None:
    assembler = Assembler()
    run(bundles_of(chat_segments(1)), assembler)
    for key in assembler.changed():
        assert offset_of(assembler.dump(key)) == assembler.applied_offset(key)
    assert assembler.changed() == []
    with pytest.raises(msgspec.DecodeError):
        offset_of(b"\xc1")


def test_a_segment_that_never_comes_counts_as_missing_after_the_wait() -> None:
    segments = chat_segments(1, tokens=3 * (WAIT_SEGMENTS + 4), cut=3)
    bundles = bundles_of(segments, per_bundle=1)
    lost = bundles.pop(2)
    assembler = Assembler()
    records = run(bundles, assembler)
    assert len(records) == 1
    assert records[0].integrity.missing_segments == 1
    assert records[0].integrity.reasons == ["missing_segments"]
    assert records[0].outcome == "completed"
    assert assembler.apply(99, 99, lost) == [], "a late segment makes no second record"
    assert assembler.counts["late_segments"] == 1


def test_waiting_bytes_of_a_bucket_are_bounded_and_the_largest_stream_continues_first() -> None:
    """Two streams of one bucket whose first segments are missing: one has few waiting bytes, the other more than the
    limit.
    """
    event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 100_000 + b'"}}]}\n\n'
    small, large = (Segment(bytes(14) + bytes((name, 0)), 1, reads=[Read(1, 1, 1, event)]) for name in (1, 2))
    assembler = Assembler()
    assert assembler.apply(0, 0, Bundle(INSTANCE, 0, 1, 0, [small])) == []  # number 0 is missing, so there is a gap
    assert len(assembler.dump(0)) > 100_000
    for number in range(1, 41):
        segment = msgspec.structs.replace(large, number=2 * number)  # each follows a missing segment
        assert assembler.apply(number, number, Bundle(INSTANCE, 0, number + 1, 0, [segment])) == []
        assert len(assembler.dump(0)) < MAX_WAITING_BYTES + 10_000
    again = Assembler()
    for key in (0, PRODUCERS):
        again.load(key, assembler.dump(key))
    for one in (assembler, again):
        farewell = one.apply(50, 50, Bundle(INSTANCE, 0, 42, 0, farewell=True))
        assert [(record.integrity.missing_segments, record.counts.token_events) for record in farewell] == [
            (1, 1),
            (41, 40),
        ]


def test_a_missing_segment_times_out_by_its_taps_own_clock() -> None:
    segments = chat_segments(1, tokens=5, cut=3)
    bundles = bundles_of(segments, per_bundle=1)
    del bundles[1]
    assembler = Assembler()
    assert run(bundles, assembler) == []
    beat = Bundle(INSTANCE, 0, 50, bundles[-1].tap_ns + WAIT_NS + 1)
    [record] = assembler.apply(50, 50, beat)
    assert record.integrity.missing_segments == 1


def test_each_gap_of_a_stream_is_waited_for_as_long() -> None:
    bundles = bundles_of(chat_segments(1, tokens=20, cut=3), per_bundle=1)
    first, late = bundles.pop(1), bundles.pop(2)
    assembler = Assembler()
    assert run(bundles, assembler) == []
    began = bundles[-1].tap_ns
    assembler.apply(50, 50, msgspec.structs.replace(first, tap_ns=began + WAIT_NS - 1))  # this gap closes
    assert assembler.apply(51, 51, Bundle(INSTANCE, 0, 51, began + WAIT_NS + 1)) == [], "the second gap is a moment old"
    [record] = assembler.apply(52, 52, msgspec.structs.replace(late, tap_ns=began + WAIT_NS + 2))
    assert record.integrity.complete

    again = Assembler()
    assert run(bundles, again) == []
    assert again.apply(50, 50, Bundle(INSTANCE, 0, 50, began + WAIT_NS + 1)) == [], "the first gap is skipped"
    assert again.apply(51, 51, Bundle(INSTANCE, 0, 51, began + WAIT_NS + 2)) == []
    [record] = again.apply(52, 52, msgspec.structs.replace(late, tap_ns=began + WAIT_NS + 3))
    assert record.integrity.missing_segments == 1


def test_a_lost_beginning_still_gives_a_record() -> None:
    bundles = bundles_of(chat_segments(1), per_bundle=1)[1:]
    assembler = Assembler()
    assert run(bundles, assembler) == []
    farewell = Bundle(INSTANCE, 0, len(bundles) + 1, 0, farewell=True)
    [record] = assembler.apply(50, 50, farewell)
    assert (record.tap, record.integrity.complete, record.outcome) == (None, False, "completed")


def open_stream(assembler: Assembler, instance: bytes = INSTANCE, number: int = 1, slot: int = 0) -> None:
    segment = Segment(stream_id(number), 0, opening=opening())
    assert assembler.apply(0, 0, Bundle(instance, slot, 0, 0, [segment])) == []
    assert assembler.open_streams == 1


@pytest.mark.parametrize("read_before", [False, True])
def test_segments_of_two_taps_that_read_one_capture_file_are_not_mixed(read_before: bool) -> None:
    """Two taps cut the stream at different reads: the second tap's next segment would repeat reads of the first one."""
    segments = chat_segments(1)
    alone = run(bundles_of(segments, per_bundle=1))
    first = bundles_of(segments, per_bundle=1)
    other = [msgspec.structs.replace(bundle, instance=b"n" * 16) for bundle in first]
    assembler = Assembler()
    log = [first[0], first[1], other[1], other[2], *first[2:]] if read_before else [first[0], *other[:3], *first[1:]]
    assert by_id(run(log, assembler)) == by_id(alone)
    assert assembler.counts["late_segments"] == (2 if read_before else 3)


def test_a_farewell_abandons_the_open_streams_of_its_slot() -> None:
    assembler = Assembler()
    open_stream(assembler)
    assert assembler.apply(1, 1, Bundle(INSTANCE, 1, 0, 0, farewell=True)) == []
    [record] = assembler.apply(2, 2, Bundle(INSTANCE, 0, 1, 0, farewell=True))
    assert (record.outcome, record.error, record.usage.output_tokens) == ("abandoned", None, None)
    assert record.usage.source == "absent"


def test_a_successor_abandons_the_streams_of_dead_instances() -> None:
    assembler = Assembler()
    open_stream(assembler)
    [record] = assembler.apply(1, 1, Bundle(b"n" * 16, 0, 0, 0, dead=[INSTANCE]))
    assert record.outcome == "abandoned"


def test_silence_by_the_logs_time_abandons_streams_and_a_tick_advances_the_time() -> None:
    assembler = Assembler()
    open_stream(assembler)
    assert quiet_hours(assembler, 1, 0, ABANDON_MS - 1) == []
    [record] = assembler.apply(100, ABANDON_MS, Bundle(TICK_INSTANCE, 0, 0, 0))
    assert record.outcome == "abandoned"
    late = Segment(stream_id(1), 1)
    assert assembler.apply(101, ABANDON_MS, Bundle(INSTANCE, 0, 1, 0, [late])) == []
    assert assembler.counts["late_segments"] == 1


def test_an_outage_of_the_broker_abandons_no_stream() -> None:
    """The broker was unavailable for longer than --abandon-after. The first tap that writes again must not end the
    streams of the others.
    """
    assembler = Assembler()
    segments = chat_segments(1)
    first, *rest = bundles_of(segments, per_bundle=1)
    assert assembler.apply(0, 0, first) == []
    back_ms = 3 * ABANDON_MS
    assert assembler.apply(1, back_ms, Bundle(b"o" * 16, 0, 0, 0)) == []
    records = [one for at, bundle in enumerate(rest, 2) for one in assembler.apply(at, back_ms + at, bundle)]
    assert [(record.outcome, record.integrity.complete) for record in records] == [("completed", True)]


def test_a_jump_of_the_logs_time_abandons_no_stream() -> None:
    """The broker's clock was a year ahead for one message."""
    assembler = Assembler()
    open_stream(assembler)
    tick, year_ms = Bundle(TICK_INSTANCE, 0, 0, 0), 365 * 24 * ABANDON_MS
    assert assembler.apply(1, year_ms, tick) == []
    assert assembler.apply(2, 1_000, tick) == []
    [record] = quiet_hours(assembler, 3, 1_000, ABANDON_MS)
    assert record.outcome == "abandoned"


def test_a_heartbeat_keeps_a_stream_open_and_another_taps_clock_has_no_effect() -> None:
    assembler = Assembler()
    open_stream(assembler)
    wild = Bundle(b"w" * 16, 0, 0, 2**62)
    assert quiet_hours(assembler, 1, 0, ABANDON_MS - 1) == []
    assert assembler.apply(100, ABANDON_MS - 1, Bundle(INSTANCE, 0, 1, 0)) == []
    assert assembler.apply(101, ABANDON_MS + 1, wild) == []
    assert assembler.open_streams == 1


def test_the_oldest_stream_is_closed_when_a_bucket_is_full() -> None:
    assembler = Assembler(Limits(max_open_streams=BUCKETS))
    first, second = (Segment(stream_id(number), 0, opening=opening()) for number in (1, 1 + BUCKETS))
    records = assembler.apply(0, 0, Bundle(INSTANCE, 0, 0, 0, [first, second]))
    assert [record.integrity.reasons for record in records] == [["no_end", "state_limit"]]
    assert assembler.open_streams == 1


def test_a_gap_in_the_log_marks_the_open_streams() -> None:
    assembler = Assembler()
    bundles = bundles_of(chat_segments(1), per_bundle=1)
    records = []
    for offset, bundle in enumerate(bundles):
        records += assembler.apply(offset, offset, bundle)
        if offset == 0:
            assembler.mark_gap()
    assert records[0].integrity.reasons == ["log_gap"]


@pytest.mark.parametrize("bound", ["MAX_BUFFERED_READS", "MAX_BUFFERED_BUNDLES"])
def test_buffered_reads_are_bounded(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Reads are buffered up to a limit. Then the state holds all of them, also if the caller has not requested it."""
    monkeypatch.setattr(assembling, bound, 8)
    bundles = bundles_of(chat_segments(1, tokens=40, cut=2)[:-1], per_bundle=1)
    held = []
    assembler = Assembler()
    for offset, bundle in enumerate(bundles):
        assembler.apply(offset, offset, bundle)
        held.append(assembler.waiting_reads)
    assert 0 in held[1:]
    assert 0 < max(held) <= 2 * 8


def test_buffered_reads_are_in_the_dumped_state() -> None:
    bundles = bundles_of(chat_segments(1, tokens=40, cut=2)[:-1], per_bundle=1)
    dumps = []
    for every in (1, len(bundles)):
        assembler = Assembler()
        for offset, bundle in enumerate(bundles, 1):
            assembler.apply(offset, offset, bundle)
            if offset % every == 0:
                dumped = {key: assembler.dump(key) for key in (stream_id(1)[-1] % BUCKETS, PRODUCERS)}
        dumps.append(dumped)
    assert dumps[0] == dumps[1]


def test_state_of_an_open_stream_is_small() -> None:
    """The limit is 4 KiB for an ordinary stream in the middle of its answer."""
    segments = chat_segments(1, tokens=200, cut=10)[:-1]
    assembler = Assembler()
    run(bundles_of(segments), assembler)
    bucket = stream_id(1)[-1] % BUCKETS
    assert len(assembler.dump(bucket)) < 4096


def test_gaps_are_computed_from_stamps() -> None:
    [record] = run(bundles_of(chat_segments(1, tokens=5)))
    assert record.timing.first_token_s == pytest.approx(10 * MS / 1e9)
    assert record.timing.gaps.count == 4
    assert record.timing.gaps.p50_s == pytest.approx(0.01)
    assert record.timing.last_token_s == pytest.approx(0.05)
    assert record.timing.inter_token_latency_s == pytest.approx(0.04 / 6, abs=1e-6)


def test_the_gap_before_a_last_event_without_its_blank_line_is_counted() -> None:
    first, last = chat_segments(1, tokens=5, cut=7)
    assert last.end is not None
    first = msgspec.structs.replace(first, reads=first.reads[:-1])
    end = msgspec.structs.replace(last.end, tail=chat_event(content="!").removesuffix(b"\n"))
    [record] = run(bundles_of([first, msgspec.structs.replace(last, end=end)]))
    assert record.timing.gaps.count == 5
    assert record.timing.gaps.buckets is not None
    assert record.timing.gaps.buckets[-1] == (None, 5)
