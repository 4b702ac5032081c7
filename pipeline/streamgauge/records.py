"""The public model of the record: for programs that read records. Its JSON Schema is schemas/record.v1.json.

The docstring of a field is its description in the schema, and in docs/reference/record.md. Rules for all fields:

- Names are a contract: later versions add names, and never rename or remove one. Every name is always present.
- null: the value was not seen or does not apply. It is never replaced by 0.
- `_s`: seconds, rounded to 1 us. A moment is the time since the request's first byte; null without arrival times.
- `_tokens`: counts that the provider reported. `_chars`: Unicode code points. `bytes`: bytes.
- A type, code or reason of the provider is kept if it matches [A-Za-z0-9_.:/@+-]{1,128}; an id, model or name if it is
  printable ASCII of at most 256 characters. Any other text becomes `masked`.

    record = Record.model_validate_json(line)

`python -m streamgauge.records` prints the schema.
"""

import json
from typing import Any, Literal

try:
    from pydantic import BaseModel, ConfigDict, Field
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "streamgauge.records requires the extra `records`: run pip install 'streamgauge[records]'", name=error.name
    ) from None

__all__ = [
    "Choice",
    "Counts",
    "Error",
    "FinishReason",
    "Gaps",
    "IncompleteReason",
    "Integrity",
    "Outcome",
    "ProviderTiming",
    "RateLimit",
    "Record",
    "ReportedCost",
    "Request",
    "Timing",
    "ToolCall",
    "Usage",
    "json_schema",
]

Outcome = Literal[
    "completed", "http_error", "stream_error", "truncated", "upstream_reset", "client_abort", "timeout", "abandoned"
]  # fmt: skip
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error", "paused"]
IncompleteReason = Literal[
    "no_end", "missing_segments", "dropped_reads", "oversized_event", "decode_error", "body_capped", "log_gap",
    "state_limit", "request_capped",
]  # fmt: skip


class Part(BaseModel):
    """The base of the record and its parts."""

    # The record is declared here alone: `make generated` makes the structs of core/record.py from the subclasses.
    # Later versions add names: a reader of this one must not fail on them.
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Request(Part):
    """What the request asked for. A field is null if the body does not have it, or was not read."""

    stream: bool | None
    """Whether the request asked for a stream: `stream` of the body, else of the query."""
    n: int | None
    """How many choices the request asked for: `n`, `candidateCount` (Gemini) or `n_cmpl` (llama.cpp)."""
    max_tokens: int | None
    """The limit of output tokens: `max_tokens`, or the dialect's name for it, such as `max_completion_tokens`."""
    include_usage: bool | None
    """`stream_options.include_usage`. Without it many OpenAI-compatible servers report no usage of a stream."""
    body_bytes: int | None
    """Bytes of the request's body, as sent. null if the request was not sent whole."""
    host: str | None = None
    """The host of the upstream, without its port. null if the source does not show it, or if it is the application itself."""


class Error(Part):
    """The error that ended the stream, in the provider's words, but without its message."""

    phase: Literal["before_stream", "in_stream", "transport"]
    """Where the error occurred:
    - `before_stream`: the response is an error and no event stream: an HTTP error, or an error object with status 200
    - `in_stream`: an event of the stream reports the error, or its finish reason means one
    - `transport`: the connection to the upstream failed (outcome `upstream_reset` or `timeout`)
    """
    type: str | None
    """The provider's error type, or the raw finish reason if that is the error. null for `transport`."""
    code: str | None
    """The provider's error code. For `transport` it is the cause, and null if the cause is not known:
    - `dns`: the name of the upstream was not found
    - `refused`: the upstream's address refused the connection
    - `unreachable`: no route, or another network fault
    - `connect_timeout`: no connection was made in time
    - `tls`: the TLS handshake failed
    - `tls_certificate`: the upstream's certificate is not trusted, or is for another name
    - `reset`: the connection was reset
    - `closed`: the connection was closed before the response was whole, or before it began
    - `not_http`: the answer was not HTTP
    - `idle_timeout`: no data came for `--upstream-idle-timeout`
    """
    status: int | None
    """The HTTP status code from 400 to 599 that the error names; for an HTTP error without one, the response's status."""


