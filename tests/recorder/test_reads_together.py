"""Reads of a stream are processed together: the result is the same as one by one."""

import pytest
from bench.wires import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Loss, Read, StreamEnding
from streamgauge.core.dialects import DIALECTS
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder import response
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.events import MaskedEvents
from streamgauge.recorder.protocol import Message, ResponseHead, ResponseRead, ResponseReads, StampedRead
from streamgauge.recorder.recorder import Recorder
from tests.core.assembly.altered import damage
from tests.taps import talk

NAMES = [dialect.name for dialect in DIALECTS]
HEAD = talk.head(talk.SSE, ("transfer-encoding", "chunked"))
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reads_of(messages: list[Message], capture: str, every: int) -> tuple[list[Read], Loss, StreamEnding]:
    stream = talk.recorded(messages, Recorder(talk.settings(capture)), every=every)
    return stream.reads, stream.loss, stream.end


def exchange(path: str, *reads: bytes) -> list[Message]:
    return [talk.opened(path), talk.sent(), *talk.arrivals(*reads), talk.ended()]


def same(path: str, reads: list[bytes], capture: str, every: int) -> None:
    messages = exchange(path, *reads)
    assert reads_of(messages, capture, every) == reads_of(messages, capture, 1)


@pytest.mark.parametrize("capture", ["masked", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_a_stream_of_each_dialect(name: str, capture: str) -> None:
    one = wire(name, 150)
    for every in (2, 10, 64, 1000):
        same(one.path, [HEAD, *map(chunk, one.events), LAST], capture, every)


@pytest.mark.parametrize("capture", ["masked", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_reads_of_several_chunks_each(name: str, capture: str) -> None:
    one = wire(name, 150)
    chunks = list(map(chunk, one.events))
    for many in (2, 3, 9, 40):
        reads = [b"".join(chunks[at : at + many]) for at in range(0, len(chunks), many)]
        same(one.path, [HEAD, *reads, LAST], capture, 1000)


# Occasionally one of these, and mostly a read that is one chunk with one event.
WAYS = (
    *("usual",) * 12,
    *("many chunks",) * 3,
    *("two events", "cut event", "cut chunk", "two chunks", "upper", "more blank lines", "blank lines apart"),
    *("cut after three bytes", "cut in the blank line", "cut comment", "CRLF"),
)


@st.composite
def ways(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A stream's path and reads: with some damage, and not always one event per chunk or one chunk per read."""
    one = wire(draw(st.sampled_from(NAMES)), 60)
    events = damage(draw, one.events) if draw(st.booleans()) else list(one.events)
    reads = [HEAD]
    while events:
        event = events.pop(0)
        way = draw(st.sampled_from(WAYS))
        half = len(event) // 2
        if way == "two events" and events:
            reads.append(chunk(event + events.pop(0)))
        elif way == "cut event" and half:
            reads += [chunk(event[:half]), chunk(event[half:])]
        elif way == "cut after three bytes" and event[3:]:
            reads += [chunk(event[:3]), chunk(event[3:])]
        elif way == "cut in the blank line":
            reads += [chunk(event[:-1]), chunk(event[-1:] + event)]
        elif way == "cut comment":
            end = draw(st.sampled_from([b"\n", b"\r\n"]))
            reads += [chunk(b":" + end), chunk(end + event)]
        elif way == "CRLF":
            reads.append(chunk(event.replace(b"\n", b"\r\n")))
        elif way == "cut chunk":
            reads += [chunk(event)[:half], chunk(event)[half:]]
        elif way == "two chunks" and events:
            reads.append(chunk(event) + chunk(events.pop(0)))
        elif way == "many chunks":
            some, events = [event, *events[:5]], events[5:]
            reads.append(b"".join(map(chunk, some)))
        elif way == "more blank lines":
            reads.append(chunk(event + b"\n") + chunk(event) + chunk(b"\n\n" + event))
        elif way == "blank lines apart":
            reads += [chunk(event) + chunk(b"\n\n"), chunk(b"\n" + event)]
        elif way == "upper":
            reads.append(b"%X\r\n%b\r\n" % (len(event), event))
        else:
            reads.append(chunk(event))
    return one.path, [*reads, LAST]


@settings(max_examples=4 * settings().max_examples)
@given(ways(), st.sampled_from(["masked", "full"]), st.sampled_from([2, 7, 1000]))
def test_with_any_bytes_in_between(way: tuple[str, list[bytes]], capture: str, every: int) -> None:
    same(*way, capture, every)


@given(ways(), st.sampled_from(["masked", "full"]), st.data())
def test_reads_that_waited_together(way: tuple[str, list[bytes]], capture: str, data: st.DataObject) -> None:
    path, reads = way
    apart = exchange(path, *reads)
    opened, sent, *waiting, ended = apart
    together: list[Message] = []
    while waiting:
        count = data.draw(st.integers(1, 9))
        run, waiting = waiting[:count], waiting[count:]
        together.append(
            ResponseReads(1, [StampedRead(one.at_ns, one.data) for one in run if isinstance(one, ResponseRead)])
        )
    one_by_one, at_once = reads_of(apart, capture, 1), reads_of([opened, sent, *together, ended], capture, 1)
    assert at_once == one_by_one


@pytest.mark.parametrize("capture", ["masked", "full"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("begin", [b"", b": ", b"dat", b"data: 1\n", b":\r\n"])
def test_a_first_read_of_any_few_bytes(begin: bytes, end: bytes, capture: str) -> None:
    """Reads of three bytes once counted as whole blocks, and the events after them were lost."""
    one, two = b"data: 1" + end + end, b"data: 2" + end + end
    rest = one[len(begin) :] if one.startswith(begin) else end + end + one
    for first, then in ((begin + rest[:1], rest[1:] + two), (begin, rest + two), (begin + rest[:3], rest[3:] + two)):
        masked = MaskedEvents(Masker("/v1/chat/completions", full=capture == "full"), Budget(2**20))
        masked.feed(one)
        apart = [masked.feed(piece) for piece in (first, then)]
        assert masked.feed_each([first, then]) == apart


def test_a_body_without_framing() -> None:
    one = wire("openai-chat", 50)
    answered = ResponseHead(1, talk.ZERO + 50, 200, [talk.SSE])
    messages = [talk.opened(), talk.sent(), answered, *talk.arrivals(*one.events), talk.ended()]
    assert reads_of(messages, "masked", 1000) == reads_of(messages, "masked", 1)


@pytest.mark.parametrize("events_a_read", [1, 3, 9])
@pytest.mark.parametrize("framing", ["chunks", "none"])
@pytest.mark.parametrize("capture", ["masked", "full"])
def test_reads_of_a_plain_body_are_not_processed_one_by_one(
    capture: str, framing: str, events_a_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    usual = response.Response._begin
    monkeypatch.setattr(response.Response, "_begin", lambda self, *read: looked.append(1) or usual(self, *read))  # type: ignore[func-returns-value]
    one = wire("openai-chat", 400)
    begin, last = (HEAD, [LAST]) if framing == "chunks" else (talk.head(talk.SSE), [])
    pieces = list(map(chunk, one.events)) if framing == "chunks" else one.events
    reads = [b"".join(pieces[at : at + events_a_read]) for at in range(0, len(pieces), events_a_read)]
    reads_of(exchange(one.path, begin, *reads, *last), capture, 50)
    assert len(looked) < 10
