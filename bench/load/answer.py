"""Requests and responses of the load: bytes that are made once, in chunks of HTTP/1.1, one for each event.

The text of a delta is a tilde and STAMP_DIGITS digits: in a paced stream the upstream's clock when it wrote the event.
`MARK` occurs MARKS times in each event and nowhere else, so that a client can count events without joining chunks.
"""

import re

from streamgauge_demo.provider import LAST_CHUNK, chunk

MARK = b"}"
MARKS = 3
STAMP_DIGITS = 19
STAMP = re.compile(rb"~([0-9]{19})")
# The request header that sets the load. A tap captures LLM_PATH; it does not capture another path, unless the response is
# an event stream.
LOAD_HEADER = b"x-load"
LLM_PATH, OTHER_PATH = "/v1/chat/completions", "/v1/other"

_BODY = (
    b'{"model":"gpt-4.1-mini","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"'
    + b"How is the water today? " * 8
    + b'"}]}'
)
_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Wed, 01 May 2024 00:00:00 GMT\r\ncontent-type: %b\r\ncache-control: no-cache\r\n"
    b"x-request-id: req_0123456789abcdef\r\ntransfer-encoding: chunked\r\n\r\n"
)
_EVENT = (
    b'data: {"id":"chatcmpl-9xKq2bench","object":"chat.completion.chunk","created":1714521600,'
    b'"model":"gpt-4.1-mini-2025-04-14","system_fingerprint":"fp_38647f5e19","choices":[{"index":0,"delta":{%b},'
    b'"finish_reason":%b}]}\n\n'
)


def request(interval_us: int, events: int, *, captured: bool = True, trace: str = "", at_once: int = 1) -> bytes:
    """A request for this many deltas, `at_once` every `interval_us` (0: as fast as possible). `trace`: 32 hex digits."""
    path = LLM_PATH if captured else OTHER_PATH
    traceparent = f"traceparent: 00-{trace}-0123456789abcdef-01\r\n" if trace else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n"
        f"authorization: Bearer sk-bench-0123456789\r\n{LOAD_HEADER.decode()}: {interval_us} {events} {at_once}\r\n"
        f"{traceparent}content-length: {len(_BODY)}\r\n\r\n"
    ).encode() + _BODY


def parse_request(head: bytes) -> tuple[int, int, int, bool]:
    """The interval (us), the number of deltas, how many of them are one write, and whether the path is LLM_PATH, from the
    head of a request.
    """
    line = head.lower().partition(b"\r\n" + LOAD_HEADER + b":")[2].partition(b"\r\n")[0].split()
    return int(line[0]), int(line[1]), int(line[2]), LLM_PATH.encode() in head.partition(b"\r\n")[0]


def _delta(text: bytes) -> bytes:
    return _EVENT % (b'"content":"%b"' % text, b"null")


# The bytes around the stamp of a delta: `BEFORE + digits + AFTER` is a chunk. All have the same size.
BEFORE, AFTER = chunk(_delta(b" ~" + b"0" * STAMP_DIGITS)).split(b"0" * STAMP_DIGITS)
DELTA_BYTES = len(_delta(b" ~" + b"0" * STAMP_DIGITS))
# The first write of a response, for LLM_PATH and for another path, and the last write.
BEGINNING, OTHER_BEGINNING = (
    _HEAD % kind + chunk(_EVENT % (b'"role":"assistant","content":""', b"null"))
    for kind in (b"text/event-stream; charset=utf-8", b"application/octet-stream")
)
END = chunk(_EVENT % (b"", b'"stop"')) + chunk(b"data: [DONE]\n\n") + LAST_CHUNK


def stamped(now_ns: int) -> bytes:
    """A delta with this time as its stamp."""
    return b"%b%019d%b" % (BEFORE, now_ns, AFTER)


def marks(events: int) -> int:
    """How often MARK occurs in a response with this many deltas."""
    return MARKS * (events + 2)
