"""H1 for responses: what an upstream sends with its response never becomes the response to another request."""

import itertools
import socket
import threading
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.taps.proxy.rig import (
    PATIENCE_S,
    chunked,
    exchange_rig,
    receive,
    receive_all,
    receive_request,
)

GET = b"GET /first HTTP/1.1\r\nHost: c\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: c\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
POISON = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
REFUSED = None


@dataclass(frozen=True)
class Answer:
    """`gets`: what the client gets of it, None for a 502 of the relay. `alive`: both connections are reused."""

    name: str
    sent: bytes
    gets: bytes | None
    alive: bool = False


def head(*fields: bytes, status: bytes = b"200 OK", version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join((version + b" " + status, *fields, b"", b""))


def whole(name: str, sent: bytes, extra: bytes = b"", *, alive: bool = False) -> Answer:
    return Answer(name, sent + extra, sent, alive)


LENGTH_2 = b"Content-Length: 2"
CODED = b"Transfer-Encoding: chunked"
ANSWERS = [
    whole("an ordinary one", OK, alive=True),
    whole("chunked", head(CODED) + chunked(b"ok"), alive=True),
    whole("trailers and extensions", head(CODED) + b"2;a=b\r\nok\r\n0\r\nX: y\r\n\r\n", alive=True),
    whole("one length twice", head(LENGTH_2, LENGTH_2) + b"ok", alive=True),
    whole("no body", head(status=b"204 No Content"), alive=True),
    whole("a 304 with a length", head(b"Content-Length: 9", status=b"304 Not Modified"), alive=True),
    whole(
        "a redirect is not followed", head(b"Location: /next", b"Content-Length: 0", status=b"302 Found"), alive=True
    ),
    Answer("interim answers", INTERIM * 100 + OK, OK, alive=True),
    whole("bytes behind a length", OK, POISON),
    whole("bytes behind chunks", head(CODED) + chunked(b"ok"), POISON),
    whole("bytes behind a 204", head(status=b"204 No Content"), POISON),
    whole("a body behind a 304", head(LENGTH_2, status=b"304 Not Modified"), b"ok"),
    Answer("a length beside a coding", head(LENGTH_2, CODED) + chunked(b"ok"), None),
    Answer("a coding beside a length", head(CODED, LENGTH_2) + chunked(b"ok"), None),
    whole("a coding in 1.0", head(CODED, version=b"HTTP/1.0") + chunked(b"ok")),
    Answer("a blank before the colon", head(b"Content-Length : 2") + b"ok", None),
    Answer("a bare CR in a line", head(b"A: b\rContent-Length: 9", LENGTH_2) + b"ok", None),
    Answer("NUL in a line", head(b"A: b\0c", LENGTH_2) + b"ok", None),
    Answer("a folded line", head(b"A: b", b" Content-Length: 9", LENGTH_2) + b"ok", None),
    whole("Connection: close", head(b"Connection: close", LENGTH_2) + b"ok"),
    Answer("two lengths", head(LENGTH_2, b"Content-Length: 3") + b"ok!", None),
    Answer("a list of lengths", head(b"Content-Length: 2, 3") + b"ok!", None),
    Answer("length +2", head(b"Content-Length: +2") + b"ok", None),
    Answer("length beyond 18 digits", head(b"Content-Length: " + b"9" * 19) + b"ok", None),
    Answer("chunked twice", head(b"Transfer-Encoding: chunked, chunked") + chunked(b"ok"), None),
    Answer("an unrequested upgrade", head(b"Upgrade: websocket", status=b"101 Switching Protocols"), None),
    Answer("a head too large", head(b"A: " + b"a" * 300_000), None),
    Answer("a version of its own", head(LENGTH_2, version=b"HTTP/2.0") + b"ok", None),
    Answer("no status", b"HTTP/1.1\r\n\r\n", None),
    Answer("0.9", b"<html>", None),
]


@pytest.mark.parametrize("pieces", [1, 2], ids=["whole", "cut"])
@pytest.mark.parametrize("answer", ANSWERS, ids=[answer.name for answer in ANSWERS])
def test_the_next_client_gets_its_own_response(tmp_path: Path, answer: Answer, pieces: int) -> None:
    cut = len(answer.sent) // pieces

    def handler(one: socket.socket) -> None:
        while request := receive_request(one):
            if request.startswith(b"GET /next "):
                one.sendall(OK)
                continue
            one.sendall(answer.sent[:cut])
            if pieces > 1:
                time.sleep(0.02)
                one.sendall(answer.sent[cut:])

    with exchange_rig(tmp_path, handler) as (relay, upstream, _):
        with relay.connect() as client:
            client.sendall(GET)
            if answer.gets is None:
                received = receive_all(client)
                assert received.startswith(b"HTTP/1.1 502 ") and b"upstream_invalid" in received
            elif answer.alive:
                assert receive(client, len(answer.gets)) == answer.gets
                client.sendall(NEXT)
                assert receive(client, len(OK)) == OK
                assert upstream.connections == 1
            else:
                assert receive(client, len(answer.gets)) == answer.gets
                time.sleep(0.05)  # the rest of what it sends is here before the next request, and belongs to no client
                assert ask_again(client) in (b"", OK)
        before = upstream.connections
        with relay.connect() as client:
            client.sendall(NEXT)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == before + 1  # another client has a connection of its own


def ask_again(client: socket.socket) -> bytes:
    """The response to another request on the same connection, or what came before its end."""
    try:
        client.sendall(NEXT)
        return receive(client, len(OK))
    except ConnectionError:
        return b""


def test_a_body_without_an_end_of_its_own_ends_with_its_connection(tmp_path: Path) -> None:
    """What looks like a response in it is body."""
    for fields in ([b"Connection: keep-alive"], []):
        sent = head(*fields) + b"ok" + POISON

        def handler(one: socket.socket, sent: bytes = sent) -> None:
            receive_request(one)
            one.sendall(sent)
            one.close()

        with exchange_rig(tmp_path, handler) as (relay, upstream, _):
            for number in (1, 2):
                with relay.connect() as client:
                    client.sendall(GET)
                    assert receive_all(client) == sent
                assert upstream.connections == number


@pytest.mark.slow
def test_endless_interim_responses_take_bounded_memory_and_end_with_their_client(tmp_path: Path) -> None:
    flooded, gone = threading.Event(), threading.Event()

    def handler(one: socket.socket) -> None:
        receive_request(one)
        flood = INTERIM * 1000
        try:
            for sent in itertools.count(1):
                one.sendall(flood)
                if sent == 250:
                    flooded.set()
        except OSError:
            gone.set()

    with exchange_rig(tmp_path, handler) as (relay, _, _):
        client = relay.connect()
        tracemalloc.start()
        try:
            client.sendall(GET)  # it is not captured: captured reads wait for the recorder
            assert flooded.wait(PATIENCE_S)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 2_000_000, "it keeps what the client does not get"
        client.close()
        assert gone.wait(PATIENCE_S)
