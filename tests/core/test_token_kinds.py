"""Usage as disjoint kinds, whose sum is the whole whatever a provider reports."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.record import Usage
from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS, REPORTED, growth, reported_tokens, token_kinds
from tests.metrics.records import make_usage

NUMBERS = st.integers(0, 2**53)
USAGE = st.dictionaries(st.sampled_from([*REPORTED.values()]), st.one_of(st.integers(0, 20), NUMBERS))


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
    assert reported_tokens(make_usage(None, 5, reasoning_tokens=0)) == {"output": 5, "reasoning": 0}
    kinds = token_kinds({"cached": 5, "output": 0})
    assert (kinds.input, kinds.output) == ({"input_cached": 5}, {"output_text": 0})


def test_audio_is_apart_from_text_on_both_sides() -> None:
    kinds = token_kinds({"input": 120, "audio_input": 100, "output": 90, "audio_output": 70, "reasoning": 0})
    assert kinds.input == {"input_audio": 100, "input_uncached": 20}
    assert kinds.output == {"reasoning": 0, "output_audio": 70, "output_text": 20}


@given(st.lists(USAGE, max_size=6))
def test_counters_of_a_resumed_stream_add_up_to_the_most_that_was_reported(steps: list[dict[str, int]]) -> None:
    """Each step reports at least what the steps before did, as `ResumedUsage` keeps it."""
    counters: dict[str, int] = {}
    before: dict[str, int] = {}
    for step in steps:
        after = {**before, **{name: max(tokens, before.get(name, 0)) for name, tokens in step.items()}}
        old, new = token_kinds(before), token_kinds(after)
        for kind, tokens in (growth(old.input, new.input) | growth(old.output, new.output)).items():
            assert tokens > 0
            counters[kind] = counters.get(kind, 0) + tokens
        before = after
    if steps and "input" in steps[0]:
        assert sum(counters.get(kind, 0) for kind in INPUT_KINDS) == before["input"]
    if steps and "output" in steps[0]:
        assert sum(counters.get(kind, 0) for kind in OUTPUT_KINDS) == before["output"]
