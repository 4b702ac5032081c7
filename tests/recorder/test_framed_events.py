"""Events of other framings than SSE, masked: what is kept in memory is charged, and what is discarded is counted."""

from streamgauge.core.formats.json_array import JsonArrayReader
from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.formats.sse import HALF_EVENT, MAX_EVENT_BYTES, Event, write_event, write_tail
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import FREE_EVENT_BYTES, Budget
from streamgauge.recorder.framed_events import FramedEvents

LINE = b'{"model":"m","message":{"content":"Secret"},"done":false}'
MASKED = b'data: {"model":"m","message":{"content":"xxxxxx"},"done":false}\n\n'


def lines(budget: Budget, *, full: bool = False) -> FramedEvents:
    return FramedEvents(Masker("/api/chat", full), budget, JsonLinesReader())


def test_events_are_masked_as_canonical_sse() -> None:
    events = lines(Budget(1_000_000))
    assert events.feed_each([LINE[:9], LINE[9:] + b"\n" + LINE + b"\n", LINE]) == [b"", MASKED * 2, b""]
    assert events.events == 2
    assert events.finish() == MASKED[:-1]


def test_full_capture_keeps_the_text() -> None:
    assert lines(Budget(1_000_000), full=True).feed(LINE + b"\r\n") == b"data: " + LINE + b"\n\n"


def test_half_an_event_becomes_a_placeholder() -> None:
    for reader, half in ((JsonLinesReader(), LINE[:30]), (JsonArrayReader(), b"[" + LINE[:30])):
        events = FramedEvents(Masker("/api/chat", False), Budget(1_000_000), reader)
        events.feed(half)
        assert events.finish() == HALF_EVENT


def test_an_unfinished_event_is_charged_and_given_back() -> None:
    budget = Budget(MAX_EVENT_BYTES)
    events = lines(budget)
    events.feed(b'{"a":"' + b"x" * (FREE_EVENT_BYTES + 994))
    assert budget.free == MAX_EVENT_BYTES - 1_000
    events.feed(b'"}\n')
    assert budget.free == MAX_EVENT_BYTES
    events.feed(b'{"a":"' + b"x" * (FREE_EVENT_BYTES + 994))
    events.release()
    assert budget.free == MAX_EVENT_BYTES


def test_an_event_without_room_is_discarded_and_counted_and_the_next_one_is_read() -> None:
    for reader, opening, between in ((JsonLinesReader(), b"", b"\n"), (JsonArrayReader(), b"[", b",")):
        events = FramedEvents(Masker("/api/chat", False), Budget(1_000), reader)
        assert events.feed(opening + b'{"a":"' + b"x" * (FREE_EVENT_BYTES + 2_000)) == b""
        assert events.feed(b'"}' + between + LINE + between) == write_event(Event(oversized=True)) + MASKED
        assert events.oversized == 1


def test_a_discarded_event_that_never_ends_is_counted() -> None:
    events = lines(Budget(1_000))
    events.feed(b'{"a":"' + b"x" * (FREE_EVENT_BYTES + 2_000))
    assert (events.finish(), events.oversized) == (write_tail(Event(oversized=True)), 1)


def test_only_lines_resume_after_missing_bytes() -> None:
    events = lines(Budget(1_000_000))
    assert events.resumes
    events.feed(LINE[:20])
    events.resume()
    assert events.feed(b'":1}\n' + LINE + b"\n") == MASKED
    assert not FramedEvents(Masker(None, False), Budget(1), JsonArrayReader()).resumes


def test_a_broken_framing_is_a_fault() -> None:
    events = FramedEvents(Masker(None, False), Budget(1_000), JsonArrayReader())
    assert (events.feed(b"{}"), events.fault, events.finish()) == (b"", True, b"")
