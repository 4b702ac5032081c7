"""An upstream that responds before the request's body and keeps its connection open: that connection is never pooled.

Such an upstream may still wait for the body, and would read the next request on the connection as the rest of it.
"""

import socket
import threading
from pathlib import Path

import pytest

from tests.taps.proxy.readings import by_llhttp
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RunningRelay,
    chunked,
    exchange_rig,
    receive,
    receive_all,
    receive_head,
    receive_until_reset,
    reset,
)

BODY = b"GET /smuggled HTTP/1.1\r\nHost: c\r\n\r\n"
LENGTH = b"POST /first HTTP/1.1\r\nHost: c\r\nContent-Length: %d\r\n\r\n" % len(BODY)
CHUNKED = b"POST /first HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
EXPECT = LENGTH.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
NEXT = b"POST /next HTTP/1.1\r\nHost: c\r\nContent-Length: 4\r\n\r\nnext"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"

# What is sent of a request before the response, and what of the rest after it.
Sent = tuple[bytes, bytes]
SENT: dict[str, Sent] = {
    "a length, and no body": (LENGTH, b""),
    "a length, and half a body": (LENGTH + BODY[:9], b""),
    "a length, and all but a byte": (LENGTH + BODY[:-1], b""),
    "a length, and the body behind the answer": (LENGTH, BODY),
    "a length, and the rest behind the answer": (LENGTH + BODY[:9], BODY[9:]),
    "chunks, none of them": (CHUNKED, b""),
    "chunks, half of one": (CHUNKED + CHUNK[:20], b""),
    "chunks, all but the last one": (CHUNKED + CHUNK, b""),
    "chunks, all but a byte": (CHUNKED + CHUNK + b"0\r\n\r", b""),
    "chunks, behind the answer": (CHUNKED, CHUNK + b"0\r\n\r\n"),
    "chunks, the last one behind the answer": (CHUNKED + CHUNK, b"0\r\n\r\n"),
    "Expect: 100-continue, refused": (EXPECT, b""),
    "Expect: 100-continue, refused, and the body all the same": (EXPECT, BODY),
    "Expect: 100-continue, and half a body": (EXPECT + BODY[:9], b""),
    "another request behind the answer": (LENGTH, NEXT),
    "another request behind half a body": (LENGTH + BODY[:9], NEXT),
    "another request behind some chunks": (CHUNKED + CHUNK, NEXT),
    "another request behind what is expected": (EXPECT, NEXT),
}
ANSWERS = {
    "401": b"HTTP/1.1 401 Unauthorized\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno",
    "404 chunked": b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"n", b"o"),
    "405 without a body": b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "100, then 200": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
}


def passed_on(answer: bytes) -> bytes:
    """What the client gets of an answer: the final response."""
    return answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")


pumped = pytest.mark.parametrize("pump", [True, False], ids=["pump", "no pump"])


class Early:
    """An upstream's handler: responds to each request as soon as it has the head. `got`: all bytes of each connection
    whose first request was answered this way, until its end.
    """

    def __init__(self, answer: bytes) -> None:
        self.got: list[bytes] = []
        self.asked = threading.Semaphore(0)
        self._answer = answer

    def __call__(self, one: socket.socket) -> None:
        head = receive_head(one)
        if head.startswith(b"POST /next "):
            receive(one, 4)
            one.sendall(OK)
            receive_all(one)
            return
        one.sendall(self._answer)
        self.asked.release()
        rest, _ = receive_until_reset(one)
        self.got.append(head + rest)


def ask_next(relay: RunningRelay) -> bytes:
    """Another client's request, and its response."""
    with relay.connect() as other:
        other.sendall(NEXT)
        return receive(other, len(OK))


def judge(early: Early, connections: int, sent: bytes) -> None:
    """Asserts that the first connection was not reused: the second request came on a connection of its own, and the
    first one carried only the beginning of the first request.
    """
    assert connections == 2
    (got,) = early.got
    (first,), (wanted,) = by_llhttp(got).requests, by_llhttp(sent).requests
    assert not first.whole and not wanted.whole
    assert wanted.body.startswith(first.body)


