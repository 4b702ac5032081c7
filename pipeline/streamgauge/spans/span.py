"""A record as an OpenTelemetry span: a pure function of its JSON, so that the same record gives the same span, ids included.

Names are from the semantic conventions for generative AI, v1.41; what they do not name is below `streamgauge.`.
https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-spans.md
A value that is null in the record is no attribute. A span has no text of prompts or completions, and no key: a record
has none, even with `--capture full`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Annotated
from uuid import UUID

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

import streamgauge
from streamgauge.metrics.otel_names import OPERATIONS, UNKNOWN_OPERATION, error_type

# Longer texts and larger numbers are in no record that was made here: a forged one must not make a batch of spans fail.
_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
# 30 years (seconds).
_Moment = Annotated[float, msgspec.Meta(ge=0, le=1e9)]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# The last start for which every time of a span fits OTLP's 64 bits (ns since 1970): in the year 2200.
_MAX_START_NS = 7_258_118_400 * 10**9
_TRACE_ID = re.compile("(?!0{32})[0-9a-f]{32}")
_SPAN_ID = re.compile("(?!0{16})[0-9a-f]{16}")
# An upstream without a name is recorded as its host, with a port unless that is the scheme's default.
_HOST_AND_PORT = re.compile(r"(.+):([0-9]{1,5})")
# The events of a span.
FIRST_TOKEN, ERROR = "streamgauge.first_token", "streamgauge.error"

# The recorded name of an upstream -> its host and port.
Addresses = Mapping[str, tuple[str, int]]
Value = bool | int | float | str | tuple[str, ...]


class NoSpanError(ValueError):
    """No span can be made of a record: it is not a record of this version, or it lacks the start of the stream."""


class _Request(msgspec.Struct):
    stream: bool | None = None
    n: _Count | None = None
    max_tokens: _Count | None = None


class _Error(msgspec.Struct):
    phase: _Text
    type: _Text | None = None
    code: _Text | None = None
    status: _Count | None = None


class _Choice(msgspec.Struct):
    finish_reason: _Text | None = None
    finish_reason_raw: _Text | None = None


class _Gaps(msgspec.Struct):
    stalls: _Count | None = None


class _Timing(msgspec.Struct):
    gaps: _Gaps = msgspec.field(default_factory=_Gaps)
    request_sent_s: _Moment | None = None
    headers_s: _Moment | None = None
    first_event_s: _Moment | None = None
    first_token_s: _Moment | None = None
    last_token_s: _Moment | None = None
    finish_s: _Moment | None = None
    end_s: _Moment | None = None

    def last_known_s(self) -> float:
        """The end of the stream; if it is not known, the last known time."""
        known = (self.request_sent_s, self.headers_s, self.first_event_s, self.last_token_s, self.finish_s)
        return (
            self.end_s
            if self.end_s is not None
            else max((time_s for time_s in known if time_s is not None), default=0.0)
        )


class _Usage(msgspec.Struct):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    input_cached_tokens: _Count | None = None
    input_cache_write_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None


class _Counts(msgspec.Struct):
    token_events: _Count | None = None


class _Integrity(msgspec.Struct):
    complete: bool | None = None


class _Known(msgspec.Struct):
    """The members of a record from which a span is made. Others are ignored; records of earlier versions lack some."""

    stream_id: UUID
    started_at: _Text | None
    outcome: _Text
    error: _Error | None
    timing: _Timing
    usage: _Usage
    choices: list[_Choice]
    request: _Request | None = None
    trace_id: _Text | None = None
    parent_span_id: _Text | None = None
    upstream: _Text | None = None
    dialect: _Text | None = None
    endpoint: _Text | None = None
    tap: _Text | None = None
    tenant: _Text | None = None
    attempt: _Count | None = None
    streaming: bool | None = None
    request_model: _Text | None = None
    response_model: _Text | None = None
    routed_model: _Text | None = None
    service_tier: _Text | None = None
    response_id: _Text | None = None
    provider_request_id: _Text | None = None
    resumed_from: _Text | None = None
    status_code: _Count | None = None
    finish_reason: _Text | None = None
    attributes: Annotated[dict[_Text, _Text], msgspec.Meta(max_length=32)] = {}
    counts: _Counts = msgspec.field(default_factory=_Counts)
    integrity: _Integrity = msgspec.field(default_factory=_Integrity)


_DECODER = msgspec.json.Decoder(_Known)
_RESOURCE = Resource({"service.name": "streamgauge", "service.version": streamgauge.__version__})
_SCOPE = InstrumentationScope("streamgauge", streamgauge.__version__)


def span_of(record: bytes, addresses: Addresses | None = None) -> ReadableSpan:
    """The span of a record's JSON, with or without its cost. Raises NoSpanError, and nothing else.

    It is a child of the caller's span if the request had a `traceparent`; otherwise it is the only one of a trace whose id is
    the stream's. `addresses`: of the upstreams that have a name.
    """
    try:
        known = _DECODER.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoSpanError("not a record of this version") from error
    start = _start_of(known.started_at)
    operation, _ = OPERATIONS.get(known.dialect, UNKNOWN_OPERATION)
    model = known.request_model or known.response_model
    trace_id = known.trace_id if _TRACE_ID.fullmatch(known.trace_id or "") else None
    trace = int(trace_id, 16) if trace_id else known.stream_id.int or 1
    parent = None
    if trace_id and _SPAN_ID.fullmatch(known.parent_span_id or ""):
        parent = SpanContext(trace, int(known.parent_span_id or "", 16), is_remote=True)
    end = _at(start, known.timing.last_known_s())
    return ReadableSpan(
        f"{operation} {model}" if model else operation,
        context=SpanContext(trace, _span_id(known.stream_id), False, TraceFlags(TraceFlags.SAMPLED)),
        parent=parent,
        resource=_RESOURCE,
        attributes=_without_nulls(_attributes(known, addresses or {})),
        events=list(_events(known, start, end)),
        kind=SpanKind.CLIENT,
        status=Status(StatusCode.UNSET) if known.outcome == "completed" else Status(StatusCode.ERROR, known.outcome),
        start_time=start,
        end_time=end,
        instrumentation_scope=_SCOPE,
    )


def _start_of(started_at: str | None) -> int:
    """Nanoseconds since 1970, UTC. Raises NoSpanError."""
    if started_at is None:
        raise NoSpanError("the record does not say when the stream began")
    try:
        moment = datetime.fromisoformat(started_at)
        start = (moment - _EPOCH) // _MICROSECOND * 1_000 if moment.tzinfo else -1
    except (ValueError, OverflowError):
        start = -1
    if not 0 <= start <= _MAX_START_NS:
        raise NoSpanError("started_at is no time with a zone after 1970")
    return start


def _at(start: int, seconds: float) -> int:
    return start + round(seconds * 1e9)


def _span_id(stream: UUID) -> int:
    """The id of a stream's span: the same each time."""
    return int.from_bytes(blake2b(stream.bytes, digest_size=8).digest()) or 1


