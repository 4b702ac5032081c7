"""Events that are masked together give the same as events masked one by one, for any content and any pieces."""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from bench.wires import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.dialects import DIALECTS, endpoint_of
from streamgauge.core.formats.sse import split_blocks, write_event
from streamgauge.core.masking import masker
from streamgauge.core.masking.frames import Frame
from streamgauge.core.masking.masker import Masker
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.events import MaskedEvents
from tests.core.assembly.altered import alter, damage
from tests.each import each
from tests.vectors.load import vectors

NAMES = [dialect.name for dialect in DIALECTS]
NO_LIMIT = 1 << 40


def written(pieces: Sequence[bytes], path: str | None, *, frames: bool) -> list[bytes]:
    """The output for each piece, and at the end; with frames from three events on, or without frames."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(masker, "MIN_EVENTS", 3 if frames else NO_LIMIT)
        events = MaskedEvents(Masker(path, full=False), Budget(NO_LIMIT))
        done = events.feed_each(pieces) if frames else [events.feed(piece) for piece in pieces]
        return [*done, events.finish()]


def in_pieces(blocks: Sequence[bytes], chance: random.Random) -> Iterator[list[bytes]]:
    """Pieces that are processed together: of several events, one, or a part of one."""
    at = 0
    while at < len(blocks):
        together: list[bytes] = []
        whole = chance.random() < 0.7
        for _ in range(chance.choice((1, 8, 30))):
            size = chance.choice((1, 1, 1, 1, 2, 5, 16))
            piece = b"".join(blocks[at : at + size])
            cut = 0 if whole else chance.randrange(len(piece) + 1)
            together += [piece[:cut], piece[cut:]] if cut else [piece]
            at += size
        yield [piece for piece in together if piece]


def same(blocks: Sequence[bytes], path: str | None, seed: int) -> None:
    """The output in runs of pieces with frames equals the output in one piece without frames, byte for byte."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(masker, "MIN_EVENTS", 3)
        events = MaskedEvents(Masker(path, full=False), Budget(NO_LIMIT))
        together = [one for run in in_pieces(blocks, random.Random(seed)) for one in events.feed_each(run)]
        together.append(events.finish())
    assert b"".join(together) == b"".join(written(blocks, path, frames=False))


@each(product([b"\n", b"\r\n", b"\r"], NAMES))
def test_a_stream_of_each_dialect(case: tuple[bytes, str]) -> None:
    ends, name = case
    one = wire(name, 120)
    for seed in range(8):
        same([event.replace(b"\n", ends) for event in one.events], one.path or None, seed)


def test_every_vector() -> None:
    for vector in vectors():
        if vector.is_stream:
            blocks = [block + b"\n\n" for block in vector.body.replace(b"\r\n", b"\n").split(b"\n\n")]
            same(blocks, endpoint_of(vector.method, vector.target), len(vector.body))


