"""The public face of the record: for programs that read records. Its JSON Schema is schemas/record.v1.json.

Names are a contract: they are added to, never renamed. Every name is always present, null where unknown. Durations are
seconds since the request's first byte; counts of tokens are the provider's own words, normalised (input includes cached
tokens, output includes reasoning); characters are Unicode code points.

    record = Record.model_validate_json(line)

`python -m streamgauge.records` prints the schema.
"""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

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
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error", "paused"]
IncompleteReason = Literal[
    "no_end",
    "missing_segments",
    "dropped_reads",
    "oversized_event",
    "decode_error",
    "body_capped",
    "log_gap",
    "state_limit",
    "request_capped",
]


class _Part(BaseModel):
    # Later versions add names: a reader of this one must not fail on them.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Request(_Part):
    """What the request asked for."""

    stream: bool | None
    n: int | None
    max_tokens: int | None
    include_usage: bool | None
    body_bytes: int | None


class Error(_Part):
    """The error as the provider words it, without its message. `before_stream`: an answer that is no event stream.

    `transport` (outcomes upstream_reset and timeout): `code` is what failed between the tap and the upstream: dns, refused,
    unreachable, connect_timeout, tls, tls_certificate, reset, closed, not_http or idle_timeout; null where that is not known.
    """

    phase: Literal["before_stream", "in_stream", "transport"]
    type: str | None
    code: str | None
    status: int | None


class ToolCall(_Part):
    """A tool call; whether its arguments are valid JSON is null where they are masked, empty, or no JSON by contract."""

    name: str | None
    argument_chars: int
    arguments_valid: bool | None


class Choice(_Part):
    """One of the request's n answers."""

    index: int
    finish_reason: FinishReason | None
    finish_reason_raw: str | None
    first_token_s: float | None
    token_events: int
    tool_calls: list[ToolCall]


class Gaps(_Part):
    """Between successive token events, all choices together. `buckets`: [upper bound, cumulative count], the last null."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    max_s: float | None
    stalls: int | None
    buckets: list[tuple[float | None, int]] | None


class Timing(_Part):
    """When things happened, seconds since the request began. `burst`: a proxy buffered, so that gaps mean nothing."""

    gaps: Gaps
    upstream_connect_s: float | None
    request_sent_s: float | None
    headers_s: float | None
    first_byte_s: float | None
    first_event_s: float | None
    first_token_s: float | None
    first_reasoning_s: float | None
    first_content_s: float | None
    first_tool_s: float | None
    last_token_s: float | None
    finish_s: float | None
    end_s: float | None
    client_blocked_s: float | None
    client_gone_s: float | None
    wire_max_gap_s: float | None
    inter_token_latency_s: float | None
    burst: bool | None


class ProviderTiming(_Part):
    """What the provider itself claims, seconds."""

    queue_s: float | None
    routing_s: float | None
    first_token_s: float | None
    total_s: float | None


class Usage(_Part):
    """Tokens. `source`: final, on or after the finish event; partial, before it; absent. `raw`: the provider's object."""

    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_cached_tokens: int | None
    input_cache_write_tokens: int | None
    input_cache_write_1h_tokens: int | None
    reasoning_tokens: int | None
    audio_input_tokens: int | None
    audio_output_tokens: int | None
    parts: list[dict[str, Any]]
    source: Literal["final", "partial", "estimated", "absent"]
    identity_failed: str | None
    bad_values: int
    raw: dict[str, Any] | None


class Counts(_Part):
    """`bytes`: of the body, after transfer framing and before content decoding; `events` as dispatched, [DONE] included."""

    events: int
    token_events: int
    repeated_events: int
    after_terminal_events: int
    comments: int
    unparsed_events: int
    unterminated_events: int
    error_fields: int
    bytes: int | None
    client_bytes: int | None
    reads: int
    segments: int
    text_chars: int
    reasoning_chars: int
    refusal_chars: int


class Integrity(_Part):
    """What the capture lacks. `complete`: the response was captured whole.

    `request_capped` is the one reason that leaves `complete` true: the request's body was not read (over 16 MiB, no room for
    it, or a part of it lost on the way), and what it asked for is null.
    """

    complete: bool
    reasons: list[IncompleteReason]
    missing_segments: int
    dropped_reads: int
    oversized_events: int
    decode_error: str | None


class Record(_Part):
    """The one summary of a finished LLM stream."""

    schema_version: Literal[1]
    stream_id: str
    tap: str | None
    tap_instance: str | None
    tap_version: str | None
    capture: Literal["masked", "full"] | None
    upstream: str | None
    dialect: str | None
    endpoint: str | None
    streaming: bool | None
    request: Request | None
    request_model: str | None
    response_model: str | None
    routed_model: str | None
    service_tier: str | None
    response_id: str | None
    provider_request_id: str | None
    trace_id: str | None
    tenant: str | None
    credential_id: str | None
    provider_organization: str | None
    provider_project: str | None
    request_digest: str | None
    attempt: int | None
    resumed_from: str | None
    last_event_id: str | None
    last_sequence_number: int | None
    started_at: str | None
    status_code: int | None
    content_encoding: str | None
    retry_after_s: float | None
    outcome: Outcome
    error: Error | None
    finish_reason: FinishReason | None
    finish_reason_raw: str | None
    choices: list[Choice]
    timing: Timing
    provider_timing: ProviderTiming | None
    usage: Usage
    counts: Counts
    integrity: Integrity


def json_schema() -> str:
    """The JSON Schema of the record, as schemas/record.v1.json holds it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "record.v1.json"}
    return json.dumps(schema | Record.model_json_schema(mode="serialization"), indent=2) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(json_schema())
