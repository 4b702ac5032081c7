"""response.py: where a response's body ends, in any pieces, with h11, http.client and llhttp as oracles."""

import gzip
import http.client
import io
import re

import h11
import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.core.http1.body import BodyDecoder, DecodeFault
from streamgauge.core.http1.head import MAX_FIELDS
from streamgauge.core.http1.response import ResponseReader
from tests.core import cuts
from tests.core.http1.malformed import BROKEN, CHUNKED, MALFORMED, OK, OPEN, WHOLE, Decided
from tests.core.http1.reading import read_response
from tests.each import each


def answer(method: str, wire: bytes) -> tuple[bytes, bytes, bool, DecodeFault | None]:
    """Decoded body, rest, whether it is whole, and the fault, for a connection that ends after `wire`."""
    reader = ResponseReader(method)
    _, rest = reader.feed_head(wire)
    decoder = BodyDecoder(reader.framing, reader.coding)
    piece = decoder.feed(rest)
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
def test_a_body_ends_where_it_ends_for_h11(
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
        # h11 refuses these; RFC 9112, 6.3 defines them.
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


def test_chunked_that_is_not_last_lasts_up_to_the_end_of_the_connection() -> None:
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


def test_an_empty_field_is_neither_a_length_nor_a_transfer_coding() -> None:
    assert answer("GET", b"HTTP/1.1 200 OK\r\nContent-Length:\r\nTransfer-Encoding: ,\r\n\r\nhello")[0] == b"hello"


# --- the oracles -----------------------------------------------------------------------------------------------------


class Read(tuple[int, list[tuple[str, str]], bytes, bool, bytes]):
    """Status, fields, body, whether it is complete, and the bytes after it."""


def read(pieces: list[bytes], method: str) -> Read:
    """The reader's result for a response."""
    reader, head, body, rest = read_response(pieces, method)
    assert head is not None and reader.fault is None and not reader.ambiguous
    return Read((head.status, head.parsed().headers, body, reader.complete, rest))


def read_by_h11(wire: bytes, method: str) -> Read:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(wire)
    status, fields, body = 0, [], b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            status = event.status_code
            fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers]
        elif isinstance(event, h11.Data):
            body += event.data
        elif not isinstance(event, h11.InformationalResponse):
            whole = isinstance(event, h11.EndOfMessage)
            return Read((status, fields, body, whole, connection.trailing_data[0] if whole else b""))


class Connected(io.BytesIO):
    """A socket, with its file, from which http.client reads these bytes and then the end of the connection."""

    def makefile(self, _mode: str) -> "Connected":
        return self

    def close(self) -> None:
        """Does nothing, so that the bytes after the response can be read."""


def read_by_http_client(wire: bytes, method: str) -> Read:
    """For a complete response: http.client accepts one that is truncated in its trailers as complete."""
    connected = Connected(wire)
    response = http.client.HTTPResponse(connected, method=method)  # type: ignore[arg-type]
    response.begin()
    fields = [(name.lower(), value.strip()) for name, value in response.getheaders()]
    ends_with_connection = response.will_close and response.length is None and not response.chunked
    body = response.read()
    rest = b"" if ends_with_connection else connected.read()
    return Read((response.status, fields, body, not ends_with_connection, rest))


class Llhttp:
    """llhttp, fed byte by byte. `taken`: the offset after the response's end; None if it has none, or is refused."""

    def __init__(self, wire: bytes) -> None:
        self.taken: int | None = None
        self.refused = self.ended = False
        parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        for at in range(len(wire)):
            try:
                parser.feed_data(wire[at : at + 1])
            except httptools.HttpParserError:
                self.refused = True
                return
            if self.ended:
                self.taken = at + 1
                return

    def on_message_complete(self) -> None:
        self.ended = True


# --- well-formed responses -------------------------------------------------------------------------------------------

