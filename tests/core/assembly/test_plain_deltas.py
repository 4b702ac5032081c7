"""Plain deltas are applied many at a time, which changes only how fast a stream is read: its state is the same."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from bench.wires import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.assembly import stream as stream_module
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.stream import Stream, in_batches
from streamgauge.core.capture.segments import Ending, Head, Opening, Read, Segment, StreamEnding
from streamgauge.core.dialects import DIALECTS
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, SseDecoder, write_event
from streamgauge.core.masking.masker import Masker
from tests.core.assembly.altered import alter, damage
from tests.vectors.load import series, vectors

STALL_NS = 5_000_000_000
MS = 1_000_000
# The dialects that declare plain deltas. Events of all others are read one by one.
NAMES = [dialect.name for dialect in DIALECTS if dialect.deltas.kinds]


def canonical(body: bytes, path: str | None, *, masked: bool) -> list[bytes]:
    """The events of a body as a tap writes them down."""
    masker = Masker(path, full=not masked)
    return [write_event(masker.event(event)) for event in SseDecoder().feed(body)]


def in_reads(events: list[bytes], chance: random.Random) -> list[bytes]:
    """Several events a read, one, or none."""
    reads, at = [], 0
    while at < len(events):
        size = chance.choice((0, 1, 1, 1, 1, 2, 5))
        reads.append(b"".join(events[at : at + size]))
        at += size
    return reads


def segments(reads: list[bytes], chance: random.Random, *, masked: bool, path: str | None = None) -> Iterator[Segment]:
    """The reads in segments of any length, a stamp each, or none at all."""
    stamped, clock = chance.random() < 0.8, 0
    made = []
    for content in reads:
        clock += chance.choice((0, MS, 20 * MS, 6_000 * MS))
        made.append(Read(clock if stamped else None, len(content) + 9, len(content), content))
    opening = Opening("t", "0", "masked" if masked else "full", upstream="u", path=path)
    number, at = 0, 0
    while at < len(made):
        size = chance.choice((1, 2, 7, 40))
        first = {"opening": opening, "head": Head(200, 0, event_stream=True)} if number == 0 else {}
        yield Segment(bytes(16), number, reads=made[at : at + size], **first)  # type: ignore[arg-type]
        number, at = number + 1, at + size
    yield Segment(bytes(16), number, end=StreamEnding(Ending.COMPLETE, stamp_ns=clock))


def states(made: list[Segment], *, batched: bool, settled: bool = True) -> list[object]:
    """The stream's state after each segment; after the last alone if not `settled`. `batched`: as usual, else one by one."""
    with pytest.MonkeyPatch.context() as patch:
        if not batched:
            patch.setattr(Stream, "_may_batch", lambda stream: False)
        stream = Stream(StreamState(bytes(16), bytes(16), 0, items={}), STALL_NS)
        found = []
        for segment in made:
            stream.apply(segment)
            if settled:
                stream.apply_pending_reads()
                found.append(msgspec.to_builtins(stream.state, builtin_types=(bytes,)))
        stream.apply_pending_reads()
        return [*found, msgspec.to_builtins(stream.state, builtin_types=(bytes,))]


def same(events: list[bytes], seed: int, *, masked: bool, path: str | None = None) -> None:
    chance = random.Random(seed)
    made = list(segments(in_reads(events, chance), chance, masked=masked, path=path))
    plain = states(made, batched=False)
    assert states(made, batched=True) == plain
    assert states(made, batched=True, settled=False) == plain[-1:]


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_a_stream_of_each_dialect(name: str, masked: bool) -> None:
    one = wire(name, 120)
    events = canonical(b"".join(one.events), one.path or None, masked=masked)
    for seed in range(12):
        same(events, seed, masked=masked, path=one.path or None)


def test_an_event_without_the_name_of_the_others() -> None:
    events = canonical(b"".join(wire("anthropic-messages", 40).events), None, masked=False)
    for at in (20, 36):
        assert events[at].startswith(b"event: content_block_delta\n")
        events[at] = events[at].removeprefix(b"event: content_block_delta\n")
    for seed in range(12):
        same(events, seed, masked=False)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "full"])
@pytest.mark.parametrize("before", ["a", "é", r"\n", "日本"])
def test_f0_an_empty_text_is_no_token_event_for_any_split(before: str, masked: bool) -> None:
    texts = [before, before, "", "a", "", before]
    body = "".join(
        f'data: {{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'
        for text in texts
    )
    events = canonical(body.encode(), "/chat/completions", masked=masked)
    for seed in range(12):
        chance = random.Random(seed)
        stream = Stream(StreamState(bytes(16), bytes(16), 0, items={}), STALL_NS)
        for segment in segments(in_reads(events, chance), chance, masked=masked, path="/chat/completions"):
            stream.apply(segment)
        stream.apply_pending_reads()
        assert stream.state.counts.token_events == sum(map(bool, texts))


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "full"])
def test_every_vector(masked: bool) -> None:
    for vector in vectors():
        if vector.is_stream:
            same(canonical(vector.body, None, masked=masked), len(vector.body), masked=masked)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "full"])
