"""The read in which an event ends; events without an end, and events after a gap."""

from collections import Counter

from streamgauge.core.capture.segments import Ending, Loss
from streamgauge.core.formats.sse import SseDecoder
from streamgauge.recorder.protocol import ReadsDropped, RequestBody, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident
from tests.taps import talk
from tests.taps.talk import EVENTS, SSE, ZERO, answer, arrivals, ended, events_in, head, opened, recorded, streams_of
from tests.vectors.drive import record_of


def test_an_event_belongs_to_the_read_that_completed_it() -> None:
    one, two = EVENTS[0], EVENTS[1]
    reads = [head(SSE) + one[:10], one[10:-1], one[-1:] + two, two + one[:-1]]
    stream = recorded(answer(*reads))
    assert [len(events_in(read.content)) for read in stream.reads] == [0, 0, 2, 1]
    assert SseDecoder().feed(stream.end.tail + b"\n")[0].data == one[6:-2]


def test_an_event_without_end_is_skipped_and_the_next_ones_are_read() -> None:
    piece = b"x" * 1_000_000
    reads = [head(SSE), b"data: ", *[piece] * 10, b"\n\n", EVENTS[1]]
    recorder = Recorder(talk.settings())
    stream = recorded(answer(*reads), recorder)
    assert stream.loss.oversized_events == 1
    assert events_in(stream.content)[-1] == EVENTS[1][6:-2]
    assert len(stream.content) < 10_000
    assert recorder.incidents[Incident.EVENT_CAPPED] == 1


def test_long_events_of_many_streams_share_one_budget() -> None:
    recorder = Recorder(talk.settings(), max_held_bytes=3_000_000)
    for stream in range(10):
        recorder.handle(opened(stream=stream))
        recorder.handle(ResponseRead(stream, ZERO, head(SSE) + b"data: "))
    segments = recorder.segments()
    for _ in range(10):
        for stream in range(10):
            recorder.handle(ResponseRead(stream, ZERO, b"x" * 100_000))
        segments += recorder.segments()  # reads wait until then
    for stream in range(10):
        recorder.handle(ResponseRead(stream, ZERO, b"\n\n" + EVENTS[1]))
        recorder.handle(ended(stream=stream))
    segments += recorder.segments()
    lost = [
        sum(s.loss.oversized_events for s in segments if s.loss and s.stream == one) for one in streams_of(segments)
    ]
    assert 5 <= sum(lost) <= 9
    contents = [
        b"".join(r.content for s in segments if s.stream == one for r in s.reads) for one in streams_of(segments)
    ]
    assert all(content.endswith(EVENTS[1]) for content in contents)
    assert Counter(len(content) > 900_000 for content in contents) == {False: sum(lost), True: 10 - sum(lost)}


def test_the_outcome_is_unknown_if_the_last_event_was_discarded_for_lack_of_budget() -> None:
    for end in (b"\n\n", b""):
        recorder = Recorder(talk.settings(), max_held_bytes=100_000)
        segments = []
        for message in (opened(), *arrivals(head(SSE) + EVENTS[1], b"data: ", *[b"x" * 90_000] * 2, end), ended()):
            recorder.handle(message)
            segments += recorder.segments()
        record = record_of(segments)
        assert (record.outcome, record.integrity.reasons) == ("abandoned", ["oversized_event"])


def test_the_whole_budget_is_free_when_streams_have_ended() -> None:
    recorder = Recorder(talk.settings(), max_held_bytes=2_000_000)
    for number in range(20):
        body = b'{"model":"m","x":"' + b"y" * 900_000 + b'"}'
        wire = head(("content-type", "application/json")) + body
        if number % 2:
            wire = head(SSE) + b"data: " + body
        endings = [ended(), ended(Ending.CLIENT), ended(Ending.RESET)]
        stream = recorded([opened(), RequestBody(1, body), *arrivals(wire), endings[number % 3]], recorder)
        assert not stream.end.body_capped
        assert stream.loss.oversized_events == 0
    assert recorder.incidents[Incident.BODY_CAPPED] == 0


def test_dropped_reads_of_a_plain_event_stream_are_only_a_gap() -> None:
    stream = recorded(
        [
            opened(),
            *arrivals(head(SSE) + EVENTS[0] + EVENTS[1][:20]),
            ReadsDropped(1, 3),
            *arrivals(EVENTS[1][50:-1], b"\n" + EVENTS[3][:-1], b"\n" + EVENTS[5]),
            ended(),
        ]
    )
    assert events_in(stream.content) == [EVENTS[0][6:-2], EVENTS[3][6:-2], b"[DONE]"]
    assert stream.loss == Loss(dropped_reads=3)
    assert len(stream.reads) == 4
