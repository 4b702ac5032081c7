"""Time per output token: the time between the first and the last token event, for each token generated in it.

Usage counts the tokens of reasoning, too. If they were streamed, the time begins with the first of them. If they were
hidden, or only a summary came, the time begins with the first token event of the answer, and only the answer's tokens count:
the tokens of reasoning were generated before it, or unseen beside it. Where the protocol does not show which case it is, the
numbers decide:

no text of reasoning, a summary by its events, a withheld part        hidden
as many events of reasoning as tokens of it                           streamed
a single event; fewer characters than tokens                          hidden: the tokens did not come one after the other
a model that is documented (`streams_reasoning`)                      as documented
a dialect without signs of a summary in its events                    unknown, so there is no time per token
any other                                                             streamed

If the count of reasoning tokens is missing, all output tokens count, unless a part of them was not visible.
"""

import re

from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.timing import ReasoningForm, ReasoningSign
from streamgauge.core.dialects import Dialect
from streamgauge.core.record import Usage


def time_per_output_token(state: StreamState, usage: Usage, dialect: Dialect | None) -> int | None:
    """(last token - first token) / (tokens - 1) in ns, of the tokens in that time; None if that is not known.

    Needs two token events and two tokens. None for a resumed stream: its usage covers the whole response, but its
    times do not.
    """
    timing, opening = state.timing, state.opening
    if usage.output_tokens is None or (opening is not None and opening.resumed_from is not None):
        return None
    first, tokens, events = timing.first_token, usage.output_tokens, state.counts.token_events
    if usage.reasoning_tokens:
        is_streamed = _streams_reasoning(state, usage.reasoning_tokens, dialect)
        if is_streamed is None:
            return None
        if not is_streamed:
            first, tokens, events = (
                first_answer(state),
                tokens - usage.reasoning_tokens,
                events - timing.reasoning_events,
            )
    elif usage.reasoning_tokens is None and _hides_tokens(state, usage.output_tokens):
        return None
    first, last = timing.known(first), timing.last_token
    if first is None or last is None or events < 2 or tokens < 2:
        return None
    return (last - first) // (tokens - 1)


def first_answer(state: StreamState) -> int | None:
    """The time of the first token event with anything but reasoning (ns); None if there is none, or without stamps."""
    timing = state.timing
    firsts = [time for time in (timing.first_content, timing.first_tool, timing.first_media) if time is not None]
    return min(firsts, default=None)


def _streams_reasoning(state: StreamState, tokens: int, dialect: Dialect | None) -> bool | None:
    """Whether these tokens of reasoning were streamed; None if that cannot be known."""
    timing, counts = state.timing, state.counts
    is_declared = timing.reasoning_form == ReasoningForm.SUMMARY or timing.reasoning_sign == ReasoningSign.WITHHELD
    if not counts.reasoning_chars or is_declared:
        return False
    if timing.reasoning_events >= tokens:
        return True
    if timing.reasoning_events < 2 or counts.reasoning_chars < tokens:
        return False
    is_documented = streams_reasoning(_model(state))
    if is_documented is None and (dialect is None or not dialect.may_summarise):
        return True
    return is_documented


def _hides_tokens(state: StreamState, output_tokens: int) -> bool:
    """Whether a part of the output tokens was not visible: the model reasoned, and there are fewer characters than tokens.

    In recorded streams whose whole output is visible, a token has 1.7 characters or more.
    """
    timing, counts = state.timing, state.counts
    if not counts.reasoning_chars:
        return timing.reasoning_sign != ReasoningSign.NONE
    if timing.reasoning_form == ReasoningForm.SUMMARY or timing.reasoning_sign == ReasoningSign.WITHHELD:
        return True
    arguments = sum(tool.argument_chars for choice in state.choices for tool in choice.tools)
    return counts.text_chars + counts.reasoning_chars + counts.refusal_chars + arguments < output_tokens


def _model(state: StreamState) -> str | None:
    """The model that answered; else the requested model."""
    return state.identity.response_model or (state.request.model if state.request else None)


# --- models ------------------------------------------------------------------------------------------------------------

# Models whose reasoning is never streamed: at most a summary of it. Each row has its source.
_SUMMARISED: tuple[re.Pattern[str], ...] = (
    # docs.aws.amazon.com/bedrock, claude-messages-thinking-differences: Claude 4 models return summarized thinking
    re.compile(r"claude(?!.*3[.-]7)"),
    re.compile(r"gemini"),  # ai.google.dev/gemini-api/docs/thinking: thought summaries
    # platform.openai.com/docs/guides/reasoning: reasoning tokens are not visible via the API
    re.compile(r"(?:^|[/.])(?:o[1-9]|gpt-[5-9])(?![a-z])"),
)
# Models whose reasoning is streamed as it is: the same page of Bedrock, Claude 3.7 Sonnet.
_STREAMED = re.compile(r"claude.*3[.-]7")


def streams_reasoning(model: str | None) -> bool | None:
    """Whether the provider of this model streams its reasoning itself; False: a summary; None: no document is known."""
    name = (model or "").lower()
    if _STREAMED.search(name):
        return True
    return False if any(pattern.search(name) for pattern in _SUMMARISED) else None
