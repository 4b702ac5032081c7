"""head.py: heads as upstreams send them, cut anywhere; which body follows them, with h11 as oracle."""

import gzip

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.http1.body import DecodeFault
from streamgauge.core.http1.head import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    HeadFault,
    HeadReader,
    ResponseHead,
    body_decoder_for,
)
from tests.core import cuts


def read(pieces: list[bytes]) -> tuple[ResponseHead | None, bytes, HeadFault | None, int]:
    """Head, all bytes behind it, fault, interim heads."""
    reader = HeadReader()
    head, rest = None, b""
    for piece in pieces:
        head = reader.feed(piece) or head
        rest += reader.rest
        if reader.rest:
            reader.rest = b""
    return head, rest, reader.fault, reader.interim


def whole(wire: bytes) -> ResponseHead:
    head, _, fault, _ = read([wire])
    assert head is not None, fault
    return head


HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-Request-Id:req_1\r\nset-cookie: a\r\n"
    b"Set-Cookie: b\r\n\r\n"
)
PARSED = ResponseHead(
    200,
    1,
    [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("x-request-id", "req_1"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
    ],
)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
@pytest.mark.parametrize(
    "interim", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3]
)
def test_a_head_at_every_split(end: bytes, interim: bytes) -> None:
    wire = (interim + HEAD).replace(b"\r\n", end)
    for pieces in cuts.every_way(wire + b"data: a\n\n"):
        assert read(pieces) == (PARSED, b"data: a\n\n", None, interim.count(b"HTTP"))


def test_the_fields_of_a_name() -> None:
    assert PARSED.all("set-cookie") == ["a", "b"]
    assert PARSED.first("set-cookie") == "a"
    assert PARSED.first("absent") is None


@pytest.mark.parametrize(
    ("wire", "head"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n", ResponseHead(404, 0, [])),
        (b"HTTP/1.1 204\r\n\r\n", ResponseHead(204, 1, [])),
        (b"HTTP/1.1 200 \r\nA: b\r\n\r\n", ResponseHead(200, 1, [("a", "b")])),
        (b"\r\n\n\r\nHTTP/1.1 200 \xff\0\r\n\r\n", ResponseHead(200, 1, [])),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", ResponseHead(101, 1, [("upgrade", "x")])),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n  c\r\n\td \r\nE:\r\n f\r\n\r\n",
            ResponseHead(200, 1, [("a", "b c d"), ("e", "f")]),
        ),
        (b"HTTP/1.1 200 OK\r\n folded: into nothing\r\nA: b\r\n\r\n", ResponseHead(200, 1, [("a", "b")])),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n: no name\r\nA : b\r\n\r\n", ResponseHead(200, 1, [("a", "b")])),
        (b"HTTP/1.1 200 OK\r\nA: x\ry\0z\r\nB: \xe9:c\r\n\r\n", ResponseHead(200, 1, [("a", "x y z"), ("b", "é:c")])),
    ],
)
def test_what_is_read(wire: bytes, head: ResponseHead) -> None:
    for pieces in cuts.every_way(wire):
        assert read(pieces) == (head, b"", None, 0)


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 ٢٠٠ OK\r\n\r\n".encode(),
        b"<html>\n\n",
        b"HTTP/1.1 100 Continue\r\n\r\nnonsense\r\n\r\n",
    ],
)
def test_what_is_no_head(wire: bytes) -> None:
    for pieces in cuts.every_way(wire):
        head, _, fault, _ = read(pieces)
        assert (head, fault) == (None, HeadFault.NOT_HTTP)


@pytest.mark.parametrize(("extra", "fault"), [(-1, None), (0, None), (1, HeadFault.TOO_LARGE)])
def test_the_largest_head(extra: int, fault: HeadFault | None) -> None:
    start, end = b"HTTP/1.1 200 OK\r\nA: ", b"\r\n\r\n"
    wire = start + b"x" * (MAX_HEAD_BYTES + extra - len(start) - len(end)) + end
    for pieces in ([wire], cuts.at(wire, [10, 1000]), cuts.at(wire, [len(wire) - 1]), cuts.at(wire, [len(wire) - 3])):
        head, _, found, _ = read(pieces)
        assert (found, head is None) == (fault, fault is not None)


def test_an_endless_head_is_not_kept() -> None:
    reader = HeadReader()
    for _ in range(1000):
        assert reader.feed(b"x: y\r\n" * 1000) is None
    assert reader.fault is HeadFault.TOO_LARGE
    assert len(reader._held) == 0


def test_fields_beyond_the_limit_are_passed_over() -> None:
    assert len(whole(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (MAX_FIELDS + 5) + b"\r\n").headers) == MAX_FIELDS


def test_later_feeds_are_rest() -> None:
    reader = HeadReader()
    assert reader.feed(HEAD + b"one") == PARSED
    assert reader.rest == b"one"
    assert reader.feed(b"two") is None
    assert reader.rest == b"two"


SCRAPS = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 100 C", b"\r\n", b"\n", b"\r", b"A: b", b" ", b":", b"\0", b"\xff", b"\n\n"]
)


@given(st.lists(SCRAPS | st.binary(max_size=3), max_size=14).map(b"".join), cuts.places(60))
def test_splits_change_nothing_and_nothing_raises(wire: bytes, places: list[int]) -> None:
    head, _, fault, interim = read([wire])
    for pieces in (cuts.at(wire, places), [wire[index : index + 1] for index in range(len(wire))]):
        again = read(pieces)
        assert (again[0], again[2], again[3]) == (head, fault, interim)


