"""The handshake of a WebSocket: which requests are one, and which heads accept it; wsproto's client and server agree."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection
from wsproto.events import Request as Handshake

from streamgauge.core.http1.head import HeadReader, ResponseHead
from streamgauge.taps.proxy.reader import RequestReader
from streamgauge.taps.proxy.request import Request
from streamgauge.taps.proxy.websocket import accepts, is_handshake, key_of

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
FIELDS = [
    (b"Host", b"a"),
    (b"Upgrade", b"websocket"),
    (b"Connection", b"Upgrade"),
    (b"Sec-WebSocket-Key", KEY),
    (b"Sec-WebSocket-Version", b"13"),
]


def request(fields: list[tuple[bytes, bytes]], method: bytes = b"GET", minor: int = 1) -> Request:
    return Request(method, b"/", minor, fields, True, 0)


def head_of(raw: bytes) -> ResponseHead:
    head = HeadReader().feed(raw)
    assert head is not None
    return head.parsed()


@pytest.mark.parametrize("target", ["/v1/responses", "/v1/realtime?model=a"])
def test_the_handshake_of_wsproto_is_one_and_its_answer_accepts_it(target: str) -> None:
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    asked = client.send(Handshake(host="a", target=target, subprotocols=["realtime"]))
    reader = RequestReader(websockets=True)
    reader.feed(0, asked)
    got = reader.events[0]
    assert isinstance(got, Request) and got.is_handshake and got.target == target.encode()
    server.receive_data(asked)
    answer = head_of(server.send(AcceptConnection(subprotocol="realtime")))
    assert accepts(answer, key_of(got))
    assert not accepts(answer, base64.b64encode(bytes(16)))


def test_case_and_blanks_do_not_count() -> None:
    fields = [(b"UPGRADE", b" WebSocket "), (b"sec-websocket-VERSION", b"13 "), (b"sec-websocket-key", b" " + KEY)]
    assert is_handshake(request(fields))
    assert key_of(request(fields)) == KEY


@pytest.mark.parametrize("missing", range(1, 5))
def test_each_field_but_connection_is_needed_once(missing: int) -> None:
    """That Connection names the upgrade is llhttp's to decide: see the reader."""
    without, twice = FIELDS[:missing] + FIELDS[missing + 1 :], [*FIELDS, FIELDS[missing]]
    is_connection = FIELDS[missing][0] == b"Connection"
    assert is_handshake(request(without)) is is_connection
    assert is_handshake(request(twice)) is is_connection


@given(st.binary(max_size=24))
def test_a_key_is_sixteen_bytes(key: bytes) -> None:
    fields = [*FIELDS[:3], (b"Sec-WebSocket-Key", base64.b64encode(key)), FIELDS[4]]
    assert is_handshake(request(fields)) is (len(key) == 16)


def test_a_reader_without_websockets_refuses_it() -> None:
    reader = RequestReader()
    reader.feed(0, b"GET / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % field for field in FIELDS) + b"\r\n")
    assert reader.refused


def test_a_handshake_in_one_piece_with_the_end_of_a_chunked_body_is_refused() -> None:
    """The reader does not know where it ends: only a request that waits for the response before it may come there."""
    head = b"GET / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % field for field in FIELDS) + b"\r\n"
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    reader = RequestReader(websockets=True)
    reader.feed(0, chunked + head + b"frames")
    reader.parse_next()
    kinds = [type(event).__name__ for event in reader.events]
    assert kinds[:3] == ["Request", "bytes", "Complete"]
    assert kinds[3:] in (["Request", "Complete", "RefusedError"], ["Request", "Complete"])
    if not reader.refused:
        assert reader.take_rest() == b"frames"
