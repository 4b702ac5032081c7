"""WebSockets through the relay, with raw bytes: the handshake, both directions, and every end."""

import base64
import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    RequestSent,
    RequestStarted,
    ResponseRead,
    WebSocketData,
    WebSocketOpened,
)
from streamgauge.spool.read_counters import Refusal, read_refusals
from streamgauge.spool.response_counters import NotCaptured, read_responses
from streamgauge.taps.proxy import client as client_module
from streamgauge.taps.proxy import websocket_exchange
from tests.core.formats.websocket_frames import MASK, close, frame, from_client, from_server
from tests.running import wait_for
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawUpstream,
    RunningRelay,
    exchange_rig,
    kinds,
    only,
    receive,
    receive_all,
    receive_head,
    receive_until_reset,
    reset,
    settings_for,
)

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
# RFC 6455, 1.3: what a server makes of this key.
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
FIELDS = (b"Connection: keep-alive, Upgrade", b"Upgrade: WebSocket", b"Sec-WebSocket-Version: 13",
          b"Sec-WebSocket-Key: " + KEY)  # fmt: skip
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nX-odd:  kept \r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n\r\n"
)
HELLO, WORLD = from_client(b'{"type":"a"}'), from_server(b'{"type":"b"}')

both_loops = pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])


def handshake(*more: bytes, path: bytes = b"/v1/responses", fields: tuple[bytes, ...] = FIELDS) -> bytes:
    return b"\r\n".join((b"GET %b HTTP/1.1" % path, b"Host: client", *fields, *more, b"", b""))


def switching(
    then: Callable[[socket.socket], None], first: bytes = b"", answer: bytes = SWITCHED
) -> Callable[[socket.socket], None]:
    """A handler that accepts the handshake, sends `first` in the same write, and goes on."""

    def handler(one: socket.socket) -> None:
        if receive_head(one):
            one.sendall(answer + first)
            then(one)

    return handler


def echo(one: socket.socket) -> None:
    while data := one.recv(65_536):
        one.sendall(data)


def opened(relay: RunningRelay, *more: bytes, path: bytes = b"/v1/responses") -> socket.socket:
    """A client whose handshake was accepted."""
    client = relay.connect()
    client.sendall(handshake(*more, path=path))
    assert receive_head(client) == SWITCHED
    return client


def data_of(messages: list[Message], *, from_client: bool) -> bytes:
    return b"".join(
        message.data
        for message in messages
        if isinstance(message, WebSocketData) and message.from_client is from_client
    )


def test_the_accept_value_is_that_of_the_rfc() -> None:
    guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    assert base64.b64encode(hashlib.sha1(KEY + guid, usedforsecurity=False).digest()) == ACCEPT


def test_the_handshake_is_forwarded_without_extensions(tmp_path: Path) -> None:
    heads: list[bytes] = []

    def handler(one: socket.socket) -> None:
        heads.append(receive_head(one))
        one.sendall(SWITCHED)
        receive_all(one)

    more = (
        b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
        b"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sk-1",
        b"OpenAI-Beta: responses_websockets=2026-02-06",
        b"Keep-Alive: 5",
    )
    with exchange_rig(tmp_path, handler) as (relay, upstream, _), opened(relay, *more, path=b"/v1/responses?a=b"):
        pass
    authority = upstream.url.removeprefix("http://").encode()
    assert heads == [
        b"\r\n".join(
            (
                b"GET /v1/responses?a=b HTTP/1.1",
                b"Host: " + authority,
                *FIELDS[2:],
                *more[1:3],
                b"Connection: Upgrade",
                b"Upgrade: websocket",
                b"",
                b"",
            )
        )
    ]


@both_loops
def test_bytes_of_both_sides_pass_as_they_are(tmp_path: Path, uv: bool) -> None:
    """Any bytes, of which the relay reads none: 8 MiB, in pieces, both ways at a time."""
    sent = random.Random(7).randbytes(8 * 1024 * 1024)
    with exchange_rig(tmp_path, switching(echo), uv=uv) as (relay, _, recorder), opened(relay) as client:

        def send() -> None:
            at = 0
            while at < len(sent):
                size = random.Random(at).choice((1, 900, 65_536, 400_000))
                client.sendall(sent[at : at + size])
                at += size

        sender = threading.Thread(target=send)
        sender.start()
        assert receive(client, len(sent)) == sent
        sender.join()
        client.close()
        messages = recorder.ended()
    assert kinds(messages)[0] == "WebSocketOpened"
    assert data_of(messages, from_client=True) == data_of(messages, from_client=False) == sent


