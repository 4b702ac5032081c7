"""Usage in every provider's fields: the last value that is present counts, nothing is summed, and missing is not zero."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.allowlist import apply_allowlist
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.record import Usage
from streamgauge.core.usage import UsageState, normalised, take

# What each format calls input and output, and what of its usage is the total, if it has one.
NAMES: Mapping[str, tuple[str, str, str | None]] = {
    "openai-chat": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "openai-completions": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "openai-responses": ("input_tokens", "output_tokens", "total_tokens"),
    "anthropic-messages": ("input_tokens", "output_tokens", None),
    "gemini": ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
    "gemini-interactions": ("total_input_tokens", "total_output_tokens", "total_tokens"),
    "cohere-v2": ("tokens.input_tokens", "tokens.output_tokens", None),
    "llama-cpp-native": ("tokens_evaluated", "tokens_predicted", None),
    "tgi-native": ("input_length", "generated_tokens", None),
}
CHAT = BY_NAME["openai-chat"].usage
ANTHROPIC = BY_NAME["anthropic-messages"].usage


def chat(*given: object, final: bool = True, token_events: int = 0) -> Usage:
    return of("openai-chat", *given, final=final, token_events=token_events)


def of(dialect: str, *given: object, final: bool = True, token_events: int = 0) -> Usage:
    """What the usages of a stream of this format say, one after the other."""
    rules, state = BY_NAME[dialect].usage, UsageState()
    for one in given:
        take(state, rules, one, final=final)
    return normalised(state, rules, token_events=token_events)


def told(dialect: str, input_tokens: int | None, output: int | None, total: int | None = None) -> dict[str, Any]:
    """A usage of this format. A count that is None, and a total that the format does not have, is left out."""
    made: dict[str, Any] = {}
    for path, count in zip(NAMES[dialect], (input_tokens, output, total), strict=True):
        if path is not None and count is not None:
            outer, _, inner = path.rpartition(".")
            (made.setdefault(outer, {}) if outer else made)[inner] = count
    return made


every = pytest.mark.parametrize("dialect", NAMES)


@every
def test_zeros_after_the_usage_change_nothing(dialect: str) -> None:
    real, zeros = told(dialect, 12, 7, 19), told(dialect, 0, 0, 0)
    usage = of(dialect, real, zeros, token_events=3)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (12, 7, 19)
    assert (usage.identity_failed, usage.source, usage.raw) == (None, "final", real)
    assert usage.bad_values == 2 + (NAMES[dialect][2] is not None)


@every
def test_zeros_before_the_usage_change_nothing(dialect: str) -> None:
    usage = of(dialect, told(dialect, 0, 0, 0), told(dialect, None, None, 0), told(dialect, 12, 7, 19), token_events=3)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.bad_values) == (12, 7, 19, 0)


@every
@pytest.mark.parametrize("token_events", [0, 3])
def test_zeros_alone_are_no_usage(dialect: str, token_events: int) -> None:
    usage = of(dialect, told(dialect, 0, 0, 0), token_events=token_events)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (None, None, None)
    assert (usage.source, usage.raw) == ("absent", None)
    assert usage.bad_values == 2 + (NAMES[dialect][2] is not None)


@pytest.mark.parametrize("dialect", [name for name, names in NAMES.items() if names[2]])
def test_a_total_of_zero_alone_is_no_usage(dialect: str) -> None:
    usage = of(dialect, told(dialect, None, None, 0), told(dialect, None, None, 0))
    assert (usage.input_tokens, usage.total_tokens, usage.source, usage.bad_values) == (None, None, "absent", 1)
    beside = of(dialect, told(dialect, 45, 13, 0), token_events=1)
    assert (beside.total_tokens, beside.identity_failed, beside.bad_values) == (58, None, 1)


@every
def test_an_input_of_zero_is_not_known(dialect: str) -> None:
    usage = of(dialect, told(dialect, 0, 62), token_events=1)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.bad_values) == (None, 62, None, 1)
    assert usage.identity_failed is None
    told_before = of(dialect, told(dialect, 9, 1), told(dialect, 0, 62), token_events=1)
    assert (told_before.input_tokens, told_before.output_tokens, told_before.bad_values) == (9, 62, 1)


@every
def test_an_output_of_zero_beside_token_events_is_not_known(dialect: str) -> None:
    usage = of(dialect, told(dialect, 12, 0), token_events=1)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.bad_values) == (12, None, None, 1)
    without_tokens = of(dialect, told(dialect, 12, 0))
    assert (without_tokens.output_tokens, without_tokens.total_tokens, without_tokens.bad_values) == (0, 12, 0)
    told_before = of(dialect, told(dialect, 12, 6), told(dialect, 12, 0), token_events=1)
    assert (told_before.output_tokens, told_before.bad_values) == (6, 1)


def test_an_input_of_zero_beside_a_cache_is_one() -> None:
    """All of it was read from the cache, or written to it."""
    read = of("anthropic-messages", {"input_tokens": 0, "cache_read_input_tokens": 14, "output_tokens": 3})
    assert (read.input_tokens, read.bad_values) == (14, 0)
    later = {"input_tokens": 0, "cache_read_input_tokens": 14, "output_tokens": 3}
    assert of("anthropic-messages", {"input_tokens": 9, "output_tokens": 1}, later).input_tokens == 14
    assert chat({"prompt_tokens": 0, "completion_tokens": 3, "cache_creation_input_tokens": 40}).input_tokens == 40


def test_an_input_that_falls_to_zero_beside_a_cache_that_it_includes() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 3}}
    usage = chat({"prompt_tokens": 5, "completion_tokens": 1} | details, {"prompt_tokens": 0} | details)
    assert (usage.input_tokens, usage.input_cached_tokens, usage.bad_values) == (5, 3, 1)
    tools = {"toolUsePromptTokenCount": 8, "candidatesTokenCount": 2}
    usage = of("gemini", {"promptTokenCount": 5} | tools, {"promptTokenCount": 0} | tools)
    assert (usage.input_tokens, usage.bad_values) == (13, 1)


def test_what_is_a_part_falls_with_the_whole() -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 1},
    }
    zeros = {name: dict.fromkeys(inner, 0) for name, inner in details.items()}
    whole = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
    usage = chat(whole | details, dict.fromkeys(whole, 0) | zeros, token_events=1)
    assert usage.raw == whole | details
    assert (usage.input_cached_tokens, usage.reasoning_tokens, usage.audio_output_tokens) == (4, 3, 1)
    assert usage.bad_values == 7
    modalities = {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 9}]}
    zero = {"promptTokenCount": 0, "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 0}]}
    assert of("gemini", {"promptTokenCount": 9} | modalities, zero).audio_input_tokens == 9
    # Beside a positive output a part of it may fall to 0.
    parts = ({"completion_tokens": 7, "reasoning_tokens": 3}, {"completion_tokens": 8, "reasoning_tokens": 0})
    assert chat(*parts).reasoning_tokens == 0


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-completions", "openai-responses"])
def test_of_several_places_of_a_count_the_first_positive_one_counts(dialect: str) -> None:
    base = {"prompt_tokens": 2459, "completion_tokens": 23}
    for details in ("prompt_tokens_details", "input_tokens_details"):
        cached = {details: {"cached_tokens": 0}, "cache_read_input_tokens": 2455}
        assert of(dialect, base | cached).input_cached_tokens == 2455
        assert of(dialect, base | {details: {"cached_tokens": 7}, "cached_tokens": 0}).input_cached_tokens == 7
    assert of(dialect, base | {"cached_tokens": 0, "prompt_cache_hit_tokens": 0}).input_cached_tokens == 0
    assert of(dialect, base | {"input_tokens": 0, "output_tokens": 0}).total_tokens == 2482
    reasoning = {"completion_tokens_details": {"reasoning_tokens": 0}, "reasoning_tokens": 9}
    assert of(dialect, base | reasoning).reasoning_tokens == 9


def test_of_several_places_of_a_count_in_other_formats() -> None:
    usage = of("cohere-v2", {"tokens": {"input_tokens": 0}, "billed_units": {"input_tokens": 12, "output_tokens": 3}})
    assert (usage.input_tokens, usage.output_tokens) == (12, 3)
    assert of("gemini", {"candidatesTokenCount": 0, "responseTokenCount": 4}).output_tokens == 4
    assert of("gemini-interactions", {"total_thought_tokens": 0, "total_reasoning_tokens": 4}).reasoning_tokens == 4
    details = {"thinking_tokens": 0, "reasoning_tokens": 4}
    assert of("anthropic-messages", {"output_tokens": 9, "output_tokens_details": details}).reasoning_tokens == 4


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-completions", "openai-responses"])
@pytest.mark.parametrize(
    "name",
    [
        *("cache_write_tokens", "cache_creation_input_tokens", "cached_creation_tokens", "cache_creation_tokens"),
        "prompt_cache_write_tokens",
    ],
)
@pytest.mark.parametrize("details", ["prompt_tokens_details", "input_tokens_details"])
def test_cache_writes_in_the_details(dialect: str, name: str, details: str) -> None:
    usage = of(dialect, {"prompt_tokens": 1904, "completion_tokens": 5, details: {name: 1889, "cached_tokens": 0}})
    assert (usage.input_tokens, usage.input_cache_write_tokens, usage.input_cached_tokens) == (1904, 1889, 0)
    assert (usage.identity_failed, usage.bad_values) == (None, 0)


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize(
    "name",
    ["cache_creation_input_tokens", "cached_creation_tokens", "prompt_cache_write_tokens", "cache_write_tokens"],
)
def test_cache_writes_beside_the_counts(dialect: str, name: str) -> None:
    usage = of(dialect, {"prompt_tokens": 1904, "completion_tokens": 5, name: 1889})
    assert (usage.input_tokens, usage.input_cache_write_tokens) == (1904, 1889)


def test_the_part_of_a_cache_write_that_is_kept_for_an_hour() -> None:
    written = {"cache_creation_input_tokens": 30, "cache_creation": {"ephemeral_1h_input_tokens": 20}}
    for usage in ({"prompt_tokens_details": written}, written):
        made = chat({"prompt_tokens": 40, "completion_tokens": 5} | usage)
        assert (made.input_cache_write_tokens, made.input_cache_write_1h_tokens) == (30, 20)


@pytest.mark.parametrize("whole", [{}, {"cache_creation_input_tokens": 0}])
def test_a_cache_write_that_only_its_parts_tell(whole: dict[str, int]) -> None:
    parts = whole | {"cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20}}
    usage = of("anthropic-messages", {"input_tokens": 3, "output_tokens": 1} | parts)
    assert (usage.input_tokens, usage.input_cache_write_tokens, usage.input_cache_write_1h_tokens) == (53, 50, 20)
    for inside in (parts, {"prompt_tokens_details": parts}):
        usage = chat({"prompt_tokens": 60, "completion_tokens": 1} | inside)
        assert (usage.input_tokens, usage.input_cache_write_tokens) == (60, 50)
    assert chat({"prompt_tokens": 60} | whole).input_cache_write_tokens == whole.get("cache_creation_input_tokens")


def test_anthropics_usage_under_the_names_of_chat() -> None:
    usage = of("anthropic-messages", {"prompt_tokens": 12, "completion_tokens": 0}, {"completion_tokens": 5})
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (12, 5, 17)


def test_more_tokens_written_than_the_input_has_lie_outside_of_it() -> None:
    written = {"prompt_tokens": 6, "completion_tokens": 2745, "cache_creation_input_tokens": 159_217}
    assert chat(written).input_tokens == 159_223
    assert chat(written | {"cache_read_input_tokens": 4}).input_tokens == 159_227  # with what was read
    details = {"input_tokens": 6, "output_tokens": 1, "input_tokens_details": {"cache_write_tokens": 7}}
    assert of("openai-responses", details).input_tokens == 13
    equal = {"prompt_tokens": 6, "completion_tokens": 1, "cache_creation_input_tokens": 6}
    assert chat(equal).input_tokens == 6
    assert chat(written | {"total_tokens": 2751}).identity_failed == "input+output=total"


def test_the_total_shows_a_cache_outside_of_the_input() -> None:
    usage = chat(
        {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 240, "cache_read_input_tokens": 80}
        | {"cache_creation_input_tokens": 50}
    )
    assert (usage.input_tokens, usage.output_tokens, usage.identity_failed) == (230, 10, None)


@pytest.mark.parametrize("details", ["candidatesTokensDetails", "responseTokensDetails"])
@pytest.mark.parametrize("audio", ["AUDIO", 4])
def test_geminis_modalities_may_be_numbers(details: str, audio: object) -> None:
    """Modality in google/ai/generativelanguage/v1beta/content.proto: 1 text, 2 image, 3 video, 4 audio, 5 document."""
    lists = {details: [{"modality": 2, "tokenCount": 3}, {"modality": audio, "tokenCount": 9}]}
    assert of("gemini", told("gemini", 5, 12, 17) | lists).audio_output_tokens == 9


@pytest.mark.parametrize(
    ("dialect", "usage", "tokens"),
    [
        ("openai-chat", {"prompt_tokens_details": {"audio_tokens": 375}}, (386, 15)),
        ("openai-responses", {"input_tokens_details": {"audio_tokens": 375}}, (386, 15)),
        ("gemini", {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 375}]}, (386, 15)),
        ("gemini", {"promptTokensDetails": [{"modality": 4, "tokenCount": 375}]}, (386, 15)),
        ("gemini-interactions", {"input_tokens_by_modality": [{"modality": "audio", "tokens": 375}]}, (386, 15)),
    ],
)
def test_audio_lies_outside_of_the_input_if_the_total_shows_it(
    dialect: str, usage: dict[str, Any], tokens: tuple[int, int]
) -> None:
    made = of(dialect, told(dialect, 11, 15, 401) | usage)
    assert (made.input_tokens, made.output_tokens, made.total_tokens, made.identity_failed) == (*tokens, 401, None)
    assert made.audio_input_tokens == 375
    inside = of(dialect, told(dialect, 386, 15, 401) | usage)
    assert (inside.input_tokens, inside.identity_failed) == (386, None)
    neither = of(dialect, told(dialect, 11, 15, 500) | usage)
    assert (neither.input_tokens, neither.identity_failed) == (11, "input+output=total")


@pytest.mark.parametrize(
    ("dialect", "reasoning"),
    [("gemini", "thoughtsTokenCount"), ("gemini-interactions", "total_thought_tokens")],
)
def test_a_total_below_its_parts_drops_none_of_them(dialect: str, reasoning: str) -> None:
    usage = of(dialect, told(dialect, 18, 7, 214) | {reasoning: 196}, token_events=1)
    assert (usage.output_tokens, usage.total_tokens, usage.identity_failed) == (203, 214, "input+output=total")
    # A total that came without an output does not include an earlier one.
    later = told(dialect, 87, None, 165) | {reasoning: 78}
    usage = of(dialect, told(dialect, 9, 21, 65) | {reasoning: 35}, later, token_events=1)
    assert (usage.output_tokens, usage.total_tokens, usage.identity_failed) == (78, 165, None)
    # Unless a later one has both.
    usage = of(dialect, later, told(dialect, 87, 21, 165) | {reasoning: 78}, token_events=1)
    assert (usage.output_tokens, usage.identity_failed) == (99, "input+output=total")


def test_responses_usage_under_the_names_of_chat() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 1}}
    details |= {"completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 3}}
    given = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14} | details
    usage = of("openai-responses", given)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.identity_failed) == (9, 5, 14, None)
    assert (usage.input_cached_tokens, usage.reasoning_tokens) == (4, 2)
    assert (usage.audio_input_tokens, usage.audio_output_tokens, usage.raw) == (1, 3, given)


def test_chats_usage_under_the_names_of_responses() -> None:
    details = {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 2}}
    usage = chat({"input_tokens": 9, "output_tokens": 5, "total_tokens": 14} | details)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (9, 5, 14)
    assert (usage.input_cached_tokens, usage.reasoning_tokens) == (4, 2)


_counts = st.one_of(st.none(), st.sampled_from((0, 1, 7, 40)))


@given(st.sampled_from(sorted(NAMES)), st.lists(st.tuples(_counts, _counts, _counts), max_size=5), st.integers(0, 2))
def test_no_zero_takes_the_place_of_a_count(
    dialect: str, usages: list[tuple[int | None, int | None, int | None]], token_events: int
) -> None:
    """Whatever came: input and output are the last positive count, else null, or an output of 0 if nothing contradicts it."""
    made = of(dialect, *(told(dialect, *one) for one in usages), token_events=token_events)
    for place, number in enumerate((made.input_tokens, made.output_tokens)):
        positive = [one[place] for one in usages if one[place]]
        assert number == (positive[-1] if positive else None) or (place == 1 and number == 0 and not token_events)
    assert made.source == "absent" or not made.raw or any((made.input_tokens, made.output_tokens, made.total_tokens))
    again = of(dialect, *(told(dialect, *one) for one in usages), told(dialect, 0, 0, 0), token_events=token_events)
    if made.input_tokens and made.output_tokens:
        assert (again.input_tokens, again.output_tokens, again.total_tokens) == (
            made.input_tokens,
            made.output_tokens,
            made.total_tokens,
        )


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


def test_an_output_that_falls_to_zero_is_a_placeholder() -> None:
    usage = chat({"prompt_tokens": 5, "completion_tokens": 6}, {"prompt_tokens": 5, "completion_tokens": 0})
    assert (usage.input_tokens, usage.output_tokens, usage.bad_values) == (5, 6, 1)


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
