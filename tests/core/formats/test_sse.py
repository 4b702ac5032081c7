"""sse.py against the HTML Standard's rules for event streams, implemented here a second time, plainly and literally."""

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.core.formats.sse import (
    MAX_EVENT_BYTES,
    MAX_RETRY_DIGITS,
    Event,
    SseDecoder,
)
from tests.core import cuts
from tests.core.formats.sse_streams import STREAMS, decode, decode_with_cuts, without_cut

# --- the standards, implemented literally ------------------------------------------------------------------------------


def utf8_decode(data: bytes) -> str:
    """The Encoding Standard's UTF-8 decoder (error mode replacement), state by state."""
    out, code_point, needed, seen, lower, upper = [], 0, 0, 0, 0x80, 0xBF
    index = 0
    while index < len(data):
        byte = data[index]
        index += 1
        if needed == 0:
            if byte <= 0x7F:
                out.append(chr(byte))
            elif 0xC2 <= byte <= 0xDF:
                needed, code_point = 1, byte & 0x1F
            elif 0xE0 <= byte <= 0xEF:
                lower = 0xA0 if byte == 0xE0 else lower
                upper = 0x9F if byte == 0xED else upper
                needed, code_point = 2, byte & 0xF
            elif 0xF0 <= byte <= 0xF4:
                lower = 0x90 if byte == 0xF0 else lower
                upper = 0x8F if byte == 0xF4 else upper
                needed, code_point = 3, byte & 0x7
            else:
                out.append("\ufffd")
            continue
        if not lower <= byte <= upper:
            code_point = needed = seen = 0
            lower, upper = 0x80, 0xBF
            index -= 1  # the byte is read again
            out.append("\ufffd")
            continue
        lower, upper = 0x80, 0xBF
        code_point = (code_point << 6) | (byte & 0x3F)
        seen += 1
        if seen == needed:
            out.append(chr(code_point))
            code_point = needed = seen = 0
    if needed:
        out.append("\ufffd")
    return "".join(out)


def whatwg_lines(text: str) -> list[str]:
    """Lines without their ends; the last element is the rest, which no line end follows."""
    lines, line, index = [], "", 0
    while index < len(text):
        char = text[index]
        index += 1
        if char == "\n" or char == "\r":  # noqa: PLR1714 - the standard's two branches
            if char == "\r" and text[index : index + 1] == "\n":
                index += 1
            lines.append(line)
            line = ""
        else:
            line += char
    return [*lines, line]


def whatwg(stream: bytes) -> list[tuple[str, str, str]]:
    """What the HTML Standard (9.2.6) dispatches: type, data, last event id."""
    text = utf8_decode(stream).removeprefix("\ufeff")
    dispatched = []
    data, kind, last_id, id_buffer = "", "", "", ""
    for line in whatwg_lines(text)[:-1]:
        if line == "":
            last_id = id_buffer
            if data != "":
                dispatched.append((kind, data.removesuffix("\n"), last_id))
            data, kind = "", ""
            continue
        if line.startswith(":"):
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data += value + "\n"
        elif field == "id" and "\0" not in value:
            id_buffer = value
    return dispatched


# --- helpers ---------------------------------------------------------------------------------------------------------


def dispatched(events: list[Event]) -> list[tuple[str, str, str]]:
    """Events as a browser dispatches them: those with data, and the last id so far."""
    out, last_id = [], ""
    for event in events:
        last_id = event.id if event.id is not None else last_id
        if event.data is not None:
            out.append((event.name, event.data.decode(), last_id))
    return out


# --- the standard, case by case --------------------------------------------------------------------------------------

