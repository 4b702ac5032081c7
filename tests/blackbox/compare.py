"""Compares one exchange with its record: every field that the bytes and the stamps determine. Gives findings as text."""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from streamgauge_demo import provider
from tests.blackbox.expect import Body, after_interim, read_body
from tests.blackbox.reading import READERS, Reading, outcome_of, usage_of
from tests.client import Received

Json = dict[str, Any]
# The machine is shared: a stamp may differ by this from ours (seconds); medians are tested elsewhere.
SLACK_S = 2.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
READ_REQUEST_BYTES = 16 * 1024 * 1024
NORMAL = {
    "stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter",
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
    "refusal": "content_filter", "pause_turn": "paused", "error": "error",
}  # fmt: skip
NAMES = [
    "schema_version", "stream_id", "tap", "tap_instance", "tap_version", "capture", "upstream", "dialect", "endpoint",
    "streaming", "request", "request_model", "response_model", "routed_model", "service_tier", "response_id",
    "provider_request_id", "trace_id", "parent_span_id", "tenant", "credential_id", "provider_organization",
    "provider_project", "request_digest", "attempt", "resumed_from", "last_event_id", "last_sequence_number", "attributes",
    "rate_limit", "started_at", "status_code", "content_encoding", "retry_after_s", "outcome", "error", "finish_reason",
    "finish_reason_raw", "choices", "timing", "provider_timing", "usage", "counts", "integrity",
]  # fmt: skip
TIMES = [
    "upstream_connect_s", "request_sent_s", "headers_s", "first_byte_s", "first_event_s", "first_token_s",
    "first_reasoning_s", "first_content_s", "first_tool_s", "last_token_s", "finish_s", "end_s", "client_blocked_s",
    "client_gone_s", "gaps", "wire_max_gap_s", "inter_token_latency_s", "burst",
]  # fmt: skip


@dataclass
class Exchange:
    """An exchange as seen from outside. `ended`: proper, early, rst, left; `exact`: the client must get identical bytes;
    `asks`: the request has `Expect: 100-continue`, and the upstream sends a 100.
    """

    case: str
    trace: str
    dialect: str
    received: Received
    played: provider.Exchange | None
    ended: str = "proper"
    exact: bool = True
    request_body: bytes = b'{"stream":true}'
    only: frozenset[str] = frozenset()
    method: str = "POST"
    asks: bool = False
    body: Body = field(default_factory=Body)
    reading: Reading = field(default_factory=Reading)

    def read(self) -> None:
        if self.played is not None:
            self.body = read_body(self.played.sent, self.method)
            self.reading = READERS[self.dialect](self.body.events)


def client_findings(one: Exchange) -> list[str]:
    """Compares the client's bytes with the upstream's.

    Interim heads of the upstream never reach the client (decision 48): the relay writes a 100 if the client asks for it.
    """
    if one.played is None:
        return []
    sent = after_interim(b"".join(piece.data for piece in one.played.sent))
    sent = CONTINUE + sent if one.asks else sent
    raw = one.received.raw
    if one.ended == "left" or not one.exact:
        return [] if sent.startswith(raw) else [f"client bytes are no prefix: {raw[:200]!r} of {sent[:200]!r}"]
    if raw == sent:
        end = {"proper": {"done", "fin"}, "early": {"fin", "rst"}, "rst": {"rst"}}[one.ended]
        return (
            []
            if one.received.end in end
            else [f"client saw the end as {one.received.end}, the upstream's was {one.ended}"]
        )
    if one.ended == "rst" and sent.startswith(raw):  # a reset may overtake bytes in the client's buffer
        return [] if one.received.end == "rst" else [f"client saw {one.received.end} for a reset"]
    at = next((i for i, (a, b) in enumerate(zip(raw, sent, strict=False)) if a != b), min(len(raw), len(sent)))
    return [
        f"client bytes differ at {at}: got {raw[at : at + 80]!r}, sent {sent[at : at + 80]!r}, end {one.received.end}"
    ]


def record_findings(one: Exchange, record: Json) -> list[str]:
    """Compares the record with an independent reading."""
    findings = shape_findings(record)
    for name, expected in {**expected_of(one), **usage_expected(one)}.items():
        actual = finishes(record) if name == "choices_finish" else dig(record, name)
        if (not one.only or name in one.only) and actual != expected:
            findings.append(f"{name}: expected {expected!r}, got {actual!r}")
    return findings + time_findings(one, record)


def finishes(record: Json) -> dict[int, str | None]:
    return {choice["index"]: choice["finish_reason_raw"] for choice in record["choices"]}


def dig(record: Json, path: str) -> Any:
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def shape_findings(record: Json) -> list[str]:
    found = [f"no field {name}" for name in NAMES if name not in record]
    found += [f"no timing.{name}" for name in TIMES if name not in record["timing"]]
    if not re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", record["stream_id"]):
        found.append(f"stream_id {record['stream_id']}")
    return found


