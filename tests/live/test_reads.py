"""The reads that are kept of streams: which, how many, and that the sums agree."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending, Read, Segment, StreamEnding
from streamgauge.live import reads as keeping
from streamgauge.live.reads import (
    FINISHED_READS,
    KINDS,
    MAX_NOTABLE,
    MAX_STREAM_READS,
    Moment,
    ReadDecoder,
    Track,
    Tracks,
)
from tests.live.streams import BEGAN, SECOND, read_of, segment, token
from tests.streams import FINISH, MS, chat_event, opening, stream_id

STALL = 5 * SECOND


def track_of(*segments: Segment) -> Track:
    track = Track(STALL)
    for one in segments:
        track.add(one, BEGAN + SECOND)
    return track


def many(number: int, place: int, count: int, since_ns: int = 0) -> Segment:
    return segment(number, place, [token(since_ns + index * MS) for index in range(count)])


def test_every_read_is_a_moment_with_the_gap_before_it() -> None:
    track = track_of(segment(1, 0, [token(10 * MS), token(30 * MS)]), segment(1, 1, [token(31 * MS)]))
    moments = track.decode(None)
    assert [moment.index for moment in moments] == [0, 1, 2]
    assert [moment.gap_ns for moment in moments] == [None, 20 * MS, MS]
    assert [moment.at_ns for moment in moments] == [10 * MS, 30 * MS, 31 * MS]


def test_what_came_since_the_last_answer_is_added_to_it() -> None:
    track = track_of(segment(1, 0, [token(10 * MS)]))
    assert len(track.decode(None)) == 1
    track.add(segment(1, 1, [token(20 * MS)]), BEGAN + SECOND)
    assert [moment.gap_ns for moment in track.decode(None)] == [None, 10 * MS]
    assert track.kept == 0


def test_a_repeated_segment_changes_nothing() -> None:
    first = segment(1, 0, [token(10 * MS)])
    track = track_of(first, first)
    assert (track.total, len(track.decode(None))) == (1, 1)


def test_the_beginning_is_as_early_as_any_bundle_shows() -> None:
    track = Track(STALL)
    track.add(segment(1, 0, [token(100 * MS)]), BEGAN + 350 * MS)
    assert track.began_ns == BEGAN + 250 * MS
    track.add(segment(1, 1, [token(600 * MS)]), BEGAN + 610 * MS)
    assert track.began_ns == BEGAN + 10 * MS
    track.add(segment(1, 2, [token(700 * MS)]), BEGAN + 900 * MS)
    assert track.began_ns == BEGAN + 10 * MS


def test_a_request_that_was_not_answered_has_a_beginning() -> None:
    waiting = msgspec.structs.replace(segment(1, 0, []), head=None)
    assert track_of(waiting).began_ns == BEGAN + SECOND - MS
    assert track_of(Segment(stream_id(1), 3, end=StreamEnding(Ending.CUT, stamp_ns=SECOND))).began_ns == BEGAN
    assert track_of(Segment(stream_id(1), 3, reads=[Read(None, 1, 1)])).began_ns is None


def test_the_first_and_the_newest_reads_are_kept_and_those_after_stalls() -> None:
    tracks = Tracks(STALL)
    at = 0
    for place in range(100):
        at += 6 * SECOND if place == 20 else 200 * MS
        tracks.add(many(1, place, 20, at), BEGAN + at + SECOND)
    moments = tracks.decode(stream_id(1), None)
    indexes = [moment.index for moment in moments]
    assert indexes[:20] == list(range(20))
    assert 400 in indexes
    assert [moment.index for moment in moments if moment.stall] == [400]
    assert indexes[-1] == 1999
    assert indexes == sorted(set(indexes))
    assert len(indexes) <= MAX_STREAM_READS
    assert (tracks.reads, tracks.content_bytes) == (0, 0)


def test_moments_of_a_stream_that_is_watched_for_long_are_bounded() -> None:
    tracks = Tracks(STALL)
    at = 0
    for place in range(300):
        at += 6 * SECOND if place == 10 else 200 * MS
        tracks.add(many(1, place, 10, at), BEGAN + at + SECOND)
        moments = tracks.decode(stream_id(1), None)
    assert len(moments) <= MAX_STREAM_READS
    assert [moment.index for moment in moments if moment.stall] == [100]
    assert moments[0].index == 0
    assert moments[-1].index == 2999


def test_one_huge_segment_is_cut() -> None:
    track = track_of(many(1, 0, 3 * MAX_STREAM_READS))
    moments = track.decode(None)
    assert len(moments) == MAX_STREAM_READS
    assert moments[0].index == 2 * MAX_STREAM_READS
    assert moments[0].gap_ns is None


def test_many_stalls_are_bounded() -> None:
    track = track_of(*[segment(1, place, [token(place * 6 * SECOND)]) for place in range(200)])
    track.drop_oldest(0, 0)
    assert track.kept == 1 + MAX_NOTABLE


def test_a_finished_stream_keeps_little() -> None:
    track = track_of(*[many(1, place, 10, place * 100 * MS) for place in range(60)])
    track.shrink()
    assert 0 < track.kept <= FINISHED_READS
    large = track_of(segment(1, 0, [token(0, "x" * 100_000)]))
    large.shrink()
    assert large.kept == 0


def test_the_sum_over_all_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MAX_READS", 1_000)
    monkeypatch.setattr(keeping, "MAX_BYTES", 100_000)
    monkeypatch.setattr(keeping, "MAX_TRACKS", 200)
    tracks = Tracks(STALL)
    for place in range(20):
        for number in range(300):
            tracks.add(many(number, place, 5, place * SECOND), BEGAN + place * SECOND)
            assert tracks.reads <= 1_000
            assert tracks.content_bytes <= 100_000
            assert len(tracks) <= 200
    assert tracks.get(stream_id(299)) is not None
    assert tracks.get(stream_id(0)) is None


def test_a_silent_stream_keeps_its_reads_while_others_are_busy() -> None:
    tracks = Tracks(STALL)
    tracks.add(many(0, 0, 10), BEGAN + SECOND)
    for place in range(400):
        for number in (1, 2, 3):
            tracks.add(many(number, place, 40, place * SECOND), BEGAN + (1 + place) * SECOND)
    assert len(tracks.decode(stream_id(0), None)) == 10


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.sampled_from(["add", "decode", "take"]))))
def test_the_sums_agree_with_what_is_kept(steps: list[tuple[int, int, str]]) -> None:
    tracks, places = Tracks(STALL), dict.fromkeys(range(6), 0)
    for number, count, what in steps:
        if what == "add":
            tracks.add(many(number, places[number], count), BEGAN)
            places[number] += 1
        elif what == "decode":
            tracks.decode(stream_id(number), None)
        else:
            tracks.take(stream_id(number))
            places[number] = 0
        kept = [track for number in range(6) if (track := tracks.get(stream_id(number))) is not None]
        assert tracks.reads == sum(track.kept for track in kept)
        assert tracks.content_bytes == sum(track.content_bytes for track in kept)
        assert tracks.moments == sum(len(track.moments) for track in kept)


def test_moments_of_all_streams_that_were_asked_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MAX_MOMENTS", 100)
    tracks = Tracks(STALL)
    for number in range(50):
        tracks.add(many(number, 0, 10), BEGAN + SECOND)
        assert len(tracks.decode(stream_id(number), None)) == 10
        assert tracks.moments <= 100
    tracks.add(many(0, 1, 3, 2 * SECOND), BEGAN + 3 * SECOND)
    assert [moment.index for moment in tracks.decode(stream_id(0), None)] == [10, 11, 12]


def test_a_finished_stream_keeps_few_moments() -> None:
    track = track_of(*[many(1, place, 10, place * 100 * MS) for place in range(45)])
    assert len(track.decode(None)) == 450
    track.shrink()
    assert len(track.decode(None)) <= FINISHED_READS


def decoded(*reads: Read, dialect: str | None = None) -> list[Moment]:
    decoder = ReadDecoder(opening(), dialect, STALL)
    return [decoder.moment(index, None, read) for index, read in enumerate(reads)]


def test_each_kind_is_recognised() -> None:
    reads = [
        read_of(chat_event(role="assistant", content=""), MS),
        read_of(chat_event(reasoning_content="thinking"), 2 * MS),
        token(3 * MS),
        read_of(chat_event(refusal="no"), 4 * MS),
        read_of(chat_event(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]), 5 * MS),
        read_of(b": ping\n\n", 6 * MS),
        read_of(b'event: error\ndata: {"error":{"type":"overloaded_error","message":"SECRET"}}\n\n', 7 * MS),
        read_of(FINISH, 8 * MS),
    ]
    moments = decoded(*reads)
    assert [moment.kinds for moment in moments] == [
        ("other",),
        ("reasoning",),
        ("text",),
        ("refusal",),
        ("tool",),
        ("comment",),
        ("error",),
        ("usage", "finish", "terminal"),
    ]
    assert [moment.tokens for moment in moments] == [0, 1, 1, 1, 1, 0, 0, 0]
    assert [moment.events for moment in moments] == [1, 1, 1, 1, 1, 0, 1, 2]
    assert {kind for moment in moments for kind in moment.kinds} <= set(KINDS)


def test_a_read_without_a_whole_event_has_no_kind() -> None:
    [moment] = decoded(Read(MS, 3, 3))
    assert (moment.kinds, moment.events, moment.body_bytes) == ((), 0, 3)


def test_several_events_of_one_read_are_one_moment() -> None:
    [moment] = decoded(read_of(chat_event(content="a") + chat_event(content="b"), MS))
    assert (moment.events, moment.tokens, moment.kinds) == (2, 2, ("text",))


def test_reads_from_the_middle_of_a_stream_are_decoded_by_the_known_dialect() -> None:
    data = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}'
    event = b"event: content_block_delta\ndata: " + data + b"\n\n"
    [moment] = decoded(read_of(event, MS), dialect="anthropic-messages")
    assert (moment.tokens, moment.kinds) == (1, ("text",))


def test_a_gap_above_the_limit_is_a_stall() -> None:
    decoder = ReadDecoder(opening(), None, STALL)
    assert not decoder.moment(0, STALL, token(MS)).stall
    assert decoder.moment(1, STALL + 1, token(2 * MS)).stall


def test_no_text_is_in_a_moment() -> None:
    for moment in decoded(token(MS), read_of(chat_event(reasoning_content="a SECRET thought"), MS)):
        assert b"SECRET" not in msgspec.json.encode(moment)
