"""Messages in, segments out: nothing raises, every read is counted, no secret is stored."""

import contextlib
import json
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import BUNDLE_BYTES, Bundle, Ending, Loss, Segment
from streamgauge.recorder import capture, events, request, response
from streamgauge.recorder import recorder as recording
from streamgauge.recorder.capture import FLUSHES_PER_SEGMENT, RecordedStream
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestStarted,
    ResponseHead,
    ResponseRead,
    ResponseReads,
    StampedRead,
)
from streamgauge.recorder.recorder import Recorder, new_stream_id
from streamgauge.spool.read_counters import DropReason, Incident
from tests.taps import talk
from tests.taps.talk import (
    BODY,
    EVENTS,
    SSE,
    ZERO,
    answer,
    arrivals,
    chunked,
    ended,
    events_in,
    head,
    opened,
    recorded,
    sent,
    streams_of,
    together,
)


def test_a_stream_in_order() -> None:
    reads = [head(SSE, ("transfer-encoding", "chunked"), ("X-Request-Id", "req_7")), chunked(*EVENTS)]
    stream = recorded(
        [opened(), RequestBody(1, b'{"model":"m"}'), sent(13), *arrivals(*reads), ended(unsent=5)], every=1
    )
    opening = stream.segments[0].opening
    assert opening is not None
    assert (opening.tap, opening.tap_version, opening.capture, opening.upstream) == ("proxy", "1.2", "full", "up")
    assert (opening.path, opening.started_at_ns) == ("/chat/completions", 1_700_000_000_123_456_789)
    assert stream.request is not None
    assert (stream.request.model, stream.request.body_bytes) == ("m", 13)
    assert (stream.request.connect_ns, stream.request.sent_ns) == (10, 20)
    assert stream.head is not None
    assert (stream.head.status, stream.head.stamp_ns, stream.head.event_stream) == (200, 100, True)
    assert stream.head.provider_request_id == "req_7"
    assert [read.stamp_ns for read in stream.reads] == [100, 200]
    assert [read.wire_bytes for read in stream.reads] == [len(one) for one in reads]
    assert [read.body_bytes for read in stream.reads] == [0, len(BODY)]
    assert stream.content == BODY.replace(b": keep-alive\n", b":\n")
    assert (stream.end.ending, stream.end.stamp_ns) == (Ending.COMPLETE, 10_000)
    assert (stream.end.client_bytes, stream.end.client_blocked_ns) == (len(BODY) - 5, 7)
    assert stream.loss == Loss()


def test_no_response_at_all() -> None:
    stream = recorded([opened(), sent(), ended(Ending.RESET)])
    assert (stream.head, stream.reads, stream.end.ending, stream.end.client_bytes) == (None, [], Ending.RESET, 0)


@pytest.mark.parametrize("tap", ["httpx", "asgi"])
def test_a_tap_without_the_wire_does_not_know_the_clients_bytes(tap: str) -> None:
    """The same with and without a head: 0 would say that nothing reached the client."""
    for messages in (
        [opened(tap=tap), sent(), ended(Ending.RESET)],
        [opened(tap=tap), sent(), ResponseHead(1, ZERO, 200)],
    ):
        stream = recorded([*messages, *([] if isinstance(messages[-1], ExchangeEnding) else [ended()])])  # type: ignore[list-item]
        assert stream.end.client_bytes is None


def test_a_request_whose_body_is_not_read_is_counted() -> None:
    recorder = Recorder(talk.settings())
    recorded([opened(), RequestBody(1, b'{"model":"m"}'), sent(17_000_000, whole=False), ended()], recorder)
    assert recorder.incidents[Incident.BODY_CAPPED] == 1


def test_a_client_that_left_before_the_request_was_sent() -> None:
    vertex = "/v1/projects/p/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    stream = recorded([opened(vertex), RequestBody(1, b'{"contents":'), ended(Ending.CLIENT)])
    assert stream.end.client_gone_ns == 9_500
    assert stream.request is not None
    assert (stream.request.model, stream.request.digest, stream.request.sent_ns) == ("gemini-2.5-pro", None, None)