def test_every_series(masked: bool) -> None:
    for several in series():
        for seed in range(4):
            for vector in several.vectors:
                same(canonical(vector.body, None, masked=masked), seed, masked=masked)


@pytest.mark.parametrize("name", NAMES)
def test_nearly_all_deltas_are_applied_in_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = wire(name, 200)
    events = canonical(b"".join(one.events), one.path or None, masked=True)
    looked: list[Any] = []  # each read has one event

    def counted(items: Sequence[Any], batched: int, may: Any, take: Any, one_by_one: Callable[[Any], None]) -> None:
        def look(item: Any) -> None:
            looked.append(item)
            one_by_one(item)

        in_batches(items, batched, may, take, look)

    monkeypatch.setattr(stream_module, "in_batches", counted)
    made = list(segments(events, random.Random(1), masked=True, path=one.path or None))
    states(made, batched=True)
    assert 0 < len(looked) < 25


@st.composite
def damaged(draw: st.DrawFn) -> tuple[list[bytes], str]:
    one = wire(draw(st.sampled_from(NAMES)), 40)
    events = damage(draw, canonical(b"".join(one.events), one.path or None, masked=draw(st.booleans())))
    # Only what is canonical comes to a stream: a damaged line end makes other events of it.
    again = b"".join(write_event(event) for event in SseDecoder().feed(b"".join(events)))
    return [block + b"\n\n" for block in again.split(b"\n\n")[:-1]], one.path


@settings(max_examples=4 * settings().max_examples)
@given(damaged(), st.integers(0, 2**32))
def test_a_damaged_stream_says_the_same(stream: tuple[list[bytes], str], seed: int) -> None:
    events, path = stream
    same(events, seed, masked=False, path=path or None)


@st.composite
def altered(draw: st.DrawFn) -> tuple[list[bytes], str]:
    one = wire(draw(st.sampled_from(NAMES)), 40)
    masker = Masker(one.path or None, full=draw(st.booleans()))
    return [write_event(masker.event(event)) for event in alter(draw, one)], one.path


@settings(max_examples=4 * settings().max_examples)
@given(altered(), st.integers(0, 2**32))
def test_what_an_event_tells_in_between_is_told_back(stream: tuple[list[bytes], str], seed: int) -> None:
    events, path = stream
    same(events, seed, masked=False, path=path or None)


# What may take the place of a word or number of events all along, of the same length or not.
WORDS = [
    b"type",
    b"text",
    b"error",
    b"index",
    b"usage",
    b"model",
    b"stop",
    b"length",
    b"null",
    b"0",
    b"1",
    b"7",
    b"120",
]


# What may come before: the stream is no LLM's, a sequence number, a tool's call, an error, another dialect's.
FIRST = [
    b'data: {"jsonrpc":"2.0"}\n\n',
    b'data: {"type":"response.in_progress","sequence_number":13}\n\n',
    b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}\n\n',
    b'data: {"error":{"message":"x"}}\n\n',
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","model":"m"}}\n\n',
]


@st.composite
def of_other_words(draw: st.DrawFn) -> tuple[list[bytes], list[bytes], bool]:
    """A stream, and another one of its dialect that has another word or number at one place of each event."""
    one, masked = wire(draw(st.sampled_from(NAMES)), 24), draw(st.booleans())
    events = canonical(b"".join(one.events), one.path or None, masked=masked)
    words = sorted(
        {word for event in events for word in re.findall(rb"[a-z_]+|[0-9]+", event)} - {b"data", b"event", b"id"}
    )
    word = draw(st.sampled_from(words))
    instead = draw(
        st.one_of(
            st.sampled_from(WORDS),
            st.just(word[::-1]),
            st.just(word[:-1] + b"3"),
            st.just(b"-" + word[1:]),
            st.just(b'q\\"'),
        )
    )
    others = b"".join(events).replace(word, instead)
    if draw(st.booleans()):
        others = draw(st.sampled_from(FIRST)) + others
    if draw(st.booleans()):  # of both, so that the events have a name
        name = draw(st.sampled_from([b'event: a"b\n', b"event: x\n"]))
        others, events = name + others.replace(b"\n\n", b"\n\n" + name), [name + event for event in events]
    read = b"".join(write_event(event) for event in SseDecoder().feed(others))
    return events, [block + b"\n\n" for block in read.split(b"\n\n")[:-1]], masked


@settings(max_examples=4 * settings().max_examples)
@given(of_other_words(), st.integers(0, 2**32))
def test_an_event_with_another_word(streams: tuple[list[bytes], list[bytes], bool], seed: int) -> None:
    first, second, masked = streams
    for events in (first, second, first):
        same(events, seed, masked=masked)


def test_first_times_are_those_of_the_first_stamps() -> None:
    """A stream whose first reads have no stamps: no tap makes one."""
    events = wire("openai-chat", 60).events
    for unstamped in (1, 2, 5, 40):
        reads = [Read(at if at > unstamped else None, len(one), len(one), one) for at, one in enumerate(events, 1)]
        opening = Opening("t", "0", "full", upstream="u")
        made = [Segment(bytes(16), 0, opening=opening, head=Head(200, 0, event_stream=True), reads=reads)]
        assert states(made, batched=True) == states(made, batched=False)