def test_it_is_captured_with_its_request_and_its_stamps(tmp_path: Path) -> None:
    def then(one: socket.socket) -> None:
        assert receive(one, len(HELLO)) == HELLO
        one.sendall(WORLD)
        receive_all(one)

    more = (b"Authorization: Bearer sk-1", b"Cookie: secret")
    with exchange_rig(tmp_path, switching(then)) as (relay, _, recorder):
        with opened(relay, *more) as client:
            before_ns = time.monotonic_ns()
            client.sendall(HELLO)
            assert receive(client, len(WORLD)) == WORLD
            after_ns = time.monotonic_ns()
        messages = recorder.ended()
    assert kinds(messages) == ["WebSocketOpened", "WebSocketData", "ExchangeEnding"]
    request = only(messages, WebSocketOpened).request
    assert (request.method, request.target, request.upstream, request.tap) == (
        "WEBSOCKET",
        "/v1/responses",
        "u0",
        "proxy",
    )
    assert request.headers == [("authorization", "Bearer sk-1")]
    reads = [message for message in messages if isinstance(message, WebSocketData)]
    assert [(read.data, read.from_client, read.gap) for read in reads] == [(HELLO, True, False), (WORLD, False, False)]
    assert before_ns < reads[0].at_ns < reads[1].at_ns < after_ns
    ended = only(messages, ExchangeEnding)
    assert (ended.ending, ended.fault) == (Ending.CLIENT, None)
    # The recorder counts its responses.
    assert read_responses(tmp_path / "counters") == {}


@both_loops
def test_what_comes_before_101_waits_and_reaches_only_this_upstream(tmp_path: Path, uv: bool) -> None:
    """Bytes in the write of the handshake, and after it; the server's first frame in the write of its head."""
    got: list[bytes] = []
    may_answer = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.recv(1)
        may_answer.wait(PATIENCE_S)
        one.settimeout(PATIENCE_S)
        one.sendall(SWITCHED + WORLD)
        got.append(receive(one, 2 * len(HELLO)))
        receive_all(one)

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, upstream, recorder):
        with relay.connect() as client:
            client.sendall(handshake() + HELLO)
            client.sendall(HELLO)
            time.sleep(0.1)
            may_answer.set()
            assert receive(client, len(SWITCHED + WORLD)) == SWITCHED + WORLD
            wait_for(lambda: got, "the client's bytes")
        messages = recorder.ended()
        assert upstream.connections == 1
    assert got == [HELLO * 2]
    assert data_of(messages, from_client=True) == HELLO * 2
    assert data_of(messages, from_client=False) == WORLD


REFUSALS = {
    "401": b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nX-Request-Id: r1\r\n\r\nno",
    "426": b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nUpgrade: HTTP/1.1\r\nContent-Length: 2\r\n\r\nno",
    "200": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "404 until its end": b"HTTP/1.1 404 Not Found\r\n\r\nnothing here",
}
SMUGGLED = b"GET /v1/admin HTTP/1.1\r\nHost: client\r\n\r\n"


@both_loops
@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("when", ["never", "in the same write", "after the answer"])
def test_a_refusal_passes_as_it_is_and_nothing_is_smuggled(tmp_path: Path, name: str, when: str, uv: bool) -> None:
    """A request or frames behind a handshake that was refused reach no upstream, and get no response."""
    answer, heads, rests = REFUSALS[name], list[bytes](), list[bytes]()

    def handler(one: socket.socket) -> None:
        heads.append(receive_head(one))
        one.sendall(answer)
        if b"Length" not in answer and b"chunked" not in answer:
            time.sleep(0.2)
            one.shutdown(socket.SHUT_WR)
        try:
            rests.append(receive_all(one))
        except ConnectionResetError:
            rests.append(b"")

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, upstream, _), relay.connect() as client:
        client.sendall(handshake() + (SMUGGLED if when == "in the same write" else b""))
        if when == "after the answer":
            got = receive(client, len(answer))
            with_reset = False
            try:
                client.sendall(SMUGGLED)
                rest, with_reset = receive_until_reset(client)
            except (BrokenPipeError, ConnectionResetError):
                rest = b""
            assert (got, rest) == (answer, b"") or with_reset
        else:
            got, _ = receive_until_reset(client)
            assert answer.startswith(got)
            if when == "never" or "until" not in name:
                assert got == answer
        wait_for(lambda: rests, "the upstream's end")
        assert upstream.connections == 1
    assert len(heads) == 1 and rests == [b""]


