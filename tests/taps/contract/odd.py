"""Scenarios that are legal and rare, or wrong and known: duplicate or missing headers, unknown codings, endings at
unusual places.
"""

import gzip

from tests.taps.contract.answers import BEGIN, CHAT, COMPLETED, ERROR, OVERLOADED
from tests.taps.contract.scenario import CANARY, JSON, SSE, Scenario

WHOLE = b"".join(CHAT)
PACKED = gzip.compress(WHOLE, mtime=0)
REFUSED = f'{{"error":{{"message":"{CANARY}","type":"requests","code":"slow_down"}}}}'.encode()
RESET = {"outcome": "upstream_reset", "error": {"phase": "transport"}}
# The chat has a comment of its own.
COMMENTED = {**COMPLETED, "counts": {**COMPLETED["counts"], "comments": 2}}

HEADS = (
    Scenario(name="no-type", headers=(), reads=CHAT, record=COMPLETED),
    Scenario(
        name="type-in-capitals",
        target="/mystery",
        early=False,
        headers=(("CONTENT-TYPE", "Text/Event-Stream;Charset=utf-8"),),
        reads=CHAT,
        record=COMPLETED,
    ),
    Scenario(
        name="type-twice",
        target="/mystery",
        early=False,
        headers=(JSON, SSE),
        reads=CHAT,
        record=COMPLETED,
    ),
    Scenario(
        name="types-in-one-field",
        target="/mystery",
        early=False,
        headers=(("Content-Type", "text/event-stream; charset=utf-8, text/event-stream"),),
        reads=CHAT,
        record=COMPLETED,
    ),
    Scenario(name="events-as-json-after-a-comment", headers=(JSON,), reads=(b": ping\n\n", *CHAT), record=COMMENTED),
    Scenario(
        name="events-as-text-after-an-id",
        headers=(("Content-Type", "text/plain"),),
        reads=(b"\r\nid: 7\r\n: ping\r\n", *CHAT),
        record=COMMENTED,
    ),
    Scenario(
        name="ids-twice",
        headers=(SSE, ("Request-Id", "third"), ("X-Request-Id", "first"), ("X-Request-Id", "second")),
        reads=CHAT,
        record={**COMPLETED, "provider_request_id": "first"},
    ),
    Scenario(
        name="blanks",
        headers=(SSE, ("X-Request-Id", "  req-7  ")),
        reads=CHAT,
        record={**COMPLETED, "provider_request_id": "req-7"},
    ),
    Scenario(
        name="retry-at-a-date",
        status=503,
        headers=(JSON, ("Date", "Tue, 14 Nov 2023 22:13:20 GMT"), ("Retry-After", "Tue, 14 Nov 2023 22:13:50 GMT")),
        framing="length",
        reads=(REFUSED,),
        record={"outcome": "http_error", "status_code": 503, "retry_after_s": 30.0},
    ),
    Scenario(
        name="error-as-stream",
        status=500,
        reads=(ERROR,),
        record={"outcome": "http_error", "status_code": 500, "error": {**OVERLOADED, "status": 500}},
    ),
    Scenario(
        name="redirect",
        status=307,
        headers=(("Location", "/elsewhere"),),
        framing="length",
        reads=(),
        record={"outcome": "http_error", "status_code": 307, "counts": {"bytes": 0}},
    ),
    Scenario(
        name="page-for-an-answer",
        headers=(("Content-Type", "text/html"),),
        framing="length",
        reads=(b"<html>CANARY</html>",),
        record={"outcome": "truncated", "streaming": False, "status_code": 200},
    ),
    Scenario(
        name="early-hints", before=b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", reads=CHAT, record=COMPLETED
    ),
    Scenario(name="chunks-extended", extension=b";a=b", trailer=b"X-Secret: SECRET\r\n", reads=CHAT, record=COMPLETED),
)

BODIES = (
    Scenario(
        name="packed-request",
        request_body=gzip.compress(b'{"model":"m-1","stream":true,"messages":"SECRET"}', mtime=0),
        asked_headers=(("Content-Encoding", "gzip"),),
        reads=CHAT,
        record={**COMPLETED, "request_model": "m-1", "request": {"stream": True}},
    ),
    Scenario(
        name="broken-request",
        request_body=b'{"model":"m-1","stream":tr',
        reads=CHAT,
        record={**COMPLETED, "request_model": None, "request": {"stream": None, "body_bytes": 26}},
    ),
    Scenario(name="byte-order-mark", reads=(b"\xef\xbb\xbf", *CHAT), record=COMPLETED),
    Scenario(name="lone-cr", reads=tuple(read.replace(b"\n", b"\r") for read in CHAT), record=COMPLETED),
    Scenario(name="empty", reads=(), record={"outcome": "truncated", "counts": {"events": 0, "bytes": 0}}),
    Scenario(
        name="packed-twice",
        headers=(SSE, ("Content-Encoding", "gzip, x-gzip")),
        reads=(gzip.compress(PACKED, mtime=0),),
        record={**COMPLETED, "content_encoding": "gzip, x-gzip"},
    ),
    Scenario(
        name="not-packed",
        headers=(SSE, ("Content-Encoding", "gzip")),
        reads=CHAT,
        record={"outcome": "truncated", "integrity": {"complete": False}, "counts": {"bytes": len(WHOLE)}},
    ),
)

ENDS = (
    Scenario(name="rst-before-the-body", reads=(), end="rst", record={**RESET, "status_code": 200}),
    Scenario(
        name="rst-amid-gzip",
        headers=(SSE, ("Content-Encoding", "gzip")),
        reads=(PACKED[:-20],),
        end="rst",
        record=RESET,
    ),
    Scenario(
        name="cut-json",
        headers=(JSON,),
        framing="length",
        reads=(b'{"id":"chat-1","obj',),
        end="fin",
        record={**RESET, "streaming": False},
    ),
    Scenario(
        name="client-leaves-within-an-event",
        reads=(*BEGIN, b'data: {"choices":[{"delta":{"content":"CANARY'),
        end="client",
        record={"outcome": "client_abort", "counts": {"events": 2, "unterminated_events": 1}},
    ),
    Scenario(
        name="client-leaves-at-an-error",
        reads=(*BEGIN, ERROR),
        end="client",
        record={"outcome": "stream_error", "error": OVERLOADED},
    ),
)

ODD = (*HEADS, *BODIES, *ENDS)
