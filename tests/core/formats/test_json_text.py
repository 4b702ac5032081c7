"""JSON as providers send it: nesting is counted where JSON has it, and not inside of strings."""

import json

import pytest

from streamgauge.core.formats.json_text import MAX_DEPTH, UNPARSED, parse

MANY = "[{" * MAX_DEPTH
# Strings whose end is not where the first quote stands.
STRINGS = [MANY, f'a"{MANY}', f"{MANY}\\", f'\\"{MANY}"\\', f'\\\\{MANY}\\"']


@pytest.mark.parametrize("text", STRINGS)
def test_brackets_in_a_string_are_no_nesting(text: str) -> None:
    value = {"a": text, "b": [text, [text]]}
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["a", *STRINGS])
@pytest.mark.parametrize(("levels", "is_read"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_a_value_is_read_up_to_so_many_levels(text: str, levels: int, is_read: bool) -> None:
    quoted = json.dumps(text)
    nested = f"[{quoted}," * levels + quoted + "]" * levels
    assert (parse(nested.encode()) is not UNPARSED) == is_read


@pytest.mark.parametrize("end", ["", "\\", '\\"', '"'])
def test_a_text_that_ends_early_is_no_json(end: str) -> None:
    assert parse(f'["{MANY}{end}'.encode()) is UNPARSED