def counts(folder: Path) -> dict[str, tuple[int, dict[NotCaptured, int]]]:
    return {name: (each.seen, dict(each.not_captured)) for name, each in read_responses(folder / "counters").items()}


@pytest.mark.parametrize(
    ("path", "name", "counted"),
    [
        (b"/v1/responses", "426", {NotCaptured.PROTOCOL: 1}),
        (b"/v1/other", "426", {NotCaptured.NOT_LLM: 1}),
        (b"/v1/other", "101", {NotCaptured.PROTOCOL: 1}),
        (b"/v1/responses", "401", {}),
    ],
)
def test_what_has_no_record_is_counted(tmp_path: Path, path: bytes, name: str, counted: dict[NotCaptured, int]) -> None:
    answer = SWITCHED if name == "101" else REFUSALS[name]
    with exchange_rig(tmp_path, switching(lambda one: None, answer=answer)) as (relay, _, recorder):
        with relay.connect() as client:
            client.sendall(handshake(path=path))
            assert receive(client, len(answer)) == answer
        wait_for(lambda: counts(tmp_path), "a count")
        if not counted:
            messages = recorder.ended()
            started = only(messages, RequestStarted)
            assert (started.method, started.target) == ("WEBSOCKET", path.decode())
            assert only(messages, RequestSent).body_bytes == 0
            assert only(messages, ResponseRead).data == answer
    assert counts(tmp_path) == {"u0": (1, counted)}