def test_an_event_over_the_cap_is_none() -> None:
    def chunk(text: str) -> bytes:
        return b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text.encode()

    same([chunk("a"), chunk("b"), chunk("x" * MAX_EVENT_BYTES), chunk("c"), chunk("d")], 1, masked=False)
    same([chunk("a"), chunk("b"), chunk("x" * MAX_EVENT_BYTES), chunk("c"), chunk("d")], 2, masked=False)


def _between(name: str, member: bytes, instead: bytes) -> None:
    """Events of one kind, with one among them that reports something else."""
    one = wire(name, 60)
    for at in (20, 21, 40):
        events = one.events[: at + 8]  # not to the end, which says all of it once more
        assert member in events[at]
        events[at] = events[at].replace(member, instead)
        for seed in range(6):
            same(canonical(b"".join(events), None, masked=False), seed, masked=False)


def test_a_tier_that_changes_is_told_back() -> None:
    _between("openai-chat", b'"service_tier":"default"', b'"service_tier":"priority"')


def test_a_part_of_a_usage_that_changes_is_told_back() -> None:
    _between("gemini", b'"tokenCount":9', b'"tokenCount":8')
    _between("gemini", b'"promptTokenCount":9', b'"promptTokenCount":8')


def test_a_usage_that_is_bad_each_time_is_counted_each_time() -> None:
    events = [event.replace(b'"promptTokenCount":9', b'"promptTokenCount":-9') for event in wire("gemini", 60).events]
    same(canonical(b"".join(events), None, masked=False), 1, masked=False)


def test_what_turns_out_to_be_no_stream_of_its_kind_is_told_no_more() -> None:
    delta = b'data: {"content":"%d"}\n\n'
    events = [delta % number for number in range(20)]
    events[10:10] = [b'data: {"jsonrpc":"2.0","id":1}\n\n']
    for seed in range(6):
        same(events, seed, masked=False, path="/completion")


# What no tap writes, between reads and inside of them: a stream takes it without raising, and the same way as ever.
_BROKEN = (b"\0", b"\n", b"\n\n", b"\r", b"\xff", b"\xc3", b'"', b"\\", b":", b"\xef\xbb\xbf")


@pytest.mark.parametrize("name", NAMES)
def test_reads_that_are_no_whole_events(name: str) -> None:
    one = wire(name, 40)
    for seed in range(40):
        chance = random.Random(seed)
        reads = []
        for event in canonical(b"".join(one.events), one.path or None, masked=seed % 2 == 0):
            cut = chance.randrange(len(event) + 1)
            broken = event[:cut] + chance.choice(_BROKEN) + event[cut:]
            reads += chance.choices(([event], [event[:cut], event[cut:]], [broken]), (7, 1, 1))[0]
        made = list(segments(reads, chance, masked=False, path=one.path or None))
        assert states(made, batched=True) == states(made, batched=False)


def test_the_dialects_with_most_of_the_traffic_declare_deltas() -> None:
    assert set(NAMES) == {"openai-chat", "openai-responses", "anthropic-messages", "gemini"}


# Data that together, with another line end or comma between them, could be read as other events than each by itself.
_DELTA = b'{"choices":[{"index":0,"delta":{"content":"a"}}]}'
_FORGED = (
    b'{"choices":[{"index":0,"delta":{"content":"a',
    b'b"}}]}',
    b'{"choices":[{"index":0,"delta":{"content":"a"}}]',
    b"}",
    b'{"x":[{}',
    b"{}]}",
    b"{}",
    b"",
    _DELTA + _DELTA,
    _DELTA + b"," + _DELTA,
    _DELTA + b" ",
    b" " + _DELTA,
    b'{"x":' + b"[" * 300 + b"]" * 300 + b"," + _DELTA[1:],
    b'{"x":' + b"9" * 5_000 + b"," + _DELTA[1:],
    b'{"x":"\\ud800",' + _DELTA[1:],
    b'{"x":"\xff",' + _DELTA[1:],
    b'{"choices":[],' + _DELTA[1:],
    b'{"choices":1,' + _DELTA[1:],
    _DELTA.replace(b'"index":0', b'"index":0.0'),
    _DELTA.replace(b'"index":0', b'"index":18446744073709551616'),
    _DELTA.replace(b'"index":0', b'"index":null'),
    _DELTA.replace(b'"a"', b'"a","content":null'),
    _DELTA.replace(b'"a"', b'""'),
    _DELTA.replace(b'"a"', b'"\\u00e9\\ud83d\\ude00"'),
)


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.one_of(st.just(_DELTA), st.sampled_from(_FORGED)), max_size=12), st.integers(0, 2**32))
def test_no_event_continues_in_the_next_one(data: list[bytes], seed: int) -> None:
    same([b"data: " + one + b"\n\n" for one in (_DELTA, _DELTA, *data, _DELTA)], seed, masked=False)
