"""The simulator on real sockets: bytes, endings, the truth that it records, and running as a command."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from streamgauge_demo import wire
from streamgauge_demo.scenario import Piece, Scenario
from streamgauge_demo.scenarios import BY_MODEL, SCENARIOS
from streamgauge_demo.simulator import Simulator
from streamgauge_demo.truth import Ended
from tests.demo.raw import exchange, request_bytes
from tests.demo.running import simulator
from tests.each import each

pytestmark = pytest.mark.slow

# A process of ours starts, or ends, within this on a busy machine (seconds).
PROCESS_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[Simulator]:
    with simulator() as started:
        yield started


def connection(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=PROCESS_S)


@each(SCENARIOS, lambda scenario: scenario.model)
def test_the_bytes_are_those_of_the_scenario(scenario: Scenario, running: Simulator) -> None:
    raw = exchange(scenario, running.url)
    body = zlib.decompressobj(wbits=31).decompress(raw.body) if scenario.answer.gzip else raw.body
    assert raw.status == (None if scenario.answer.no_head else scenario.answer.status)
    assert body == b"".join(piece.data for piece in scenario.answer.pieces)


@pytest.mark.parametrize(
    ("model", "end", "ended"),
    [
        ("nanogpt/chat-stop", "complete", Ended.WHOLE),
        ("nanogpt/chat-truncated", "complete", Ended.WHOLE),
        ("gateway/until-close", "complete", Ended.WHOLE),
        ("sansa/auto-cut", "early_eof", Ended.EARLY_FIN),
        ("gateway/reset", "reset", Ended.RESET),
        ("gateway/no-head", "reset", Ended.RESET),
        ("gateway/abort", "left", Ended.CLIENT_LEFT),
        ("local/chat-impatient", "left", Ended.CLIENT_LEFT),
    ],
)
def test_endings_are_those_of_the_scenario(model: str, end: str, ended: Ended) -> None:
    with simulator() as alone:
        assert exchange(BY_MODEL[model], alone.url).end == end
    (request,) = alone.told.values()
    # If the client left, the server may have been stopped before it noticed.
    assert request.ended in ({ended, None} if ended is Ended.CLIENT_LEFT else {ended})


def test_the_truth_has_each_write_before_it_arrived(running: Simulator) -> None:
    raw = exchange(BY_MODEL["gateway/split"], running.url)
    assert raw.request_id is not None
    request = running.told[raw.request_id]
    assert raw.asked_ns < request.asked_ns < request.wrote[0].at_ns <= raw.reads[0][0]
    assert request.wrote[-1].at_ns <= raw.reads[-1][0]
    stamps = request.tokens_ns()
    assert len(stamps) == BY_MODEL["gateway/split"].expected.content.token_events
    assert stamps == sorted(stamps)
    assert sum(write.wire_bytes for write in request.wrote) == sum(len(data) for _, data in raw.reads)
    first = request.first_token_s()
    assert first is not None
    assert first == (stamps[0] - request.asked_ns) / 1e9


def test_a_response_whose_client_is_slow_to_leave_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap would end it by its timeout, before the client leaves."""
    monkeypatch.setattr(wire, "COMMENT", Piece(0.05, b": still here\n\n"))
    scenario = BY_MODEL["gateway/abort"]
    sent = b"".join(piece.data for piece in scenario.answer.pieces) + 3 * b": still here\n\n"
    with simulator(0) as alone:
        client = connection(alone.url)
        head, body = request_bytes(scenario, "")
        client.request("POST", head.split(b" ")[1].decode(), body)
        assert client.getresponse().read(len(sent)) == sent
        client.close()


def test_a_connection_is_reused() -> None:
    with simulator() as alone:
        client = connection(alone.url)
        for model in ("nanogpt/chat-stop", "sansa/no-credits", "nanogpt/chat-whole", "nanogpt/chat-stop"):
            head, body = request_bytes(BY_MODEL[model], "/any/prefix")
            client.request("POST", head.split(b" ")[1].decode(), body, {"content-type": "application/json"})
            socket_used = client.sock
            assert client.getresponse().read() == b"".join(piece.data for piece in BY_MODEL[model].answer.pieces)
            assert client.sock is socket_used
        client.close()


@pytest.mark.parametrize(
    ("method", "path", "model"),
    [
        ("POST", "/v1/chat/completions", "nobody/knows"),
        ("POST", "/v1/messages", "nanogpt/chat-stop"),
        ("GET", "/v1/chat/completions", "nanogpt/chat-stop"),
    ],
)
def test_an_unknown_scenario_is_not_found(running: Simulator, method: str, path: str, model: str) -> None:
    client = connection(running.url)
    client.request(method, path, json.dumps({"model": model}))
    response = client.getresponse()
    assert response.status == 404
    assert json.loads(response.read())["error"]["code"] == "model_not_found"
    client.close()


def test_malformed_bytes_end_only_their_connection(running: Simulator) -> None:
    for rubbish in (b"\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"\x16\x03" * 70_000):
        client = connection(running.url)
        client.connect()
        try:
            client.sock.sendall(rubbish)
            client.sock.shutdown(socket.SHUT_WR)
            while client.sock.recv(1024):
                pass
        except OSError:  # it was reset, which is fine too
            pass
        finally:
            client.close()
    assert exchange(BY_MODEL["sansa/whole"], running.url).end == "complete"


def test_as_a_command_it_prints_its_address_and_what_it_did() -> None:
    command = [sys.executable, "-m", "streamgauge_demo.simulator", "--time-scale", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        raw = exchange(BY_MODEL["sansa/auto-stop"], url)
        client = connection(url)
        client.request("GET", "/truth")
        (request,) = json.loads(client.getresponse().read())
        client.request("GET", "/scenarios")
        assert json.loads(client.getresponse().read()) == sorted(BY_MODEL)
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROCESS_S) == 0
    assert request["request_id"] == raw.request_id
    assert request["model"] == "sansa/auto-stop"
    assert sum(tokens for _, _, tokens in request["wrote"]) == BY_MODEL["sansa/auto-stop"].expected.content.token_events