@pytest.mark.parametrize(
    "answer",
    [
        SWITCHED.replace(ACCEPT, b"A" + ACCEPT[1:]),
        SWITCHED.replace(b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n", b""),
        SWITCHED.replace(b"Upgrade: websocket\r\n", b"Upgrade: h2c\r\n"),
        SWITCHED.replace(b"Connection: upgrade", b"Connection: close"),
        SWITCHED.replace(b"X-odd:  kept", b"X odd:  kept"),
        SWITCHED.replace(b"X-odd:  kept ", b"Sec-WebSocket-Accept: " + ACCEPT),
    ],
    ids=["another accept", "no accept", "another protocol", "no upgrade", "an ambiguous head", "accept twice"],
)
def test_an_answer_that_does_not_accept_the_handshake_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    with exchange_rig(tmp_path, switching(lambda one: None, answer=answer)) as (relay, _, _), relay.connect() as client:
        client.sendall(handshake())
        assert receive_all(client).startswith(b"HTTP/1.1 502 ")
    assert read_refusals(tmp_path / "counters")[Refusal.UPSTREAM_INVALID] == 1


@pytest.mark.parametrize(
    "request_",
    [
        handshake(fields=FIELDS[:3]),
        handshake(fields=FIELDS[:2] + FIELDS[3:]),
        handshake(fields=(*FIELDS[:3], b"Sec-WebSocket-Key: c2hvcnQ=")),
        handshake(FIELDS[3]),
        handshake(FIELDS[1]),
        handshake(b"Content-Length: 0"),
        handshake(b"Transfer-Encoding: chunked"),
        handshake().replace(b"GET", b"POST"),
        handshake().replace(b"HTTP/1.1", b"HTTP/1.0"),
        handshake().replace(b"Version: 13", b"Version: 8"),
        handshake().replace(b"Upgrade: WebSocket", b"Upgrade: h2c, websocket"),
        handshake().replace(b"Upgrade: WebSocket", b"Upgrade: foo"),
    ],
)
def test_what_is_no_whole_handshake_gets_426(tmp_path: Path, request_: bytes) -> None:
    with exchange_rig(tmp_path, switching(echo)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(request_)
        assert receive_all(client).startswith(b"HTTP/1.1 426 ")
        assert upstream.connections == 0
    assert read_refusals(tmp_path / "counters")[Refusal.UPGRADE_REFUSED] == 1


def test_a_handshake_after_a_usual_request_gets_a_connection_of_its_own(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    def usual(one: socket.socket) -> None:
        while receive_head(one):
            one.sendall(answer)

    with exchange_rig(tmp_path, usual, switching(echo)) as (relay, upstream, _), relay.connect() as client:
        client.sendall(SMUGGLED)
        assert receive(client, len(answer)) == answer
        client.sendall(SMUGGLED + handshake() + HELLO)
        assert receive(client, len(answer + SWITCHED + HELLO)) == answer + SWITCHED + HELLO
        assert upstream.connections == 2


# --- ends ------------------------------------------------------------------------------------------------------------------


@both_loops
def test_an_upstream_that_closes_ends_both_after_its_last_byte(tmp_path: Path, uv: bool) -> None:
    last = from_server(b"x" * 500_000) + close(1001)

    def then(one: socket.socket) -> None:
        one.sendall(last)
        one.close()

    with exchange_rig(tmp_path, switching(then), uv=uv) as (relay, _, recorder), opened(relay) as client:
        time.sleep(0.2)  # the end comes while bytes still wait for this client
        assert receive_all(client) == last
        ended = only(recorder.ended(), ExchangeEnding)
    assert (ended.ending, ended.fault) == (Ending.COMPLETE, None)


@both_loops
def test_an_upstream_that_resets_is_a_reset_for_the_client(tmp_path: Path, uv: bool) -> None:
    with exchange_rig(tmp_path, switching(reset, WORLD), uv=uv) as (relay, _, recorder), opened(relay) as client:
        got, was_reset = receive_until_reset(client)
        ended = only(recorder.ended(), ExchangeEnding)
    assert (WORLD.startswith(got), was_reset) == (True, True)
    assert (ended.ending, ended.fault) == (Ending.RESET, TransportFault.RESET)


@both_loops
@pytest.mark.parametrize("how", ["fin", "reset"])
def test_a_client_that_leaves_ends_the_upstreams_connection_after_its_last_byte(
    tmp_path: Path, how: str, uv: bool
) -> None:
    got: list[tuple[bytes, bool]] = []
    last = from_client(b"x" * 300_000) + close(1000, mask=MASK)

    def then(one: socket.socket) -> None:
        time.sleep(0.2)
        got.append(receive_until_reset(one))

    with exchange_rig(tmp_path, switching(then), uv=uv) as (relay, _, recorder):
        client = opened(relay)
        client.sendall(last)
        if how == "fin":
            client.close()
        else:
            wait_for(lambda: len(data_of(recorder.messages, from_client=True)) == len(last), "the bytes")
            reset(client)
        wait_for(lambda: got, "the upstream's end")
        ended = only(recorder.ended(), ExchangeEnding)
        wait_for(lambda: not relay.relay.clients, "no client")
    assert got[0][0] == last
    assert (ended.ending, ended.fault) == (Ending.CLIENT, None)


def test_a_handshake_without_an_answer_times_out(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_all(one)

    with exchange_rig(tmp_path, handler, upstream_idle_timeout=0.3) as (relay, _, recorder), relay.connect() as client:
        client.sendall(handshake())
        assert receive_all(client).startswith(b"HTTP/1.1 504 ")
        ended = only(recorder.ended(), ExchangeEnding)
        assert only(recorder.messages, RequestStarted).method == "WEBSOCKET"
    assert (ended.ending, ended.fault) == (Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT)


def test_a_quiet_websocket_stays_open_for_longer_than_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_exchange, "QUIET_S", 2.0)
    monkeypatch.setattr(client_module, "TICK_S", 0.05)
    with exchange_rig(tmp_path, switching(echo), upstream_idle_timeout=0.3) as (relay, _, recorder):
        with opened(relay) as client:
            time.sleep(1.2)
            client.sendall(HELLO)
            assert receive(client, len(HELLO)) == HELLO
            began = time.monotonic()
            receive_until_reset(client)
            assert time.monotonic() - began > 1.5
        ended = only(recorder.ended(), ExchangeEnding)
    assert (ended.ending, ended.fault) == (Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT)


def test_a_drain_cuts_it_at_its_deadline(tmp_path: Path) -> None:
    with exchange_rig(tmp_path, switching(echo)) as (relay, _, recorder), opened(relay) as client:
        client.sendall(HELLO)
        assert receive(client, len(HELLO)) == HELLO
        relay.drain(0.2)
        assert receive_until_reset(client) == (b"", True)
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CUT


@both_loops
@pytest.mark.parametrize("slow", ["client", "upstream", "before 101"])
def test_a_side_that_does_not_read_slows_only_the_other_one(tmp_path: Path, slow: str, uv: bool) -> None:
    """The relay holds no more than its write buffer of either direction."""
    goes_on = threading.Event()
    piece = b"x" * 65_536

    def handler(one: socket.socket) -> None:
        receive_head(one)
        if slow == "before 101":
            goes_on.wait(PATIENCE_S)
        one.sendall(SWITCHED)
        if slow == "client":
            for _ in range(512):
                one.sendall(piece)
        elif slow == "upstream":
            goes_on.wait(PATIENCE_S)
        receive_all(one)

    with exchange_rig(tmp_path, handler, uv=uv) as (relay, _, _), relay.connect(receive_buffer=65_536) as client:
        client.sendall(handshake())
        if slow != "before 101":
            assert receive_head(client) == SWITCHED
        if slow != "client":
            client.settimeout(0.5)
            with pytest.raises(TimeoutError):
                for _ in range(2_000):
                    client.sendall(piece)

        def held() -> int:
            total = 0
            for one in relay.relay.clients:
                total += one.transport.get_write_buffer_size()
                exchange = one.exchange
                assert isinstance(exchange, websocket_exchange.WebSocketExchange)
                total += exchange._early_bytes
                if exchange.upstream is not None:
                    total += exchange.upstream.transport.get_write_buffer_size()
            return total

        time.sleep(0.3)
        assert 0 < relay.call(held) < 1024 * 1024
        goes_on.set()
        if slow == "client":
            assert receive(client, 512 * len(piece)) == 512 * piece


# --- isolation -------------------------------------------------------------------------------------------------------------


def test_each_client_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """Twenty clients at a time, some of which leave: what one gets is what one sent, and no connection is used twice."""
    with exchange_rig(tmp_path, switching(echo)) as (relay, upstream, _):
        clients = [opened(relay) for _ in range(20)]
        for number, client in enumerate(clients):
            client.sendall(b"%d " % number * 1_000)
        for number, client in enumerate(clients):
            assert receive(client, len(b"%d " % number) * 1_000) == b"%d " % number * 1_000
        for client in clients[::2]:
            client.close()
        again = [opened(relay) for _ in range(10)]
        for number, client in enumerate((*clients[1::2], *again)):
            client.sendall(b"again %d" % number)
            assert receive(client, len(b"again %d" % number)) == b"again %d" % number
        for client in (*clients[1::2], *again):
            client.close()
        assert upstream.connections == 30


def test_late_bytes_of_an_upstream_reach_nobody(tmp_path: Path) -> None:
    """An upstream that still sends after its client left: the next client of the relay gets none of it."""
    sends = threading.Event()

    def late(one: socket.socket) -> None:
        sends.wait(PATIENCE_S)
        one.sendall(b"late" * 1_000)

    with exchange_rig(tmp_path, switching(late), switching(echo)) as (relay, _, _):
        opened(relay).close()
        wait_for(lambda: not relay.relay.clients, "no client")
        with opened(relay) as client:
            sends.set()
            client.sendall(HELLO)
            assert receive(client, len(HELLO)) == HELLO
            client.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.recv(1)


def test_nothing_waits_for_the_recorder(tmp_path: Path) -> None:
    """A recorder that reads nothing, and one that is not there: all bytes pass, and what was not sent is a gap."""
    data = os.urandom(1024 * 1024)
    with exchange_rig(tmp_path, switching(echo), capture_buffer_bytes=1024 * 1024) as (relay, _, recorder):
        recorder.hold()
        with opened(relay) as client:
            for _ in range(12):
                client.sendall(data)
                assert receive(client, len(data)) == data
            recorder.release()
            wait_for(lambda: not relay.relay.recorder.full, "room")
            client.sendall(HELLO)
            assert receive(client, len(HELLO)) == HELLO
        messages = recorder.ended()
    reads = [message for message in messages if isinstance(message, WebSocketData)]
    assert {message.from_client for message in reads if message.gap} == {True, False}
    with (
        RawUpstream(switching(echo)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url)) as relay,
        opened(relay) as client,
    ):
        client.sendall(HELLO)
        assert receive(client, len(HELLO)) == HELLO


@pytest.mark.parametrize(
    "sent",
    [
        frame(b"", length=(1 << 63) - 1, mask=MASK) + b"x" * 200_000,
        frame(b"", length=(1 << 64) - 1) + b"x" * 200_000,
        frame(b"{", final=False, mask=MASK) + frame(b"x", 0, final=False, mask=MASK) * 30_000,
        frame(b"unmasked") * 1_000,
        frame(b"x" * 126, 9) * 100,
        b"\xff" * 100_000,
    ],
    ids=["2**63 - 1", "2**64 - 1", "fragments", "unmasked", "long pings", "no frames"],
)
def test_bytes_that_are_no_frames_pass_as_well(tmp_path: Path, sent: bytes) -> None:
    with exchange_rig(tmp_path, switching(echo)) as (relay, _, _), opened(relay) as client:
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()
        assert receive(client, len(sent)) == sent
        sender.join()
