"""Offers to upgrade: a WebSocket is refused with 426, after which clients fall back to HTTP at once; offers of HTTP itself
are ignored, since the request means the same without them.
"""

import json
import subprocess
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from streamgauge.spool.read_counters import Refusal, read_refusals
from tests.taps.proxy.rig import RawUpstream, RunningRelay, answering, settings_for

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


def test_a_websocket_client_gets_426_that_says_what_to_do(tmp_path: Path) -> None:
    with RawUpstream(answering(ANSWER)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{relay.port}/u0/v1/responses"):
            pass
        assert upstream.connections == 0
    response = refused.value.response
    assert response.status_code == 426
    assert response.headers["Upgrade"] == "HTTP/1.1"
    assert response.headers.get_all("Connection") == ["close", "Upgrade"]
    error = json.loads(response.body)["error"]
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
