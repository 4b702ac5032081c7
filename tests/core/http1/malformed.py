"""Responses that are malformed, or that clients read differently, with the decision about each.

For the recorder: the status, or the fault of the head; the body; how the body ended. For the relay: its fault, and
whether it reuses the connection.
"""

from typing import NamedTuple

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE, OPEN, BROKEN = "whole", "open", "broken"
_ABC_CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"


class Decided(NamedTuple):
    """See above. `ambiguous`: clients read it differently, though a tolerant client reads it as complete."""

    head: int | str
    body: bytes
    end: str
    ambiguous: bool
    relay: str | None
    reused: bool


NOT_HTTP = Decided("not_http", b"", OPEN, False, "not_http", False)
BAD_HEAD = Decided(200, b"", BROKEN, False, "bad_head", False)
AMBIGUOUS_BAD_HEAD = BAD_HEAD._replace(ambiguous=True)
REUSED = Decided(200, b"abc", WHOLE, False, None, True)
NOT_REUSED = REUSED._replace(reused=False)
AMBIGUOUS = NOT_REUSED._replace(ambiguous=True, relay="ambiguous_head")
UNTIL_EOF = Decided(200, b"abc", OPEN, False, None, False)
AMBIGUOUS_UNTIL_EOF = UNTIL_EOF._replace(ambiguous=True, relay="ambiguous_head")
CHUNKS_ARE_BODY = AMBIGUOUS_UNTIL_EOF._replace(body=_ABC_CHUNKS)
BAD_CHUNKS = Decided(200, b"", BROKEN, False, "bad_chunks", False)
BAD_AFTER_ABC = BAD_CHUNKS._replace(body=b"abc")
TOLERATED = Decided(200, b"abc", WHOLE, True, "bad_chunks", False)


def _head(*fields: bytes) -> bytes:
    """A response with these header fields and the body `abc`."""
    return OK + b"\r\n".join([*fields, b"", b"abc"])


def _coded(*fields: bytes) -> bytes:
    """A response with these header fields and the body `abc` in one chunk."""
    return OK + b"\r\n".join([*fields, b"", _ABC_CHUNKS])


