"""Forms: what events of one form say, many at a time, up to one of another form."""

import itertools
import json
import re
from itertools import takewhile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.core.assembly import forms
from streamgauge.core.assembly.forms import Form, Hole, Lines, Run, Texts, Values, are_insides, same, split_at_blanks
from streamgauge.core.formats.sse import MAX_EVENT_BYTES

PLAIN = Texts(b'data: {"d":"', b'"}\n\n').read
COUNTED = Values(
    [b"id: ", b'\ndata: {"d":"', b'","n":', b"}\n\n"], [(Hole.ID, ()), (Hole.TEXT, ()), (Hole.USAGE, ("n",))]
).read


def plain(text: str) -> bytes:
    return b'data: {"d":"%b"}\n\n' % text.encode()


def counted(text: str, number: int) -> bytes:
    return b'id: e-%d\ndata: {"d":"%b","n":%d}\n\n' % (number, text.encode(), number)


@pytest.mark.parametrize(
    "other", [b"", b"data: [DONE]\n\n", b'data: {"d":"x"}', b'data: {"d":""}\n\n', b"\0", plain("\0")]
)
@pytest.mark.parametrize("before", [0, 1, 2, 5, 40])
def test_texts_are_read_up_to_another_form(before: int, other: bytes) -> None:
    blocks = [plain("ab")] * before
    wanted = Run(before, None, "ab" * before) if before else None
    assert shortened(PLAIN, [*blocks, other, plain("c")]) == wanted


@pytest.mark.parametrize(
    "other", [b"", b"data: [DONE]\n\n", counted("x", 7)[:-2], counted("x", 7).replace(b"7}", b"07}")]
)
@pytest.mark.parametrize("before", [0, 1, 2, 5, 40])
def test_values_are_read_up_to_another_form(before: int, other: bytes) -> None:
    blocks = [counted("ab", number) for number in range(1, before + 1)]
    last = b"e-%d" % before
    wanted = Run(before, None, "ab" * before, last, None, [(("n",), before)]) if before else None
    assert shortened(COUNTED, [*blocks, other, counted("c", 99)]) == wanted


def shortened(read: Form, blocks: list[bytes]) -> Run | None:
    """What is read of them; about as many as fit may be half of these where the first that does not is nearly one."""
    run = read(blocks)  # type: ignore[call-arg]
    while run is not None and (more := read(blocks[run.reads :])) is not None:  # type: ignore[call-arg]
        run = Run(run.reads + more.reads, None, run.text + more.text, more.id, more.sequence, more.usage)
    return run


def test_escapes_and_characters_are_decoded() -> None:
    assert PLAIN([plain(r"a\n"), plain("é"), plain(r"é\"")]) == Run(3, None, 'a\néé"')
    assert PLAIN([plain("a"), b'data: {"d":"\xc3"}\n\n']) == Run(1, None, "a")


# Every text of up to so many of these: plain, an escape, a quote, a separator, other control characters, half a character.
ALPHABET = (b"a", b"\\", b'"', b"\0", b"\n", b"\xc3")
LONGEST = 5


def short_texts() -> list[bytes]:
    return [b"".join(text) for size in range(LONGEST + 1) for text in itertools.product(ALPHABET, repeat=size)]


def is_inside(text: bytes) -> bool:
    """Whether a text may stand between quotes: no control character, no quote but an escaped one, no half escape."""
    at = 0
    while at < len(text):
        escapes = text[at : at + 1] == b"\\"
        taken = text[at + escapes : at + escapes + 1]
        if not taken or taken < b" " or (taken == b'"' and not escapes):
            return False
        at += 1 + escapes
    return text != b""


def test_the_pattern_of_a_text_matches_texts_and_nothing_else() -> None:
    pattern = re.compile(forms._PATTERNS[Hole.TEXT], re.DOTALL)
    for text in short_texts():
        assert (pattern.fullmatch(text) is not None) == is_inside(text), text


def test_no_text_among_others_is_taken_for_one_that_it_is_not() -> None:
    for text in short_texts():
        for texts in ([text], [b"a", text], [text, b"a"], [b"\\n", text, b"\xc3\xa9"]):
            assert are_insides(texts) == all(map(is_inside, texts)), texts
    assert not are_insides([])


@pytest.mark.parametrize("before", ["a", "é", r"\n", "日本"])
def test_f0_an_empty_text_ends_what_is_read_at_once(before: str) -> None:
    blocks = [plain(before), plain(before), plain(""), plain("a")]
    assert shortened(PLAIN, blocks) == Run(2, None, json.loads(f'"{before}"') * 2)
    assert shortened(PLAIN, blocks[:3]) == Run(2, None, json.loads(f'"{before}"') * 2)


