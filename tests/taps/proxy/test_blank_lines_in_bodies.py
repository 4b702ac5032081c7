"""A chunked body full of line ends costs as much as any other."""

import socket
import threading
from pathlib import Path

import pytest

from tests.taps.proxy.readings import by_llhttp
from tests.taps.proxy.rig import PATIENCE_S, chunked, exchange_rig, receive, receive_head

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD = b"POST /v1/x HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = 16_384  # content of a chunk (bytes)


@pytest.mark.parametrize(
    "content",
    [b"x" * PIECE, b"\r\n" * (PIECE // 2)],
    ids=["letters", "line ends"],
)
def test_a_chunk_is_passed_on_in_few_pieces(tmp_path: Path, content: bytes) -> None:
    """At most one for each read of the relay, and a few more since the sender's own piece may arrive in several."""
    body = chunked(content)
    data = bytearray(HEAD)
    whole = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        while not data.endswith(b"\r\n0\r\n\r\n") and (piece := one.recv(65536)):
            data.extend(piece)
        whole.set()
        one.sendall(OK)

    with exchange_rig(tmp_path, handler) as (relay, _, _), relay.connect() as client:
        client.sendall(HEAD + body)
        assert whole.wait(PATIENCE_S)
        assert receive(client, len(OK)) == OK
    [read] = by_llhttp(bytes(data)).requests
    assert read.whole and read.body == content
    assert len(data) - len(HEAD) - len(content) < 1_000, "bytes of framing"
