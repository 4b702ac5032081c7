"""Raw bytes of a response in, reads out: the same for any framing, coding and split."""

from collections.abc import Callable, Sequence

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending, Loss
from streamgauge.core.formats.sse import SseDecoder
from streamgauge.recorder.protocol import Message, ReadsDropped, ResponseHead, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident
from tests.taps import talk
from tests.taps.talk import BODY, EVENTS, SSE, ZERO, answer, arrivals, chunked, ended, events_in, head, opened, recorded

FRAMINGS: dict[str, Callable[[bytes, Sequence[bytes]], bytes]] = {
    "close": lambda body, _: head(SSE) + body,
    "length": lambda body, _: head(SSE, ("content-length", str(len(body)))) + body,
    "chunked": lambda body, _: head(SSE, ("transfer-encoding", "chunked")) + chunked(body[:50], body[50:]),
    "gzip": lambda _, pieces: (
        head(SSE, ("content-encoding", "gzip"), ("transfer-encoding", "chunked")) + chunked(talk.gzip_flushed(*pieces))
    ),
    "br": lambda body, _: head(SSE, ("content-encoding", "br")) + brotli.compress(body),
    "zstd": lambda body, _: head(SSE, ("content-encoding", "zstd")) + zstandard.ZstdCompressor().compress(body),
    "html error": lambda body, _: head(SSE, status=502) + b"<html>" + body,
    "json error": lambda body, _: head(("content-type", "application/json"), status=429) + b'{"error":{"code":"x"}}',
    "no type": lambda body, _: head() + body,
    "bad chunks": lambda body, _: head(SSE, ("transfer-encoding", "chunked")) + b"10\r\n" + body,
    "bad gzip": lambda body, pieces: head(SSE, ("content-encoding", "gzip")) + talk.gzip_flushed(*pieces)[:150] + body,
    "no http": lambda body, _: b"SSH-2.0-OpenSSH_9.6\r\n\r\n" + body,
    "crlf": lambda body, _: head(SSE) + b"\xef\xbb\xbf" + body.replace(b"\n", b"\r\n"),
    "invalid utf-8": lambda body, _: head(SSE) + body.replace(b"\xc3\xbc", b"\xc3") + b"data: \xff\n\n" + b"data: {",
}  # fmt: skip


def outcome(messages: list[Message], kind: str, every: int = 3) -> tuple[object, ...]:
    stream = recorded(messages, Recorder(talk.settings(kind)), every=every)
    facts = (
        None if stream.head is None else (stream.head.status, stream.head.event_stream, stream.head.content_encoding)
    )
    end = stream.end
    return facts, stream.content, stream.body_bytes, end.tail, end.body, end.client_bytes, stream.loss


@pytest.mark.parametrize("framing", FRAMINGS)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_the_result_does_not_depend_on_the_split(framing: str, data: st.DataObject) -> None:
    wire = FRAMINGS[framing](BODY, EVENTS)
    ending = data.draw(st.sampled_from([Ending.COMPLETE, Ending.RESET, Ending.CLIENT]))
    upto = len(wire) if ending is Ending.COMPLETE else data.draw(st.integers(0, len(wire)))
    cuts = sorted(data.draw(st.lists(st.integers(0, upto), max_size=12)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, upto], strict=True)]
    every = data.draw(st.integers(1, 4))
    kind = data.draw(st.sampled_from(["full", "masked"]))
    assert outcome(answer(*pieces, ending=ending), kind, every) == outcome(answer(wire[:upto], ending=ending), kind)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_byte_by_byte_is_the_same(framing: str) -> None:
    wire = FRAMINGS[framing](BODY, EVENTS)
    single = [wire[at : at + 1] for at in range(len(wire))]
    assert outcome(answer(*single), "masked") == outcome(answer(wire), "masked")


@pytest.mark.parametrize("framing", ["close", "length", "chunked", "gzip", "br", "zstd", "no type", "crlf"])
def test_the_content_is_what_was_sent(framing: str) -> None:
    content, loss = outcome(answer(FRAMINGS[framing](BODY, EVENTS)), "full")[1::5]
    assert content == BODY.replace(b": keep-alive\n", b":\n")
    assert loss == Loss()