@given(
    st.lists(SCRAPS | st.sampled_from([b"\t", b"a", b"\x0b", b"B:\t"]) | st.binary(max_size=3), max_size=14).map(
        b"".join
    )
)
def test_an_odd_line_changes_nothing_of_the_others(lines: bytes) -> None:
    head = HeadReader().feed(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\nY: z\r\n\r\n")
    odd = HeadReader().feed(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\nY: z\r\nZ: \0\r\n\r\n")
    assert head is not None and odd is not None
    assert odd.headers in (head.headers, [*head.headers, ("z", "")])


# --- the body behind it ----------------------------------------------------------------------------------------------


def answer(method: str, wire: bytes) -> tuple[bytes, bytes, bool, DecodeFault | None]:
    """Decoded body, rest, whole, fault - for a connection that ends after `wire`."""
    reader = HeadReader()
    head = reader.feed(wire)
    assert head is not None
    decoder = body_decoder_for(head, method)
    piece = decoder.feed(reader.rest)
    whole = decoder.finish()
    return piece.decoded, piece.rest, whole, decoder.fault


CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "head", "body", "expected"),
    [
        ("POST", b"200 OK\r\nContent-Length: 5", b"helloX", (b"hello", b"X", True, None)),
        ("POST", b"200 OK\r\nContent-Length: 6", b"hello", (b"hello", b"", False, None)),
        ("POST", b"200 OK\r\nContent-Length: 0", b"X", (b"", b"X", True, None)),
        ("POST", b"200 OK\r\nContent-Length: 5\r\nContent-Length: 5", b"helloX", (b"hello", b"X", True, None)),
        ("POST", b"200 OK\r\nContent-Length: 5, 5", b"helloX", (b"hello", b"X", True, None)),
        ("POST", b"200 OK", b"hello", (b"hello", b"", True, None)),
        ("POST", b"200 OK\r\nTransfer-Encoding: chunked", CHUNKS + b"X", (b"hello", b"X", True, None)),
        ("POST", b"200 OK\r\nTransfer-Encoding: Chunked", CHUNKS[:-2], (b"hello", b"", False, None)),
        ("POST", b"200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", CHUNKS, (b"hello", b"", True, None)),
        ("HEAD", b"200 OK\r\nContent-Length: 5", b"X", (b"", b"X", True, None)),
        ("HEAD", b"200 OK\r\nTransfer-Encoding: chunked", b"X", (b"", b"X", True, None)),
        ("GET", b"304 Not Modified\r\nContent-Length: 5", b"X", (b"", b"X", True, None)),
        ("GET", b"204 No Content\r\nTransfer-Encoding: chunked", b"X", (b"", b"X", True, None)),
    ],
)
def test_a_body_ends_where_h11_says(
    method: str, head: bytes, body: bytes, expected: tuple[bytes, bytes, bool, None]
) -> None:
    wire = b"HTTP/1.1 " + head + b"\r\n\r\n" + body
    assert answer(method, wire) == expected
    assert by_h11(method, wire) == expected[:3]


def by_h11(method: str, wire: bytes) -> tuple[bytes, bytes, bool]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(wire)
    connection.receive_data(b"")
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return body, b"", False
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return body, connection.trailing_data[0], True


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        # h11 refuses these; RFC 9112, 6.3 says what they mean.
        (b"Transfer-Encoding: gzip, chunked", b"%x\r\n%b\r\n0\r\n\r\n", (b"hello", b"", True, None)),
        (
            b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
            b"%x\r\n%b\r\n0\r\n\r\n",
            (b"hello", b"", True, None),
        ),
        (
            b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked",
            b"%x\r\n%b\r\n0\r\n\r\nX",
            (b"hello", b"X", True, None),
        ),
    ],
)
def test_compressed_transfers(head: bytes, body: bytes, expected: tuple[bytes, bytes, bool, None]) -> None:
    zipped = gzip.compress(b"hello")
    assert answer("POST", b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body % (len(zipped), zipped)) == expected


def test_chunked_not_last_is_up_to_the_end_of_the_connection() -> None:
    wire = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello")
    assert answer("POST", wire) == (b"hello", b"", True, None)
    assert answer("POST", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, x\r\n\r\nabc")[1:] == (
        b"",
        False,
        DecodeFault.UNKNOWN_CODING,
    )


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5, 6",
        b"Content-Length: -1",
        b"Content-Length: +5",
        b"Content-Length: 5x",
        b"Content-Length: 5 5",
        b"Content-Length: 0x5",
        b"Content-Length: 1_0",
        b"Content-Length: \xb2",
        b"Content-Length: " + b"9" * 30,
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_bad_framing(head: bytes) -> None:
    assert answer("POST", b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nhello") == (
        b"",
        b"",
        False,
        DecodeFault.BAD_FRAMING,
    )


def test_a_tunnel_and_a_switch_have_no_body() -> None:
    assert answer("CONNECT", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") == (b"", b"hello", True, None)
    assert answer("CONNECT", b"HTTP/1.1 407 No\r\nContent-Length: 5\r\n\r\nhello") == (b"hello", b"", True, None)
    assert answer("GET", b"HTTP/1.1 101 Switching\r\n\r\nhello") == (b"", b"hello", True, None)


def test_an_empty_field_is_no_length_and_no_transfer_coding() -> None:
    assert answer("GET", b"HTTP/1.1 200 OK\r\nContent-Length:\r\nTransfer-Encoding: ,\r\n\r\nhello")[0] == b"hello"


@given(
    st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.sampled_from(["GET", "HEAD", "CONNECT", ""])
)
def test_no_head_raises(length: str, transfer: str, coding: str, method: str) -> None:
    head = ResponseHead(
        200, 1, [("content-length", length), ("transfer-encoding", transfer), ("content-encoding", coding)]
    )
    decoder = body_decoder_for(head, method)
    decoder.feed(b"5\r\nhello\r\n")
    decoder.finish()
