"""Offers to upgrade: a WebSocket is relayed, and a client sees the answer of an upstream that refuses it; another protocol is
refused with 426; offers of HTTP itself are ignored, since the request means the same without them.
"""

import json
import subprocess
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection
from websockets.typing import Subprotocol

from streamgauge.spool.read_counters import Refusal, read_refusals
from tests.taps.proxy.rig import RawUpstream, RunningRelay, answering, receive_all, settings_for
from tests.websockets import websocket_server

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


def test_a_websocket_client_gets_the_426_of_an_upstream_that_has_no_websocket(tmp_path: Path) -> None:
    """After it, and only after it, all clients fall back to HTTP at once."""
    answer = (
        b"HTTP/1.1 426 Upgrade Required\r\nConnection: Upgrade\r\nUpgrade: HTTP/1.1\r\nContent-Length: 4\r\n\r\nPOST"
    )
    with RawUpstream(answering(answer)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{relay.port}/v1/responses"):
            pass
        assert upstream.connections == 1
    response = refused.value.response
    assert (response.status_code, response.headers["Upgrade"], response.body) == (426, "HTTP/1.1", b"POST")
    assert not any(read_refusals(tmp_path / "counters").values())


def test_a_websocket_client_and_server_speak_through_the_relay(tmp_path: Path) -> None:
    """The client offers compression, which the relay does not pass on; subprotocols pass."""

    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    with (
        websocket_server(echo, subprotocols=[Subprotocol("realtime")]) as url,
        RunningRelay(settings_for(tmp_path, url)) as relay,
        connect(f"ws://127.0.0.1:{relay.port}/v1/responses", subprotocols=[Subprotocol("realtime")]) as client,
    ):
        assert client.protocol.extensions == []
        assert client.subprotocol == "realtime"
        for message in ("text", b"bytes", "x" * 1_000_000, ""):
            client.send(message)
            assert client.recv() == message
        assert client.ping().wait(20)


def test_another_protocol_gets_426_that_says_what_to_do(tmp_path: Path) -> None:
    with RawUpstream(answering(ANSWER)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        with relay.connect() as client:
            client.sendall(b"GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
            head, _, body = receive_all(client).partition(b"\r\n\r\n")
        assert upstream.connections == 0
    assert head.startswith(b"HTTP/1.1 426 ") and b"\r\nUpgrade: HTTP/1.1" in head
    error = json.loads(body)["error"]
    assert error["code"] == "upgrade_refused"
    assert "POST" in error["message"]
    counted = read_refusals(tmp_path / "counters")
    assert {code: times for code, times in counted.items() if times} == {Refusal.UPGRADE_REFUSED: 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "offer", [["--http2"], ["-H", "Connection: Upgrade", "-H", "Upgrade: TLS/1.2"]], ids=["h2c", "TLS"]
)
@pytest.mark.parametrize("body", [[], ["--data", '{"model":"m"}']], ids=["GET", "POST"])
def test_an_offer_of_http_itself_is_relayed_as_ordinary_http(tmp_path: Path, offer: list[str], body: list[str]) -> None:
    with RawUpstream(answering(ANSWER)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        url = f"http://127.0.0.1:{relay.port}/u0/v1/responses"
        shown = ["--write-out", " %{http_code} %{http_version}"]
        asked = subprocess.run(
            ["curl", "--silent", "--max-time", "20", *offer, *body, *shown, url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (asked.stdout, asked.returncode) == ("done 200 1.1", 0)
    assert not any(read_refusals(tmp_path / "counters").values())