def test_segments_have_at_most_about_the_size_of_a_bundle() -> None:
    recorder = Recorder(talk.settings())
    event = b"data: " + b"x" * 1000 + b"\n\n"
    for message in [opened(), *arrivals(head(SSE), *[event] * 200), ended()]:
        recorder.handle(message)
    assert recorder.pending_bytes > 200_000
    stream = talk.Recorded(recorder.segments())
    sizes = [sum(len(read.content) for read in segment.reads) for segment in stream.segments]
    assert max(sizes) <= BUNDLE_BYTES
    assert min(sizes[:-1]) > BUNDLE_BYTES / 2
    assert stream.content == event * 200
    assert (recorder.segments(), recorder.pending_bytes) == ([], 0)


def test_an_open_stream_is_written_every_fourth_flush_its_first_reads_and_end_at_once() -> None:
    recorder = Recorder(talk.settings())
    for stream in range(8):
        recorder.handle(opened(stream=stream))
    assert [segment.number for segment in recorder.each_due()] == [0] * 8
    counts = []
    for _ in range(8):
        for stream in range(8):
            recorder.handle(arrivals(head(SSE), stream=stream)[0])
        counts.append([len(segment.reads) for segment in recorder.each_due()])
    assert counts == [[1] * 8, [1, 1], [2, 2], [3, 3], [4, 4], [4, 4], [4, 4], [4, 4]]
    for stream in range(8):
        recorder.handle(ended(stream=stream))
    assert [segment.end is not None for segment in recorder.each_due()] == [True] * 8
    assert (list(recorder.each_due()), recorder.pending_bytes) == ([], 0)


def test_reads_that_waited_together_are_written_by_the_next_flush() -> None:
    recorder = Recorder(talk.settings())
    recorder.handle(opened())
    recorder.handle(arrivals(head(SSE))[0])
    assert len(list(recorder.each_due())) == 1
    for _ in range(FLUSHES_PER_SEGMENT):
        recorder.handle(together(b"data: 1\n\n", b"data: 2\n\n"))
        assert [len(segment.reads) for segment in recorder.each_due()] == [2]
    recorder.handle(together(b"data: 3\n\n", stream=2))
    assert recorder.dropped[DropReason.RECORDER_GONE] == 1


def test_more_streams_than_allowed_are_refused_and_their_reads_counted() -> None:
    recorder = Recorder(talk.settings(), max_open_streams=2)
    for stream in (1, 2, 3):
        recorder.handle(opened(stream=stream))
        for message in arrivals(head(SSE), BODY, stream=stream):
            recorder.handle(message)
    assert (recorder.open_streams, recorder.incidents[Incident.STREAM_REFUSED]) == (2, 1)
    assert recorder.dropped == {DropReason.RECORDER_BEHIND: 2}
    recorder.handle(ended(stream=1))
    recorder.handle(ended(stream=3))
    recorder.handle(opened(stream=4))
    assert recorder.open_streams == 2


def test_f7_streams_that_were_refused_and_never_end_take_no_memory() -> None:
    """A stream that began before the recorder has a smaller number than any that it refused."""
    recorder = Recorder(talk.settings(), max_open_streams=1)
    recorder.handle(opened(stream=10))
    tracemalloc.start()
    try:
        for stream in range(11, 20_011):
            recorder.handle(opened(stream=stream))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 100_000
    for stream in (9, 11, 20_010):
        recorder.handle(arrivals(BODY, stream=stream)[0])
    assert recorder.dropped == {DropReason.RECORDER_GONE: 1, DropReason.RECORDER_BEHIND: 2}
    recorder.cut(0, None)
    recorder.handle(arrivals(BODY, stream=11)[0])
    assert recorder.dropped[DropReason.RECORDER_GONE] == 2


def test_a_stream_that_began_before_the_recorder_is_counted_and_not_captured() -> None:
    recorder = Recorder(talk.settings())
    for message in [sent(), *arrivals(BODY, BODY), ReadsDropped(1, 5), ended()]:
        recorder.handle(message)
    assert recorder.segments() == []
    assert recorder.dropped == {DropReason.RECORDER_GONE: 2}


