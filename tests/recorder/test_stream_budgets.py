"""Each stream has a budget a flush: a stream with very many events delays no other, and loses what exceeds its limit."""

import zlib
from collections.abc import Sequence
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Loss, Segment
from streamgauge.recorder import response
from streamgauge.recorder.events import MaskedEvents
from streamgauge.recorder.protocol import Message, ReadsDropped, ResponseHead, ResponseRead
from streamgauge.recorder.recorder import STREAM_BYTES, Recorder
from streamgauge.spool.read_counters import DropReason, Incident
from tests.taps import talk
from tests.taps.talk import BODY, EVENTS, SSE, ZERO, answer, arrivals, chunked, ended, gzip_flushed, head, opened, sent

TINY = b"data:x\n\n"
READ = 64 * 1024


def tell(recorder: Recorder, *messages: Message) -> None:
    for message in messages:
        recorder.handle(message)


def flood(stream: int, wire: bytes, *fields: tuple[str, str]) -> list[Message]:
    """A whole exchange whose response arrived in large reads."""
    reads = [wire[at : at + READ] for at in range(0, len(wire), READ)]
    begin = [opened(stream=stream), sent(stream=stream)]
    return [*begin, *arrivals(head(SSE, *fields), *reads, stream=stream), ended(stream=stream)]  # type: ignore[list-item]


def lines_in(segments: Sequence[Segment]) -> int:
    return sum(read.content.count(b"\n") for segment in segments for read in segment.reads)


def one_budget(recorder: Recorder) -> list[Segment]:
    """The segments of the next stream that is behind, of one budget."""
    return list(recorder.each_behind(lambda: True))


def flushed(recorder: Recorder) -> list[Segment]:
    """The segments of a flush, with budgets for eight streams that are behind."""
    late = iter([*[False] * 7, True])
    return [*recorder.each_due(), *recorder.each_behind(lambda: next(late))]


def all_behind(recorder: Recorder) -> list[Segment]:
    """The segments of all streams that are behind, until none is."""
    return list(recorder.each_behind())


def by_stream(segments: Sequence[Segment]) -> list[talk.Recorded]:
    found: dict[bytes, list[Segment]] = {}
    for segment in segments:
        found.setdefault(segment.stream, []).append(segment)
    return [talk.Recorded(one) for one in found.values()]


