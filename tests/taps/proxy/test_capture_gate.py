"""What is reported to the recorder: everything, in order, and without harm to a stream."""

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder import protocol as wire
from streamgauge.recorder.loop_client import FLUSH_S, LoopClient
from streamgauge.recorder.protocol import (
    Encoded,
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.read_counters import Counters, Incident, read_balance, read_incidents
from streamgauge.taps.proxy.capture_gate import MAX_HELD_BODY
from tests.taps.proxy.rig import (
    EVENTS,
    PATIENCE_S,
    RawRecorder,
    RawUpstream,
    RunningRelay,
    answering,
    apart,
    arrived,
    chunked,
    exchange_rig,
    kinds,
    only,
    receive,
    receive_all,
    receive_head,
    receive_request,
    settings_for,
)

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(*EVENTS)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def post(target: bytes, body: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join(
        [b"POST " + target + b" HTTP/1.1", b"Host: c", b"Content-Length: %d" % len(body), *fields, b"", body]
    )


def test_a_stream_from_its_first_byte_to_its_end(tmp_path: Path) -> None:
    before, before_wall = time.monotonic_ns(), time.time_ns()
    fields = (b"AUTHORIZATION: Bearer sk-1", b"X-Team: blue", b"Cookie: secret", b"X-Stainless-Retry-Count: 2")
    with exchange_rig(tmp_path, answering(SSE), tenant_header="X-Team") as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(b"/v1/chat/completions?key=k&x=/", b'{"model":"m"}', *fields))
            assert receive(client, len(SSE)) == SSE
        messages = recorder.ended()
    assert kinds(messages) == ["RequestStarted", "RequestBody", "RequestSent", "ResponseRead", "ExchangeEnding"]
    assert len({message.stream for message in messages}) == 1
    opened, ended, sent = only(messages, RequestStarted), only(messages, ExchangeEnding), only(messages, RequestSent)
    assert (opened.upstream, opened.method, opened.target) == ("u0", "POST", "/v1/chat/completions?key=k&x=/")
    assert opened.headers == [("authorization", "Bearer sk-1"), ("x-team", "blue"), ("x-stainless-retry-count", "2")]
    assert opened.tap == "proxy"
    assert opened.wall_ns is not None and before_wall <= opened.wall_ns <= time.time_ns()
    assert only(messages, RequestBody).data == b'{"model":"m"}'
    assert (sent.body_bytes, sent.whole) == (13, True)
    assert arrived(messages) == SSE
    assert (ended.ending, ended.unsent_bytes, ended.client_gone_ns, ended.client_blocked_ns) == (
        Ending.COMPLETE,
        0,
        None,
        0,
    )
    reads = [message.at_ns for message in messages if isinstance(message, ResponseRead)]
    stamps = [opened.at_ns, sent.connected_ns, sent.at_ns, *reads]
    assert all(stamp is not None for stamp in stamps)
    assert [before, *stamps] == sorted([before, *stamps])  # type: ignore[type-var]
    assert ended.at_ns == reads[-1]
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting) == (len(reads), len(reads))


def test_time_zero_of_each_request_of_a_connection(tmp_path: Path) -> None:
    request = post(b"/v1/messages", b"{}")
    with exchange_rig(tmp_path, answering(SSE, SSE, SSE)) as (relay, _, recorder):
        marks: list[int] = []
        with relay.connect() as client:
            for pieces in ([request], [request[:1], request[1:30], request[30:]], [request]):
                marks.append(time.monotonic_ns())
                for piece in pieces:
                    client.sendall(piece)
                    time.sleep(0.05)
                assert receive(client, len(SSE)) == SSE
            marks.append(time.monotonic_ns())
        begun = [message.at_ns for message in recorder.ended(3) if isinstance(message, RequestStarted)]
    for at, stamp in enumerate(begun):
        assert stamp is not None and marks[at] <= stamp < marks[at] + 45_000_000 <= marks[at + 1]


def test_an_llms_path_is_captured_with_any_response(tmp_path: Path) -> None:
    error = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\nno!"
    with exchange_rig(tmp_path, answering(JSON, error)) as (relay, _, recorder), relay.connect() as client:
        for answer in (JSON, error):
            client.sendall(post(b"/v1/responses", b"{}"))
            assert receive(client, len(answer)) == answer
        assert arrived(recorder.ended(2)) == JSON + error


