"""The scenarios: what providers send and clients do, each with the expected content of its record."""

import json
from typing import Any

import brotli
import zstandard

from tests.taps.contract.answers import (
    BEGIN,
    CHARS,
    CHAT,
    COMPLETED,
    COUNTED,
    DONE,
    ERROR,
    GEMINI,
    OVERLOADED,
    RESPONSE,
    TEXT,
    TOOL_CALL,
    USAGE,
    chunk,
    event,
)
from tests.taps.contract.odd import ODD
from tests.taps.contract.scenario import CANARY, JSON, SECRET, SSE, TENANT_HEADER, Scenario
from tests.taps.talk import gzip_flushed
from tests.vectors.load import PRESENT


def failed(outcome: str, error: Any = None, **counts: int) -> dict[str, Any]:
    return {"outcome": outcome, "error": error, "dialect": "openai-chat", "finish_reason": None, "counts": counts}


def coded(name: str, *reads: bytes) -> Scenario:
    record = {**COMPLETED, "content_encoding": name}
    return Scenario(name=f"coded-{name}", headers=(SSE, ("Content-Encoding", name)), reads=reads, record=record)


def halves(data: bytes) -> tuple[bytes, ...]:
    return data[: len(data) // 2], data[len(data) // 2 :]


OPENAI = (
    Scenario(
        name="chat",
        reads=CHAT,
        headers=(
            SSE, ("X-Request-Id", "req-7"), ("OpenAI-Organization", "org-1"), ("OpenAI-Project", "proj-1"),
            ("x-ratelimit-limit-requests", "5000"), ("x-ratelimit-remaining-requests", "4999"),
            ("x-ratelimit-reset-requests", "12ms"), ("x-ratelimit-limit-tokens", "160000"),
            ("x-ratelimit-remaining-tokens", "SECRET"), ("x-ratelimit-reset-tokens", "6m0s"),
        ),
        record={
            **COMPLETED,
            "usage": {"source": "absent", "input_tokens": None},
            "request_model": "m-1",
            "request": {"stream": True, "n": None, "max_tokens": None, "include_usage": None, "body_bytes": 77},
            "request_digest": PRESENT,
            "credential_id": PRESENT,
            "provider_request_id": "req-7",
            "provider_organization": "org-1",
            "provider_project": "proj-1",
            "rate_limit": {
                "requests_limit": 5000, "requests_remaining": 4999, "requests_reset_s": 0.012,
                "tokens_limit": 160_000, "tokens_remaining": None, "tokens_reset_s": 360.0,
            },
        },
    ),
    Scenario(
        name="chat-with-usage",
        reads=(*CHAT[:-1], COUNTED, DONE),
        request_body=json.dumps(
            {
                "model": "m-1", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 50,
                "service_tier": "flex", "messages": [{"role": "user", "content": SECRET}],
            }
        ).encode(),
        record={
            **COMPLETED,
            "counts": {"events": 6, "token_events": 2, "text_chars": CHARS},
            "usage": {
                "source": "final", "input_tokens": 9, "output_tokens": 4, "total_tokens": 13, "input_cached_tokens": 2,
            },
            "request": {"stream": True, "max_tokens": 50, "include_usage": True},
        },
    ),
    Scenario(name="content-length", framing="length", reads=CHAT, record=COMPLETED),
    Scenario(name="until-close", framing="close", reads=CHAT, record=COMPLETED),
    coded("gzip", *halves(gzip_flushed(*CHAT))),
    coded("br", *halves(brotli.compress(b"".join(CHAT)))),
    coded("zstd", *halves(zstandard.ZstdCompressor().compress(b"".join(CHAT)))),
    Scenario(
        name="two-choices",
        request_body=b'{"model":"m-1","stream":true,"n":2,"messages":[]}',
        reads=(chunk("one"), chunk("two", index=1), chunk(finish="stop"), chunk(finish="length", index=1), DONE),
        record={
            "outcome": "completed",
            "request": {"n": 2},
            "choices": [
                {"index": 0, "finish_reason": "stop", "token_events": 1},
                {"index": 1, "finish_reason": "length", "token_events": 1},
            ],
        },
    ),
    Scenario(
        name="big-event",
        reads=(chunk("x" * 300_000), chunk(finish="stop"), DONE),
        record={**COMPLETED, "counts": {"events": 3, "token_events": 1, "text_chars": 300_000}},
    ),
    Scenario(
        name="dribble",
        gap_s=0.0,
        reads=tuple(b"".join(CHAT)[at : at + 3] for at in range(0, len(b"".join(CHAT)), 3)),
        record=COMPLETED,
    ),
)  # fmt: skip

BROKEN = (
    Scenario(
        name="error-first",
        reads=(ERROR,),
        record=failed("stream_error", OVERLOADED, events=1, token_events=0),
    ),
    Scenario(
        name="error-amid",
        reads=(*BEGIN, ERROR),
        record=failed("stream_error", OVERLOADED, events=3, token_events=1, text_chars=len(TEXT)),
    ),
    Scenario(name="truncated", reads=BEGIN, record=failed("truncated", events=2, token_events=1)),
    Scenario(
        name="half-event",
        reads=(*BEGIN, b'data: {"choices":[{"delta":{"content":"CANARY'),
        record=failed("truncated", events=2, token_events=1, unterminated_events=1),
    ),
    *(
        Scenario(
            name=f"{end}-amid-{framing}",
            reads=BEGIN,
            end=end,
            framing=framing,
            record=failed("upstream_reset", {"phase": "transport"}, events=2, token_events=1),
        )
        for end in ("fin", "rst")
        for framing in ("chunked", "length")
    ),
    Scenario(name="rst-after-terminal", reads=CHAT, end="rst", record=COMPLETED),
    Scenario(name="client-leaves", reads=BEGIN, end="client", record=failed("client_abort", events=2, token_events=1)),
    Scenario(name="client-leaves-after-terminal", reads=CHAT, end="client", record=COMPLETED),
    Scenario(
        name="too-many-requests",
        status=429,
        headers=(JSON, ("Retry-After", "7")),
        framing="length",
        reads=(b'{"error":{"message":"CANARY","type":"requests","code":"rate_limit_exceeded"}}',),
        record={
            "outcome": "http_error",
            "status_code": 429,
            "retry_after_s": 7.0,
            "streaming": False,
            "error": {"phase": "before_stream", "type": "requests", "code": "rate_limit_exceeded", "status": 429},
        },
    ),
    Scenario(
        name="bad-gateway",
        status=502,
        headers=(("Content-Type", "text/html"),),
        framing="length",
        reads=(b"<html><title>502 CANARY</title></html>",),
        record={"outcome": "http_error", "status_code": 502, "error": {"phase": "before_stream", "status": 502}},
    ),
    Scenario(
        name="not-streamed",
        request_body=b'{"model":"m-1","messages":[]}',
        headers=(JSON,),
        framing="length",
        reads=(
            json.dumps(
                {
                    "id": "chat-1", "object": "chat.completion", "model": "m-1-01", "usage": USAGE,
                    "choices": [
                        {"index": 0, "message": {"role": "assistant", "content": CANARY}, "finish_reason": "stop"}
                    ],
                }
            ).encode(),
        ),
        record={
            "outcome": "completed", "streaming": False, "finish_reason": "stop", "request": {"stream": None},
            "usage": {"source": "final", "input_tokens": 9, "output_tokens": 4}, "counts": {"token_events": 0},
        },
    ),
)  # fmt: skip

OTHERS = (
    Scenario(
        name="tool-call",
        target="/v1/messages",
        request_body=b'{"model":"c-1","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"SECRET"}]}',
        asked_headers=(("X-Api-Key", SECRET), ("Anthropic-Version", "2023-06-01")),
        headers=(
            SSE, ("Request-Id", "req_8"), ("Anthropic-Organization-Id", "org-2"),
            ("Date", "Fri, 27 Nov 2026 10:00:00 GMT"), ("anthropic-ratelimit-tokens-remaining", "39000"),
            ("anthropic-ratelimit-tokens-reset", "2026-11-27T10:01:30Z"),
        ),
        reads=TOOL_CALL,
        record={
            "outcome": "completed", "dialect": "anthropic-messages", "endpoint": "/messages",
            "finish_reason": "tool_calls", "provider_request_id": "req_8", "provider_organization": "org-2",
            "usage": {"source": "final", "input_tokens": 25, "output_tokens": 12},
            "counts": {"events": 9, "token_events": 3, "text_chars": len(CANARY)},
            "credential_id": PRESENT, "request": {"max_tokens": 99},
            "rate_limit": {"requests_limit": None, "tokens_remaining": 39_000, "tokens_reset_s": 90.0},
        },
    ),
    Scenario(
        name="responses",
        target="/v1/responses",
        request_body=b'{"model":"m-1","stream":true,"max_output_tokens":70,"input":"SECRET"}',
        reads=RESPONSE,
        record={
            "outcome": "completed", "dialect": "openai-responses", "finish_reason": "stop", "last_sequence_number": 4,
            "usage": {"source": "final", "output_tokens": 3}, "counts": {"events": 5, "token_events": 2},
            "request": {"max_tokens": 70},
        },
    ),
    Scenario(
        name="gemini",
        target=f"/v1beta/models/g-1:streamGenerateContent?alt=sse&key={SECRET}",
        request_body=b'{"contents":[{"parts":[{"text":"SECRET"}]}],"generationConfig":{"maxOutputTokens":30}}',
        asked_headers=(),
        reads=GEMINI,
        record={
            "outcome": "completed", "dialect": "gemini", "finish_reason": "stop", "request_model": "g-1",
            "usage": {"source": "final", "output_tokens": 3}, "counts": {"events": 2, "token_events": 2},
            "credential_id": PRESENT, "request": {"max_tokens": 30},
        },
    ),
    Scenario(
        name="resumed",
        method="GET",
        target=f"/v1/responses/resp_1?stream=true&starting_after=1&unknown={SECRET}",
        request_body=b"",
        reads=RESPONSE[1:],
        record={
            "outcome": "completed", "resumed_from": "1", "counts": {"token_events": 1, "repeated_events": 1},
            "request": {"stream": True},
        },
    ),
)  # fmt: skip

ASKED = (
    Scenario(
        name="who-asks",
        asked_headers=(
            ("Authorization", f"Bearer {SECRET}"),
            (TENANT_HEADER, "team-a"),
            ("X-Agent", "planner"),
            ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("X-Stainless-Retry-Count", "2"),
            ("X-Secret", SECRET),
            ("Last-Event-ID", "event-41"),
        ),
        reads=CHAT,
        record={
            **COMPLETED,
            "tenant": "team-a",
            "attributes": {"agent": "planner"},
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
            "parent_span_id": "b7ad6b7169203331",
            "attempt": 3,
            "resumed_from": "event-41",
            "credential_id": PRESENT,
        },
    ),
    Scenario(
        name="long-prompt",
        request_body=b'{"model":"m-1","stream":true,"messages":"' + SECRET.encode() + b"x" * 20_000_000 + b'"}',
        reads=CHAT,
        record={
            **COMPLETED,
            "request_model": None,
            "request_digest": None,
            "request": {"stream": None, "n": None, "max_tokens": None, "include_usage": None, "body_bytes": 20_000_049},
            "integrity": {"complete": True, "reasons": ["request_capped"]},
        },
    ),
    Scenario(
        name="head",
        method="HEAD",
        target="/v1/models",
        request_body=b"",
        headers=(JSON,),
        framing="length",
        reads=(),
        reported=False,
        record=None,
    ),
    Scenario(
        name="models",
        method="GET",
        target="/v1/models",
        request_body=b"",
        headers=(JSON,),
        framing="length",
        reads=(b'{"data":[]}',),
        reported=False,
        record=None,
    ),
    Scenario(
        name="no-llm",
        method="GET",
        target="/news",
        request_body=b"",
        early=False,
        reads=(event("CANARY"), event({"news": CANARY})),
        record=None,
    ),
    Scenario(
        name="unknown-path",
        target="/mystery",
        early=False,
        reads=CHAT,
        record={**COMPLETED, "request_model": None, "request": {"stream": None, "body_bytes": 77}},
    ),
)

# No head is ever sent: what a client sees then is decided by the tap or its own library, so these are kept separate.
WITHOUT_ANSWER = (
    Scenario(
        name="no-answer",
        reads=(),
        answers=False,
        end="fin",
        record={
            "outcome": "upstream_reset",
            "status_code": None,
            "error": {"phase": "transport"},
            "request_model": "m-1",
        },
    ),
    Scenario(
        name="gone-before-the-answer",
        reads=(),
        answers=False,
        end="client",
        record={"outcome": "client_abort", "status_code": None, "error": None},
    ),
)

SCENARIOS = (*OPENAI, *BROKEN, *OTHERS, *ASKED, *ODD)
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *WITHOUT_ANSWER)}