@pytest.mark.parametrize("event", [TINY, b":\n\n", b"a\n\n", b"data: {}\n\n", b"data: 1\r\r"])
def test_a_flood_has_one_budget_at_a_time_and_others_are_written_before_it(event: bytes) -> None:
    recorder = Recorder(talk.settings("masked"))
    for stream in range(5):
        tell(recorder, *flood(stream, event * (400_000 // len(event))))
    tell(recorder, *answer(head(SSE), BODY))
    first = flushed(recorder)
    assert first[0].end is not None, "the ordinary stream's"
    assert [segment.end for segment in first[1:]] == [None] * (len(first) - 1)
    assert recorder.open_streams == 5
    tell(recorder, *answer(head(SSE), BODY))
    assert flushed(recorder)[0].end is not None
    assert recorder.open_streams == 5


@pytest.mark.parametrize("size", [READ, 256 * 1024])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("capture", ["masked", "full"])
def test_a_budget_is_bounded_whatever_the_reads(
    size: int, coding: str, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[MaskedEvents] = []
    made = MaskedEvents.__init__

    def kept(self: MaskedEvents, *arguments: Any) -> None:
        seen.append(self)
        made(self, *arguments)

    monkeypatch.setattr(MaskedEvents, "__init__", kept)
    recorder = Recorder(talk.settings(capture))
    wire = TINY * 60_000 if coding == "identity" else zlib.compress(TINY * 60_000, wbits=31)
    for stream in range(3):
        reads = [wire[at : at + size] for at in range(0, len(wire), size)]
        tell(recorder, opened(stream=stream), *arrivals(head(SSE, ("content-encoding", coding)), *reads, stream=stream))
    most = (STREAM_BYTES + response.LEAST_STEP_BYTES) // response.EVENT_BYTES + response.LEAST_STEP_BYTES // len(TINY)
    list(recorder.each_due())
    assert 0 < sum(events.events for events in seen) <= 3 * most
    for _ in range(6):
        before = sum(events.events for events in seen)
        one_budget(recorder)
        assert 0 < sum(events.events for events in seen) - before <= most


def test_streams_that_a_late_flush_has_not_processed_are_behind() -> None:
    """The streams with the fewest bytes come first, so that many floods delay no ordinary stream."""
    recorder = Recorder(talk.settings("masked"))
    for stream in range(20):
        tell(recorder, *flood(stream, TINY * 5_000))
    tell(recorder, *answer(head(SSE), BODY))
    late = iter([False, *[True] * 30])
    segments = list(recorder.each_due(lambda: next(late)))
    assert segments[0].end is not None
    assert [len(segment.reads) for segment in segments[1:]] == [0] * 20
    assert (recorder.open_streams, recorder.pending_bytes) == (20, 0)
    assert recorder.behind_bytes > 20 * 40_000
    assert len(by_stream([*segments, *all_behind(recorder)])) == 21


def test_streams_that_are_behind_have_budgets_one_after_another() -> None:
    recorder = Recorder(talk.settings("masked"))
    for stream in range(3):
        tell(recorder, *flood(stream, TINY * 100_000))
    list(recorder.each_due())
    begun = [segment.stream for _ in range(30) for segment in one_budget(recorder)]
    assert len({*begun}) == 3
    seen = [segment.stream for _ in range(60) for segment in one_budget(recorder)]
    assert {*seen} == {*begun}
    assert {seen.count(stream) for stream in begun} <= {seen.count(begun[0]) + more for more in (-1, 0, 1)}


def test_a_flood_is_recorded_whole_in_the_end() -> None:
    recorder = Recorder(talk.settings("masked"))
    tell(recorder, *flood(1, TINY * 50_000))
    segments = [*recorder.each_due(), *all_behind(recorder)]
    (stream,) = by_stream(segments)
    assert stream.content == b"data: masked\n\n" * 50_000
    assert stream.loss == Loss()
    assert [read.body_bytes for read in stream.reads] == [0, *[READ] * 6, 400_000 % READ]
    assert (recorder.open_streams, recorder.pending_bytes, recorder.behind_bytes) == (0, 0, 0)
    assert recorder.dropped.total() == 0


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_few_encoded_bytes_that_decode_to_a_flood_have_budgets_as_well(coding: str) -> None:
    wire = TINY * 60_000 + EVENTS[4]
    packed = {
        "gzip": lambda: zlib.compress(wire, wbits=31),
        "br": lambda: brotli.compress(wire),
        "zstd": lambda: zstandard.compress(wire),
    }[coding]()
    assert len(packed) < 4_000
    recorder = Recorder(talk.settings("masked"))
    tell(recorder, *flood(1, packed, ("content-encoding", coding)))
    assert lines_in(list(recorder.each_due())) == 0, "one budget does not process the whole read"
    tell(recorder, *flood(2, BODY))
    assert [segment.end is not None for segment in recorder.each_due()] == [True]
    budgets = 0
    segments: list[Segment] = []
    while recorder.behind_bytes:
        segments += one_budget(recorder)
        budgets += 1
    assert budgets > 60_000 * response.EVENT_BYTES // (2 * STREAM_BYTES)
    assert lines_in(segments) == 2 * 60_001
    assert segments[-1].end is not None


def test_a_stream_of_ten_thousand_events_in_one_read_needs_few_budgets() -> None:
    recorder = Recorder(talk.settings("masked"))
    tell(recorder, *answer(head(SSE) + EVENTS[1] * 10_000 + EVENTS[4] + EVENTS[5]))
    segments, budgets = list(recorder.each_due()), 0
    while recorder.behind_bytes:
        segments += one_budget(recorder)
        budgets += 1
    assert budgets <= 16
    (stream,) = by_stream(segments)
    assert len(stream.reads) == 1
    assert stream.content.count(b"\n\n") == 10_002


@pytest.mark.slow
def test_waiting_reads_are_bounded_and_the_streams_with_the_most_lose_them() -> None:
    recorder = Recorder(talk.settings("masked"), max_behind_bytes=2_000_000)
    burst = EVENTS[1] * 4_000  # 388,000 bytes
    tell(recorder, *flood(1, burst + EVENTS[4]))
    first = list(recorder.each_due())
    for stream in range(2, 8):
        tell(recorder, *flood(stream, TINY * 100_000))
        first += recorder.each_due()
        assert recorder.behind_bytes <= 2_000_000
    dropped = recorder.dropped[DropReason.RECORDER_BEHIND]
    assert dropped > 0
    assert recorder.dropped.total() == dropped
    found = by_stream([*first, *all_behind(recorder)])
    assert len(found) == 7
    expected_reads = 7 * 1 + -(-len(burst + EVENTS[4]) // READ) + 6 * -(-800_000 // READ)
    assert expected_reads == dropped + sum(len(one.reads) for one in found)
    assert sum(one.loss.dropped_reads for one in found) == dropped
    assert (found[0].loss, found[0].content.count(b"\n\n")) == (Loss(), 4_001)
    assert any(one.loss == Loss() and one.content.count(b"\n\n") == 100_000 for one in found[1:])


def test_a_flood_that_lost_reads_continues_after_them() -> None:
    recorder = Recorder(talk.settings("masked"), max_behind_bytes=500_000)
    tell(recorder, opened(), sent(), *arrivals(head(SSE) + EVENTS[1], *[TINY * 8_000] * 7), ReadsDropped(1, 5))
    list(recorder.each_due())
    tell(recorder, *arrivals(*[TINY * 8_000] * 4), *arrivals(TINY + EVENTS[4]), ended())
    dropped = recorder.dropped[DropReason.RECORDER_BEHIND]
    assert dropped > 0
    segments = [*recorder.each_due(), *all_behind(recorder)]
    assert sum(segment.loss.dropped_reads for segment in segments if segment.loss) == dropped + 5
    assert b"".join(read.content for segment in segments for read in segment.reads).endswith(EVENTS[4])


def test_at_the_deadline_all_waiting_reads_are_dropped() -> None:
    recorder = Recorder(talk.settings("masked"))
    for stream in range(3):
        tell(recorder, *flood(stream, TINY * 100_000))
    before = len([read for segment in recorder.each_due() for read in segment.reads])
    recorder.drop_behind()
    segments = recorder.segments()
    reads = before + sum(len(segment.reads) for segment in segments)
    assert (recorder.open_streams, recorder.behind_bytes) == (0, 0)
    assert [segment.end is not None for segment in segments] == [True] * 3
    assert recorder.dropped[DropReason.RECORDER_BEHIND] == 3 * (1 + -(-800_000 // READ)) - reads


def test_a_waiting_stream_that_fails_affects_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(talk.settings("masked"))
    for stream in range(2):
        tell(recorder, *flood(stream, TINY * 30_000))
    reads = len([read for segment in recorder.each_due() for read in segment.reads])

    def broken(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(response.Response, "read_all", broken)
        segments = one_budget(recorder)
    segments += all_behind(recorder)
    assert recorder.incidents[Incident.CAPTURE_FAULT] == 1
    lost = recorder.dropped[DropReason.CAPTURE_FAULT]
    assert lost > 0
    assert reads + sum(len(segment.reads) for segment in segments) + lost == 2 * (1 + -(-240_000 // READ))
    assert (recorder.open_streams, recorder.behind_bytes, recorder.pending_bytes) == (0, 0, 0)


WIRES = (
    (head(SSE), BODY * 5),
    (head(SSE), TINY * 40 + BODY + b":\n\n" * 30 + b"\n\n\ndata: half"),
    (head(SSE), BODY.replace(b"\n", b"\r\n") * 4),
    (head(SSE), BODY.replace(b"\n", b"\r") * 3 + b"id: 1\n\n" * 50),
    (head(SSE, ("transfer-encoding", "chunked")), chunked(*[EVENTS[1]] * 20, TINY * 50, BODY)),
    (head(SSE, ("content-encoding", "gzip")), gzip_flushed(BODY * 10, TINY * 30, BODY)),
    (
        head(SSE, ("content-encoding", "gzip"), ("transfer-encoding", "chunked")),
        chunked(gzip_flushed(BODY, TINY * 300)),
    ),
    (head(SSE, ("content-encoding", "gzip")), gzip_flushed(BODY * 10)[:-40] + b"damaged" * 20),
    (
        head(("content-type", "application/json"), ("content-encoding", "gzip")),
        gzip_flushed(b'{"a":' + b"1" * 900 + b"}"),
    ),
    (head(SSE), b'data: [{"error":{"type":"a"}}]\n\n' * 20 + b'{\n"error":{"type":"b"}}\n\n'),
    (head(("content-type", "application/json")), b'{"object":"chat.completion","choices":[]}'),
)


@settings(deadline=None)
@example([((head(SSE), BODY), 10, [])], "masked", 1, 1)  # the least budget: each step of a read uses all of it
@given(
    st.lists(
        st.tuples(st.sampled_from(WIRES), st.integers(10, 700), st.lists(st.integers(2, 30), max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["masked", "full"]),
    st.integers(1, 3_000),
    st.integers(1, 20),
)
def test_budgets_do_not_change_what_is_recorded(
    streams: list[tuple[tuple[bytes, bytes], int, list[int]]], capture: str, most: int, every: int
) -> None:
    """With any budgets: the same reads, heads, losses and ends, with the same content."""
    reported: list[list[Message]] = []
    for number, ((begin, body), size, holes) in enumerate(streams):
        reads = [begin, *(body[at : at + size] for at in range(0, len(body), size))]
        one = [opened(stream=number), *arrivals(*reads, stream=number)]
        for place in holes:
            one.insert(place, ReadsDropped(number, 2))
        reported.append([*one, ended(stream=number)])
    ids = iter(range(100))
    plain = Recorder(talk.settings(capture), lambda _: bytes((0,)) * 15 + bytes((next(ids),)))
    for messages in reported:
        tell(plain, *messages)
    expected = by_stream(plain.segments())

    ids = iter(range(100))
    bounded = Recorder(talk.settings(capture), lambda _: bytes((0,)) * 15 + bytes((next(ids),)), stream_bytes=most)
    segments: list[Segment] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(response, "CODED_STEP_BYTES", 9)
        patched.setattr(response, "LEAST_STEP_BYTES", 40)
        for messages in reported:
            tell(bounded, messages[0])
        for place in range(1, max(map(len, reported))):
            tell(bounded, *[messages[place] for messages in reported if place < len(messages)])
            if place % every == 0:
                segments += [*bounded.each_due(), *one_budget(bounded)]
        segments += [*bounded.each_due(), *bounded.each_segment(), *all_behind(bounded)]
        segments += bounded.segments()
    assert (bounded.open_streams, bounded.behind_bytes, bounded.pending_bytes) == (0, 0, 0)
    recorded_streams = sorted(by_stream(segments), key=lambda one: one.segments[0].stream)
    for mine, other in zip(recorded_streams, expected, strict=True):
        assert mine.reads == other.reads
        assert (mine.loss, mine.head, mine.end, mine.request) == (other.loss, other.head, other.end, other.request)
    assert bounded.dropped.total() == plain.dropped.total() == 0


def test_waiting_reads_of_a_stream_that_fails_are_counted_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in messages other than reads stops a stream; its waiting reads are lost and counted."""
    recorder = Recorder(talk.settings("masked"))
    tell(recorder, *flood(1, TINY * 30_000)[:-1])
    segments = list(recorder.each_due())
    assert recorder.behind_bytes

    def broken(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(response.Response, "set_head", broken)
        tell(recorder, ResponseHead(1, ZERO, 200))
    tell(recorder, ResponseRead(1, ZERO, TINY), ended())
    segments += all_behind(recorder)
    (stream,) = by_stream(segments)
    assert len(stream.reads) + recorder.dropped[DropReason.CAPTURE_FAULT] == 1 + -(-240_000 // READ) + 1
    assert stream.loss.dropped_reads == recorder.dropped[DropReason.CAPTURE_FAULT]