def test_any_other_path_is_captured_only_with_an_event_stream(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(JSON, SSE, JSON)) as (relay, _, recorder), relay.connect() as client:
        for answer in (JSON, SSE, JSON):
            client.sendall(post(b"/v1/models", b"secret"))
            assert receive(client, len(answer)) == answer
        messages = recorder.ended()
        time.sleep(3 * FLUSH_S)
        assert recorder.messages == messages
    assert kinds(messages) == ["RequestStarted", "RequestSent", "ResponseRead", "ExchangeEnding"]
    assert arrived(messages) == SSE
    assert (only(messages, RequestSent).body_bytes, only(messages, RequestSent).whole) == (6, False)
    assert read_balance(tmp_path / "counters").seen == sum(isinstance(message, ResponseRead) for message in messages)


@pytest.mark.parametrize(
    ("target", "size", "is_reported"),
    [
        (b"/v1/audio/speech", MAX_HELD_BODY, True),
        (b"/v1/images/generations?a=b", 9, True),
        (b"/v1/audio/speech", MAX_HELD_BODY + 1, False),
        (b"/v1/audio/transcriptions", 9, False),
        (b"/mcp", 9, False),
    ],
)
def test_the_body_that_alone_names_the_model_is_reported_with_an_event_stream(
    tmp_path: Path, target: bytes, size: int, is_reported: bool
) -> None:
    with exchange_rig(tmp_path, answering(JSON, SSE)) as (relay, _, recorder), relay.connect() as client:
        for answer in (JSON, SSE):
            client.sendall(post(target, b"s" * size))
            assert receive(client, len(answer)) == answer
        messages = recorder.ended()
    assert arrived(messages) == SSE
    assert len([message for message in messages if isinstance(message, RequestStarted)]) == 1
    bodies = b"".join(message.data for message in messages if isinstance(message, RequestBody))
    assert bodies == (b"s" * size if is_reported else b"")
    assert only(messages, RequestSent).whole is is_reported


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm-1\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF'
)


@pytest.mark.parametrize(
    ("target", "body", "model"),
    [
        (b"/v1/audio/transcriptions", FORM, "m-1"),
        (b"/v1/audio/translations?a=b", FORM + bytes(3 * MAX_HELD_BODY), "m-1"),
        (b"/v1/images/edits/", FORM, "m-1"),
        (b"/v1/audio/transcriptions", bytes(MAX_HELD_BODY) + FORM, None),
        (b"/v1/audio/transcriptions", b"{}", None),
        (b"/upload", FORM, None),
    ],
)
def test_of_a_form_the_model_alone_is_reported(tmp_path: Path, target: bytes, body: bytes, model: str | None) -> None:
    with exchange_rig(tmp_path, answering(SSE)) as (relay, _, recorder), relay.connect() as client:
        client.sendall(post(target, body, b"Content-Type: multipart/form-data; boundary=b"))
        assert receive(client, len(SSE)) == SSE
        messages = recorder.ended()
    assert arrived(messages) == SSE
    assert only(messages, RequestStarted).form_model == model
    assert RequestBody not in map(type, messages)