def test_each_event_of_a_gzip_stream_is_read_at_its_flush() -> None:
    squeezed = talk.gzip_flushed(*EVENTS)
    marks = [at + 4 for at in range(len(squeezed)) if squeezed[at : at + 4] == b"\0\0\xff\xff"]
    reads = [squeezed[a:b] for a, b in zip([0, *marks], [*marks, len(squeezed)], strict=True)]
    stream = recorded(answer(head(SSE, ("content-encoding", "gzip")), *reads))
    assert [len(SseDecoder().feed(read.content)) for read in stream.reads] == [0, 1, 1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("framing", "status", "event_stream", "body"),
    [
        ("html error", 502, False, None),
        ("json error", 429, False, b'{"error":{"code":"x"}}'),
        ("no type", 200, True, None),
    ],
)
def test_what_is_read_as_an_event_stream(framing: str, status: int, event_stream: bool, body: bytes | None) -> None:
    stream = recorded(answer(FRAMINGS[framing](BODY, EVENTS)))
    assert stream.head is not None
    assert (stream.head.status, stream.head.event_stream) == (status, event_stream)
    assert stream.end.body == body
    assert bool(stream.content) is event_stream


def test_a_head_is_reported_before_the_content_is_classified() -> None:
    recorder = Recorder(talk.settings())
    for message in [opened(), *arrivals(head(("content-type", "text/plain")))]:
        recorder.handle(message)
    (first,) = recorder.segments()
    assert first.head is not None
    assert not first.head.event_stream
    recorder.handle(ResponseRead(1, ZERO + 300, BODY))
    (second,) = recorder.segments()
    assert second.head is not None
    assert second.head.event_stream
    assert second.head.stamp_ns == 100


def test_a_large_body_is_capped_and_marked() -> None:
    piece = b" " * (1024 * 1024)
    reads = [head(("content-type", "application/json")), b"{", *[piece] * 17, b"}"]
    recorder = Recorder(talk.settings())
    stream = recorded(answer(*reads), recorder)
    assert (stream.end.body, stream.end.body_capped) == (None, True)
    assert stream.body_bytes == 17 * 1024 * 1024 + 2
    assert recorder.incidents[Incident.BODY_CAPPED] == 1


@pytest.mark.parametrize("framing", ["chunked", "gzip"])
def test_dropped_reads_within_the_framing_end_the_parsing(framing: str) -> None:
    wire = FRAMINGS[framing](BODY, EVENTS)
    stream = recorded([opened(), *arrivals(wire[:200]), ReadsDropped(1, 2), *arrivals(wire[250:]), ended()])
    assert stream.loss == Loss(dropped_reads=2)
    assert [bool(read.content) for read in stream.reads][1:] == [False]
    assert stream.end.tail == b""


def test_reads_dropped_before_the_head_leave_no_head() -> None:
    stream = recorded([opened(), ReadsDropped(1, 1), *arrivals(BODY), ended()])
    assert stream.head is None
    assert stream.content == b""
    assert stream.loss == Loss(dropped_reads=1)


@pytest.mark.parametrize(
    ("ending", "fault"), [(Ending.COMPLETE, "incomplete"), (Ending.RESET, None), (Ending.CLIENT, None)]
)
def test_a_coding_that_is_cut_is_a_fault_only_if_the_response_is_complete(ending: Ending, fault: str | None) -> None:
    wire = head(SSE, ("content-encoding", "gzip")) + talk.gzip_flushed(*EVENTS)[:-8]
    recorder = Recorder(talk.settings())
    stream = recorded(answer(wire, ending=ending), recorder)
    assert stream.loss.decode_error == fault
    assert len(events_in(stream.content)) == len(EVENTS)
    assert recorder.incidents[Incident.DECODE_FAULT] == (fault is not None)


def told(*body: bytes, headers: tuple[tuple[str, str], ...] = (SSE,), status: int | None = 200) -> list[Message]:
    """A whole exchange whose head the tap reports: the head at 100, the body's pieces after it."""
    return [opened(), ResponseHead(1, ZERO + 100, status, list(headers)), *arrivals(b"", *body)[1:], ended()]