FRAMED = (
    "openai-chat",
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "gemini",
    "gemini-interactions",
)


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", [*FRAMED, "anthropic-completions", "cohere-v2"])
def test_nearly_all_deltas_are_masked_without_decoding(name: str, ends: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whole reads, and in reads of a full socket buffer, which begin and end within an event."""
    looked: list[object] = []
    usual = Masker.mask
    monkeypatch.setattr(Masker, "mask", lambda self, events: looked.extend(events) or usual(self, events))  # type: ignore[func-returns-value]
    one = wire(name, 400)
    pieces = [event.replace(b"\n", ends) for event in one.events]
    whole = b"".join(pieces)
    for run in (pieces, [whole[at : at + 7_001] for at in range(0, len(whole), 7_001)]):
        looked.clear()
        events = MaskedEvents(Masker(one.path or None, full=False), Budget(NO_LIMIT))
        masked = b"".join(events.feed_each(run))
        assert len(looked) < 100
        assert masked == b"".join(written([whole], one.path or None, frames=False))


@settings(max_examples=4 * settings().max_examples)
@given(st.data(), st.sampled_from(NAMES), st.integers(0, 2**32))
def test_a_damaged_stream_is_masked_the_same(data: st.DataObject, name: str, seed: int) -> None:
    one = wire(name, 40)
    same(damage(data.draw, one.events), one.path or None, seed)  # type: ignore[arg-type]


@settings(max_examples=4 * settings().max_examples)
@given(st.data(), st.sampled_from(NAMES), st.integers(0, 2**32))
def test_an_altered_stream_is_masked_the_same(data: st.DataObject, name: str, seed: int) -> None:
    one = wire(name, 40)
    same([write_event(event) for event in alter(data.draw, one)], one.path or None, seed)  # type: ignore[arg-type]


def test_events_of_another_dialect_between_the_others() -> None:
    """Anthropic's events on a chat path, and the reverse, in one stream."""
    chat, messages = wire("openai-chat", 30).events, wire("anthropic-messages", 30).events
    for seed in range(20):
        same([*chat[:-1], *messages, *chat], "/chat/completions", seed)
        mixed = [event for pair in zip(chat, messages, strict=False) for event in pair]
        same(mixed, None, seed)


VALUES = (
    rb'"a"', rb'""', rb'"a b"', rb'"\n"', rb'"\""', rb'"\\"', rb'"\u00e9"', rb'"\ud83d\ude00"', rb'"\ud800"', '"é"'.encode(),
    '"\U0001f600"'.encode(), b'"\xc3"', b'"\x01"', b'"\x7f"', b'"x","y":"z"', b'"x"}', b'{"a":1}', b"[1,2]", b"null", b"true",
    b"0", b"7", b"12", b"-3", b"1.50", b"1e5", b"00", b"9007199254740993", b"123456789012345678901", b'"' + b"q" * 300 + b'"',
    b'"masked"', b'"chat.completion.chunk"', b'"text_completion"', b'"completed"', b"NaN", b'"' + b"x" * 64 + b'"', b" 1 ",
)  # fmt: skip


_PLACES = re.compile(rb'"(?:[^"\\]|\\.)*"|[0-9]+')


@st.composite
def templated(draw: st.DrawFn) -> list[bytes]:
    """Events of one stream in which the values of up to three members of one delta change."""
    one = wire(draw(st.sampled_from(NAMES)), 3)
    delta = draw(st.sampled_from([event for event in one.events if _PLACES.search(event)]))
    extra = draw(
        st.sampled_from((b"", b',"obfuscation":"a","n":1', b',"event_type":"b","reason":"c","object":"d","type":"e"'))
    )
    delta = delta[:-3] + extra + b"}\n\n" if delta.endswith(b"}\n\n") else delta
    places = [found.span() for found in _PLACES.finditer(delta)]
    chosen = sorted(draw(st.sets(st.sampled_from(places), min_size=1, max_size=3)))
    few = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    events = []
    for _ in range(draw(st.integers(4, 14))):
        event, at = b"", 0
        for begin, end in chosen:
            event += delta[at:begin] + draw(
                st.sampled_from(few) if draw(st.integers(0, 3)) else st.sampled_from(VALUES)
            )
            at = end
        events.append(event + delta[at:])
    return [*one.events[:2], *events, *one.events[2:]]


@settings(max_examples=8 * settings().max_examples)
@given(templated(), st.sampled_from([None, "/chat/completions", "/responses"]))
def test_any_value_at_any_place(blocks: list[bytes], path: str | None) -> None:
    expected = written(blocks, path, frames=False)
    assert written(blocks, path, frames=True) == expected
    with pytest.MonkeyPatch.context() as patched:  # and with a frame of earlier events
        patched.setattr(masker, "MIN_EVENTS", 3)
        events = MaskedEvents(Masker(path, full=False), Budget(NO_LIMIT))
        parted = [*events.feed_each(blocks[:6]), *map(events.feed, blocks[6:]), events.finish()]
    assert parted == expected


CHUNK = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%b"}}],"secret":"%b","n":%d}\n\n'


def test_padded_events_fit_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    usual = Masker.mask
    events = wire("anthropic-messages", 200).events
    padded = [event[:-3] + b" " * (place % 9) + event[-3:] for place, event in enumerate(events)]
    expected = written(events, "/messages", frames=False)
    monkeypatch.setattr(Masker, "mask", lambda self, events: looked.extend(events) or usual(self, events))  # type: ignore[func-returns-value]
    assert written(padded, "/messages", frames=True) == expected
    assert len(looked) < 30


def test_a_frame_applies_to_later_reads_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """One event at a time, after some that came together, until the stream shows another dialect."""
    looked: list[object] = []
    usual = Masker.mask
    monkeypatch.setattr(Masker, "mask", lambda self, events: looked.extend(events) or usual(self, events))  # type: ignore[func-returns-value]
    chat, other = wire("openai-chat", 100), wire("anthropic-messages", 3)
    masked = MaskedEvents(Masker(chat.path, full=False), Budget(NO_LIMIT))
    together = masked.feed_each(chat.events[:20])
    looked.clear()
    together += [masked.feed(event) for event in chat.events[20:90]]
    assert not looked
    together += [masked.feed(event) for event in [*other.events, *chat.events[40:50]]]
    everything = [*chat.events[:90], *other.events, *chat.events[40:50]]
    assert [*together, b""] == written(everything, chat.path, frames=False)


def test_values_are_masked_by_their_position() -> None:
    """Values that no path names stay masked; a text becomes as many code points."""
    blocks = [CHUNK % (b"ab" * n, b"key-%d" % n, n) for n in range(1, 20)]
    blocks.append(CHUNK % (rb"\u00e9\n" + "\u00fc".encode(), rb"\"quoted\"", 7))
    masked = b"".join(written(blocks, "/chat/completions", frames=True))
    assert b"key" not in masked
    assert b"quoted" not in masked
    assert masked.count(b'"masked_2":"masked"') == len(blocks)
    assert masked.endswith(b'"content":"xxx"}}],"masked_2":"masked","masked_3":0}\n\n')


def test_an_invalid_escape_in_a_masked_text_makes_the_event_unparsable() -> None:
    blocks = [CHUNK % (b"ab" * n, b"key-%d" % n, n) for n in range(1, 12)]
    for wrong in (rb"\3", rb"\u12", rb"a\ "):
        same([*blocks, CHUNK % (b"c", wrong, 5), *blocks], "/chat/completions", 0)


def test_a_member_that_identifies_another_dialect_is_no_place_of_a_frame() -> None:
    """The stream's own dialect masks the member, which it does not name; but one of its values identifies another
    dialect.
    """
    begin = wire("openai-chat", 3).events[:2]
    kinds = (b"a", b"b", b"c", b"step.delta", b"d", b"e")
    blocks = [b'data: {"event_type":"%b","text":"s"}\n\n' % kind for kind in kinds]
    same([*begin, *blocks, *blocks], "/chat/completions", 0)
    assert written([*begin, *blocks], None, frames=True) == written([*begin, *blocks], None, frames=False)


def test_a_frame_returns_none_for_events_that_do_not_fit() -> None:
    frame = Frame([b'data: {"a":"', b'","n":', b"}"], [True, False], [b'data: {"a":"', 0, b'","n":', 1, b"}\n\n"])
    fits = {b"te": b"xx", "é".encode(): b"x", rb"\"": b"x"}
    for text, letters in fits.items():
        assert frame.mask([b'data: {"a":"%b","n":12}' % text]) == [b'data: {"a":"%b","n":12}\n\n' % letters]
    wrong = [(b"", b"1"), (b'"', b"1"), (b"\x01", b"1"), (b"\xc3", b"1"), (rb"\ud800", b"1"), (rb"\x", b"1")]
    wrong += [(b"a", number) for number in (b"", b"0", b"01", b"-1", b"1.0", b"1e1", b"1" * 16, b"x", b"1 ")]
    blocks = [b'data: {"a":"%b","n":%b}' % values for values in wrong]
    assert frame.mask([*blocks, b'data: {"a":"', b'data: {"a":"b","m":1}', b""]) == [None] * (len(wrong) + 3)


FRAME = Frame([b'data: {"a":"', b'","n":', b"}"], [True, False], [b'data: {"a":"', 0, b'","n":', 1, b"}\n\n"])
EVENT, MASKED = b'data: {"a":"te","n":12}\n\n', b'data: {"a":"xx","n":12}\n\n'


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [3], [2, 1, 4]])
def test_a_frame_masks_contents_of_any_number_of_events(sizes: list[int]) -> None:
    masked, events = FRAME.mask_contents([EVENT * size for size in sizes])
    assert (masked, events) == ([MASKED * size for size in sizes], sum(sizes))


