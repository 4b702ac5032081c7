"""Outcomes of streams, and finish reasons in one vocabulary.

Three words describe how a stream ends. Its *fault* (`segments.TransportFault`) is what failed in transport, as captured. Its
*ending* (`segments.Ending`) is how the captured exchange ended, as the tap reports it. Its *outcome* is what the record says.

A stream is completed if its protocol's own terminal was seen. HTTP 200 and a clean end of the connection do not suffice.
The first line that holds is the outcome:

    http_error      status 300 and above
    stream_error    an in-band error, before or after the terminal
    completed       the protocol's terminal was seen, even if the connection broke afterwards
    client_abort    the client left
    upstream_reset  the upstream broke HTTP's framing, or sent no head
    timeout         the upstream did not connect in time, or sent nothing for too long
    truncated       HTTP ended properly, but without the protocol's terminal
    abandoned       how it ended is not known: the tap itself stopped or vanished, or a part of the response is missing that
                    may have held the terminal (record_builder.py)
"""

import re
from collections.abc import Iterator
from typing import Literal, assert_never

from streamgauge.core.capture.segments import Ending
from streamgauge.core.safe_values import MASKED, safe_code

Outcome = Literal[
    "completed",
    "http_error",
    "stream_error",
    "truncated",
    "upstream_reset",
    "client_abort",
    "timeout",
    "abandoned",
]

FIRST_ERROR_STATUS = 300

# Raw reason -> normal one. Sources: the providers' own API references, and the maps of two widely used clients
# (vercel/ai map-*-finish-reason.ts, pydantic-ai _FINISH_REASON_MAP), which agree except where a comment says otherwise.
# An unknown reason is recorded as the raw reason only. Gateways write the same reasons in other forms (`tool-calls`,
# `safety`): `normal_reason` knows these, too.
FINISH_REASONS: dict[str, str] = {
    # OpenAI and compatible servers
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
    "eos": "stop",  # Together
    "eos_token": "stop",  # text-generation-inference, watsonx
    "model_length": "length",  # Mistral
    "insufficient_system_resource": "error",  # DeepSeek
    "abort": "error",  # SGLang
    "network_error": "error",  # Z.ai (docs.z.ai, api reference: chat completion, finish_reason)
    "sensitive": "content_filter",  # Z.ai
    "repetition_truncation": "length",  # the server cut a text that repeats itself
    # OpenAI Responses: the response's status, or why it is incomplete
    "completed": "stop",
    "max_output_tokens": "length",
    "failed": "error",
    "cancelled": "error",
    "queued": "paused",
    "in_progress": "paused",
    # Anthropic
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "paused",
    "compaction": "paused",
    # Gemini: https://ai.google.dev/api/generate-content#FinishReason, and google-genai's types.FinishReason. Its OTHER,
    # IMAGE_OTHER, TOO_MANY_TOOL_CALLS and FINISH_REASON_UNSPECIFIED have no normal reason. No client's map has one for
    # MISSING_THOUGHT_SIGNATURE, ESCALATION, PUP_LIMITED_DISABLED and CONTINUATION.
    "STOP": "stop",
    "MAX_TOKENS": "length",  # Cohere too
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "MALFORMED_FUNCTION_CALL": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "LANGUAGE": "error",
    "NO_IMAGE": "error",
    # Gemini Interactions: the interaction's status
    "requires_action": "tool_calls",
    "requires_continuation": "paused",
    "budget_exceeded": "length",  # of tokens
    # Cohere v2 (https://docs.cohere.com/reference/chat: finish_reason)
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "tool_calls",
    "ERROR": "error",
    "ERROR_LIMIT": "error",  # of Cohere's first API: the context was too long
    "ERROR_TOXIC": "content_filter",
    "USER_CANCEL": "error",
    "TIMEOUT": "error",
    # Amazon Bedrock, Converse: stopReason, besides reasons listed above
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    # Amazon Titan, besides LENGTH and CONTENT_FILTERED
    # (https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-text.html: completionReason)
    "FINISH": "stop",
    "FINISHED": "stop",
    "STOP_CRITERIA_MET": "stop",
    # watsonx text generation (TextGenResult.stop_reason), besides reasons listed above; time_limit has no normal reason
    "token_limit": "length",
    # llama.cpp, its own completion (tools/server/README.md: stop_type), besides eos
    "limit": "length",
    "word": "stop",
    # Replicate: why a stream is done (docs: streaming), or a prediction's status
    "canceled": "error",
    "succeeded": "stop",
}

