"""Responses that are malformed, or that clients read differently, with the decision about each.

For the recorder: the status, or the fault of the head; the body; how the body ended. For the relay: its fault, and
whether it reuses the connection.
"""

from typing import NamedTuple

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH_3 = OK + b"Content-Length: 3\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE, OPEN, BROKEN = "whole", "open", "broken"


class Decided(NamedTuple):
    """See above. `ambiguous`: clients read it differently, though a tolerant client reads it as complete."""

    head: int | str
    body: bytes
    end: str
    ambiguous: bool
    relay: str | None
    reused: bool


MALFORMED: dict[bytes, Decided] = {
    # Status lines.
    b"garbage\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/2.0 200 OK\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1 20\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1 099 X\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1  200 OK\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1 200\rOK\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1 200OK\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"http/1.1 200 OK\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1\r\n 200 OK\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    b"HTTP/1.1 100 C\r\n\r\ngarbage\r\n\r\n": Decided("not_http", b"", OPEN, False, "not_http", False),
    # Lengths.
    LENGTH_3 + b"Content-Length: 4\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 3, 4\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    LENGTH_3 + b"Content-Length: 3\r\n\r\nabc": Decided(200, b"abc", WHOLE, False, None, True),
    OK + b"Content-Length: 3, 03\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: +3\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: -3\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 0x3\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 3 3\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 3;\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 1_0\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: \xb3\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 9999999999999999999\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: \x003\r\n\r\nabc": Decided(200, b"", BROKEN, True, "bad_head", False),
    OK + b"Content-Length: 3\x00\r\n\r\nabc": Decided(200, b"", BROKEN, True, "bad_head", False),
    OK + b"Content-Length: 3\x0b\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 3\xa0\r\n\r\nabc": Decided(200, b"", BROKEN, False, "bad_head", False),
    OK + b"Content-Length: 3\r4\r\n\r\nabc": Decided(200, b"", BROKEN, True, "bad_head", False),
    OK + b"Content-Length:\r\n\r\nabc": Decided(200, b"abc", OPEN, False, None, False),
    OK + b"Content-Length : 3\r\n\r\nabc": Decided(200, b"abc", WHOLE, True, None, False),
    OK + b"Content-Length:\r\n 3\r\n\r\nabc": Decided(200, b"abc", WHOLE, True, None, False),
    OK + b"A: b\r\n Content-Length: 3\r\n\r\nabc": Decided(200, b"abc", OPEN, True, None, False),
    OK + b"\x00Content-Length: 3\r\n\r\nabc": Decided(200, b"abc", OPEN, True, None, False),
    OK + b"Content-Length\x00: 3\r\n\r\nabc": Decided(200, b"abc", OPEN, True, None, False),
    LENGTH_3 + b"no colon\r\n 4\r\n\r\nabc": Decided(200, b"abc", WHOLE, True, None, False),
    b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc": Decided(200, b"abc", WHOLE, False, None, True),
    OK + b"A: \x00\r\nContent-Length: 3\r\n\r\nabc": Decided(200, b"abc", WHOLE, True, None, False),
    OK + b"A: b\rContent-Length: 4\r\nContent-Length: 3\r\n\r\nabc": Decided(200, b"abc", WHOLE, True, None, False),
    # Transfer codings.
    OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"abc", WHOLE, False, None, False
    ),
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"abc", WHOLE, False, None, False
    ),
    OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"", BROKEN, False, "bad_head", False
    ),
    OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"", BROKEN, False, "bad_head", False
    ),
    OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    OK + b"Transfer-Encoding: identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    OK + b"Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    OK + b"Transfer-Encoding: chunked;a=b\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    OK + b"Transfer-Encoding: \x0bchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    OK + b"Transfer-Encoding: chunked\x00\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, True, None, False
    ),
    OK + b"Transfer-Encoding: chunked\xa0\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    OK + b"Transfer-Encoding : chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, None, False),
    OK + b"Transfer-Encoding:\r\n chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, None, False),
    OK + b"Transfer-Encoding: ,\r\n\r\n3\r\nabc\r\n0\r\n\r\n": Decided(
        200, b"3\r\nabc\r\n0\r\n\r\n", OPEN, False, None, False
    ),
    # Chunks and trailers.
    CHUNKED + b"3\nabc\n0\n\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"3\r\nabc\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"3\r\nabc\r\n0\r\n\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, False, None, True),
    CHUNKED + b"3\t\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, False, None, True),
    CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"3_0\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"3g\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"3\r\r\nabc\r\n0\r\n\r\n": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n": Decided(200, b"abc", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"3\r\nabc0\r\n\r\n": Decided(200, b"abc", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"3\r\nabc\r0\r\n\r\n": Decided(200, b"abc", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"4\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc\r", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"1000000000000000\r\nabc": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"10000000000000000\r\nabc": Decided(200, b"", BROKEN, False, "bad_chunks", False),
    CHUNKED + b"000000000000000000003\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, False, None, True),
    CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, False, None, True),
    CHUNKED + b'3;a="b;c"\r\nabc\r\n0\r\n\r\n': Decided(200, b"abc", WHOLE, False, None, True),
    CHUNKED + b"3; a=b\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"3;a b\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"3;\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"3;a=b\rc\r\nabc\r\n0\r\n\r\n": Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b'3;a="b\nabc\r\n0\r\n\r\n': Decided(200, b"abc", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nA: b\r\n\r\n": Decided(200, b"", WHOLE, False, None, True),
    CHUNKED + b"0\r\nA : b\r\n\r\n": Decided(200, b"", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nA\r\n\r\n": Decided(200, b"", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n": Decided(200, b"", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nA: b\n\r\n": Decided(200, b"", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nA: \x00\r\n\r\n": Decided(200, b"", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nContent-Length: 3\r\n\r\n": Decided(200, b"", WHOLE, True, "bad_chunks", False),
    CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n": Decided(200, b"", WHOLE, False, None, True),
    CHUNKED + b"3\r\nabc\r\n": Decided(200, b"abc", OPEN, False, None, False),
}