CASES = {
    "three blocks of the standard's first example": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [("", "first event", "1"), ("", "second event", ""), ("", " third event", "")],
    ),
    "data alone dispatches, twice joins": (b"data\n\ndata\ndata\n\ndata:", [("", "", ""), ("", "\n", "")]),
    "with and without the space": (b"data:test\n\ndata: test\n\n", [("", "test", ""), ("", "test", "")]),
    "lines of data are joined": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("", "YHOO\n+2\n10", "")]),
    "a name": (b"event: add\ndata: 73857293\n\n", [("add", "73857293", "")]),
    "the last name counts": (b"event: a\nevent: b\ndata: x\n\n", [("b", "x", "")]),
    "a name does not last": (b"event: a\ndata: x\n\ndata: y\n\n", [("a", "x", ""), ("", "y", "")]),
    "a name alone dispatches nothing": (b"event: a\n\ndata: y\n\n", [("", "y", "")]),
    "only the first space goes": (b"data:  x\n\ndata:\tx\n\n", [("", " x", ""), ("", "\tx", "")]),
    "CR": (b"data: a\rdata: b\r\rdata: c\r\r", [("", "a\nb", ""), ("", "c", "")]),
    "CRLF": (b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", [("", "a\nb", ""), ("", "c", "")]),
    "LF CR is two lines": (b"data: a\n\rdata: b\n\r", [("", "a", ""), ("", "b", "")]),
    "mixed": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", [("", "a", ""), ("", "b", ""), ("", "c", "")]),
    "one byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [("", "a", "")]),
    "a second one is part of a field's name": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("", "b", "")]),
    "one further in as well": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [("", "a", "")]),
    "comments": (b":\n: x\ndata: a\n:y\ndata: b\n::\n\n", [("", "a\nb", "")]),
    "field names are exact": (b" data: a\n\ndata : b\n\nData: c\n\ndata: d\n\n", [("", "d", "")]),
    "colons in the value": (b"data: a:b: c\n\ndata::\n\n", [("", "a:b: c", ""), ("", ":", "")]),
    "ids last": (
        b"id: 1\ndata: a\n\ndata: b\n\nid: 2\n\ndata: c\n\n",
        [("", "a", "1"), ("", "b", "1"), ("", "c", "2")],
    ),
    "an empty id": (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [("", "a", "1"), ("", "b", "")]),
    "an id with NUL": (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [("", "a", "1"), ("", "b", "1")]),
    "NUL in data": (b"data: \0\n\n", [("", "\0", "")]),
    "what no blank line ends": (b"data: a\n\ndata: b\n", [("", "a", "")]),
    "blank lines": (b"\n\n\r\r\n\ndata: a\n\n\n\n\n", [("", "a", "")]),
    "bad UTF-8": (b"data: \xff\xc3(\xe2\x82\xac\xe2\x82\n\n", [("", "\ufffd\ufffd(€\ufffd", "")]),
    "surrogates and overlong forms": (b"data: \xed\xa0\x80\xc0\xaf\xf5\n\n", [("", "\ufffd" * 6, "")]),
    "other line separators are text": ("data: a\x0b\x0c\x85\u2028b\n\n".encode(), [("", "a\x0b\x0c\x85\u2028b", "")]),
}


@pytest.mark.parametrize("case", CASES)
def test_whatwg_case_at_every_split(case: str) -> None:
    stream, expected = CASES[case]
    assert whatwg(stream) == expected
    for pieces in cuts.every_way(stream):
        assert dispatched(decode(pieces)[0]) == expected


@given(STREAMS, cuts.places(200))
@example(b"data: a\r\n\r\n", [8, 10])
def test_any_stream_dispatches_as_the_standard_requires(stream: bytes, places: list[int]) -> None:
    assert dispatched(decode(cuts.at(stream, places))[0]) == whatwg(stream)


@given(STREAMS, cuts.places(200), st.integers(0, 30))
@example(b"data: unknown: y\nstreamgauge-oversized\n", [], 11)
@example(b"data: a\nstreamgauge-oversized-not\n", [], 12)
def test_splits_change_nothing_whatever_the_cap(stream: bytes, places: list[int], cap: int) -> None:
    whole = decode_with_cuts([stream], cap)
    assert decode_with_cuts(cuts.at(stream, places), cap) == whole
    assert decode_with_cuts([stream[index : index + 1] for index in range(len(stream))], cap) == whole


@pytest.mark.parametrize(
    ("digits", "retry"),
    [(b"10000", 10000), (b"007", 7), (b"0", 0), (b"1.5", None), (b"-1", None), (b"+1", None), (b"1 ", None),
     (b"", None),
     (b"\xd9\xa1", None), ("²".encode(), None), (b"9" * MAX_RETRY_DIGITS, 10**MAX_RETRY_DIGITS - 1),
     (b"1" + b"0" * MAX_RETRY_DIGITS, None), (b"0" * 10_000 + b"5", 5), (b"1" * 10_000, None)],
)  # fmt: skip
def test_retry_takes_ascii_digits(digits: bytes, retry: int | None) -> None:
    assert SseDecoder().feed(b"retry: " + digits + b"\n\n") == [Event(retry=retry)]


def test_an_invalid_retry_keeps_the_valid_one() -> None:
    assert SseDecoder().feed(b"retry: 5\nretry: x\n\n") == [Event(retry=5)]


def test_an_event_is_returned_with_the_cr_that_ends_its_blank_line() -> None:
    decoder = SseDecoder()
    assert [decoder.feed(piece) for piece in (b"data: a", b"\r", b"\n", b"\r", b"\n", b"\r", b"\n")] == [
        [], [], [], [Event(data=b"a")], [], [], [],
    ]  # fmt: skip


# --- beyond dispatch -------------------------------------------------------------------------------------------------


def test_blocks_that_dispatch_nothing_are_returned_too() -> None:
    stream = b": a\n:\n\nid: 7\n\nunknown: x\n\nevent: e\n\nretry: 3\n\n"
    assert SseDecoder().feed(stream) == [
        Event(comments=2),
        Event(id="7"),
        Event(),
        Event(name="e"),
        Event(retry=3),
    ]


def test_the_error_field_is_kept() -> None:
    assert SseDecoder().feed(b'error: {"code":500}\n\ndata: x\nerror\n\n') == [
        Event(error=b'{"code":500}'),
        Event(data=b"x", error=b""),
    ]


