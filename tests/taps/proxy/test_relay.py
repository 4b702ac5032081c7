"""The drain: running exchanges end, idle connections are closed, the rest is cut at the deadline, and the capture is
complete.
"""

import asyncio
import socket
import threading
import time
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnding
from streamgauge.taps.proxy.relay import serve
from tests.taps.proxy.rig import (
    PATIENCE_S,
    arrived,
    exchange_rig,
    only,
    receive,
    receive_all,
    receive_head,
    receive_until_reset,
    settings_for,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}"


def test_running_exchanges_end_and_idle_connections_are_closed(tmp_path: Path) -> None:
    go = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(HEAD)
        assert go.wait(PATIENCE_S)
        one.sendall(b"2\r\nhi\r\n0\r\n\r\n")

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        idle, busy = relay.connect(), relay.connect()
        busy.sendall(POST + POST)
        assert receive(busy, len(HEAD)) == HEAD
        drain = threading.Thread(target=relay.drain, args=(PATIENCE_S,))
        drain.start()
        assert receive_all(idle) == b""
        with pytest.raises(ConnectionRefusedError):  # nothing listens any more
            relay.connect()
        go.set()
        assert receive_all(busy) == b"2\r\nhi\r\n0\r\n\r\n"  # and the second request is not started
        drain.join()
        messages = recorder.ended()
        assert only(messages, ExchangeEnding).ending is Ending.COMPLETE
        assert arrived(messages) == HEAD + b"2\r\nhi\r\n0\r\n\r\n"
        idle.close()
        busy.close()


@pytest.mark.parametrize("head", [HEAD, HEAD.replace(b"Transfer-Encoding: chunked\r\n", b"")])
def test_what_is_left_at_the_deadline_is_cut_so_that_it_does_not_look_complete(tmp_path: Path, head: bytes) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(head)
        assert receive_until_reset(one)[0] == b""

    with exchange_rig(tmp_path, handler) as (relay, _, recorder):
        client = relay.connect()
        client.sendall(POST)
        assert receive(client, len(head)) == head
        relay.drain(0.2)
        assert receive_until_reset(client) == (b"", True)
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CUT
        client.close()


def test_a_client_that_reads_nothing_does_not_delay_the_drain(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + bytes(9_000_000))
        receive_until_reset(one)

    with exchange_rig(tmp_path, handler) as (relay, _, _):
        client = relay.connect(receive_buffer=4096)
        client.sendall(b"GET /x HTTP/1.1\r\nHost: c\r\n\r\n")
        time.sleep(0.3)
        begun = time.monotonic()
        relay.drain(0.2)
        assert time.monotonic() - begun < 8
        client.close()


def test_invalid_upstreams_are_refused_at_the_start(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "ftp://a")
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(ValueError, match="upstream"):
        asyncio.run(serve(settings, listening))