def test_senders_have_separate_numbers_and_the_streams_of_a_disconnected_one_are_cut() -> None:
    recorder = Recorder(talk.settings())
    for source in (7, 8):
        recorder.handle(opened(), source)
        recorder.handle(ResponseRead(1, ZERO + 100, head(SSE) + EVENTS[0] + EVENTS[1][:-1]), source)
    recorder.cut(7, ZERO + 500)
    recorder.handle(ResponseRead(1, ZERO + 600, b"\n"), 8)
    recorder.handle(ended(), 8)
    segments = recorder.segments()
    ends = {segment.stream: segment.end for segment in segments if segment.end}
    assert [end.ending for end in ends.values()] == [Ending.CUT, Ending.COMPLETE]
    assert [bool(end.tail) for end in ends.values()] == [True, False]


def test_a_number_that_is_used_again_ends_the_earlier_stream() -> None:
    recorder = Recorder(talk.settings())
    recorder.handle(opened())
    recorder.handle(opened())
    recorder.handle(ended())
    assert [segment.end.ending for segment in recorder.segments() if segment.end] == [Ending.CUT, Ending.COMPLETE]


class BugError(Exception):
    """An unexpected exception."""


def raising(*_: object, **__: object) -> None:
    raise BugError


@pytest.mark.parametrize(
    ("owner", "name", "message", "lost"),
    [
        (capture, "opening_of", 0, 2),
        (request.RequestReader, "add", 1, 2),
        (request.RequestReader, "sent_facts", 2, 2),
        (response.Response, "_begin", 3, 2),
        (events.MaskedEvents, "feed_each", 4, 1),
        (response.Response, "finish", 5, 0),
    ],
)
def test_a_bug_makes_only_its_stream_incomplete(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, message: int, lost: int
) -> None:
    recorder = Recorder(talk.settings())
    messages = [opened(), RequestBody(1, b"{}"), sent(2), *arrivals(head(SSE) + EVENTS[0], EVENTS[1]), ended()]
    segments = []
    with all_streams() as begun:
        for place, one in enumerate(messages):
            with monkeypatch.context() as broken:
                if place == message:
                    broken.setattr(owner, name, raising)
                recorder.handle(one)
                assert (recorder.pending_bytes, recorder.behind_bytes) == pending_of(begun)
                segments += recorder.segments()
                assert recorder.pending_bytes == 0
    for one in answer(head(SSE), BODY):
        recorder.handle(one)
    segments += recorder.segments()
    first, second = streams_of(segments)
    broken_one = talk.Recorded([segment for segment in segments if segment.stream == first])
    assert broken_one.loss.dropped_reads >= max(lost, 1)
    assert broken_one.end.ending is Ending.COMPLETE
    assert recorder.dropped[DropReason.CAPTURE_FAULT] == lost
    assert len(broken_one.reads) == 2 - lost
    assert recorder.incidents[Incident.CAPTURE_FAULT] == 1
    whole = talk.Recorded([segment for segment in segments if segment.stream == second])
    assert (whole.loss, len(events_in(whole.content))) == (Loss(), 6)


def test_a_stream_that_is_dropped_returns_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(talk.settings(), max_held_bytes=2_000_000)
    long = b"x" * 1_500_000
    for stream, wire in ((1, head() + long), (2, head(SSE) + b"data: " + long)):
        for message in [opened(stream=stream), *arrivals(wire, stream=stream)]:
            recorder.handle(message)
        with monkeypatch.context() as broken:
            broken.setattr(response.Response, "_begin", raising)
            recorder.handle(ResponseRead(stream, ZERO, b"x"))
    recorder.handle(opened(stream=3))
    recorder.handle(RequestBody(3, long))
    with monkeypatch.context() as broken:
        broken.setattr(response.Response, "reads_dropped", raising)
        recorder.handle(ReadsDropped(3, 1))
    for message in [opened(stream=4), *arrivals(head(), long, stream=4), ended(stream=4)]:
        recorder.handle(message)
    assert recorder.incidents[Incident.BODY_CAPPED] == 0


