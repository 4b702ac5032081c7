"""Usage in every provider's fields: the last value that is present counts, nothing is summed, and missing is not zero."""

import pytest

from streamgauge.core.allowlist import apply_allowlist
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.record import Usage
from streamgauge.core.usage import UsageState, normalised, take

CHAT = BY_NAME["openai-chat"].usage
ANTHROPIC = BY_NAME["anthropic-messages"].usage


def chat(*given: object, final: bool = True) -> Usage:
    state = UsageState()
    for one in given:
        take(state, CHAT, one, final=final)
    return normalised(state, CHAT)


def test_nothing_seen_is_absent_and_null() -> None:
    usage = chat(None)
    assert (usage.source, usage.input_tokens, usage.output_tokens, usage.total_tokens) == ("absent", None, None, None)
    assert usage.raw is None


def test_an_explicit_zero_is_zero() -> None:
    usage = chat({"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3})
    assert (usage.output_tokens, usage.reasoning_tokens) == (0, None)


def test_running_totals_are_not_summed() -> None:
    usage = chat(*({"prompt_tokens": 3, "completion_tokens": n, "total_tokens": 3 + n} for n in range(9)))
    assert (usage.output_tokens, usage.total_tokens, usage.source) == (8, 11, "final")


def test_before_the_finish_it_is_partial() -> None:
    assert chat({"prompt_tokens": 3, "completion_tokens": 1}, final=False).source == "partial"


def test_the_total_decides_whether_output_includes_reasoning() -> None:
    inside = {"completion_tokens_details": {"reasoning_tokens": 12}}
    assert chat({"prompt_tokens": 506, "completion_tokens": 38, "total_tokens": 544} | inside).output_tokens == 38
    assert chat({"prompt_tokens": 506, "completion_tokens": 38, "total_tokens": 556} | inside).output_tokens == 50


def test_a_sum_that_does_not_hold_is_reported() -> None:
    usage = chat({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 9})
    assert (usage.total_tokens, usage.identity_failed) == (9, "input+output=total")


def test_a_cache_larger_than_input_is_not_part_of_it() -> None:
    usage = chat({"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 90}})
    assert (usage.input_tokens, usage.input_cached_tokens) == (100, 90)


@pytest.mark.parametrize("bad", [-1, True, 1.5, 2**53 + 1, 2**80, "7", [], {}])
def test_bad_values_are_counted_and_the_last_good_one_stays(bad: object) -> None:
    usage = chat({"prompt_tokens": 5, "completion_tokens": 6}, {"prompt_tokens": bad, "completion_tokens": 7})
    assert (usage.input_tokens, usage.output_tokens, usage.bad_values) == (5, 7, 1)
    assert usage.raw == {"prompt_tokens": 5, "completion_tokens": 7}


def test_an_input_that_falls_to_zero_is_a_placeholder() -> None:
    usage = chat({"prompt_tokens": 5, "completion_tokens": 1}, {"prompt_tokens": 0, "completion_tokens": 6})
    assert (usage.input_tokens, usage.output_tokens, usage.bad_values) == (5, 6, 1)


def test_an_output_that_falls_to_zero_is_zero() -> None:
    usage = chat({"prompt_tokens": 5, "completion_tokens": 6}, {"prompt_tokens": 5, "completion_tokens": 0})
    assert (usage.input_tokens, usage.output_tokens, usage.bad_values) == (5, 0, 0)


def test_one_count_of_input_may_fall_to_zero_beside_others() -> None:
    before = {"input_tokens": 100, "cache_read_input_tokens": 55_096, "output_tokens": 7}
    later = {"input_tokens": 181, "cache_read_input_tokens": 0, "output_tokens": 8}
    state = UsageState()
    take(state, ANTHROPIC, before, final=False, placeholder=True)
    take(state, ANTHROPIC, later, final=True)
    usage = normalised(state, ANTHROPIC)
    assert (usage.input_tokens, usage.input_cached_tokens, usage.bad_values) == (181, 0, 0)


@pytest.mark.parametrize("bad", ["all", 7, [], True])
def test_usage_that_is_no_object_is_a_bad_value(bad: object) -> None:
    usage = chat(bad)
    assert (usage.bad_values, usage.source, usage.raw) == (1, "absent", None)


def test_raw_holds_only_known_names() -> None:
    usage = chat(
        {"prompt_tokens": 1, "secret_name": 2, "cost": 0.5, "prompt_tokens_details": {"cached_tokens": 1, "x": "y"}}
    )
    assert usage.raw == {"prompt_tokens": 1, "cost": 0.5, "prompt_tokens_details": {"cached_tokens": 1}}


def test_anthropics_output_is_a_placeholder_until_a_delta_brings_it() -> None:
    state = UsageState()
    take(state, ANTHROPIC, {"input_tokens": 41, "output_tokens": 1}, final=False, placeholder=True)
    begun = normalised(state, ANTHROPIC)
    assert (begun.input_tokens, begun.output_tokens, begun.total_tokens, begun.source) == (41, None, None, "partial")
    take(state, ANTHROPIC, {"output_tokens": 0}, final=True)
    assert normalised(state, ANTHROPIC).output_tokens == 0


def test_anthropics_input_has_three_parts_and_grows() -> None:
    state = UsageState()
    take(state, ANTHROPIC, {"input_tokens": 727, "cache_read_input_tokens": 0}, final=False, placeholder=True)
    later = {
        "input_tokens": 1595,
        "cache_read_input_tokens": 14789,
        "cache_creation_input_tokens": 100,
        "output_tokens": 9,
    }
    take(state, ANTHROPIC, later | {"cache_creation": {"ephemeral_1h_input_tokens": 60}}, final=True)
    usage = normalised(state, ANTHROPIC)
    assert usage.input_tokens == 1595 + 14789 + 100
    assert (usage.input_cached_tokens, usage.input_cache_write_tokens, usage.input_cache_write_1h_tokens) == (
        14789,
        100,
        60,
    )
    assert usage.total_tokens == usage.input_tokens + 9


def test_anthropics_server_side_parts_are_reported_separately() -> None:
    state = UsageState()
    parts = [{"type": "message", "input_tokens": 1}, {"type": "compaction", "input_tokens": 100, "note": "no"}]
    take(state, ANTHROPIC, {"input_tokens": 181, "output_tokens": 4, "iterations": parts}, final=True)
    [part] = normalised(state, ANTHROPIC).parts
    assert (part["type"], part["input_tokens"]) == ("compaction", 100)
    assert "note" not in part


def test_the_speed_of_anthropics_fast_mode_is_kept_as_a_code() -> None:
    state = UsageState()
    take(state, ANTHROPIC, {"input_tokens": 5, "output_tokens": 1, "speed": "fast"}, final=False)
    take(state, ANTHROPIC, {"output_tokens": 7}, final=True)
    usage = normalised(state, ANTHROPIC)
    assert usage.raw == {"input_tokens": 5, "output_tokens": 7, "speed": "fast"}
    masked = apply_allowlist(BY_NAME["anthropic-messages"].keep, {"usage": {"speed": "as fast as you can"}})
    assert masked == {"usage": {"speed": "masked"}}
