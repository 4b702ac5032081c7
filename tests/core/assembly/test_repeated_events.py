"""Events that differ in their text alone are applied with one decoded event: the state is that of event-by-event reading."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.plain_deltas import PlainDeltas
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.stream import Stream
from streamgauge.core.capture.segments import Head, Read, Segment
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.dialects.typed_deltas import DeltaType, types_of
from tests.core.assembly.test_plain_deltas import MS, STALL_NS, same
from tests.streams import opening

# The bytes before and after a text: of chat, with and without spaces, and of Anthropic.
FRAMES = {
    "chat": (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"',
        b'"},"finish_reason":null}],"usage":null}\n\n',
    ),
    "spaces": (
        b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "',
        b'"}, "finish_reason": null}]}\n\n',
    ),
    # The name of the text is there twice, and the first one is no text of the delta.
    "twice": (b'data: {"id":"c","content":"x","choices":[{"index":0,"delta":{"content":"', b'"}}]}\n\n'),
    "later": (b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"', b'"},"content":"y"}]}\n\n'),
    "doubled": (b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x","content":"', b'"}}]}\n\n'),
    "escaped": (b'data: {"id":"c","\\"content":"x","choices":[{"index":0,"delta":{"cont\\u0065nt":"', b'"}}]}\n\n'),
    "arguments": (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"',
        b'"}}]}}]}\n\n',
    ),
    "anthropic": (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"',
        b'"}}\n\n',
    ),
}
STARTS = {
    "arguments": [
        b'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f",'
        b'"arguments":"{"}}]}}]}\n\n'
    ],
}
PIECES = st.sampled_from(
    (
        *(
            "a",
            " the",
            "\\n",
            '\\"',
            "\\\\",
            "\\",
            '"',
            '" "',
            '","x":"',
            "\\u00e9",
            "\\ud83d",
            "\\ude00",
            "é",
            "😀",
            "",
        ),
        *("{", "}", "[[", "\n\n", "\n", "\r", "\t", "\x00", "x" * 300),
        *('"},"finish_reason":"stop"}],"usage":null}', '"}}]}\n\ndata: {"id":"c"'),
    )
)
USUAL = st.sampled_from(["a", " the", "\\n", '\\"', "é", "😀", "{", "x" * 50, "\\u00e9", "\\\\"])


@given(
    st.sampled_from(sorted(FRAMES)),
    st.lists(st.one_of(USUAL, st.lists(PIECES, max_size=3).map("".join)), min_size=2, max_size=30),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_any_texts_in_equal_events(frame: str, texts: list[str], seed: int, is_other_between: bool) -> None:
    before, after = FRAMES[frame]
    events = [before + text.encode() + after for text in texts]
    if is_other_between:
        events.insert(seed % len(events), before.replace(b'"id":"c"', b'"id":"c","n":1') + b"x" + after)
    same([*STARTS.get(frame, []), before + b"first" + after, *events], seed, masked=False)


def _reads(events: Sequence[bytes], at_once: int = 1) -> list[Read]:
    joined = [b"".join(events[at : at + at_once]) for at in range(0, len(events), at_once)]
    return [Read((at + 1) * MS, len(content), len(content), content) for at, content in enumerate(joined)]


def _stream(reads: Sequence[Read]) -> Stream:
    stream = Stream(StreamState(bytes(16), bytes(16), 0, items={}), STALL_NS)
    stream.apply(Segment(bytes(16), 0, opening=opening(), head=Head(200, 0, event_stream=True), reads=list(reads)))
    stream.apply_pending_reads()
    return stream


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("frame", ["chat", "spaces", "anthropic"])
def test_most_events_are_not_decoded(frame: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = DeltaType.decode

    def counted(self: DeltaType, insides: Sequence[bytes]) -> list[Any]:
        decoded.append(len(insides))
        return decode(self, insides)

    monkeypatch.setattr(DeltaType, "decode", counted)
    before, after = FRAMES[frame]
    stream = _stream(_reads([before + b"some %d" % number + after for number in range(400)], at_once))
    assert stream.state.counts.token_events == 400
    assert sum(decoded) < 20


def test_an_event_that_differs_ends_the_run() -> None:
    before, after = FRAMES["chat"]
    text = types_of(BY_NAME["openai-chat"])[0]
    alike = [before + b"one" + after, before + b"t\\u00f6" + after, before + b"3" + after]
    other = before + b"four" + after.replace(b"null", b'"stop"', 1)
    found = text.repeats([*alike, other, before + b"five" + after], b"data: ")
    assert found is not None
    assert found[1] == ["one", "tö", "3"]
    # As long as the event before, so that what stands between the two is at the same place.
    shifted = before + b"fo" + after.replace(b"null", b'"st"', 1)
    found = text.repeats([*alike, shifted], b"data: ")
    assert found is not None
    assert found[1] == ["one", "tö", "3"]
    assert text.repeats([alike[0], other], b"data: ") is None
    assert text.repeats(alike[:1], b"data: ") is None


def test_a_string_that_is_not_the_text_is_no_text() -> None:
    text = types_of(BY_NAME["openai-chat"])[0]
    events = [
        b'data: {"content":"%d","choices":[{"index":0,"delta":{"content":"same"}}]}\n\n' % number for number in range(9)
    ]
    assert text.repeats(events, b"data: ") is None


def test_two_strings_are_no_text() -> None:
    text, (before, after) = types_of(BY_NAME["openai-chat"])[0], FRAMES["chat"]
    assert text.repeats([before + b"a" + after, before + b'b" "c' + after], b"data: ") is None


def test_refused_batches_are_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    take_reads = PlainDeltas.take_reads

    def counted(self: PlainDeltas, reads: Sequence[Read]) -> int:
        taken = take_reads(self, reads)
        tried.append(taken)
        return taken

    monkeypatch.setattr(PlainDeltas, "take_reads", counted)
    call = b'{"index":0,"id":"t","function":{"name":"f"}}'
    calls = b'data: {"id":"c","choices":[{"index":%%d,"delta":{"tool_calls":[%b]}}]}\n\n' % call
    _stream(_reads([calls % number for number in range(120)]))
    assert set(tried) == {0}
    assert len(tried) < 30