# The model's output could not be parsed: malformed_model_output and malformed_tool_use (Amazon Bedrock, Converse:
# stopReason), malformed_function_call (gateways in front of Gemini), MALFORMED_RESPONSE (Gemini).
_MALFORMED = "malformed_"

# The default of Gemini's enum. It has no meaning: any later reason replaces it.
UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"

# Words by which servers say that a choice has no finish reason yet, in lower case.
_NO_REASON = frozenset(("null", "none"))

# A reason that is a sentence is searched for a known reason up to here (characters); the longest recorded has 45.
MAX_SENTENCE = 1_024
_WORD = re.compile(r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*")


def _form(reason: str) -> str:
    """The form in which reasons are compared: lower case, with underscores."""
    return reason.lower().replace("-", "_")


_BY_FORM = {_form(reason): normal for reason, normal in FINISH_REASONS.items()}


def normal_reason(reason: str) -> str | None:
    """The normal reason of a raw finish reason, in any case and with hyphens or underscores; None if it is unknown."""
    known = FINISH_REASONS.get(reason)
    if known is not None:
        return known
    form = _form(reason)
    return "error" if form.startswith(_MALFORMED) else _BY_FORM.get(form)


def is_no_reason(value: object) -> bool:
    """Whether a raw finish reason says that there is none yet."""
    return reason_label(value) is None


def reason_label(value: object) -> str | None:
    """A raw finish reason as a record shows it, without white space around it; None for null, false, 0 and what is empty.

    The words `null` and `none` mean that there is no reason, in any case. For a sentence ("function_call_filter:
    MALFORMED_FUNCTION_CALL") it is the first known reason among the words, or `masked` if there is none.
    """
    if not isinstance(value, str):
        return safe_code(value) if value else None
    value = value.strip()
    label = safe_code(value)
    if label is None:
        return None
    if label != MASKED:
        return None if label.lower() in _NO_REASON else label
    words = _words(value[:MAX_SENTENCE])
    return next((word for word in words if _is_known(word) and safe_code(word) == word), MASKED)


def _words(sentence: str) -> Iterator[str]:
    """The words of a sentence; of a word with hyphens also its parts."""
    for word in _WORD.findall(sentence):
        yield word
        if "-" in word:
            yield from word.split("-")


def _is_known(word: str) -> bool:
    """Whether a word of a sentence is a reason. Its case counts: a sentence may begin with the word `Language`."""
    form = word.replace("-", "_")
    return form in FINISH_REASONS or form.startswith((_MALFORMED, _MALFORMED.upper()))


def outcome_of(*, status: int | None, error: bool, terminal: bool, ending: Ending | None, client_gone: bool) -> Outcome:
    """The outcome of a finished stream; `ending` is None if the stream's end was not captured."""
    if status is not None and status >= FIRST_ERROR_STATUS:
        return "http_error"
    if error:
        return "stream_error"
    if terminal:
        return "completed"
    if client_gone:
        return "client_abort"
    return _outcome_of_ending(ending)


def _outcome_of_ending(ending: Ending | None) -> Outcome:
    match ending:
        case Ending.RESET:
            return "upstream_reset"
        case Ending.COMPLETE:
            return "truncated"
        case Ending.TIMEOUT:
            return "timeout"
        case Ending.CLIENT:
            return "client_abort"
        case Ending.CUT | None:
            return "abandoned"
        case _:
            assert_never(ending)
