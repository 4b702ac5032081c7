"""The record of a stream, as the core makes it. `streamgauge.records` declares and describes every field; the names are a
contract. The structs here are generated from it: the core makes records without checks, and without the library that checks
the public ones.

Times are seconds since the request's first byte, and durations are seconds; both are rounded to 1 us. None means not seen.
The JSON has the order of the fields.
"""

import msgspec

SCHEMA_VERSION = 1

# The only reason in `Integrity.reasons` that leaves `Integrity.complete` true.
REQUEST_CAPPED = "request_capped"

# --- Generated from records.py by `make generated`: do not edit.


class Request(msgspec.Struct):
    """The struct of `streamgauge.records.Request`, which describes the fields."""

    stream: bool | None = None
    n: int | None = None
    max_tokens: int | None = None
    include_usage: bool | None = None
    body_bytes: int | None = None
    host: str | None = None


class Error(msgspec.Struct):
    """The struct of `streamgauge.records.Error`, which describes the fields."""

    phase: str
    type: str | None = None
    code: str | None = None
    status: int | None = None


class ToolCall(msgspec.Struct):
    """The struct of `streamgauge.records.ToolCall`, which describes the fields."""

    name: str | None
    argument_chars: int
    arguments_valid: bool | None


class Choice(msgspec.Struct):
    """The struct of `streamgauge.records.Choice`, which describes the fields."""

    index: int
    finish_reason: str | None
    finish_reason_raw: str | None
    first_token_s: float | None
    token_events: int
    tool_calls: list[ToolCall]


class Gaps(msgspec.Struct):
    """The struct of `streamgauge.records.Gaps`, which describes the fields."""

    count: int
    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    stalls: int | None = None
    buckets: list[tuple[float | None, int]] | None = None


class Timing(msgspec.Struct):
    """The struct of `streamgauge.records.Timing`, which describes the fields."""

    gaps: Gaps
    upstream_connect_s: float | None = None
    request_sent_s: float | None = None
    headers_s: float | None = None
    first_byte_s: float | None = None
    first_event_s: float | None = None
    first_token_s: float | None = None
    first_reasoning_s: float | None = None
    first_content_s: float | None = None
    first_tool_s: float | None = None
    last_token_s: float | None = None
    finish_s: float | None = None
    end_s: float | None = None
    client_blocked_s: float | None = None
    client_gone_s: float | None = None
    wire_max_gap_s: float | None = None
    inter_token_latency_s: float | None = None
    burst: bool | None = None


class ProviderTiming(msgspec.Struct):
    """The struct of `streamgauge.records.ProviderTiming`, which describes the fields."""

    queue_s: float | None = None
    routing_s: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None


class RateLimit(msgspec.Struct):
    """The struct of `streamgauge.records.RateLimit`, which describes the fields."""

    requests_limit: int | None
    requests_remaining: int | None
    requests_reset_s: float | None
    tokens_limit: int | None
    tokens_remaining: int | None
    tokens_reset_s: float | None


class ReportedCost(msgspec.Struct):
    """The struct of `streamgauge.records.ReportedCost`, which describes the fields."""

    usd: str
    byok: bool | None
    source: str


class Usage(msgspec.Struct):
    """The struct of `streamgauge.records.Usage`, which describes the fields."""

    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_cached_tokens: int | None
    input_cache_write_tokens: int | None
    input_cache_write_1h_tokens: int | None
    reasoning_tokens: int | None
    audio_input_tokens: int | None
    audio_output_tokens: int | None
    parts: list[dict[str, object]]
    source: str
    identity_failed: str | None
    bad_values: int
    raw: dict[str, object] | None
    reported_cost: ReportedCost | None = None


class Counts(msgspec.Struct):
    """The struct of `streamgauge.records.Counts`, which describes the fields."""

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


class Integrity(msgspec.Struct):
    """The struct of `streamgauge.records.Integrity`, which describes the fields."""

    complete: bool
    reasons: list[str]
    missing_segments: int
    dropped_reads: int
    oversized_events: int
    decode_error: str | None


class Record(msgspec.Struct, kw_only=True):
    """The struct of `streamgauge.records.Record`, which describes the fields."""

    schema_version: int
    stream_id: str
    tap: str | None
    tap_instance: str | None
    tap_version: str | None
    capture: str | None
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
    parent_span_id: str | None = None
    tenant: str | None
    credential_id: str | None
    provider_organization: str | None
    provider_project: str | None
    request_digest: str | None
    attempt: int | None
    resumed_from: str | None
    last_event_id: str | None
    last_sequence_number: int | None
    attributes: dict[str, str] = {}
    rate_limit: RateLimit | None = None
    started_at: str | None
    status_code: int | None
    content_encoding: str | None
    retry_after_s: float | None
    outcome: str
    error: Error | None
    finish_reason: str | None
    finish_reason_raw: str | None
    choices: list[Choice]
    timing: Timing
    provider_timing: ProviderTiming | None
    usage: Usage
    counts: Counts
    integrity: Integrity


# --- End of the generated structs.

_ENCODER = msgspec.json.Encoder()


class _Versioned(msgspec.Struct):
    schema_version: int


_VERSION = msgspec.json.Decoder(_Versioned)


def encode_record(record: Record) -> bytes:
    """The record as UTF-8 JSON. Equal records give equal bytes."""
    return _ENCODER.encode(record)


def version_of(record: bytes) -> int | None:
    """The schema version in a record's JSON; None if there is none, or if it is not JSON."""
    try:
        return _VERSION.decode(record).schema_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
