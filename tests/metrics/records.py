"""A record for tests: a completed chat stream, with whatever the test changes."""

from typing import Any

import msgspec

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.record import Counts, Gaps, Integrity, Record, Request, Timing, Usage


def gap_buckets(*gaps: float) -> list[tuple[float | None, int]]:
    """Cumulative counts of `gaps` (seconds) at the record's bounds."""
    rows: list[tuple[float | None, int]] = [(bound, sum(gap <= bound for gap in gaps)) for bound in GAP_BOUNDS_S]
    return [*rows, (None, len(gaps))]


def make_usage(input_tokens: int | None = 10, output_tokens: int | None = 5, **changes: Any) -> Usage:
    total = None if input_tokens is None or output_tokens is None else input_tokens + output_tokens
    usage = Usage(
        input_tokens, output_tokens, total, None, None, None, None, None, None,
        parts=[], source="final", identity_failed=None, bad_values=0, raw=None,
    )  # fmt: skip
    return msgspec.structs.replace(usage, **changes)


ABSENT = make_usage(None, None, source="absent")


_BUCKETS = gap_buckets(0.0, 0.02, 0.02, 0.06)


def make_timing(**changes: Any) -> Timing:
    timing = Timing(
        Gaps(4, max_s=0.06, stalls=0, buckets=list(_BUCKETS)),
        headers_s=0.1,
        first_byte_s=0.15,
        first_event_s=0.15,
        first_token_s=0.2,
        first_content_s=0.2,
        last_token_s=0.3,
        end_s=0.35,
        inter_token_latency_s=0.025,
        burst=False,
    )
    return msgspec.structs.replace(timing, **changes)


def make_counts(**changes: Any) -> Counts:
    counts = Counts(
        events=7, token_events=5, repeated_events=0, after_terminal_events=0, comments=0, unparsed_events=0,
        unterminated_events=0, error_fields=0, bytes=700, client_bytes=800, reads=7, segments=1,
        text_chars=20, reasoning_chars=0, refusal_chars=0,
    )  # fmt: skip
    return msgspec.structs.replace(counts, **changes)


def make_integrity(*reasons: str, **changes: Any) -> Integrity:
    return msgspec.structs.replace(Integrity(not reasons, list(reasons), 0, 0, 0, None), **changes)


def make_record(host: Any = "api.openai.com", **changes: Any) -> Record:
    """A completed stream of five token events, usage and times. `changes`: fields of the record; `host`: of its request."""
    known: dict[str, Any] = dict.fromkeys(Record.__struct_fields__)
    known |= {
        "schema_version": 1,
        "stream_id": "0190b4a0-0000-7000-8000-000000000001",
        "tap": "proxy",
        "capture": "masked",
        "upstream": "nimbus",
        "dialect": "openai-chat",
        "endpoint": "/chat/completions",
        "streaming": True,
        "request": Request(stream=True),
        "request_model": "gpt-4o",
        "response_model": "gpt-4o-2024-08-06",
        "attributes": {},
        "started_at": "2026-03-01T12:00:00.000000Z",
        "status_code": 200,
        "outcome": "completed",
        "finish_reason": "stop",
        "finish_reason_raw": "stop",
        "choices": [],
        "timing": make_timing(),
        "usage": make_usage(),
        "counts": make_counts(),
        "integrity": make_integrity(),
    }
    record = Record(**{**known, **changes})
    if record.request is not None:
        record.request = msgspec.structs.replace(record.request, host=host)
    return record
