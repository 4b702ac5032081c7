"""JSON as providers send it: brackets inside strings do not count as nesting."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.json_text import MAX_DEPTH, UNPARSED, parse, parse_each

MANY = "[{" * MAX_DEPTH
# Strings that do not end at their first inner quote.
STRINGS = [MANY, f'a"{MANY}', f"{MANY}\\", f'\\"{MANY}"\\', f'\\\\{MANY}\\"']


@pytest.mark.parametrize("text", STRINGS)
def test_brackets_in_a_string_are_no_nesting(text: str) -> None:
    value = {"a": text, "b": [text, [text]]}
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["a", *STRINGS])
@pytest.mark.parametrize(("levels", "is_read"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_a_value_is_parsed_up_to_the_limit_of_nesting(text: str, levels: int, is_read: bool) -> None:
    quoted = json.dumps(text)
    nested = f"[{quoted}," * levels + quoted + "]" * levels
    assert (parse(nested.encode()) is not UNPARSED) == is_read


@pytest.mark.parametrize("end", ["", "\\", '\\"', '"'])
def test_a_text_that_ends_early_is_not_json(end: str) -> None:
    assert parse(f'["{MANY}{end}'.encode()) is UNPARSED


_PIECES = st.sampled_from(
    (
        *(
            b"{}",
            b"[1",
            b"2]",
            b'{"a":[1',
            b"2]}",
            b"{},{}",
            b"1 2",
            b'"a',
            b'b"',
            b",",
            b"",
            b" ",
            b"null",
            b"NaN",
            b"]",
        ),
        *(b"9007199254740999", b",9007199254740999,", b"[9007199254740999", b"9007199254740999.0", b"[" * 600, b"\n"),
        b'{"a":1,"a":2}',
    )
)


@given(st.lists(_PIECES | st.binary(max_size=4), max_size=8))
def test_texts_parsed_together_give_the_same_as_one_by_one(texts: list[bytes]) -> None:
    """No text runs into the next one, and no text adds a value to the list."""
    assert repr(parse_each(texts)) == repr([parse(text) for text in texts])