def refuse_early(folder: Path, sent: Sent, answer: bytes, pump: bool) -> None:
    early = Early(answer)
    with exchange_rig(folder, early, pump=pump) as (relay, upstream, _):
        with relay.connect() as client:
            client.sendall(sent[0])
            assert receive(client, len(passed_on(answer))) == passed_on(answer)
            if sent[1]:
                client.sendall(sent[1])
            assert receive_until_reset(client)[0] == b""  # no further request of this client is answered
        assert ask_next(relay) == OK
    judge(early, upstream.connections, sent[0])


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_h4_the_connection_is_not_used_again(tmp_path: Path, sent: Sent, answer: bytes) -> None:
    refuse_early(tmp_path, sent, answer, pump=True)


@pytest.mark.slow
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_h4_the_connection_is_not_used_again_without_the_pump(tmp_path: Path, sent: Sent) -> None:
    refuse_early(tmp_path, sent, ANSWERS["401"], pump=False)


@pumped
@pytest.mark.parametrize("leaves", ["fin", "reset"])
@pytest.mark.parametrize(
    "sent", [LENGTH, LENGTH + BODY[:9], CHUNKED + CHUNK, EXPECT], ids=["length", "half", "chunks", "expect"]
)
def test_a_client_that_leaves_closes_the_upstream_connection(
    tmp_path: Path, sent: bytes, leaves: str, pump: bool
) -> None:
    early = Early(ANSWERS["401"])
    with exchange_rig(tmp_path, early, pump=pump) as (relay, upstream, _):
        client = relay.connect()
        client.sendall(sent)
        assert early.asked.acquire(timeout=PATIENCE_S)
        if leaves == "reset":
            reset(client)
        else:
            client.close()
        assert ask_next(relay) == OK
    judge(early, upstream.connections, sent)


@pumped
@pytest.mark.parametrize(
    ("head", "body", "end"), [(LENGTH, BODY, b""), (CHUNKED, CHUNK, b"0\r\n\r\n")], ids=["length", "chunks"]
)
def test_a_body_that_ends_during_the_response_does_not_allow_reuse(
    tmp_path: Path, head: bytes, body: bytes, end: bytes, pump: bool
) -> None:
    """The response's head came before the body: it is unknown whether the upstream reads that body."""
    answer = ANSWERS["404 chunked"]
    bodied = threading.Event()
    rest: list[bytes] = []

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(answer[:-9])
        received = receive(one, len(body + end))
        bodied.set()
        one.sendall(answer[-9:])
        rest.append(received + receive_until_reset(one)[0])

    def next_(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 4)
        one.sendall(OK)
        receive_all(one)

    with exchange_rig(tmp_path, handler, next_, pump=pump) as (relay, upstream, _):
        with relay.connect() as client:
            client.sendall(head)
            assert receive(client, len(answer) - 9) == answer[:-9]
            client.sendall(body + end)
            assert bodied.wait(PATIENCE_S)
            assert receive(client, 9) == answer[-9:]
            client.sendall(NEXT)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == 2
    assert rest == [body + end]


@pumped
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("sent", [LENGTH + BODY, CHUNKED + CHUNK + b"0\r\n\r\n"], ids=["length", "chunks"])
def test_a_connection_is_reused_after_a_complete_request(
    tmp_path: Path, sent: bytes, answer: bytes, pump: bool
) -> None:
    """The counterpart: otherwise the tests above would pass for a relay that never reuses a connection."""

    def handler(one: socket.socket) -> None:
        head = receive_head(one)
        receive(one, len(sent) - len(sent.partition(b"\r\n\r\n")[0]) - 4)
        one.sendall(answer)
        while head := receive_head(one):
            assert head.startswith(b"POST /next ")
            assert receive(one, 4) == b"next"
            one.sendall(OK)

    with exchange_rig(tmp_path, handler, pump=pump) as (relay, upstream, _):
        with relay.connect() as client:
            client.sendall(sent)
            assert receive(client, len(passed_on(answer))) == passed_on(answer)
            client.sendall(NEXT)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == 1