BARE = b'{\n  "error": {\n    "code": 503\n  }\n}'


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_bare_json_between_events_is_kept(end: bytes) -> None:
    stream = (b"data: a\n\n: c\n" + BARE + b"\n\ndata: b\n\n").replace(b"\n", end)
    for pieces in cuts.every_way(stream):
        assert decode(pieces) == ([Event(data=b"a"), Event(comments=1, bare=BARE), Event(data=b"b")], None)


def test_bare_json_at_the_end_of_input() -> None:
    for end in (b"", b"\n"):
        assert decode([b"data: a\n\n" + BARE + end]) == ([Event(data=b"a")], Event(bare=BARE))


@pytest.mark.parametrize(
    ("block", "event"),
    [(b'[{"error": 1}]', Event(bare=b'[{"error": 1}]')), (b"x\n{", Event()), (b"data: a\n{", Event(data=b"a")),
     (b" {", Event()),
     (b"{\ndata: a\n}", Event(data=b"a", bare=b"{\n}")), (b"{\xff", Event(bare=b"{\xef\xbf\xbd"))],
)  # fmt: skip
def test_only_a_block_that_begins_with_a_bracket_is_bare(block: bytes, event: Event) -> None:
    assert SseDecoder().feed(block + b"\n\n") == [event]


@pytest.mark.parametrize(
    ("tail", "pending"),
    [(b"", None), (b"\n", None), (b": c", None), (b": c\n", None), (b"data: [DONE]", Event(data=b"[DONE]")),
     (b"data: [DONE]\n", Event(data=b"[DONE]")), (b"data: [DONE]\r\n", Event(data=b"[DONE]")),
     (b'data: {"a', Event(data=b'{"a')),
     (b"dat", Event()), (b"d\r", Event()), (b":c\ndata: a\n:d", Event(data=b"a", comments=2)),
     (b"event: e\ndata", Event("e", b"")),
     (b"id: 4", Event(id="4")), (b"\xef\xbb", Event()), (b"\xef\xbb\xbf", None),
     (b"data: \xe2\x82", Event(data=b"\xef\xbf\xbd"))],
)  # fmt: skip
def test_finish_returns_the_pending_block(tail: bytes, pending: Event | None) -> None:
    for pieces in cuts.every_way(tail):
        assert decode(pieces) == ([], pending)
    if not tail.startswith(b"\xef"):
        assert decode([b"data: x\n\n" + tail]) == ([Event(data=b"x")], pending)


def test_pending_comments_are_counted() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: x\n\n: a\n: b\n: half")
    assert decoder.comments_pending == 2
    assert decoder.finish() is None


# --- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "over"), [(99, False), (100, True), (5000, True)])
def test_only_the_event_over_the_cap_loses_its_content(size: int, over: bool) -> None:
    stream = b"data: a\n\nid: 3\nevent: big\n: c\ndata: " + b"x" * (size - 6) + b"\nid: 4\n\ndata: b\n\n"
    big = Event("big", id="3", comments=1, oversized=True) if over else Event("big", b"x" * (size - 6), "4", comments=1)
    for pieces in ([stream], [stream[index : index + 1] for index in range(len(stream))], cuts.at(stream, [30, 90])):
        assert decode(pieces, 102) == ([Event(data=b"a"), big, Event(data=b"b")], None)


def test_the_lines_of_an_event_count_together_without_its_comments() -> None:
    lines = b"data: 12345\n" * 10
    assert decode([lines + b"\n"], 60) == ([Event(data=b"\n".join([b"12345"] * 10))], None)
    assert decode([lines + b"\n"], 59) == ([Event(oversized=True)], None)
    assert decode([b": 12345\n" * 1000 + b"data: a\n\n"], 59) == ([Event(data=b"a", comments=1000)], None)


def test_finish_returns_an_oversized_event_that_never_ends() -> None:
    assert decode([b"event: e\ndata: " + b"x" * 100], 50) == ([], Event("e", oversized=True))


@pytest.mark.parametrize("line", [b"data: ", b"unknown", b": ", b"{", b"id: ", b"\xff"])
def test_a_line_that_never_ends_does_not_grow_memory(line: bytes) -> None:
    decoder = SseDecoder()
    block = b"\xff" * 65536
    tracemalloc.start()
    decoder.feed(line)
    for _ in range(1600):  # 100 MiB
        assert decoder.feed(block) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * MAX_EVENT_BYTES
    expected = Event(comments=1) if line == b": " else Event(oversized=True)
    assert list(map(without_cut, decoder.feed(b"\n\ndata: a\n\n"))) == [expected, Event(data=b"a")]


@pytest.mark.slow
def test_lines_that_never_end_in_a_blank_one_do_not_grow_memory() -> None:
    cap = MAX_EVENT_BYTES // 16
    decoder = SseDecoder(cap)
    block = b"data: 0123456789abcdef\r\n: c\r\nunknown: 1\r\n" * 256
    tracemalloc.start()
    for _ in range(100):
        assert decoder.feed(block) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * cap
    last = decoder.finish()
    assert last is not None
    assert without_cut(last) == Event(comments=100 * 256, oversized=True)
