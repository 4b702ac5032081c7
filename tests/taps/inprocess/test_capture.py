"""What is noted of one stream: all that a recorder needs, nothing else, whatever goes wrong."""

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    ExchangeEnded,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
)
from streamgauge.spool.read_counters import DropReason
from streamgauge.taps.inprocess.capture import (
    MAX_UNTAKEN_BYTES,
    NOTE_BYTES,
    WAKE_BYTES,
    Fault,
    Lost,
    Note,
    NotedStream,
    is_event_stream,
    is_llm,
    size_of_note,
)
from tests.taps.inprocess.rig import asking, note_stream
from tests.taps.talk import EVENTS


class Shelf:
    """Takes nothing by itself."""

    def __init__(self) -> None:
        self.full = False
        self.woken = 0

    def begin(self, capture: NotedStream) -> int:
        return 7

    def wake(self) -> None:
        self.woken += 1


def take(capture: NotedStream) -> list[Note]:
    """What the sender's thread does."""
    notes, capture.notes = capture.notes, []
    capture.taken_bytes += sum(size_of_note(note) for note in notes)
    return notes


def test_a_stream_as_it_comes() -> None:
    notes = note_stream(Shelf()).notes
    opened = notes[0]
    assert isinstance(opened, RequestStarted)
    assert (opened.stream, opened.at_ns, opened.tap, opened.upstream) == (7, 1_000, "httpx", "up")
    assert (opened.method, opened.target) == ("POST", "/v1/chat/completions")
    assert notes[1:4] == [
        RequestBody(7, b'{"model":"m"}'),
        RequestSent(7, 1_500, None, 13, True),
        ResponseHead(7, 2_000, 200, [("content-type", "text/event-stream"), ("x-request-id", "req_7")]),
    ]
    assert notes[4:-1] == [(3_000 + at, event) for at, event in enumerate(EVENTS)]
    assert notes[-1] == ExchangeEnded(7, 9_000, Ending.COMPLETE, None)


def test_what_is_noted_is_counted() -> None:
    capture = note_stream(Shelf())
    assert capture.noted_bytes == sum(size_of_note(note) for note in capture.notes) > len(EVENTS) * NOTE_BYTES
    take(capture)
    assert capture.noted_bytes == capture.taken_bytes


def test_headers_by_allowlist_as_text_or_bytes() -> None:
    secret = [(b"Cookie", b"c"), ("Host", "h")]
    headers = [("Authorization", "Bearer k"), (b"X-API-Key", b"\xfc"), *secret, ("X-Tenant", "t")]
    for tenant, kept in (("x-TENANT", [("x-tenant", "t")]), (None, [])):
        opened = NotedStream(Shelf(), asking(headers=headers), tenant).notes[0]
        assert isinstance(opened, RequestStarted)
        assert opened.headers == [("authorization", "Bearer k"), ("x-api-key", "\xfc"), *kept]
        assert opened.tenant_header == (tenant and tenant.lower())