def test_a_head_that_is_reported_by_the_tap() -> None:
    stream = recorded(
        told(*EVENTS, headers=(SSE, ("x-request-id", "req_7"), ("transfer-encoding", "chunked"))), every=1
    )
    assert stream.head is not None
    assert (stream.head.status, stream.head.stamp_ns, stream.head.event_stream) == (200, 100, True)
    assert stream.head.provider_request_id == "req_7"
    assert [read.stamp_ns for read in stream.reads] == [200, 300, 400, 500, 600, 700]
    assert [(read.wire_bytes, read.body_bytes) for read in stream.reads] == [(0, len(event)) for event in EVENTS]
    assert (stream.content, stream.loss) == (BODY.replace(b": keep-alive\n", b":\n"), Loss())
    assert stream.end.client_bytes is None  # how many bytes reached the client is unknown


CODED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": talk.gzipped,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
}


@pytest.mark.parametrize("coding", CODED)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_a_reported_body_is_decoded_however_it_is_split(coding: str, data: st.DataObject) -> None:
    coded = CODED[coding](BODY)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(coded)), max_size=12)))
    pieces = [coded[a:b] for a, b in zip([0, *cuts], [*cuts, len(coded)], strict=True)]
    stream = recorded(told(*pieces, headers=(SSE, ("content-encoding", coding))))
    assert stream.head is not None
    assert stream.head.content_encoding == coding
    assert (stream.content, stream.body_bytes) == (BODY.replace(b": keep-alive\n", b":\n"), len(coded))
    assert stream.loss == Loss()


def test_a_reported_coding_that_is_cut_is_a_fault() -> None:
    stream = recorded(told(talk.gzip_flushed(*EVENTS)[:-8], headers=(SSE, ("content-encoding", "gzip"))))
    assert stream.loss.decode_error == "incomplete"
    assert len(events_in(stream.content)) == len(EVENTS)


@pytest.mark.parametrize("framing", ["close", "json error", "html error", "no type"])
def test_reported_or_parsed_a_response_is_the_same(framing: str) -> None:
    raw_head, _, body = FRAMINGS[framing](BODY, EVENTS).partition(b"\r\n\r\n")
    status, *fields = raw_head.decode().split("\r\n")
    headers = tuple((name, value) for name, _, value in (field.partition(": ") for field in fields))
    for kind in ("full", "masked"):
        *one, _, loss = outcome(told(body, headers=headers, status=int(status.split()[1])), kind)
        *two, _, same_loss = outcome(answer(raw_head + b"\r\n\r\n", body), kind)
        assert (one, loss) == (two, same_loss)


def test_dropped_reads_of_a_reported_stream_leave_a_gap() -> None:
    half = len(EVENTS[1]) // 2
    reads = [EVENTS[0] + EVENTS[1][:half], EVENTS[3][half:] + EVENTS[4]]
    before, after = (
        (ResponseHead(1, ZERO, 200, [SSE]), ResponseRead(1, ZERO, reads[0])),
        ResponseRead(1, ZERO, reads[1]),
    )
    stream = recorded([opened(), *before, ReadsDropped(1, 1), after, ended()])
    assert (events_in(stream.content), stream.loss) == ([EVENTS[0][6:-2], EVENTS[4][6:-2]], Loss(dropped_reads=1))


def test_the_first_of_several_reported_heads_counts_and_one_after_raw_bytes_does_not() -> None:
    again = ResponseHead(1, ZERO + 150, 500, [])
    stream = recorded(
        [opened(), ResponseHead(1, ZERO + 100, 201, [SSE]), again, ResponseRead(1, ZERO + 200, BODY), ended()]
    )
    assert stream.head is not None
    assert (stream.head.status, stream.loss) == (201, Loss())
    stream = recorded([opened(), *arrivals(head(SSE), BODY), again, ended()])
    assert stream.head is not None
    assert (stream.head.status, stream.end.client_bytes) == (200, len(BODY))


def test_a_recording_without_a_status_is_read_by_its_headers() -> None:
    stream = recorded(told(b'{"error":{"code":"x"}}', headers=(("content-type", "application/json"),), status=None))
    assert stream.head is not None
    assert (stream.head.status, stream.head.event_stream, stream.end.body) == (None, False, b'{"error":{"code":"x"}}')