NUMBERED = Values([b'data: {"n":', b',"d":"', b'"}\n\n'], [(Hole.NUMBER, ()), (Hole.TEXT, ())])
NUMBERS = st.one_of(st.integers().map(str), st.floats().map(repr), st.text("019.eE+-", max_size=6))


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(["a", "bc", r"\n", "é", "", "\\", "\1"])), min_size=1, max_size=12))
def test_numbers_and_texts_are_what_json_has(values: list[tuple[str, str]]) -> None:
    blocks = [b'data: {"n":%b,"d":"%b"}\n\n' % (number.encode(), text.encode()) for number, text in values]
    fitting = list(takewhile(is_delta, blocks))
    text = "".join(json.loads(block[6:])["d"] for block in fitting)
    assert shortened(NUMBERED.read, blocks) == (Run(len(fitting), None, text) if fitting else None)
    assert [NUMBERED.one(block) is not None for block in blocks] == [is_delta(block) for block in blocks]


LINE_HOLES: list[tuple[Hole, tuple[str | int, ...]]] = [(Hole.ID, ()), (Hole.LINE, ())]
LINE_LITERALS = [[b"event: o\nid: ", b"\ndata: ", end] for end in (b"\n\n", b"")]
PIECES = st.sampled_from(
    ["a", "7:1", "é", " ", '"', "\\", "\n", "\r", "\0", "\t", "\ndata: ", "\n\nevent: o\nid: ", "\nid: 2"]
)
# Where a separator stands outside of lines as well, their values say less.
OTHERS = st.binary(max_size=5).filter(lambda other: b"\0" not in other)
LINES = st.tuples(*[st.lists(PIECES, max_size=2).map("".join)] * 2, st.sampled_from(["\ndata: "] * 3 + [""]))


A_LINE, NO_LINE = ("2", "b", "\ndata: "), ("2", "", "")


@example(LINE_LITERALS[0], [("1", "a", ""), ("2", "b\ndata: c", "\ndata: ")], b"", 0)  # as many literals, elsewhere
@example(LINE_LITERALS[0], [A_LINE], b"event: x\nid: 1\ndata: a\n\n", 0)  # of another name
@example(LINE_LITERALS[0], [A_LINE], b"event: o\nid: 2\ndata: bcdefg", 2)  # no end
@example(LINE_LITERALS[0], [A_LINE, NO_LINE], b"", 0)
@example(LINE_LITERALS[0], [('"', "a", "\ndata: ")], b"", 0)  # no id
@example(LINE_LITERALS[0], [("2", "a\rb", "\ndata: ")], b"", 0)  # two lines
@example(LINE_LITERALS[0], [("2", "x" * MAX_EVENT_BYTES, "\ndata: ")], b"", 0)  # over the cap
@example(LINE_LITERALS[1], [NO_LINE, A_LINE], b"x\ndata: b\ndata: c\ndata: d", 2)  # as many values, of other events
@given(
    st.sampled_from(LINE_LITERALS),
    st.lists(LINES, min_size=1, max_size=8),
    st.just(b"") | OTHERS,
    st.integers(0, 9),
)
def test_lines_say_what_their_values_say(
    literals: list[bytes], events: list[tuple[str, str, str]], other: bytes, at: int
) -> None:
    begin, gap, end = literals
    blocks = [begin + "".join((event_id, between, line)).encode() + end for event_id, line, between in events]
    blocks = [begin + b"1" + gap + b"a" + end, *blocks]
    if other:
        blocks.insert(at, other)
    lines, values = Lines(literals, LINE_HOLES), Values(literals, LINE_HOLES)
    assert shortened(lines.read, blocks) == shortened(values.read, blocks)
    assert lines.one(blocks[0]) == values.one(blocks[0])


def is_delta(block: bytes) -> bool:
    """Whether its JSON can be decoded, its number as well, and its text is not empty."""
    try:
        return json.loads(block[6:], parse_constant=int)["d"] != ""
    except ValueError:
        return False


def test_a_copy_says_the_same_or_the_event_is_of_another_form() -> None:
    read = Values([b'data: ["', b'","', b'"]\n\n'], [(Hole.TEXT, ()), (Hole.COPY, ())]).read
    assert read([b'data: ["a","a"]\n\n']) == Run(1, None, "a")
    assert read([b'data: ["a","b"]\n\n']) is None


@given(st.binary(max_size=40), st.binary(max_size=10), st.binary(max_size=10), st.integers(1, 100))
def test_what_two_texts_share_at_their_beginning(start: bytes, one: bytes, other: bytes, times: int) -> None:
    one, other = start * times + one, start * times + other
    shared = next((at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    assert same(one, other) == shared


def test_blocks_are_split_at_blank_lines() -> None:
    assert split_at_blanks(b"a\n\nb\nc\n\n") == [b"a", b"b\nc", b""]


@pytest.mark.parametrize("at", [0, 3, 19])
def test_a_separator_inside_of_an_event_ends_no_event(at: int) -> None:
    """`data: a NUL b` is no `data: a`, wherever events are cut."""
    read = Values([b"id: ", b"\ndata: ", b""], [(Hole.ID, ()), (Hole.LINE, ())]).read
    blocks = [b"id: e%d\ndata: ab" % number for number in range(20)]
    blocks[at] = b"id: e%d\ndata: a\0b" % at
    found = read(blocks)
    assert found is None or found.reads <= at
    blocks[at] = b"id: e%d\ndata: a\0id: e\ndata: b" % at
    found = read(blocks)
    assert found is None or found.reads <= at