class ToolCall(Part):
    """One tool call of a choice."""

    name: str | None
    """The tool's name. null if the stream did not give one."""
    argument_chars: int
    """Characters of the arguments; of arguments that came as JSON values, in compact JSON."""
    arguments_valid: bool | None
    """Whether the arguments are valid JSON. null if they are masked or empty, or are not JSON by contract."""


class Choice(Part):
    """One of the answers of a response; most requests ask for one (`request.n`)."""

    index: int
    """The choice's index in the response, from 0; its position in the list if the server sends no index."""
    finish_reason: FinishReason | None
    """Why the model stopped, in one vocabulary for all providers. null if none came, or the raw reason is unknown:
    - `stop`: the answer ended by itself, or at a stop sequence
    - `length`: a limit of tokens or of the context was reached
    - `tool_calls`: the model calls tools, and the client has to answer
    - `content_filter`: a safety filter or a refusal ended it
    - `error`: the provider failed; this makes the outcome `stream_error`
    - `paused`: the provider paused; the client may continue the response
    """
    finish_reason_raw: str | None
    """The first finish reason in the provider's words; a later one replaces a plain stop, and one that means an error any."""
    first_token_s: float | None
    """Time of the first token event of this choice. null if it had none, or reads before it are missing."""
    token_events: int
    """Events with generated output of this choice."""
    tool_calls: list[ToolCall]
    """The tool calls of this choice, in the order in which they began. [] if there are none."""


class Gaps(Part):
    """Times between successive token events, all choices together. An event may hold several tokens: inter-chunk latencies.
    All but `count` are null without arrival times, or if reads are missing."""

    count: int
    """How many gaps there are: token events - 1, at least 0."""
    mean_s: float | None
    """The mean gap. null if there is no gap."""
    p50_s: float | None
    """The median: by nearest rank up to 64 gaps, above that the upper bound of its bucket. null if there is no gap."""
    p95_s: float | None
    """The 95th percentile, computed as `p50_s`."""
    p99_s: float | None
    """The 99th percentile, computed as `p50_s`."""
    max_s: float | None
    """The longest gap. null if there is no gap."""
    stalls: int | None
    """How many gaps are longer than `--stall-seconds` (5)."""
    buckets: list[tuple[float | None, int]] | None
    """A histogram: pairs of an upper bound in seconds and the cumulative count of gaps. The last bound is null: no limit."""


class Timing(Part):
    """When things happened. A first time is null if it did not occur, or if reads before it are missing."""

    gaps: Gaps
    """Times between token events."""
    upstream_connect_s: float | None
    """When the connection to the upstream was made. null if a connection was reused, or the tap does not see it."""
    request_sent_s: float | None
    """When the last byte of the request was written to the upstream's socket."""
    headers_s: float | None
    """When the response's head was whole."""
    first_byte_s: float | None
    """When the first read with bytes of the response's body came."""
    first_event_s: float | None
    """When the first event was whole. An event has the time of the read that completes it."""
    first_token_s: float | None
    """Time to first token: the first event with generated output of any kind (text, reasoning, refusal, tool call, media)."""
    first_reasoning_s: float | None
    """When the first event with reasoning came."""
    first_content_s: float | None
    """When the first event with text or a refusal came."""
    first_tool_s: float | None
    """When the first event with the name or arguments of a tool call came."""
    last_token_s: float | None
    """When the last token event came."""
    finish_s: float | None
    """When the first finish reason of any choice came."""
    end_s: float | None
    """When the exchange ended. null if its end was not captured."""
    client_blocked_s: float | None
    """A duration: how long the relay waited for the client to take data. null if the tap does not measure it."""
    client_gone_s: float | None
    """When the client left. null if it did not leave before the end, or the tap does not see it."""
    wire_max_gap_s: float | None
    """The longest time between two reads of the body, events or not. null with fewer than two, or if reads are missing."""
    inter_token_latency_s: float | None
    """(last token - first token) / (output tokens - 1), also called time per output token.
    Reasoning that was hidden or came as a summary is left out: (last token - first token event that is no reasoning) /
    (output tokens - reasoning tokens - 1). null with fewer than two of these events or tokens, without usage, for a resumed
    stream, and where it is unknown which tokens came in that time."""
    burst: bool | None
    """Whether at least 90 % of 5 or more token events came in one or two arrivals: a proxy buffered them, so gaps mean
    nothing. Reads less than 5 ms after the one before are one arrival. null without arrival times, or with missing reads."""


