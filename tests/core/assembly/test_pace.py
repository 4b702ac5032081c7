"""Time per output token where reasoning is hidden, summarised or not counted. Vectors show it for each dialect.

`tests/core/test_vectors.py::test_stamps_give_the_stated_timing` holds the streams themselves to it, masked and full.
"""

import pytest

from streamgauge.core.assembly.pace import streams_reasoning, time_per_output_token
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.timing import ReasoningForm, ReasoningSign, TimingState
from streamgauge.core.capture.segments import Opening
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.record import Usage

S = 1_000_000_000
CHAT, MESSAGES = BY_NAME["openai-chat"], BY_NAME["anthropic-messages"]


def state_of(
    *, reasoning_events: int = 0, reasoning_chars: int = 0, text_chars: int = 40, resumed_from: str | None = None
) -> StreamState:
    """Reasoning from 1 s on, if there is any, and 11 events of text from 10 to 11 s."""
    state = StreamState(bytes(16), bytes(16), 0, items={})
    first = 1 * S if reasoning_events else 10 * S
    form = ReasoningForm.TEXT if reasoning_events else ReasoningForm.NONE
    state.timing = TimingState(
        first_byte=0, first_token=first, first_reasoning=first if reasoning_events else None, first_content=10 * S,
        last_token=11 * S, reasoning_events=reasoning_events, reasoning_form=form,
    )  # fmt: skip
    state.counts.token_events = reasoning_events + 11
    state.counts.reasoning_chars, state.counts.text_chars = reasoning_chars, text_chars
    state.opening = Opening("t", "1", "full", resumed_from=resumed_from)
    return state


def usage_of(output: int | None, reasoning: int | None = None) -> Usage:
    return Usage(5, output, None, None, None, None, reasoning, None, None, [], "final", None, 0, None)


def test_hidden_reasoning_is_not_in_the_window_of_the_answer() -> None:
    assert time_per_output_token(state_of(), usage_of(911, 900), CHAT) == S // 10


def test_all_tokens_count_where_all_were_streamed() -> None:
    streamed = state_of(reasoning_events=90, reasoning_chars=400)
    assert time_per_output_token(streamed, usage_of(101, 80), CHAT) == S // 10


def test_fewer_than_two_tokens_or_events_have_no_time_between_them() -> None:
    assert time_per_output_token(state_of(), usage_of(901, 900), CHAT) is None
    assert time_per_output_token(state_of(), usage_of(47, 61), CHAT) is None  # the output count leaves reasoning out
    one_event = state_of()
    one_event.counts.token_events = 1
    assert time_per_output_token(one_event, usage_of(911, 900), CHAT) is None
    assert time_per_output_token(state_of(), usage_of(None), CHAT) is None


def test_a_resumed_stream_has_the_usage_of_the_whole_response() -> None:
    assert time_per_output_token(state_of(resumed_from="12"), usage_of(11), CHAT) is None


def test_text_in_one_event_was_not_streamed_token_by_token() -> None:
    whole = state_of(reasoning_events=1, reasoning_chars=4_000)
    assert time_per_output_token(whole, usage_of(911, 900), CHAT) == S // 10


def test_only_the_model_tells_a_summary_from_thinking_in_messages() -> None:
    state = state_of(reasoning_events=20, reasoning_chars=400)
    assert time_per_output_token(state, usage_of(101, 50), MESSAGES) is None
    for model, expected in (("claude-opus-4-6", S // 50), ("claude-3-7-sonnet-20250219", S // 10)):
        state.identity.response_model = model
        assert time_per_output_token(state, usage_of(101, 50), MESSAGES) == expected, model


def test_output_that_was_not_all_visible_has_no_time_without_a_count_of_reasoning() -> None:
    streamed = state_of(reasoning_events=20, reasoning_chars=400)
    assert time_per_output_token(streamed, usage_of(101), MESSAGES) == S // 10
    assert time_per_output_token(streamed, usage_of(441), MESSAGES) is None  # more tokens than characters
    streamed.timing.reasoning_form = ReasoningForm.SUMMARY
    assert time_per_output_token(streamed, usage_of(101), MESSAGES) is None
    hidden = state_of()
    assert time_per_output_token(hidden, usage_of(11), MESSAGES) == S // 10
    hidden.timing.reasoning_sign = ReasoningSign.REASONS
    assert time_per_output_token(hidden, usage_of(11), MESSAGES) is None


def test_the_answer_may_begin_with_a_tool_call_or_media() -> None:
    for field in ("first_tool", "first_media"):
        state = state_of()
        state.timing.first_content = None
        setattr(state.timing, field, 9 * S)
        assert time_per_output_token(state, usage_of(911, 900), CHAT) == S // 5, field


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("anthropic/claude-3.7-sonnet:thinking", True),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("claude-sonnet-4-5-20250929", False),
        ("anthropic/claude-4.5-haiku-20251001", False),
        ("google/gemini-3-pro-preview", False),
        ("openai/gpt-5", False),
        ("gpt-5-mini", False),
        ("o4-mini-2025-04-16", False),
        ("openai/gpt-oss-120b", None),
        ("gpt-4o", None),
        ("deepseek-reasoner", None),
        ("octo1", None),
        (None, None),
    ],
)
def test_a_documented_model(model: str | None, expected: bool | None) -> None:
    assert streams_reasoning(model) is expected