MESSAGES = st.one_of(
    st.builds(
        RequestStarted, st.integers(0, 2), st.none() | st.integers(0, 9), st.none(), st.none(), st.text(), st.text()
    ),
    st.builds(RequestBody, st.integers(0, 2), st.binary()),
    st.builds(ReadsDropped, st.integers(0, 2), st.integers(0, 3)),
    st.builds(ResponseRead, st.integers(0, 2), st.none() | st.integers(0, 9), st.binary() | st.sampled_from(EVENTS)),
    st.builds(ResponseRead, st.integers(0, 2), st.none(), st.sampled_from([head(SSE), head(), head(SSE, status=404)])),
    st.builds(
        ResponseHead, st.integers(0, 2), st.none() | st.integers(0, 9), st.none() | st.integers(), st.just([SSE])
    ),
    st.builds(
        ResponseReads,
        st.integers(0, 2),
        st.lists(st.builds(StampedRead, st.none() | st.integers(), st.binary() | st.just(b"data: a\n\n")), max_size=4),
    ),
    st.builds(ExchangeEnding, st.integers(0, 2), st.none() | st.integers(0, 9), st.sampled_from(Ending)),
)


@contextlib.contextmanager
def all_streams() -> Iterator[list[RecordedStream]]:
    """Gives the streams that recorders begin, also those that have ended."""
    begun: list[RecordedStream] = []

    def begin(*given: Any) -> RecordedStream:
        begun.append(RecordedStream(*given))
        return begun[-1]

    with patch.object(recording, "RecordedStream", begin):
        yield begun


def pending_of(streams: list[RecordedStream]) -> tuple[int, int]:
    """Pending bytes, and those of streams behind, added up over all streams."""
    behind = sum(one.waiting_bytes for one in streams if one.behind)
    return sum(one.ready_bytes + (0 if one.behind else one.waiting_bytes) for one in streams), behind