class ProviderTiming(Part):
    """Times that the provider reports of itself, in seconds; not measured here. A time that it does not report is null."""

    queue_s: float | None
    """How long the request waited in the provider's queue."""
    routing_s: float | None
    """How long a gateway took to choose a model."""
    first_token_s: float | None
    """Time to the first token, counted from when the server had the request."""
    total_s: float | None
    """Time that the provider spent on the whole request."""


class RateLimit(Part):
    """What is left of the provider's rate limits, by the headers `x-ratelimit-*` or `anthropic-ratelimit-*` of the response.
    A value is null if its header is missing or malformed."""

    requests_limit: int | None
    """How many requests the limit allows in its window."""
    requests_remaining: int | None
    """How many requests are left."""
    requests_reset_s: float | None
    """Seconds until the limit of requests is whole again. A date counts from the response's own date."""
    tokens_limit: int | None
    """How many tokens the limit allows in its window."""
    tokens_remaining: int | None
    """How many tokens are left."""
    tokens_reset_s: float | None
    """Seconds until the limit of tokens is whole again, as `requests_reset_s`."""


class ReportedCost(Part):
    """What the provider or gateway says that the response costs. It is the seller's own figure, not a price of a list."""

    usd: str
    """US dollars as a decimal number without exponent, with the digits of the report (17 significant ones at most)."""
    byok: bool | None
    """Whether the model's provider bills a key of the caller's own apart from this, so that `usd` is the gateway's fee alone.
    null if the gateway does not say."""
    source: Literal["openrouter", "vercel", "xai", "perplexity", "litellm"]
    """Who reports it. LiteLLM computes it from a list of prices of its own; the others bill it:
    - `openrouter`: in `usage.cost`, beside `is_byok` or `cost_details`, or of a response whose id begins with `gen-`
    - `vercel`: in `usage.cost`, beside `market_cost` (Vercel's AI Gateway)
    - `xai`: in `usage.cost_in_usd_ticks`, of which a dollar has 10^10
    - `perplexity`: in `usage.cost.total_cost`
    - `litellm`: in `usage.cost`, else the header x-litellm-response-cost, if headers of LiteLLM came
    """


class Usage(Part):
    """The tokens that the provider reported. Per field the last value counts; values are never added up over events."""

    input_tokens: int | None
    """Input, including tokens read from and written to a cache."""
    output_tokens: int | None
    """Output, including reasoning. null while the provider sent only a placeholder: Anthropic's `message_start`, or 0."""
    total_tokens: int | None
    """The provider's own total; input + output if it gives none."""
    input_cached_tokens: int | None
    """The part of the input that was read from a cache."""
    input_cache_write_tokens: int | None
    """The part of the input that was written to a cache."""
    input_cache_write_1h_tokens: int | None
    """The part of `input_cache_write_tokens` that is kept for one hour (Anthropic)."""
    reasoning_tokens: int | None
    """The part of the output that is reasoning."""
    audio_input_tokens: int | None
    """The part of the input that is audio."""
    audio_output_tokens: int | None
    """The part of the output that is audio."""
    parts: list[dict[str, Any]]
    """What is billed apart from the other fields, or in place of them. [] if there is none. Each part has a `type`:
    - `server_tool`: calls of a tool that the provider ran. `name` (null if the provider names none), and counts above 0 of
      `requests`, `sources`, `search_queries`, `input_tokens`, `output_tokens`
    - `billed_units`: what Cohere bills in place of the tokens: `input_tokens`, `output_tokens`, `search_units`, ...
    - `citations`: `input_tokens` of the sources that the model read (Perplexity)
    - `audio`: `seconds` of audio in the prompt (Mistral)
    - `compaction`, `advisor_message` and others: steps with tokens of their own, in the provider's words (Anthropic's
      iterations). Their `input_tokens` do not include the cache
    """
    source: Literal["final", "partial", "estimated", "absent"]
    """Where the counts come from:
    - `final`: reported with or after the finish reason or the terminal event
    - `partial`: reported before that; the stream may have used more
    - `estimated`: reserved; this version writes no estimates
    - `absent`: the stream reported no usage, or only zeros, and all counts are null
    """
    identity_failed: str | None
    """The equation that the counts do not satisfy: `input+output=total` or `reasoning<=output`. null if none fails."""
    bad_values: int
    """How many reported counts were ignored: negative, fractional, above 2^53, no number, or a placeholder: a 0 after a
    positive input, output or total, an input of 0 without cached tokens, or an output of 0 beside token events."""
    raw: dict[str, Any] | None
    """The provider's usage object, merged over the events, with its known fields only. null if there is none."""
    reported_cost: ReportedCost | None = None
    """The cost that the response itself reports. null if it reports none, or if the reporter is unknown. Records of earlier
    development versions lack this field."""