def test_the_reads_before_a_late_head_keep_their_stamps(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        for piece in (SSE[:10], SSE[10:70], SSE[70:]):
            one.sendall(piece)
            time.sleep(0.1)

    with exchange_rig(tmp_path, handler) as (relay, _, recorder), relay.connect() as client:
        client.sendall(b"GET /events HTTP/1.1\r\nHost: c\r\n\r\n")
        assert receive(client, len(SSE)) == SSE
        reads = [message for message in recorder.ended() if isinstance(message, ResponseRead)]
    assert [read.data for read in reads] == [SSE[:10], SSE[10:70], SSE[70:]]
    times = [read.at_ns or 0 for read in reads]
    assert times[1] - times[0] > 50_000_000 and times[2] - times[1] > 50_000_000


def test_a_body_beyond_the_limit_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.recorder.exchange_capture.MAX_REQUEST_BODY", 100_000)
    for size, whole in ((100_000, True), (100_001, False)):
        folder = tmp_path / str(size)
        folder.mkdir()
        with exchange_rig(folder, answering(JSON)) as (relay, _, recorder), relay.connect() as client:
            client.sendall(post(b"/v1/messages", bytes(size)))
            assert receive(client, len(JSON)) == JSON
            messages = recorder.ended()
        sent = only(messages, RequestSent)
        assert (sent.body_bytes, sent.whole) == (size, whole)
        request_body = b"".join(message.data for message in messages if isinstance(message, RequestBody))
        assert request_body == bytes(size) if whole else len(request_body) <= 100_000


class FaultyClient(LoopClient):
    """Raises at the n-th read of every stream, and at the other calls that it is configured for."""

    def __init__(self, *given: object, at: type[Message]) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._at, self._count = at, 0

    def put(self, message: Message | Encoded, size: int) -> None:
        if type(message) is self._at:
            raise RuntimeError("a bug")
        super().put(message, size)

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        self._count += 1
        if self._at is ResponseRead and self._count == 3:
            raise RuntimeError("a bug")
        return super().put_read(stream, at_ns, data)


@pytest.mark.parametrize("at", [RequestStarted, RequestBody, RequestSent, ResponseRead, ExchangeEnding])
def test_a_bug_in_the_capture_ends_the_capture_and_not_the_stream(
    tmp_path: Path, at: type[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgauge.taps.proxy.relay.LoopClient", lambda *given: FaultyClient(*given, at=at))

    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(SSE[: -len(chunked())])
        for _ in range(5):
            time.sleep(0.05)
            one.sendall(b"3\r\n: x\r\n")
        one.sendall(chunked())

    whole = SSE[: -len(chunked())] + b"3\r\n: x\r\n" * 5 + chunked()
    # The relay reports all reads itself: reads of the pump are not reported by the code that fails here.
    with exchange_rig(tmp_path, handler, pump=False) as (relay, _, recorder), relay.connect() as client:
        client.sendall(post(b"/v1/messages", b"{}"))
        assert receive(client, len(whole)) == whole
        if at not in (RequestStarted, ExchangeEnding):
            messages = recorder.ended()
            assert whole.startswith(arrived(messages))
            lost = sum(message.reads for message in messages if isinstance(message, ReadsDropped))
            reads = sum(isinstance(message, ResponseRead) for message in messages)
            balance = read_balance(tmp_path / "counters")
            assert (balance.dropped["capture_fault"], balance.waiting) == (lost, reads)
            assert lost > 0
    assert read_incidents(tmp_path / "counters")[Incident.CAPTURE_FAULT] == 1


def test_counters_that_fail_do_not_affect_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("unmapped")

    for name in ("seen", "dropped", "happened", "head_passed_on"):
        monkeypatch.setattr(Counters, name, broken)
    with exchange_rig(tmp_path, answering(SSE)) as (relay, _, recorder), relay.connect() as client:
        client.sendall(post(b"/v1/messages", b"{}"))
        assert receive(client, len(SSE)) == SSE
        assert kinds(recorder.ended())[0] == "RequestStarted"


def test_a_message_that_cannot_be_written_costs_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = True

    def encode(messages: list[Message]) -> bytes:
        if broken:
            raise TypeError("a bug")
        return wire.encode_batch(messages)  # type: ignore[return-value]

    monkeypatch.setattr("streamgauge.recorder.client.encode_batch", encode)
    with exchange_rig(tmp_path, answering(SSE, SSE)) as (relay, _, recorder), relay.connect() as client:
        client.sendall(post(b"/v1/messages", b"{}"))
        assert receive(client, len(SSE)) == SSE
        deadline = time.monotonic() + PATIENCE_S
        while not read_balance(tmp_path / "counters").dropped["capture_fault"] and time.monotonic() < deadline:
            time.sleep(0.02)
        broken = False
        assert read_balance(tmp_path / "counters").dropped["capture_fault"] > 0
        client.sendall(post(b"/v1/messages", b"{}"))
        assert receive(client, len(SSE)) == SSE
        assert arrived(recorder.ended()) == SSE
        assert read_balance(tmp_path / "counters").waiting == sum(
            isinstance(message, ResponseRead) for message in recorder.messages
        )


def test_streams_of_one_process_have_different_numbers(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, answering(SSE, SSE)) as (relay, _, recorder):
        for _ in range(2):
            with relay.connect() as client:
                client.sendall(post(b"/v1/messages", b"{}"))
                assert receive(client, len(SSE)) == SSE
        streams = [message.stream for message in recorder.ended(2) if isinstance(message, RequestStarted)]
    assert len(set(streams)) == 2 and all(0 < stream < 2**63 for stream in streams)


def test_a_request_that_reached_no_upstream_is_not_reported(tmp_path: Path) -> None:
    with (
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RawUpstream(answering(JSON)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, upstream.url)) as relay,
    ):
        with relay.connect() as client:
            client.sendall(post(b"/nobody/v1/messages", b"{}"))
            assert receive_all(client).startswith(b"HTTP/1.1 404 ")
        time.sleep(3 * FLUSH_S)
        assert recorder.messages == []


ATTRIBUTES = (Attribute("agent", "x-agent"), Attribute("session", "x-session"), Attribute("feature", "x-feature"))
FIELDS = (b"X-AGENT: planner", b"x-agent: second", b"X-Session: s-1", b"X-Other: kept")


@pytest.mark.parametrize("pump", [True, False])
@pytest.mark.parametrize("strip", [True, False])
def test_attributes_are_reported_and_their_headers_go_on_unless_stripped(
    tmp_path: Path, pump: bool, strip: bool
) -> None:
    asked: list[bytes] = []

    def handler(one: socket.socket) -> None:
        asked.append(receive_request(one))
        for piece in (SSE[at : at + 40] for at in range(0, len(SSE), 40)):  # slow enough for the pump to take over
            one.sendall(piece)
            time.sleep(0.01)

    settings: Any = {"attribute": ATTRIBUTES, "strip_attributes": strip, "pump": pump}
    with exchange_rig(tmp_path, handler, **settings) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(post(b"/v1/chat/completions", b"{}", *FIELDS))
            assert receive(client, len(SSE)) == SSE
        messages = recorder.ended()
    opened = only(messages, RequestStarted)
    assert opened.attributes == [("agent", "planner"), ("session", "s-1")]
    assert opened.headers == []
    assert arrived(apart(messages)) == SSE
    [head] = asked
    assert [field in head for field in FIELDS] == [not strip, not strip, not strip, True]


def test_a_client_that_names_the_tenant_of_another_has_a_share_of_its_own(tmp_path: Path) -> None:
    """Everybody can write the header, but not the other client's key. A long name takes no memory."""
    tenant, key = b"X-Team: blue", b"Authorization: Bearer sk-1"
    asked = [
        post(b"/v1/messages", b"{}", tenant, key),
        post(b"/v1/messages", b"{}", tenant, b"Authorization: Bearer sk-2"),
        post(b"/v1/messages", b"{}", tenant),
        post(b"/v1/messages?alt=sse&key=sk-3", b"{}", tenant),
        post(b"/v1/messages", b"{}", b"X-Team: red", key),
        post(b"/v1/messages", b"{}", tenant, key),
        post(b"/v1/messages", b"{}", b"X-Team: " + b"x" * 50_000),
        post(b"/v1/messages", b"{}"),
    ]

    def handler(one: socket.socket) -> None:
        while receive_request(one):
            one.sendall(JSON)

    with exchange_rig(tmp_path, handler, tenant_header="X-Team") as (relay, _, recorder), relay.connect() as client:
        for request in asked:
            client.sendall(request)
            assert receive(client, len(JSON)) == JSON
        messages = recorder.ended(len(asked))
    parties = [one.party for one in messages if isinstance(one, RequestStarted)]
    assert all(party is not None and party.address == "127.0.0.1" for party in parties)
    identities = [party.identity for party in parties if party is not None]
    assert identities[0] == identities[5]
    assert len(set(identities)) == len(asked) - 1
    assert identities[-1] == ""
    assert not any("sk-" in identity or len(identity) > 300 for identity in identities)
