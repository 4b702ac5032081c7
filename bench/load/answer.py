"""What the load asks and what it is answered: bytes that are made once, in chunks of HTTP/1.1, one for each event.

A delta holds a number of STAMP_DIGITS digits behind a tilde, as its text: at a pace that is the upstream's clock when it
wrote the event. `MARK` stands MARKS times in each of a stream's events and nowhere else, so that a client can count what
it got without putting chunks together again.
"""

import re

MARK = b"}"
MARKS = 3
STAMP_DIGITS = 19
STAMP = re.compile(rb"~([0-9]{19})")
# What ends a chunked answer; no event's bytes end so.
LAST_CHUNK = b"0\r\n\r\n"
# The header that tells the upstream what to do, and one that tells a tap nothing: what is not an LLM's path is not captured
# unless its content type is an event stream's.
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


def request(interval_us: int, events: int, *, captured: bool = True, trace: str = "") -> bytes:
    """A request for so many deltas, one each `interval_us` microseconds; 0: as fast as they go. `trace`: of 32 hex digits."""
    path = LLM_PATH if captured else OTHER_PATH
    traceparent = f"traceparent: 00-{trace}-0123456789abcdef-01\r\n" if trace else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n"
        f"authorization: Bearer sk-bench-0123456789\r\n{LOAD_HEADER.decode()}: {interval_us} {events}\r\n"
        f"{traceparent}content-length: {len(_BODY)}\r\n\r\n"
    ).encode() + _BODY


def asked(head: bytes) -> tuple[int, int, bool]:
    """What a request's head asks for: interval in microseconds, deltas, whether it is an LLM's path."""
    line = head.lower().partition(b"\r\n" + LOAD_HEADER + b":")[2].partition(b"\r\n")[0].split()
    return int(line[0]), int(line[1]), LLM_PATH.encode() in head.partition(b"\r\n")[0]


def chunk(data: bytes) -> bytes:
    """One chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _delta(text: bytes) -> bytes:
    return _EVENT % (b'"content":"%b"' % text, b"null")


# A delta around its stamp: `BEFORE + digits + AFTER` is a chunk. All are of one size.
BEFORE, AFTER = chunk(_delta(b" ~" + b"0" * STAMP_DIGITS)).split(b"0" * STAMP_DIGITS)
DELTA_BYTES = len(_delta(b" ~" + b"0" * STAMP_DIGITS))
# An answer's first write, for an LLM's path and for another one, and its last.
BEGINNING, OTHER_BEGINNING = (
    _HEAD % kind + chunk(_EVENT % (b'"role":"assistant","content":""', b"null"))
    for kind in (b"text/event-stream; charset=utf-8", b"application/octet-stream")
)
END = chunk(_EVENT % (b"", b'"stop"')) + chunk(b"data: [DONE]\n\n") + LAST_CHUNK


def stamped(now_ns: int) -> bytes:
    """A delta that was written at this time."""
    return b"%b%019d%b" % (BEFORE, now_ns, AFTER)


def marks(events: int) -> int:
    """How often MARK stands in an answer of so many deltas."""
    return MARKS * (events + 2)