class Counts(Part):
    """What was counted in the response."""

    events: int
    """Server-sent events with a data line, [DONE] included."""
    token_events: int
    """Events that carried generated output: text, reasoning, refusal, a tool's name or arguments, media."""
    repeated_events: int
    """Events of a resumed stream at or before the position from which it continues; their output does not count."""
    after_terminal_events: int
    """Events that came after the terminal event."""
    comments: int
    """Comment lines, which servers send to keep a connection open."""
    unparsed_events: int
    """Events whose data is not JSON although their dialect requires it."""
    unterminated_events: int
    """1 if the response ended within an event, before its blank line; else 0."""
    error_fields: int
    """Lines `error: ...` of the event stream; each is read as an error."""
    bytes: int | None
    """Bytes of the response's body, after transfer framing (chunks) and before content decoding (gzip)."""
    client_bytes: int | None
    """Bytes of the body that were written to the client's socket. null if the tap does not see it."""
    reads: int
    """Socket reads of the response that were captured."""
    segments: int
    """Segments that the tap made of this stream."""
    text_chars: int
    """Characters of generated text, without reasoning, refusals and tool arguments; all choices together."""
    reasoning_chars: int
    """Characters of reasoning; all choices together."""
    refusal_chars: int
    """Characters of refusals; all choices together."""


class Integrity(Part):
    """Whether the capture is complete, and what it lacks."""

    complete: bool
    """Whether the response was captured whole, so that its times, counts and usage are right."""
    reasons: list[IncompleteReason]
    """What the capture lacks. [] if nothing; `request_capped` is the only reason that leaves `complete` true:
    - `no_end`: the end of the exchange was not captured
    - `missing_segments`: segments of the stream did not arrive
    - `dropped_reads`: the tap discarded reads, to stay within its limits
    - `oversized_event`: an event was over its size limit
    - `decode_error`: a part of the body could not be decoded
    - `body_capped`: a body that is no event stream was over its size limit
    - `log_gap`: messages expired in Kafka before a worker read them
    - `state_limit`: a limit of the assembler's memory was reached
    - `request_capped`: the request's body was not read whole: its fields are null, and the outcome ignores its `n`
    """
    missing_segments: int
    """How many segments are missing."""
    dropped_reads: int
    """How many reads the tap discarded."""
    oversized_events: int
    """How many events were discarded because of their size."""
    decode_error: str | None
    """Why a part of the body was not decoded: `unknown_coding`, `too_many_codings`, `corrupt` (invalid in its coding), `bomb`
    (it grows too much), `too_large` (over the limit), `bad_framing` (invalid lengths), `incomplete` (the coding did not end),
    `bad_event_framing` (the events of a decoded body cannot be told apart). null if all was decoded."""