def test_a_long_request_body_is_left_out_and_said_so() -> None:
    capture = NotedStream(Shelf(), asking())
    half = bytes(MAX_REQUEST_BODY // 2)
    for _ in range(3):
        capture.asked(half)
    capture.sent(None, 3 * len(half))
    assert [type(note) for note in capture.notes] == [RequestStarted, RequestBody, RequestBody, RequestSent]
    assert capture.notes[-1] == RequestSent(7, None, None, 3 * len(half), False)


@pytest.mark.parametrize(("noted", "body_bytes", "whole"), [(b"abc", 3, True), (b"abc", 5, False), (b"", 0, True)])
def test_a_body_is_whole_if_all_of_it_was_noted(noted: bytes, body_bytes: int, whole: bool) -> None:
    capture = NotedStream(Shelf(), asking())
    capture.asked(noted)
    capture.sent(5, body_bytes)
    assert capture.notes[-1] == RequestSent(7, 5, None, body_bytes, whole)


def test_chunks_are_bytes_of_their_own_and_empty_ones_are_none() -> None:
    capture, buffer = NotedStream(Shelf(), asking()), bytearray(b"abc")
    capture.arrived(1, buffer)  # type: ignore[arg-type]
    buffer[:] = b"xyz"
    capture.arrived(2, b"")
    capture.arrived(3, memoryview(b"def"))  # type: ignore[arg-type]
    assert capture.notes[1:] == [(1, b"abc"), (3, b"def")]


def test_without_room_reads_are_lost_and_counted_when_there_is_some_again() -> None:
    shelf = Shelf()
    capture = NotedStream(shelf, asking())
    capture.arrived(1, b"a")
    shelf.full = True
    capture.arrived(2, b"b")
    capture.arrived(3, b"c")
    capture.asked(b"left out")
    shelf.full = False
    capture.arrived(4, b"d")
    capture.arrived(5, b"e")
    capture.sent(6, 8)
    lost = Lost(2, DropReason.RECORDER_BEHIND)
    assert capture.notes[1:] == [(1, b"a"), lost, (4, b"d"), (5, b"e"), RequestSent(7, 6, None, 8, False)]


def test_what_was_lost_at_the_end_is_told_before_it() -> None:
    shelf = Shelf()
    capture = NotedStream(shelf, asking())
    shelf.full = True
    capture.arrived(2, b"b")
    capture.ended(3, Ending.CLIENT, 3)
    assert capture.notes[1:] == [Lost(1, DropReason.RECORDER_BEHIND), ExchangeEnded(7, 3, Ending.CLIENT, 3)]


def test_a_stream_that_nobody_takes_wakes_and_is_bounded() -> None:
    shelf = Shelf()
    capture = NotedStream(shelf, asking())
    piece, count = bytes(64 * 1024), 2 * MAX_UNTAKEN_BYTES // (64 * 1024)
    for at in range(count):
        capture.arrived(at, piece)
        assert (shelf.woken > 0) == (capture.noted_bytes > WAKE_BYTES + len(piece) + NOTE_BYTES)
    held = sum(size_of_note(note) for note in capture.notes)
    assert MAX_UNTAKEN_BYTES < held < MAX_UNTAKEN_BYTES + 2 * len(piece)
    taken = len(take(capture)) - 1
    capture.arrived(count, b"again")
    assert capture.notes == [Lost(count - taken, DropReason.RECORDER_BEHIND), (count, b"again")]


def test_a_whole_answer_in_one_piece_fits() -> None:
    capture = NotedStream(Shelf(), asking())
    capture.arrived(1, bytes(64 * 1024 * 1024))
    capture.arrived(2, b"more")
    assert len(capture.notes) == 2


def test_the_end_is_told_once_and_nothing_behind_it() -> None:
    shelf = Shelf()
    capture = note_stream(shelf)
    before = list(capture.notes)
    capture.ended(1, Ending.RESET)
    capture.arrived(2, b"late")
    shelf.full = True
    capture.arrived(3, b"later")
    assert capture.notes == before


class BrokenError(Exception):
    """Something nobody thought of."""


def raising(*_: object) -> int:
    raise BrokenError


def test_a_stream_that_cannot_begin_disturbs_nobody() -> None:
    shelf = Shelf()
    shelf.begin = raising  # type: ignore[assignment, method-assign]
    capture = note_stream(shelf, *EVENTS * 1000)
    assert len(capture.notes) < 10


@pytest.mark.parametrize("chunk", ["text", None, object()])
def test_a_chunk_that_is_none_breaks_the_capture_and_nothing_else(chunk: object) -> None:
    capture = NotedStream(Shelf(), asking())
    capture.arrived(1, b"a")
    for _ in range(3):
        capture.arrived(2, chunk)  # type: ignore[arg-type]
    capture.arrived(4, b"d")
    capture.ended(5, Ending.COMPLETE)
    lost = Lost(4, DropReason.CAPTURE_FAULT)
    assert capture.notes[1:] == [(1, b"a"), Fault(), lost, ExchangeEnded(7, 5, Ending.COMPLETE)]


@pytest.mark.parametrize(
    ("tell", "facts"), [("answered", (1, 200, 5)), ("asked", (None,)), ("answered", (1, 200, [("a",)]))]
)
def test_odd_facts_raise_nothing(tell: str, facts: tuple[object, ...]) -> None:
    capture = NotedStream(Shelf(), asking())
    getattr(capture, tell)(*facts)
    capture.arrived(4, b"d")
    capture.ended(5, Ending.COMPLETE)
    assert [type(note) for note in capture.notes] == [RequestStarted, Fault, Lost, ExchangeEnded]


def test_odd_requests_raise_nothing() -> None:
    capture = NotedStream(Shelf(), asking(headers=[("a", "b", "c")]))
    capture.arrived(4, b"d")
    capture.ended(5, Ending.COMPLETE)
    assert [type(note) for note in capture.notes] == [Fault, Lost, ExchangeEnded]


def test_what_is_captured() -> None:
    assert is_llm("POST", "/v1/chat/completions?a=b")
    assert not is_llm("GET", "/v1/chat/completions")
    assert not is_llm("POST", "/v1/embeddings")
    assert is_event_stream([(b"Content-Type", b"Text/Event-Stream; charset=utf-8")])
    assert not is_event_stream([("content-type", "application/json"), ("x", "text/event-stream")])