def _without_nulls(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None and value != ()}


def _attributes(known: _Known, addresses: Addresses) -> dict[str, Value | None]:
    operation, provider = OPERATIONS.get(known.dialect, UNKNOWN_OPERATION)
    request, usage, timing = known.request or _Request(), known.usage, known.timing
    host, port = _address(known.upstream, addresses)
    reasons = (choice.finish_reason_raw or choice.finish_reason for choice in known.choices)
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": known.request_model,
        "gen_ai.request.stream": request.stream,
        "gen_ai.request.max_tokens": request.max_tokens,
        # The convention leaves out a count of 1.
        "gen_ai.request.choice.count": None if request.n == 1 else request.n,
        "gen_ai.response.model": known.response_model,
        "gen_ai.response.id": known.response_id,
        "gen_ai.response.finish_reasons": tuple(reason for reason in reasons if reason is not None),
        "gen_ai.response.time_to_first_chunk": timing.first_event_s if known.streaming else None,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.input_cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.input_cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "error.type": error_type(known.error, known.outcome),
        "http.response.status_code": known.status_code,
        "server.address": host,
        "server.port": port,
        "streamgauge.stream_id": str(known.stream_id),
        "streamgauge.outcome": known.outcome,
        "streamgauge.upstream": known.upstream,
        "streamgauge.dialect": known.dialect,
        "streamgauge.endpoint": known.endpoint,
        "streamgauge.tap": known.tap,
        "streamgauge.tenant": known.tenant,
        "streamgauge.attempt": known.attempt,
        "streamgauge.resumed_from": known.resumed_from,
        "streamgauge.routed_model": known.routed_model,
        "streamgauge.service_tier": known.service_tier,
        "streamgauge.provider_request_id": known.provider_request_id,
        "streamgauge.finish_reason": known.finish_reason,
        "streamgauge.time_to_first_token": timing.first_token_s,
        "streamgauge.stalls": timing.gaps.stalls,
        "streamgauge.token_events": known.counts.token_events,
        "streamgauge.complete": known.integrity.complete,
        # Then the span ends at the last time that is known.
        "streamgauge.end_unknown": True if timing.end_s is None else None,
        **{f"streamgauge.attribute.{name}": value for name, value in known.attributes.items()},
    }


def _address(upstream: str | None, addresses: Addresses) -> tuple[str | None, int | None]:
    """The host and the port of an upstream, if they are known."""
    known = addresses.get(upstream or "")
    if known is not None:
        return known
    match = _HOST_AND_PORT.fullmatch(upstream or "")
    return (match[1], int(match[2])) if match else (None, None)


def _events(known: _Known, start: int, end: int) -> Iterator[Event]:
    if known.timing.first_token_s is not None:
        yield Event(FIRST_TOKEN, {}, timestamp=_at(start, known.timing.first_token_s))
    if (error := known.error) is not None:
        attributes = {
            "error.type": error_type(error, known.outcome),
            "streamgauge.error.phase": error.phase,
            "streamgauge.error.code": error.code,
            "streamgauge.error.status": error.status,
        }
        yield Event(ERROR, _without_nulls(attributes), timestamp=end)
