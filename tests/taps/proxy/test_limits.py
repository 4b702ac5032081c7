"""H3: heads, bodies and the framing between chunks have limits; a long prompt has none, and is not kept in memory."""

import hashlib
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawRecorder,
    RawUpstream,
    answering,
    chunked,
    exchange_rig,
    receive,
    receive_all,
    receive_head,
    receive_until_reset,
    settings_for,
)
from tests.taps.proxy.test_process import RelayProcess, running

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PROMPT = 100_000_000
PIECE = bytes(range(256)) * 256
# Allowed growth of a relay while a prompt passes (bytes): the 16 MiB that its recorder reads, twice while they are
# encoded, and socket buffers.
MAX_GROWTH = 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("fields", "pieces"),
    [
        (b"Content-Length: 1001\r\n", []),
        (b"Content-Length: 1001\r\nExpect: 100-continue\r\n", []),
        (b"Transfer-Encoding: chunked\r\n", [b"3e8\r\n" + bytes(1000) + b"\r\n", b"1\r\nx\r\n0\r\n\r\n"]),
    ],
)
def test_h3_a_body_beyond_the_setting_is_a_413(tmp_path: Path, fields: bytes, pieces: list[bytes]) -> None:
    seen: list[bytes] = []

    def handler(one: socket.socket) -> None:
        seen.append(receive_until_reset(one)[0])

    with exchange_rig(tmp_path, handler, max_request_body=1000) as (relay, _, _), relay.connect() as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: c\r\n" + fields + b"\r\n")
        for piece in pieces:
            time.sleep(0.1)
            client.sendall(piece)
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 413 ") and b'"code":"body_too_large"' in received
    assert not any(one.endswith(b"\r\n0\r\n\r\n") for one in seen)  # the upstream never sees a complete request


def test_a_body_at_the_limit_passes_and_each_request_has_its_own_limit(tmp_path: Path) -> None:
    handler = answering(*[OK] * 3)
    with exchange_rig(tmp_path, handler, max_request_body=1000) as (relay, _, _), relay.connect() as client:
        for _ in range(3):
            client.sendall(b"POST /x HTTP/1.1\r\nHost: c\r\nContent-Length: 1000\r\n\r\n" + bytes(1000))
            assert receive(client, len(OK)) == OK


@pytest.mark.parametrize(("limit", "status"), [(5_000, b"431"), (200_000, b"200")])
def test_h3_heads_have_the_limit_of_the_setting(tmp_path: Path, limit: int, status: bytes) -> None:
    with exchange_rig(tmp_path, answering(OK), max_request_head=limit) as (relay, _, _), relay.connect() as client:
        client.sendall(b"GET /x HTTP/1.1\r\nHost: c\r\nA: " + b"a" * 100_000 + b"\r\n\r\n")
        assert receive_head(client).startswith(b"HTTP/1.1 " + status)


def test_trailers_of_a_response_pass_and_those_of_a_request_do_not(tmp_path: Path) -> None:
    """RFC 9110, 6.5.1: a recipient that decodes the chunks may discard trailers; the relay does not decode a response."""
    answer = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n"
    requests: list[bytes] = []

    def handler(one: socket.socket) -> None:
        requests.append(receive_head(one) + receive(one, len(chunked(b"hi"))))
        one.sendall(answer)
        receive_all(one)

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        head = b"POST /x HTTP/1.1\r\nHost: c\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head + b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n")
        assert receive(client, len(answer)) == answer
    assert requests[0].endswith(chunked(b"hi")) and b"X-Sum" not in requests[0]


@pytest.mark.parametrize("endless", [b"0\r\nA: ", b"0\r\nA: b\r\n", b"5;a="], ids=["trailer", "trailers", "extension"])
def test_endless_framing_between_chunks_is_refused(tmp_path: Path, endless: bytes) -> None:
    """None of it is passed on, so only this limit ends it."""

    def handler(one: socket.socket) -> None:
        receive_until_reset(one)

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n")
        again = b"A: b\r\n" * 2000 if endless.endswith(b"\n") else b"a" * 8192
        client.sendall(endless)
        for _ in range(9):
            time.sleep(0.02)
            client.sendall(again)
        assert receive_all(client).startswith(b"HTTP/1.1 431 ")


def resident_peak(relay: RelayProcess) -> int:
    """The process's peak of resident memory so far (bytes)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{relay.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("framed", ["length", "chunks"])
def test_h3_a_prompt_of_100_mb_passes_in_bounded_memory(tmp_path: Path, framed: str) -> None:
    digest = hashlib.sha256()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        time.sleep(0.5)  # slower than the client: unread bytes must wait in the client's socket, not in the relay
        left = PROMPT
        while left:
            if framed == "chunks":
                size = int(receive_line(one), 16)
                piece = receive(one, size)
                assert receive(one, 2) == b"\r\n"
            else:
                piece = receive(one, min(left, 1 << 20))
            digest.update(piece)
            left -= len(piece)
        one.sendall(OK)
        receive_all(one)

    with (
        RawUpstream(handler) as upstream,
        RawRecorder(tmp_path / "recorder.sock"),
        running(settings_for(tmp_path, upstream.url)) as relay,
        relay.connect() as client,
    ):
        before = resident_peak(relay)
        sender = threading.Thread(target=send_prompt, args=(client, framed))
        sender.start()
        client.settimeout(3 * PATIENCE_S)
        assert receive(client, len(OK)) == OK
        sender.join()
        assert resident_peak(relay) - before < MAX_GROWTH
    assert digest.digest() == hashlib.sha256(PIECE * (PROMPT // len(PIECE)) + PIECE[: PROMPT % len(PIECE)]).digest()


def receive_line(one: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        line += one.recv(1)
    return line


def send_prompt(client: socket.socket, framed: str) -> None:
    how = b"Transfer-Encoding: chunked" if framed == "chunks" else b"Content-Length: %d" % PROMPT
    client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: c\r\n" + how + b"\r\n\r\n")
    for start in range(0, PROMPT, len(PIECE)):
        piece = PIECE[: PROMPT - start]
        client.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if framed == "chunks" else piece)
    if framed == "chunks":
        client.sendall(b"0\r\n\r\n")