MALFORMED: dict[bytes, Decided] = {
    # Status lines.
    b"garbage\r\n\r\n": NOT_HTTP,
    b"HTTP/2.0 200 OK\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1 20\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1 099 X\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1  200 OK\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1 200\rOK\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1 200OK\r\n\r\n": NOT_HTTP,
    b"http/1.1 200 OK\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1\r\n 200 OK\r\n\r\n": NOT_HTTP,
    b"HTTP/1.1 100 C\r\n\r\ngarbage\r\n\r\n": NOT_HTTP,
    # Lengths.
    _head(b"Content-Length: 3", b"Content-Length: 4"): BAD_HEAD,
    _head(b"Content-Length: 3, 4"): BAD_HEAD,
    _head(b"Content-Length: 3", b"Content-Length: 3"): REUSED,
    _head(b"Content-Length: 3, 03"): BAD_HEAD,
    _head(b"Content-Length: +3"): BAD_HEAD,
    _head(b"Content-Length: -3"): BAD_HEAD,
    _head(b"Content-Length: 0x3"): BAD_HEAD,
    _head(b"Content-Length: 3 3"): BAD_HEAD,
    _head(b"Content-Length: 3;"): BAD_HEAD,
    _head(b"Content-Length: 1_0"): BAD_HEAD,
    _head(b"Content-Length: \xb3"): BAD_HEAD,
    _head(b"Content-Length: 9999999999999999999"): BAD_HEAD,
    _head(b"Content-Length: \x003"): AMBIGUOUS_BAD_HEAD,
    _head(b"Content-Length: 3\x00"): AMBIGUOUS_BAD_HEAD,
    _head(b"Content-Length: 3\x0b"): AMBIGUOUS_BAD_HEAD,
    _head(b"Content-Length: 3\xa0"): BAD_HEAD,
    _head(b"Content-Length: 3\r4"): AMBIGUOUS_BAD_HEAD,
    _head(b"Content-Length:"): AMBIGUOUS_UNTIL_EOF,
    _head(b"Content-Length: 3, 3"): AMBIGUOUS,
    _head(b"Content-Length: 3,"): AMBIGUOUS,
    _head(b"Content-Length: 03"): REUSED,
    b"HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n": AMBIGUOUS._replace(head=204, body=b""),
    b"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\n\r\n": AMBIGUOUS._replace(head=304, body=b""),
    b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n": REUSED._replace(head=304, body=b""),
    b"HTTP/1.2 200 OK\r\nContent-Length: 3\r\n\r\nabc": AMBIGUOUS,
    # Statuses and ranges by which some clients end the body.
    b"HTTP/1.1 205 X\r\nContent-Length: 3\r\n\r\nabc": AMBIGUOUS._replace(head=205),
    b"HTTP/1.1 205 X\r\n\r\nabc": AMBIGUOUS_UNTIL_EOF._replace(head=205),
    b"HTTP/1.1 205 X\r\nContent-Length: 0\r\n\r\n": REUSED._replace(head=205, body=b""),
    b"HTTP/1.1 205 X\r\nTransfer-Encoding: chunked\r\n\r\n" + _ABC_CHUNKS: AMBIGUOUS._replace(head=205),
    b"HTTP/1.1 305 X\r\nContent-Length: 3\r\n\r\nabc": AMBIGUOUS._replace(head=305),
    b"HTTP/1.1 305 X\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc": NOT_REUSED._replace(head=305),
    b"HTTP/1.0 305 X\r\nContent-Length: 3\r\n\r\nabc": AMBIGUOUS._replace(head=305),
    b"HTTP/1.1 306 X\r\nContent-Length: 3\r\n\r\nabc": REUSED._replace(head=306),
    _head(b"Content-Range: bytes 5-7/9", b"Content-Length: 3"): REUSED,
    _head(b"Content-Range: bytes 5-7/*", b"Content-Length: 3"): REUSED,
    _head(b"Content-Range: bytes=5-7", b"Content-Length: 3"): REUSED,
    _head(b"Content-Range: bytes */9", b"Content-Length: 3"): REUSED,
    _head(b"Content-Range: 0-1/9", b"Content-Length: 3"): REUSED,
    _head(b"Content-Range: bytes 5-6/9", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"Content-Range: Bytes:5-6/9", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"Content-Range: bytes 5-7/9", b"Content-Range: bytes 5-6/9", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"Content-Range: bytes 5-7/9"): AMBIGUOUS_UNTIL_EOF,
    _head(b"Content-Range: bytes 5-6/9", b"Connection: close"): UNTIL_EOF,
    _head(b"Content-Range: bytes 5-6/9", b"Connection: close, a"): AMBIGUOUS_UNTIL_EOF,
    _coded(b"Content-Range: bytes 5-7/9", b"Transfer-Encoding: chunked"): AMBIGUOUS,
    b"HTTP/1.1 200 \x01\r\nContent-Length: 3\r\n\r\nabc": AMBIGUOUS,
    _head(b"A B: c", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"\xe9: c", b"Content-Length: 3"): AMBIGUOUS,
    _head(b": c", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"no colon", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"A: \x0b", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"A: \x7f", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"A: \t\xe9 b", b"Content-Length: 3"): REUSED,
    _head(b"Content-Length : 3"): AMBIGUOUS,
    _head(b"Content-Length:", b" 3"): AMBIGUOUS,
    _head(b"A: b", b" Content-Length: 3"): AMBIGUOUS_UNTIL_EOF,
    _head(b"\x00Content-Length: 3"): AMBIGUOUS_UNTIL_EOF,
    _head(b"Content-Length\x00: 3"): AMBIGUOUS_UNTIL_EOF,
    _head(b"Content-Length: 3", b"no colon", b" 4"): AMBIGUOUS,
    b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc": REUSED,
    _head(b"A: \x00", b"Content-Length: 3"): AMBIGUOUS,
    _head(b"A: b\rContent-Length: 4", b"Content-Length: 3"): AMBIGUOUS,
    # Transfer codings.
    _coded(b"Content-Length: 9", b"Transfer-Encoding: chunked"): AMBIGUOUS,
    _coded(b"Transfer-Encoding: chunked", b"Content-Length: 9"): AMBIGUOUS,
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n" + _ABC_CHUNKS: AMBIGUOUS,
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _ABC_CHUNKS: NOT_REUSED,
    _coded(b"Transfer-Encoding: identity, chunked"): AMBIGUOUS,
    _coded(b"Transfer-Encoding: chunked "): AMBIGUOUS,
    _coded(b"Transfer-Encoding: \tchunked"): REUSED,
    _head(b"Content-Length: 3 \t"): REUSED,
    _coded(b"Transfer-Encoding: chunked, chunked"): BAD_HEAD,
    _coded(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"): BAD_HEAD,
    _coded(b"Transfer-Encoding: chunked, gzip"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding: identity"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding: xchunked"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding: chunked;a=b"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding: \x0bchunked"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding: chunked\x00"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding: chunked\xa0"): CHUNKS_ARE_BODY,
    _coded(b"Transfer-Encoding : chunked"): AMBIGUOUS,
    _coded(b"Transfer-Encoding:", b" chunked"): AMBIGUOUS,
    _coded(b"Transfer-Encoding: ,"): CHUNKS_ARE_BODY,
    # Chunks and trailers.
    CHUNKED + b"3\nabc\n0\n\n": TOLERATED,
    CHUNKED + b"3\r\nabc\n0\r\n\r\n": TOLERATED,
    CHUNKED + b"3\r\nabc\r\n0\r\n\n": TOLERATED,
    CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n": REUSED,
    CHUNKED + b"3\t\r\nabc\r\n0\r\n\r\n": REUSED,
    CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"3_0\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"3g\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"3\r\r\nabc\r\n0\r\n\r\n": BAD_CHUNKS,
    CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n": BAD_AFTER_ABC,
    CHUNKED + b"3\r\nabc0\r\n\r\n": BAD_AFTER_ABC,
    CHUNKED + b"3\r\nabc\r0\r\n\r\n": BAD_AFTER_ABC,
    CHUNKED + b"4\r\nabc\r\n0\r\n\r\n": TOLERATED._replace(body=b"abc\r"),
    CHUNKED + b"1000000000000000\r\nabc": BAD_CHUNKS,
    CHUNKED + b"10000000000000000\r\nabc": BAD_CHUNKS,
    CHUNKED + b"100000000\r\nabc": UNTIL_EOF._replace(ambiguous=True, relay="bad_chunks"),
    CHUNKED + b"80000000\r\nabc": UNTIL_EOF._replace(ambiguous=True, relay="bad_chunks"),
    CHUNKED + b"7fffffff\r\nabc": UNTIL_EOF,
    CHUNKED + b"000000000000000000003\r\nabc\r\n0\r\n\r\n": REUSED,
    CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n": REUSED,
    CHUNKED + b'3;a="b;c"\r\nabc\r\n0\r\n\r\n': REUSED,
    CHUNKED + b"3; a=b\r\nabc\r\n0\r\n\r\n": TOLERATED,
    CHUNKED + b"3;a b\r\nabc\r\n0\r\n\r\n": TOLERATED,
    CHUNKED + b"3;\r\nabc\r\n0\r\n\r\n": TOLERATED,
    CHUNKED + b"3;a=b\rc\r\nabc\r\n0\r\n\r\n": TOLERATED,
    CHUNKED + b'3;a="b\nabc\r\n0\r\n\r\n': TOLERATED,
    CHUNKED + b"0\r\nA: b\r\n\r\n": REUSED._replace(body=b""),
    CHUNKED + b"0\r\nA : b\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nA\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nA: b\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nA: \x00\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nContent-Length: 3\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nConnection: close\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"0\r\nUpgrade: a\r\n\r\n": TOLERATED._replace(body=b""),
    CHUNKED + b"3\r\nabc\r\n": UNTIL_EOF,
}
