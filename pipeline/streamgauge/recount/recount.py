"""A recount of one stream: the tokens that were generated, beside those that the provider reported."""

from collections.abc import Callable

import msgspec

from streamgauge.core.record import Record
from streamgauge.recount.bands import by_characters, with_offsets
from streamgauge.recount.models import hides_reasoning, tokenizer_name, version_of
from streamgauge.recount.output import Output

# Why a recount is no exact count of what the provider may bill: the values of `Recount.reasons`.
MASKED = "masked"  # the text was not captured
NO_TOKENIZER = "no_public_tokenizer"
NO_VOCABULARY = "vocabulary_missing"  # it is not installed
INCOMPLETE = "incomplete_capture"
RESUMED = "resumed"  # an earlier stream has the beginning
MEDIA = "media"  # audio or images were generated
HIDDEN_REASONING = "hidden_reasoning"  # the provider's own number was taken, or there is none
NOT_COMPLETED = "not_completed"  # the count is of what was delivered; the provider may have generated more
TOO_MANY_TEXTS = "too_many_texts"  # a token at the border of two parts may have been split
TOO_LONG = "too_long"  # the text exceeds a bound of memory or time: it was dropped
WIDE_BAND = "wide_band"  # `low` to `high` is too wide for the reported number to be wrong
REASONS = (
    MASKED,
    NO_TOKENIZER,
    NO_VOCABULARY,
    INCOMPLETE,
    RESUMED,
    MEDIA,
    HIDDEN_REASONING,
    NOT_COMPLETED,
    TOO_MANY_TEXTS,
    TOO_LONG,
    WIDE_BAND,
)
# A range that is wider than this part of the reported number (half of it) makes no finding.
WIDEST_PART = 2
# With one of these the counted text is the whole delivered text all the same.
_STILL_EXACT = {NOT_COMPLETED, WIDE_BAND}
# With one of these the reported number is of something else than the counted text.
_INCOMPARABLE = {INCOMPLETE, RESUMED, MEDIA, NOT_COMPLETED}


# Gives the name of a model's tokenizer; None: it has none that is known.
NameOf = Callable[[str | None], str | None]


class Recount(msgspec.Struct):
    """Output tokens of one stream. All numbers are tokens; None is unknown.

    `tokenizer`: the public tokenizer that counted, None if none did. `output_tokens_recounted`: what it counted, with the
    provider's own number of reasoning tokens where it gives one. `difference`: reported - recounted. `exact`: the count is
    exact for the text that was delivered. `low`, `high`: what the provider may bill, by the band of this model version;
    `high` is None if nothing limits it. `band`: the model version whose recorded streams gave that range, `all` for all of
    them; `band_streams`: how many they were. `reasons`: why it is not exact, or not comparable (REASONS).
    """

    stream_id: str
    model: str | None
    tokenizer: str | None
    output_tokens_reported: int | None
    output_tokens_recounted: int | None
    difference: int | None
    exact: bool
    low: int | None
    high: int | None
    band: str | None
    band_streams: int
    reasons: list[str]


def recount(record: Record, output: Output | None, name_of: NameOf = tokenizer_name) -> Recount:
    """The recount of a finished stream. `output`: its text (`Outputs.take`), None if there was none."""
    model, reasoning = record.response_model or record.request_model, record.usage.reasoning_tokens
    calls = sum(len(choice.tool_calls) for choice in record.choices)
    tokens = counted_tokens(record, output, name_of)
    reasons = _reasons(record, output, name_of)
    if tokens is None:
        band = by_characters(version_of(model), characters(record, reasoning=not reasoning), calls)
    else:
        band = with_offsets(version_of(model), tokens, calls)
    low, high = band.tokens.low + (reasoning or 0), band.tokens.high + (reasoning or 0)
    if record.outcome == "http_error" and not generated(record):
        low = high = 0  # an error status bills nothing
    reported = record.usage.output_tokens
    recounted = None if tokens is None else tokens + (reasoning or 0)
    if recounted is not None and NOT_COMPLETED in reasons:
        low = min(low, recounted)  # what the end of an answer adds did not come
    comparable = _INCOMPARABLE.isdisjoint(reasons)
    highest = _highest(record, high, reasons)
    if highest is not None and reported is not None and is_wide(low, highest, reported):
        reasons.append(WIDE_BAND)
    return Recount(
        stream_id=record.stream_id,
        model=model,
        tokenizer=None if tokens is None else _counter(output),
        output_tokens_reported=reported,
        output_tokens_recounted=recounted,
        difference=reported - recounted if reported is not None and recounted is not None and comparable else None,
        exact=recounted is not None and _STILL_EXACT.issuperset(reasons),
        low=low,
        high=highest,
        band=band.version,
        band_streams=band.streams,
        reasons=reasons,
    )


