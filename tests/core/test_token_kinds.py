"""Usage as disjoint kinds, whose sum is the whole whatever a provider reports."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.record import Usage
from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS, REPORTED, token_kinds

NUMBERS = st.integers(0, 2**53)
USAGE = st.dictionaries(st.sampled_from([*REPORTED.values(), "cache_write_1h"]), st.one_of(st.integers(0, 20), NUMBERS))


@given(USAGE)
def test_the_kinds_of_each_side_add_up_to_what_it_reports(reported: dict[str, int]) -> None:
    kinds = token_kinds(reported)
    assert set(kinds.input) <= set(INPUT_KINDS)
    assert set(kinds.output) <= set(OUTPUT_KINDS)
    assert all(tokens >= 0 for tokens in (*kinds.input.values(), *kinds.output.values()))
    if "input" in reported:
        assert sum(kinds.input.values()) == reported["input"]
    if "output" in reported:
        assert sum(kinds.output.values()) == reported["output"]


@given(USAGE)
def test_parts_that_fit_are_unchanged_and_others_are_counted(reported: dict[str, int]) -> None:
    kinds = token_kinds(reported)
    as_reported = {
        "input_cached": "cached", "input_cache_write": "cache_write", "input_audio": "audio_input",
        "reasoning": "reasoning", "output_audio": "audio_output",
    }  # fmt: skip
    changed = [
        kind for kind, name in as_reported.items()
        if name in reported and (kinds.input | kinds.output)[kind] != reported[name]
    ]  # fmt: skip
    assert bool(changed) == bool(kinds.above_whole or kinds.overlapping)


def test_every_reported_name_is_a_field_of_usage() -> None:
    assert set(REPORTED) <= set(Usage.__struct_fields__)


def test_anthropics_cache_is_inside_of_the_input() -> None:
    """As `core/usage.py` has normalised it: 3 new tokens, 800 read from the cache, 200 written to it."""
    kinds = token_kinds({"input": 1003, "cached": 800, "cache_write": 200, "output": 5})
    assert kinds.input == {"input_cached": 800, "input_cache_write": 200, "input_uncached": 3}
    assert kinds.output == {"output_text": 5}


def test_what_was_not_reported_is_missing() -> None:
    kinds = token_kinds({"cached": 5, "output": 0})
    assert (kinds.input, kinds.output) == ({"input_cached": 5}, {"output_text": 0})