INTERIM = st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\n" * 2])
STATUS_LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 ", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 N"]
)
FIELDS = st.lists(
    st.sampled_from(
        [
            b"Content-Type: text/event-stream",
            b"X-Empty:",
            b"Set-Cookie: a=1",
            b"set-cookie:b=2",
            b"Date: a: b",
            b"V:  x ",
        ]
    ),
    max_size=4,
)
METHODS = st.sampled_from(["GET", "GET", "POST", "HEAD"])


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The heads and the body of a response as a server may send it, in one of the three framings."""
    parts = draw(st.lists(st.binary(min_size=1, max_size=30) | st.sampled_from([b"0\r\n\r\n", b"\r\n"]), max_size=4))
    status_line = draw(STATUS_LINES)
    framings = ["length", "connection", "chunked"]
    framing = draw(st.sampled_from(framings if b" 200 " in status_line or b" 404 " in status_line else framings[:2]))
    fields, body = draw(FIELDS), b"".join(parts)
    if framing == "length":
        fields.append(b"Content-Length: %d" % len(body))
    elif framing == "chunked":
        fields.append(b"Transfer-Encoding: chunked")
        extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
        trailer = draw(st.sampled_from([b"", b"X-T: 1\r\n"]))
        body = (
            b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts) + b"0\r\n" + trailer + b"\r\n"
        )
    head = b"\r\n".join([status_line, *fields, b"", b""])
    return draw(INTERIM) + head, body


@given(responses(), METHODS, st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n\r\n"]), st.data())
def test_well_formed_responses_are_read_as_by_h11_and_http_client(
    response: tuple[bytes, bytes], method: str, after: bytes, data: st.DataObject
) -> None:
    whole = b"".join((*response, after))
    found = read([whole], method)
    assert found == read_by_h11(whole, method)
    if b" 103 " not in response[0]:  # http.client reads it as a final head
        assert found == read_by_http_client(whole, method)
    for pieces in cuts.every_way(whole):
        assert read(pieces, method) == found
    assert read(cuts.at(whole, data.draw(cuts.places(len(whole)))), method) == found
    cut_off = whole[: data.draw(st.integers(len(response[0]), len(whole)))]
    assert read([cut_off], method) == read_by_h11(cut_off, method)


# --- malformed and ambiguous responses -------------------------------------------------------------------------------


@each(MALFORMED.items())
def test_a_malformed_response_is_handled_the_same_at_every_split(case: tuple[bytes, Decided]) -> None:
    wire, decided = case
    for pieces in cuts.every_way(wire):
        reader, body = ResponseReader("GET"), b""
        for piece in pieces:
            body += reader.feed(piece)[0]
        head = reader.fault if reader.status is None else reader.status
        broken = reader.framing is not None and reader.framing.broken
        end = BROKEN if broken else WHOLE if reader.complete else OPEN
        assert (head, body, end, reader.ambiguous) == (decided.head, decided.body, decided.end, decided.ambiguous)


CHUNK_SCRAPS = [
    b"3\r\nabc\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\n",
    b"3;a=b\r\n",
    b"3 \r\n",
    b"3\t;a\r\n",
    b"abc",
    b"F",
    b"0x",
]
SIGNS = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\0",
    b"\x7f",
    b"\xff",
    b"-",
    b"\\",
    b'"',
    b"=",
    b";",
    b";=",
    b";;a",
    b';a="b;\\""',
]
TRAILERS = [
    b"A: b\r\n",
    b"A : b\r\n",
    b"A:\r\n",
    b": b\r\n",
    b"content-length: 3\r\n",
    b"transfer-encoding: chunked\r\n",
]
FRAMING_TRAILER = re.compile(rb"\n(?:transfer-encoding|Upgrade):")
SCRAPS = st.sampled_from([*CHUNK_SCRAPS, *SIGNS, *TRAILERS])


@given(st.lists(SCRAPS | st.binary(max_size=2), max_size=9).map(b"".join))
@example(b"3;;a\r\nabc\r\n0\r\n\r\n")
@example(b'3;a=b"c"\r\nabc\r\n0\r\nA:\t\xff\r\n\r\n')
@example(b"3\r\nabc\r\n0\r\nUpgrade: a\r\n\r\n")
def test_the_chunks_that_llhttp_refuses_are_broken_or_ambiguous(body: bytes) -> None:
    """And trailers that frame a message: llhttp refuses only a Content-Length."""
    peer = Llhttp(CHUNKED + body)
    reader = ResponseReader("GET")
    rest = reader.feed(CHUNKED + body)[1]
    assert reader.framing is not None
    if reader.complete and not reader.ambiguous:
        assert peer.taken == len(CHUNKED + body) - len(rest)
    elif reader.framing.broken or reader.ambiguous:
        assert peer.refused or FRAMING_TRAILER.search(body)
    else:  # llhttp may refuse a line before its end
        assert peer.taken is None


def test_fields_beyond_the_kept_ones_decide_too() -> None:
    many = b"a: b\r\n" * MAX_FIELDS
    reader = ResponseReader("GET")
    head, rest = reader.feed_head(OK + many + b"Content-Length: 3\r\nConnection: close\r\n\r\nabcX")
    assert reader.feed(rest) == (b"abc", b"X")
    assert head is not None and len(head.parsed().headers) == MAX_FIELDS
    assert not reader.persistent


def test_after_a_fault_of_the_head_nothing_is_read() -> None:
    reader = ResponseReader("GET")
    assert reader.feed(b"220 smtp.example") == (b"", b"")
    assert reader.fault is not None
    assert reader.feed(OK + b"\r\nabc") == (b"", b"")
    assert (reader.status, reader.complete, reader.end()) == (None, False, False)


@given(
    st.lists(
        st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.1 100 C", b"\r\n", b"\n", b"Content-Length: 2", b"ab"]),
        max_size=9,
    )
)
def test_the_end_of_the_connection_completes_only_a_body_without_another_end(scraps: list[bytes]) -> None:
    reader = ResponseReader("GET")
    reader.feed(b"".join(scraps))
    was_complete = reader.complete
    framing = reader.framing  # a length that cannot be read is `broken`: such a body is never complete
    until_eof = framing is not None and framing.until_eof and not framing.broken
    assert reader.end() == (was_complete or until_eof)