def expected_of(one: Exchange) -> Json:
    body, reading = one.body, one.reading
    tokens = reading.tokens
    outcome = outcome_of(body, reading, one.ended)
    reasons = list(reading.finish.values())
    streaming = "event-stream" in body.head.decode("latin-1")
    contents = [each for _, each in reading.contents]
    expected: Json = {
        "outcome": outcome,
        "status_code": body.status or None,
        "streaming": streaming,
        "trace_id": one.trace,
        "request.body_bytes": len(one.request_body),
        "counts.token_events": len(tokens),
        "counts.text_chars": sum(each.text for each in contents),
        "counts.reasoning_chars": sum(each.reasoning for each in contents),
        "counts.refusal_chars": sum(each.refusal for each in contents),
        "counts.comments": body.comments,
        "counts.error_fields": body.error_fields,
        "counts.bytes": body.bytes,
        "counts.repeated_events": 0,
        "timing.gaps.count": max(0, len(tokens) - 1),
        "integrity.complete": True,
        "integrity.reasons": ["request_capped"] if len(one.request_body) > READ_REQUEST_BYTES else [],
        "error.phase": phase_of(one, outcome),
    }
    if one.ended != "left":
        expected["counts.client_bytes"] = body.bytes
        expected["counts.unterminated_events"] = int(body.half)
        if not body.half and not reading.unparsed:
            expected["counts.events"] = len(body.events)
            expected["counts.unparsed_events"] = 0
    if body.events and one.ended != "left":
        expected["response_id"], expected["response_model"] = reading.response_id, reading.model
        if reading.contents:
            expected["dialect"] = one.dialect
    if len(set(reasons)) <= 1 and one.dialect != "openai-responses" and reading.error is None:
        raw = reasons[0] if reasons else None
        expected["finish_reason_raw"] = raw
        expected["finish_reason"] = NORMAL.get(raw) if raw else None
    if one.dialect.startswith("openai-c") and one.ended != "left":
        expected["choices_finish"] = {index: reading.finish.get(index) for index in sorted(reading.started)}
    return expected


def phase_of(one: Exchange, outcome: str) -> str | None:
    if outcome == "http_error":
        return "before_stream"
    if outcome == "stream_error":
        return "in_stream"
    return "transport" if outcome in {"upstream_reset", "timeout"} else None


def usage_expected(one: Exchange) -> Json:
    if one.ended == "left":
        return {}
    usage = usage_of(one.dialect, one.reading.usage)
    if one.dialect == "anthropic-messages" and not one.reading.usage_final:
        usage = {name: value for name, value in usage.items() if "total" not in name and "output" not in name}
        usage["output_tokens"] = None
    source = "final" if one.reading.usage_final else "partial" if one.reading.usage else "absent"
    return {**{f"usage.{name}": value for name, value in usage.items()}, "usage.source": source}


def time_pairs(one: Exchange, record: Json) -> dict[str, tuple[float | None, float | None]]:
    """Name -> (ours, the record's), both in seconds since the request's first byte."""
    timing, zero = record["timing"], one.received.sent_at
    tokens = one.reading.tokens
    ours = {
        "headers_s": one.body.head_at or None,
        "first_byte_s": one.body.pieces[0].at if one.body.pieces else None,
        "first_event_s": one.body.events[0].at if _any_event(one) else None,
        "first_token_s": tokens[0][0].at if tokens else None,
        "last_token_s": tokens[-1][0].at if tokens else None,
        "first_reasoning_s": one.reading.first("reasoning"),
        "first_content_s": _least(one.reading.first("text"), one.reading.first("refusal")),
        "first_tool_s": one.reading.first("tool"),
        "finish_s": one.reading.finish_at,
    }
    return {name: (at - zero if at is not None else None, timing[name]) for name, at in ours.items()}


def _any_event(one: Exchange) -> bool:
    """An incomplete event at the end does not count; one that only lacks its blank line does."""
    events = one.body.events
    return len(events) > 1 or (bool(events) and not (events[0].unterminated and one.reading.unparsed))


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def time_findings(one: Exchange, record: Json) -> list[str]:
    if one.only or one.ended == "left":
        return []
    found = []
    for name, (ours, theirs) in time_pairs(one, record).items():
        if (ours is None) != (theirs is None):
            found.append(f"timing.{name}: expected {ours}, got {theirs}")
        elif ours is not None and theirs is not None and abs(ours - theirs) > SLACK_S:
            found.append(f"timing.{name}: expected about {ours}, got {theirs}")
    return found + order_findings(record["timing"])


def order_findings(timing: Json) -> list[str]:
    names = ["request_sent_s", "headers_s", "first_byte_s", "first_event_s", "first_token_s", "last_token_s", "end_s"]
    have = [(name, timing[name]) for name in names if timing[name] is not None]
    if len(have) > 1 and have[0][0] == "request_sent_s" and have[0][1] > have[1][1]:
        have = have[1:]  # a response may come before the request has been sent
    return [f"timing: {a} after {b}" for a, b in pairwise(have) if a[1] > b[1]]