class Record(Part):
    """The one summary of a finished LLM stream."""

    schema_version: Literal[1]
    """The version of this schema."""
    stream_id: str
    """The id of the stream, which its tap made: a lower-case UUIDv7 with hyphens."""
    tap: str | None
    """The tap that captured it: `proxy`, `httpx`, `asgi`, `packets`, `envoy` or `replay`; `import`: no tap, but a gateway's
    log."""
    tap_instance: str | None
    """The run of the tap's recorder: a UUID."""
    tap_version: str | None
    """The version of Streamgauge that captured it."""
    capture: Literal["masked", "full"] | None
    """What the captured log holds: `masked`: no generated text (the default); `full`: generated text too."""
    upstream: str | None
    """The name of the upstream (`--upstream NAME=URL`), or its host and port. null if the source does not show it."""
    dialect: str | None
    """The API format that the content or else the endpoint shows; `other`: not an LLM's. null if neither shows one."""
    endpoint: str | None
    """The template of the path, such as `/chat/completions`; never the path itself."""
    streaming: bool | None
    """Whether the response is an event stream. null if no head came."""
    request: Request | None
    """What the request asked for, and of which host. null if the request was not captured."""
    request_model: str | None
    """The model that the request names."""
    response_model: str | None
    """The model that the response names first."""
    routed_model: str | None
    """The model to which a gateway routed the request, if the response names it."""
    service_tier: str | None
    """The service tier that the response names last, else that of the request."""
    response_id: str | None
    """The id that the provider gave the response; else the one in the request's path, for a stored response."""
    provider_request_id: str | None
    """The first of the headers x-request-id, request-id, apim-request-id, x-generation-id, x-amzn-requestid; else the id in
    the error.
    """
    trace_id: str | None
    """The trace id of the request's `traceparent` header (W3C Trace Context): 32 hex digits."""
    parent_span_id: str | None = None
    """The id of the caller's span in the same header: 16 hex digits. null without a `trace_id`. Records of earlier
    development versions lack this field."""
    tenant: str | None
    """The team or customer: the entry of `--tenants` for the API key, else the request's tenant header (`--tenant-header`);
    `--tenant-source` changes the order."""
    credential_id: str | None
    """A keyed hash of the API key: 32 hex digits of HMAC-SHA256 with the installation's own key. null without a key."""
    provider_organization: str | None
    """The response header openai-organization or anthropic-organization-id."""
    provider_project: str | None
    """The response header openai-project."""
    request_digest: str | None
    """A keyed hash of the request's body, as `credential_id`. null if there was no body, or not all of it was seen."""
    attempt: int | None
    """The number of the attempt: x-stainless-retry-count + 1. null if the client does not send this header."""
    resumed_from: str | None
    """Where a resumed stream continues (Last-Event-ID, starting_after); `start`: at the beginning. null if not resumed."""
    last_event_id: str | None
    """The id of the last event that had one."""
    last_sequence_number: int | None
    """The last `sequence_number` of an event (OpenAI Responses)."""
    attributes: dict[str, str] = Field(default_factory=dict)
    """The values of the request headers that `--attribute NAME=HEADER` names, by NAME. {} if the
    request has none of them. Records of earlier development versions lack this field."""
    rate_limit: RateLimit | None = None
    """What is left of the provider's rate limits. null if the response reports none. Records of earlier development versions
    lack this field."""
    started_at: str | None
    """When the first byte of the request came: UTC, RFC 3339, in microseconds, by the tap's wall clock."""
    status_code: int | None
    """The HTTP status of the response. null if no head came."""
    content_encoding: str | None
    """The content codings of the response, lower-case. null if it has none."""
    retry_after_s: float | None
    """The response header retry-after; a date counts from the response's own date. null if there is none."""
    outcome: Outcome
    """How the stream ended: the first that holds, in this order:
    - `http_error`: the status was 300 or above
    - `stream_error`: the response reported an error after a status below 300
    - `completed`: the protocol's own terminal was seen, even if the connection broke afterwards
    - `client_abort`: the client left
    - `upstream_reset`: the upstream broke HTTP's framing, or sent no head
    - `timeout`: the upstream did not connect in time, or sent nothing for `--upstream-idle-timeout`
    - `truncated`: HTTP ended properly, but without the protocol's terminal
    - `abandoned`: how the stream ended is not known: the tap stopped or vanished before its end, or a part of the response is
      missing that may have held the protocol's terminal (`integrity.reasons`)
    """
    error: Error | None
    """The error. null unless the outcome is http_error, stream_error, upstream_reset or timeout."""
    finish_reason: FinishReason | None
    """`finish_reason` of the first choice, by index, that has a raw reason."""
    finish_reason_raw: str | None
    """`finish_reason_raw` of the same choice."""
    choices: list[Choice]
    """The choices, by index. [] if none began."""
    timing: Timing
    """When things happened."""
    provider_timing: ProviderTiming | None
    """Times that the provider reports of itself. null if it reports none."""
    usage: Usage
    """The tokens that the provider reported."""
    counts: Counts
    """How many events, bytes and characters the response had."""
    integrity: Integrity
    """Whether the response was captured whole."""


def json_schema() -> str:
    """The JSON Schema of the record, as schemas/record.v1.json holds it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "record.v1.json"}
    return json.dumps(schema | Record.model_json_schema(mode="serialization"), indent=2) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(json_schema())
