"""Each tap counts each response that passes it once: with a record, or by the reason why it has none."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.client import DirectClient, RecorderClient
from streamgauge.recorder.protocol import ExchangeEnding, RequestStarted, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Counters, DropReason
from streamgauge.spool.response_counters import NotCaptured, read_responses
from streamgauge.taps.inprocess import background_senders
from streamgauge.taps.inprocess.capture import start_capture
from streamgauge.taps.packets.connections import CaptureScope, Connections
from streamgauge.taps.packets.conversation import MAX_WAITING
from streamgauge.taps.packets.exchange import Reporting
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD
from tests.recorder.fake_client import BugError, FakeClient
from tests.recorder.test_client import client_at, send_all
from tests.running import wait_for
from tests.taps import talk
from tests.taps.asgi_rig import END, START, ApplicationFault, Server, answers, body, run, scope
from tests.taps.asking import Asker, Kind
from tests.taps.inprocess.rig import report_stream, seen_request
from tests.taps.packets.talking import JSON, STREAM, WHOLE, asking
from tests.taps.packets.wire import SERVER, Line, segment
from tests.taps.proxy.rig import (
    RawRecorder,
    RawUpstream,
    RunningRelay,
    answering,
    exchange_rig,
    receive,
    receive_all,
    receive_until_reset,
    settings_for,
)

FINE = None
MODELS = asking(b"{}", "/v1/models")


# --- captures, the client of the recorder, and the recorder ---------------------------------------------------------


def test_a_capture_counts_its_response_once_whatever_happens_later() -> None:
    client = FakeClient()
    report_stream(client)
    assert client.responses == {("up", FINE): 1}

    client = FakeClient(RequestStarted)  # the message of the start raises
    report_stream(client)
    assert (client.responses, client.faults) == ({("up", NotCaptured.CAPTURE_FAULT): 1}, 1)

    client = FakeClient(ResponseRead, ExchangeEnding)  # later messages raise: the stream has a record
    report_stream(client)
    assert (client.responses, client.faults) == ({("up", FINE): 1}, 1)

    client = FakeClient()
    start_capture(client, seen_request(headers=5)).end(9, Ending.COMPLETE)
    assert client.responses == {("up", NotCaptured.CAPTURE_FAULT): 1}


def test_a_start_above_the_capacity_has_no_record() -> None:
    client = FakeClient()
    client.full = client.overfull = True
    capture = report_stream(client)
    capture.fail(BugError())
    assert (client.responses, client.messages) == ({("up", NotCaptured.RECORDER_BEHIND): 1}, [])


def begin(client: RecorderClient) -> None:
    """As ExchangeCapture.start does."""
    client.put(RequestStarted(1, 1, 2, "up", "POST", "/v1/messages"), 0)
    client.count_response("up")


def counted(path: Path) -> dict[str, tuple[int, dict[str, int]]]:
    found = read_responses(path)
    return {name: (one.seen, {why.value: n for why, n in one.not_captured.items()}) for name, one in found.items()}


def is_counted(path: Path, goal: object) -> bool:
    return counted(path) == goal


def test_a_start_that_never_reaches_a_recorder(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    with RawRecorder(tmp_path / "recorder.sock"):
        begin(client)
        send_all(client)
        begin(client)
        assert counted(tmp_path / "counters") == {"up": (2, {})}
        client.disconnect()
        client.discard(DropReason.RECORDER_GONE)
    assert counted(tmp_path / "counters") == {"up": (2, {"recorder_gone": 1})}
    with Counters(tmp_path / "counters", "app-0") as next_process:
        next_process.drop_unsent_reads()
    assert counted(tmp_path / "counters") == {"up": (2, {"recorder_gone": 1})}


def test_streams_that_begin_go_with_the_client_to_other_counters(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    begin(client)
    (tmp_path / "new").mkdir()
    client.use_counters(Counters(tmp_path / "new" / "counters", "app-0"))
    client.discard(DropReason.RECORDER_GONE)
    assert counted(tmp_path / "new" / "counters") == {"up": (1, {"recorder_gone": 1})}


def test_streams_above_the_recorders_limit_are_counted_by_upstream() -> None:
    recorder = Recorder(talk.settings(), max_open_streams=1)
    for number, upstream in enumerate(("one", "two", "two"), 1):
        recorder.handle(RequestStarted(number, 1, 1, upstream, "POST", "/v1/messages"))
    assert recorder.refused == {"two": 2}


# --- the relay ------------------------------------------------------------------------------------------------------


def swallow(one: socket.socket) -> None:
    receive_until_reset(one)


def test_a_body_that_is_too_slow_counts_at_its_upstream(tmp_path: Path) -> None:
    request = b"POST /u1/x HTTP/1.1\r\nHost: c\r\nContent-Length: 9\r\n\r\n{"
    with RawUpstream(swallow) as one, RawUpstream(swallow) as two:
        settings = settings_for(tmp_path, one.url, two.url, body_grace_s=0.2)
        with RunningRelay(settings) as relay, relay.connect() as client:
            client.sendall(request)
            assert receive_all(client).startswith(b"HTTP/1.1 408 ")
    assert counted(tmp_path / "counters") == {"u1": (1, {"refused": 1})}


def test_a_response_after_a_flood_of_interim_heads_is_counted(tmp_path: Path) -> None:
    flood = b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MAX_RESPONSE_HEAD // 4)
    last = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with exchange_rig(tmp_path, answering(flood + last)) as (relay, _, _), relay.connect() as client:
        client.sendall(b"GET /docs HTTP/1.1\r\nHost: c\r\n\r\n")
        assert receive(client, len(last)) == last
    assert counted(tmp_path / "counters") == {"u0": (1, {"not_llm": 1})}


# --- ASGI -----------------------------------------------------------------------------------------------------------

HTML = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]}


@pytest.mark.parametrize(
    ("given", "sent", "raises", "expected"),
    [
        (scope(), (START, body(b"data: {}\n\n"), END), None, FINE),
        (scope("/docs"), (HTML, body(b"<html>"), END), None, NotCaptured.NOT_LLM),
        (scope("/v1/embeddings"), (HTML, END), None, NotCaptured.FORMAT),
        (scope("/docs"), (), ApplicationFault(), NotCaptured.NOT_LLM),  # the server's 500
        (scope("/elsewhere"), (START, END), None, FINE),
        (scope("/docs", headers=7), ({**HTML, "headers": 7}, END), None, NotCaptured.CAPTURE_FAULT),
    ],
    ids=["a stream", "another path", "embeddings", "no response", "a stream elsewhere", "a fault"],
)
def test_the_middleware(
    client: FakeClient, given: Any, sent: tuple[Any, ...], raises: Exception | None, expected: NotCaptured | None
) -> None:
    try:
        run(answers(*sent, raises=raises), Server(), given, upstream="app")
    except ApplicationFault:
        assert raises is not None
    assert client.responses == {("app", expected): 1}


def test_a_websocket_counts_as_another_protocol(client: FakeClient) -> None:
    async def application(*_: Any) -> None:
        pass

    run(application, Server(), {"type": "websocket"}, upstream="app")
    run(application, Server(), {"type": "lifespan"}, upstream="app")
    assert client.responses == {("app", NotCaptured.PROTOCOL): 1}


# --- httpx, with the thread that counts -----------------------------------------------------------------------------


def test_the_transport(way: tuple[Any, Kind], tmp_path: Path, recorder: RawRecorder) -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    asker = Asker(*way, tmp_path, upstream="up")
    with RawUpstream(answering(plain)) as upstream:
        for path in ("/v1/models", "/v1/models", "/v1/embeddings", "/v1/chat/completions"):
            asker.ask(upstream.url + path)
    background_senders.end()
    assert counted(tmp_path / "counters") == {"up": (4, {"not_llm": 2, "format": 1})}


def test_a_capture_that_cannot_begin_in_the_transport(
    way: tuple[Any, Kind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise BugError

    monkeypatch.setattr("streamgauge.taps.httpx.start_capture", broken)
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    with RawUpstream(answering(plain)) as upstream:
        assert Asker(*way, tmp_path, upstream="up").ask(upstream.url + "/v1/chat/completions").body == b"{}"
    background_senders.end()
    assert counted(tmp_path / "counters") == {"up": (1, {"capture_fault": 1})}


def test_responses_are_counted_while_the_process_runs(tmp_path: Path) -> None:
    """Although no stream is captured: nothing else would wake the sender's thread."""
    sender = background_senders.sender_of(tmp_path)
    for number in range(1, 4):
        sender.count_response("up", NotCaptured.NOT_LLM)
        goal = {"up": (number, {"not_llm": number})}
        wait_for(partial(is_counted, tmp_path / "counters", goal), "the count")
    background_senders.end()


