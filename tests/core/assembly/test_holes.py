"""Where reads are missing, times that depend on them are null, and all other values are right: the record of fault F3."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Loss, Segment
from streamgauge.core.http1.body import DecodeFault
from streamgauge.core.record import Gaps, Record
from tests.streams import bundles_of, chat_segments

# Segments: the head and a role without text; a token each 10 ms; the last token, finish and usage; the end.
TOKENS = 12
WHOLE = chat_segments(1, tokens=TOKENS, cut=1)
FIRSTS = ("first_byte_s", "first_event_s", "first_token_s", "first_content_s")


def record_without(lost: set[int], segments: list[Segment] = WHOLE) -> Record:
    """The record without these segments, each of which is in a bundle of its own. A farewell ends the log."""
    assembler, records = Assembler(), []
    bundles = bundles_of(segments, per_bundle=1)
    kept = [bundle for number, bundle in enumerate(bundles) if number not in lost]
    last = bundles[-1].number + 1
    kept.append(msgspec.structs.replace(bundles[-1], number=last, segments=[], farewell=True))
    for offset, bundle in enumerate(kept):
        records += assembler.apply(offset, 0, bundle)
    (record,) = records
    return record


def test_nothing_is_missing() -> None:
    record = record_without(set())
    assert [getattr(record.timing, name) for name in FIRSTS] == [0.0, 0.0, 0.01, 0.01]
    assert (record.timing.last_token_s, record.timing.gaps.count, record.timing.gaps.max_s) == (0.12, TOKENS - 1, 0.01)
    assert record.integrity.complete


def test_a_lost_first_token_is_not_replaced_by_the_next_one() -> None:
    record = record_without({1, 2})
    assert [getattr(record.timing, name) for name in FIRSTS] == [0.0, 0.0, None, None]
    assert record.choices[0].first_token_s is None
    assert record.timing.last_token_s == 0.12
    assert record.timing.inter_token_latency_s is None
    assert (record.timing.gaps, record.timing.burst) == (Gaps(count=TOKENS - 3), None)
    assert record.integrity.reasons == ["missing_segments"]


def test_gaps_have_only_a_count_if_reads_are_missing() -> None:
    """As without stamps: only the number of gaps, by the token events that were seen."""
    record = record_without({5, 6, 7})
    assert [getattr(record.timing, name) for name in FIRSTS] == [0.0, 0.0, 0.01, 0.01]
    assert (record.timing.gaps, record.timing.burst) == (Gaps(count=TOKENS - 4), None)
    assert record.timing.wire_max_gap_s is None
    assert record.timing.inter_token_latency_s is not None  # the first token, the last one and the usage were seen


def test_a_lost_last_token_is_not_replaced_by_the_one_before() -> None:
    record = record_without({*range(8, len(WHOLE) - 1)})
    assert (record.timing.first_token_s, record.timing.last_token_s) == (0.01, None)
    assert record.timing.gaps.count == 6  # of seven token events


def test_dropped_reads_have_an_unknown_position_in_their_segment() -> None:
    segments = chat_segments(1, tokens=TOKENS, cut=4)
    segments[0] = msgspec.structs.replace(segments[0], loss=Loss(dropped_reads=1))
    record = record_without(set(), segments)
    assert [getattr(record.timing, name) for name in FIRSTS] == [None] * 4
    assert record.timing.gaps == Gaps(count=TOKENS - 1)  # all tokens came: the dropped read held something else
    segments = chat_segments(1, tokens=TOKENS, cut=4)
    segments[1] = msgspec.structs.replace(segments[1], loss=Loss(dropped_reads=2), reads=[])
    record = record_without(set(), segments)
    assert record.timing.first_token_s == 0.01
    assert record.timing.gaps == Gaps(count=record.counts.token_events - 1)


def test_a_stream_whose_end_was_lost_is_not_called_truncated() -> None:
    """The reads that are missing may have held the protocol's terminal: how the stream ended is not known."""
    whole = chat_segments(1, tokens=TOKENS, cut=4)
    without_end = [msgspec.structs.replace(one, reads=one.reads if at < 2 else []) for at, one in enumerate(whole)]
    cut_upstream = record_without(set(), without_end)
    assert (cut_upstream.outcome, cut_upstream.integrity.complete) == ("truncated", True)
    last = msgspec.structs.replace(without_end[-1], loss=Loss(dropped_reads=3))
    lost = record_without(set(), [*without_end[:-1], last])
    assert (lost.outcome, lost.error, lost.integrity.reasons) == ("abandoned", None, ["dropped_reads"])
    seen = msgspec.structs.replace(whole[0], loss=Loss(dropped_reads=1))
    assert record_without(set(), [seen, *whole[1:]]).outcome == "completed"


@given(st.sets(st.integers(0, len(WHOLE) - 1), max_size=len(WHOLE) - 1))
def test_whatever_is_lost_all_reported_times_are_right(lost: set[int]) -> None:
    whole, record = record_without(set()), record_without(lost)
    for name in (*FIRSTS, "finish_s", "end_s"):
        assert getattr(record.timing, name) in (None, getattr(whole.timing, name))
    assert record.choices == [] or record.choices[0].first_token_s in (None, whole.choices[0].first_token_s)
    assert record.timing.gaps.count == max(record.counts.token_events - 1, 0)
    assert record.timing.gaps.max_s in (None, 0.01)
    assert record.timing.wire_max_gap_s in (None, whole.timing.wire_max_gap_s)
    assert record.integrity.complete == (not lost)


def test_the_dumped_state_is_enough() -> None:
    """A worker that loads the state has the positions of the missing reads."""
    bundles = [bundle for bundle in bundles_of(WHOLE, per_bundle=1) if bundle.number not in {1, 2}]
    first, records = Assembler(), []
    for offset, bundle in enumerate(bundles[:9]):
        assert first.apply(offset, 0, bundle) == []
    second = Assembler()
    for key in first.changed():
        second.load(key, first.dump(key))
    for offset, bundle in enumerate(bundles[9:], 9):
        records += second.apply(offset, 0, bundle)
    farewell = msgspec.structs.replace(bundles[-1], number=bundles[-1].number + 1, segments=[], farewell=True)
    records += second.apply(len(bundles), 0, farewell)
    assert records == [record_without({1, 2})]


def test_a_stream_that_the_tap_could_not_decode_is_not_called_truncated() -> None:
    """A client may know a coding that the tap does not, and may decode more than the tap. No client reads a broken body."""
    whole = chat_segments(1, tokens=TOKENS, cut=4)
    without_end = [msgspec.structs.replace(one, reads=one.reads if at < 2 else []) for at, one in enumerate(whole)]
    for fault in DecodeFault:
        without_end[1] = msgspec.structs.replace(without_end[1], loss=Loss(decode_error=fault.value))
        record = record_without(set(), without_end)
        is_known = fault in (
            DecodeFault.CORRUPT,
            DecodeFault.INCOMPLETE,
            DecodeFault.BAD_FRAMING,
            DecodeFault.BAD_EVENT_FRAMING,
        )
        assert record.outcome == ("truncated" if is_known else "abandoned"), fault
        assert record.integrity.reasons == ["decode_error"]