@settings(deadline=None)
@given(
    st.lists(MESSAGES, max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([1, 40, 500, 100_000]),
    st.booleans(),
)
def test_every_read_is_in_a_segment_or_counted(
    messages: list[Message], every: int, whole: int, budget: int, bounded: bool
) -> None:
    most = 1_000 if bounded else 1_000_000
    recorder = Recorder(talk.settings("masked"), max_open_streams=2, stream_bytes=budget, max_behind_bytes=most)
    segments: list[Segment] = []
    with all_streams() as begun:
        for number, message in enumerate(messages):
            recorder.handle(message)
            assert (recorder.pending_bytes, recorder.behind_bytes) == pending_of(begun)
            if number % every == 0:
                segments += (
                    recorder.segments()
                    if number % whole == 0
                    else [*recorder.each_due(), *recorder.each_behind(lambda: True)]
                )
                assert (recorder.pending_bytes, recorder.behind_bytes) == pending_of(begun)
            assert recorder.behind_bytes <= most
    recorder.cut(0, None)
    segments += recorder.segments()
    assert (recorder.pending_bytes, recorder.behind_bytes, recorder.open_streams) == (0, 0, 0)
    numbers: dict[bytes, list[int]] = {}
    for segment in segments:
        numbers.setdefault(segment.stream, []).append(segment.number)
    assert all(found == list(range(len(found))) for found in numbers.values())
    reads = sum(isinstance(message, ResponseRead) for message in messages)
    reads += sum(len(message.reads) for message in messages if isinstance(message, ResponseReads))
    assert reads == sum(len(segment.reads) for segment in segments) + recorder.dropped.total()
    assert recorder.incidents[Incident.CAPTURE_FAULT] == 0
    for stream in streams_of(segments):
        talk.Recorded([segment for segment in segments if segment.stream == stream])


CANARIES = {
    "key": "sk-canary-bearer-81",
    "header": "canary-header-82",
    "query": "canary-query-83",
    "prompt": "canary-prompt-84",
    "text": "canary-text-85",
    "error": "canary-error-86",
    "unknown": "canary-unknown-87",
    "tool": "canary-argument-88",
    "cookie": "canary-cookie-89",
    "comment": "canary-comment-90",
    "stop": "canary stop 91",
}


def test_no_secret_leaves_the_recorder() -> None:
    c = CANARIES
    request_body = json.dumps({"model": "m", "messages": [{"content": c["prompt"]}], "stop": c["stop"]}).encode()
    headers = [("authorization", f"Bearer {c['key']}"), ("x-api-key", c["key"]), ("x-canary", c["header"])]
    delta = {"content": c["text"], c["unknown"]: 1}
    tool = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": c["tool"]}}]}
    error = json.dumps({"error": {"message": c["error"], "type": "server_error"}}, indent=1)
    events = [
        f": {c['comment']}\n\n",
        "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}) + "\n\n",
        "data: " + json.dumps({"choices": [{"index": 0, "delta": tool}]}) + "\n\n",
        "event: error\ndata: " + error.replace("\n", "\ndata: ") + "\n\n",
        f"error: {c['error']}\n\n",
        error + "\n\n",
        f"id: {c['text']}\u00e9\nevent: {c['text']} \ndata: {c['text']}\n\n",
        "data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}),
    ]
    wires = [
        [head(SSE, ("set-cookie", c["cookie"])), *(event.encode() for event in events)],
        [head(("content-type", "application/json"), status=401) + error.encode()],
        [head(("content-type", "text/html"), status=502) + c["error"].encode()],
    ]
    recorder = Recorder(talk.settings("masked"))
    targets = [f"/v1/chat/completions?key={c['query']}&x={c['query']}", f"/{c['query']}/v1/messages#{c['query']}"]
    for target in targets:
        for reads in wires:
            for message in [
                opened(target, *headers),
                RequestBody(1, request_body),
                sent(len(request_body)),
                *arrivals(*reads),
                ended(),
            ]:
                recorder.handle(message)
    bundle = Bundle(bytes(16), 0, 0, 0, recorder.segments())
    assert len(bundle.segments) == 6
    written = zstandard.ZstdDecompressor().decompress(encode_bundle(bundle)[3:])
    assert b"server_error" in written
    for name, canary in CANARIES.items():
        assert canary.encode() not in written, name
        assert canary.encode()[3:] not in written, name


def test_stream_ids_are_uuid7_with_the_time_of_the_start() -> None:
    ids = [new_stream_id(1_700_000_000_123_456_789) for _ in range(100)]
    assert len(set(ids)) == 100
    for one in ids:
        parsed = uuid.UUID(bytes=one)
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
        assert parsed.int >> 80 == 1_700_000_000_123
    assert uuid.UUID(bytes=new_stream_id(None)).int >> 80 > 1_700_000_000_000
    assert uuid.UUID(bytes=new_stream_id(-5)).int >> 80 == 0


def test_a_valid_id_from_the_tap_is_used() -> None:
    ids = []
    for stream_id in (bytes(range(16)), b"", bytes(15), bytes(17)):
        recorder = Recorder(talk.settings())
        recorder.handle(msgspec.structs.replace(opened(), stream_id=stream_id))
        recorder.handle(ended())
        ids += [segment.stream for segment in recorder.segments()]
    assert ids[0] == bytes(range(16))
    assert {len(one) for one in ids} == {16}
    assert len(set(ids)) == 4


def test_with_a_share_some_streams_keep_their_text_and_every_stream_says_which() -> None:
    """A stream outside of the share is masked as by default, and its segments make a record like any other."""
    ids = iter([bytes(15) + b"\x01", b"\x00" * 12 + b"\xff" * 4])
    recorder = Recorder(talk.settings(full_share=0.5), lambda _: next(ids))
    reads = [head(SSE, ("transfer-encoding", "chunked")), chunked(*EVENTS)]
    for number in (1, 2):
        for message in (opened(stream=number), *arrivals(*reads, stream=number), ended(stream=number)):
            recorder.handle(message)
    segments = recorder.segments()
    full, masked = (talk.Recorded([one for one in segments if one.stream == stream]) for stream in streams_of(segments))
    assert [one.segments[0].opening.capture for one in (full, masked) if one.segments[0].opening] == ["full", "masked"]
    assert full.content == BODY.replace(b": keep-alive\n", b":\n")
    assert masked.content != full.content
    assert len(masked.content) >= len(full.content) // 2
    assert [read.stamp_ns for read in masked.reads] == [read.stamp_ns for read in full.reads]