# --- packets --------------------------------------------------------------------------------------------------------


def followed_by(*lines: Line, meanwhile: Callable[[Reporting], None] = lambda _: None) -> dict[Any, int]:
    """What the packet tap counts."""
    found: dict[Any, int] = {}

    class Counting(DirectClient):
        def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
            found[upstream, without] = found.get((upstream, without), 0) + 1

    reporting = Reporting(Counting(lambda _: None), "packets")
    connections = Connections(CaptureScope({SERVER[1]: "up"}), reporting)
    meanwhile(reporting)
    for at_ns, data in sorted((packet for line in lines for packet in line.sent), key=lambda packet: packet[0]):
        connections.take(segment(data, at_ns))
    connections.cut(max(line.now for line in lines))
    return found


def draining(reporting: Reporting) -> None:
    reporting.draining = True


def test_packets() -> None:
    assert followed_by(Line().open().ask(asking()).answer(*WHOLE)) == {("up", FINE): 1}
    assert followed_by(Line().open().ask(MODELS).answer(JSON)) == {("up", NotCaptured.NOT_LLM): 1}
    assert followed_by(Line().open().ask(MODELS).answer(STREAM)) == {("up", FINE): 1}
    two_lengths = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"
    assert followed_by(Line().open().ask(MODELS).answer(two_lengths)) == {("up", NotCaptured.NOT_LLM): 1}
    assert followed_by(Line().open().ask(MODELS)) == {}  # no response
    assert followed_by(Line().open().ask(MODELS).answer(JSON[:10])) == {}  # the beginning of a head is none
    assert followed_by(Line().open().ask(MODELS).answer(JSON), meanwhile=draining) == {("up", NotCaptured.STOPPING): 1}
    websocket = b"GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    switched = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
    protocol = {("up", NotCaptured.PROTOCOL): 1}
    assert followed_by(Line().open().ask(websocket).answer(switched, b"\x81\x05hello")) == protocol
    assert followed_by(Line().open().ask(b"\x16\x03\x01\x02\x00\x01").answer(b"\x16\x03\x03")) == protocol
    assert followed_by(Line().open().ask(MODELS).answer(b"SMTP\r\n\r\n")) == protocol
    many = followed_by(Line().open().ask(asking() * (MAX_WAITING + 1)))
    assert many == {("up", FINE): MAX_WAITING, ("up", NotCaptured.LIMIT): 1}


def test_packets_that_were_lost() -> None:
    line = Line().open().ask(MODELS)
    before = len(line.sent)
    line.answer(JSON[:10], JSON[10:])
    del line.sent[before]
    line.ask(MODELS).answer(JSON)
    found = followed_by(line)
    assert found.pop(("up", NotCaptured.NOT_LLM)) == 1
    assert found == {("up", NotCaptured.PACKETS_LOST): 1}


def test_a_response_that_is_not_http_after_a_loss() -> None:
    """Its bytes may be the middle of an earlier response. Without a loss it is another protocol."""
    head, blank, body = JSON.partition(b"\r\n\r\n")
    line = Line().open().ask(MODELS).answer(head + blank, body)
    lost = line.sent[-1]
    line.ask(MODELS).answer(b"SMTP\r\n\r\n")
    assert followed_by(line) == {("up", NotCaptured.NOT_LLM): 1, ("up", NotCaptured.PROTOCOL): 1}
    line.sent.remove(lost)
    assert followed_by(line) == {("up", NotCaptured.NOT_LLM): 1, ("up", NotCaptured.PACKETS_LOST): 1}
