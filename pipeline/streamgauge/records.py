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
from typing import Literal

try:
    from pydantic import Field
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "streamgauge.records requires the extra `records`: run pip install 'streamgauge[records]'", name=error.name
    ) from None

from streamgauge.record_parts import (
    Choice,
    Counts,
    Error,
    FinishReason,
    Gaps,
    IncompleteReason,
    Integrity,
    Outcome,
    Part,
    ProviderTiming,
    RateLimit,
    ReportedCost,
    Request,
    Timing,
    ToolCall,
    Usage,
)

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


class Record(Part):
    """The one summary of a finished LLM stream."""

    schema_version: Literal[1]
    """The version of this schema."""
    stream_id: str
    """The id of the stream, which its tap made: a lower-case UUIDv7 with hyphens."""
    tap: str | None
    """The tap that captured it: `proxy`, `httpx`, `asgi`, `packets` or `replay`."""
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
    """The first of the headers x-request-id, request-id, apim-request-id, x-generation-id; else the id in the error."""
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