def is_wide(low: int, high: int, reported: int) -> bool:
    """Whether a range of tokens is wider than half of the reported number: then a number outside of it shows no error."""
    return (high - low) * WIDEST_PART > reported


def generated(record: Record) -> int:
    """The characters of all that a stream generated (code points), without media."""
    return characters(record, reasoning=True)


def characters(record: Record, *, reasoning: bool) -> int:
    """The characters of answers, refusals and tool calls, and of reasoning if that counts."""
    counts = record.counts
    tools = [call for choice in record.choices for call in choice.tool_calls]
    of_tools = sum(call.argument_chars + len(call.name or "") for call in tools)
    return counts.text_chars + counts.refusal_chars + of_tools + (counts.reasoning_chars if reasoning else 0)


def _reasons(record: Record, output: Output | None, name_of: NameOf) -> list[str]:
    usage, model = record.usage, record.response_model or record.request_model
    name, counter = name_of(model), _counter(output)
    has_text = generated(record) > 0
    may_hide = usage.reasoning_tokens is None and may_hide_reasoning(record, name_of)
    holds = {
        MASKED: has_text and record.capture != "full",
        NO_TOKENIZER: has_text and (name is None or counter not in (None, name)),
        NO_VOCABULARY: has_text and record.capture == "full" and name is not None and counter is None,
        INCOMPLETE: not record.integrity.complete,
        RESUMED: record.resumed_from is not None,
        MEDIA: (output is not None and output.has_media) or bool(usage.audio_output_tokens),
        HIDDEN_REASONING: has_text and ((usage.reasoning_tokens or 0) > 0 or may_hide),
        NOT_COMPLETED: record.outcome != "completed",
        TOO_MANY_TEXTS: output is not None and output.is_split,
        TOO_LONG: output is not None and output.is_too_long,
    }
    return [reason for reason, is_so in holds.items() if is_so]


def _counter(output: Output | None) -> str | None:
    """The name of the tokenizer that counted; None if none did."""
    return None if output is None or output.tokenizer is None else output.tokenizer.name


def may_hide_reasoning(record: Record, name_of: NameOf = tokenizer_name) -> bool:
    """Whether output may include reasoning that was not sent, or of which only a summary was sent."""
    model = record.response_model or record.request_model
    return hides_reasoning(model) or (record.counts.reasoning_chars > 0 and name_of(model) is None)


def counted_tokens(record: Record, output: Output | None, name_of: NameOf = tokenizer_name) -> int | None:
    """The recounted tokens, without reasoning if the provider gives its number; None if no tokenizer of the model counted."""
    if not generated(record):
        return 0
    name = name_of(record.response_model or record.request_model)
    if output is None or name is None or _counter(output) != name:
        return None
    answer = output.tokens(reasoning=False)
    reasoning = 0 if record.usage.reasoning_tokens else output.tokens(reasoning=True)
    return None if answer is None or reasoning is None else answer + reasoning


def _highest(record: Record, high: int, reasons: list[str]) -> int | None:
    """The most that the provider may bill: for a stream that was cut or hides reasoning the request's limit, if known."""
    if record.outcome == "http_error":
        return high
    hidden = HIDDEN_REASONING in reasons and record.usage.reasoning_tokens is None
    if not hidden and _INCOMPARABLE.isdisjoint(reasons):
        return high
    request = record.request
    if request is None or request.max_tokens is None:
        return None
    return max(high, (request.n or 1) * request.max_tokens)