@pytest.mark.parametrize(
    "wrong",
    [
        b'data: {"a":"b","m":1}\n\n',
        b'data: {"a":"","n":1}\n\n',
        b'data: {"a":"b"c","n":1}\n\n',
        b'data: {"a":"b\nc","n":1}\n\n',
        b'data: {"a":"b","n":01}\n\n',
        b": comment\n\n",
        b"\n",
        b'data: {"a":"te","n":12}\r\n\r\n',
        b'data: {"a":"te","n":12}\n',
    ],
)
def test_a_frame_masks_no_content_in_which_an_event_does_not_fit(wrong: bytes) -> None:
    assert FRAME.mask_contents([wrong]) == ([], 0)
    assert FRAME.mask_contents([EVENT + wrong + EVENT]) == ([], 0)
    masked, events = FRAME.mask_contents([EVENT, EVENT + wrong])
    assert (masked, events) in (([MASKED], 1), ([], 0))


def test_contents_of_equal_events_are_masked_by_a_frame_without_places() -> None:
    frame = Frame([EVENT[:-2]], [], [MASKED])
    assert frame.mask_contents([EVENT * 2, EVENT]) == ([MASKED * 2, MASKED], 3)
    assert frame.mask_contents([EVENT, EVENT + b"\n", EVENT]) == ([MASKED], 1)


def test_contents_that_fit_the_latest_frame_are_not_split_into_events(monkeypatch: pytest.MonkeyPatch) -> None:
    one = wire("anthropic-messages", 400)
    deltas = [event for event in one.events if b"content_block_delta" in event]
    masked = MaskedEvents(Masker(one.path, full=False), Budget(NO_LIMIT))
    masked.feed_each(one.events[:30])
    split: list[bytes] = []
    monkeypatch.setattr(
        "streamgauge.recorder.events.split_blocks",
        lambda content: split.append(content) or split_blocks(content),  # type: ignore[func-returns-value]
    )
    for reads in (deltas, [b"".join(deltas[:100]), b"".join(deltas[100:])]):
        assert b"".join(masked.feed_each(reads)).count(b"content_block_delta") == 2 * len(deltas)
    assert not split
