"""TLS on both sides, with real certificates of a test authority: what is verified, what is presented, and how it ends."""

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.protocol import ExchangeEnding
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.taps.proxy import relay as relay_module
from streamgauge.taps.proxy.tls import upstream_context
from tests.running import wait_for
from tests.taps.proxy.pki import Pki, connect, make_pki
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawRecorder,
    RawUpstream,
    RunningRelay,
    answering,
    chunked,
    only,
    receive,
    receive_all,
    receive_head,
    receive_request,
    receive_until_reset,
    settings_for,
    waiting_for_clients,
)
from tests.taps.proxy.test_websocket_exchange import SWITCHED, handshake

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
UNFRAMED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def tls_upstream(
    certificate: Path,
    talk: Callable[[ssl.SSLSocket], None],
    *,
    clients: Path | None = None,
    heard: list[str] | None = None,
) -> RawUpstream:
    """An upstream behind TLS. `clients`: the authority whose client certificates it requires; `heard`: errors of
    handshakes.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)

    def handler(one: socket.socket) -> None:
        try:
            secure = context.wrap_socket(one, server_side=True)
        except (ssl.SSLError, ConnectionError) as fault:
            if heard is not None:
                heard.append(str(fault))
            return
        assert secure.selected_alpn_protocol() == "http/1.1"
        with secure:
            talk(secure)

    return RawUpstream(handler)


# Upstreams.


def test_an_upstream_is_verified_by_a_configured_authority_and_its_connection_reused(tmp_path: Path, pki: Pki) -> None:
    upstream = tls_upstream(pki.server, answering(OK, OK))
    with upstream, RunningRelay(pki.settings(tmp_path, upstream)) as relay, relay.connect() as client:
        for _ in range(2):
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        assert upstream.connections == 1


@pytest.mark.parametrize("case", ["unknown authority", "another name"])
def test_an_upstream_that_is_not_verified_gets_no_byte_of_a_request(tmp_path: Path, pki: Pki, case: str) -> None:
    heard: list[str] = []

    def talk(secure: ssl.SSLSocket) -> None:
        assert receive_all(secure) == b""

    upstream = tls_upstream(pki.other if case == "another name" else pki.server, talk, heard=heard)
    settings = pki.settings(tmp_path, upstream, **({} if case == "another name" else {"upstream_ca": None}))
    with upstream, RawRecorder(tmp_path / "recorder.sock") as recorder, RunningRelay(settings) as relay:
        with relay.connect() as client:
            client.sendall(POST)
            received = receive_all(client)
            assert (
                received.startswith(b"HTTP/1.1 502 ")
                and b"certificate is not trusted or is for another host name" in received
            )
        assert only(recorder.ended(), ExchangeEnding).fault is TransportFault.TLS_CERTIFICATE


def test_a_client_certificate_is_presented_to_an_upstream_that_requires_it(tmp_path: Path, pki: Pki) -> None:
    shown: list[object] = []

    def talk(secure: ssl.SSLSocket) -> None:
        shown.append(secure.getpeercert())
        answering(OK)(secure)

    upstream = tls_upstream(pki.server, talk, clients=pki.ca)
    settings = pki.settings(tmp_path, upstream, upstream_certificate=pki.client)
    with upstream, RunningRelay(settings) as relay, relay.connect() as client:
        client.sendall(POST)
        assert receive(client, len(OK)) == OK
    assert shown and "tap@example.com" in str(shown[0])


def test_without_one_the_upstream_closes_and_the_client_gets_a_reason(tmp_path: Path, pki: Pki) -> None:
    heard: list[str] = []
    upstream = tls_upstream(pki.server, answering(OK), clients=pki.ca, heard=heard)
    with upstream, RunningRelay(pki.settings(tmp_path, upstream)) as relay, relay.connect() as client:
        client.sendall(POST)
        assert receive_all(client).startswith(b"HTTP/1.1 502 ")
    assert heard and "certificate" in heard[0].lower()


@pytest.mark.parametrize(
    ("answer", "close", "ending", "was_reset"),
    [
        (UNFRAMED, "notify", Ending.COMPLETE, False),
        (UNFRAMED, "silent", Ending.RESET, True),  # it may have been cut off on the way
        (SSE_HEAD + b"5\r\nhello\r\n", "notify", Ending.RESET, False),
        (SSE_HEAD + b"5\r\nhello\r\n", "silent", Ending.RESET, True),
        (SSE_HEAD + chunked(b"hello"), "silent", Ending.COMPLETE, False),
    ],
)
def test_u2_an_end_without_close_notify_is_not_complete(
    tmp_path: Path, pki: Pki, answer: bytes, close: str, ending: Ending, was_reset: bool
) -> None:
    def talk(secure: ssl.SSLSocket) -> None:
        receive_request(secure)
        secure.sendall(answer)
        if close == "notify":
            secure.unwrap().close()

    upstream = tls_upstream(pki.server, talk)
    with (
        upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RunningRelay(pki.settings(tmp_path, upstream)) as relay,
    ):
        with relay.connect() as client:
            client.sendall(POST.replace(b"\r\nHost", b"\r\nConnection: close\r\nHost"))
            assert receive_until_reset(client) == (answer, was_reset)
        ended = only(recorder.ended(), ExchangeEnding)
        assert (ended.ending, ended.fault) == (ending, TransportFault.CLOSED if ending is Ending.RESET else None)


# Clients.


def test_a_client_whose_handshake_ends_during_a_drain_does_not_delay_it(tmp_path: Path, pki: Pki) -> None:
    answer = threading.Event()

    def slow(one: socket.socket) -> None:
        receive_request(one)
        assert answer.wait(PATIENCE_S)
        one.sendall(OK)

    with (
        RawUpstream(slow) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, **own(pki))) as relay,
        connect(relay, pki) as busy,
    ):
        accepted = relay.connect()
        busy.sendall(POST)
        wait_for(lambda: upstream.connections == 1, "the request")
        began = time.monotonic()
        draining = threading.Thread(target=relay.drain, args=(PATIENCE_S / 2,))
        draining.start()
        wait_for(lambda: relay.relay.draining, "the drain")
        with connect(relay, pki, plain=accepted):
            answer.set()
            assert receive(busy, len(OK)) == OK
            busy.close()
            draining.join()
        assert time.monotonic() - began < PATIENCE_S / 4


def own(pki: Pki, **more: object) -> dict[str, object]:
    return {"tls_certificate": pki.server, **more}


def test_clients_see_the_relays_certificate_and_keep_their_connection(tmp_path: Path, pki: Pki) -> None:
    with (
        RawUpstream(answering(OK, OK, OK)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, **own(pki))) as relay,
    ):
        with connect(relay, pki) as client:
            assert client.selected_alpn_protocol() == "http/1.1"
            for _ in range(2):
                client.sendall(POST)
                assert receive(client, len(OK)) == OK
        with relay.connect() as plain:
            plain.sendall(POST)
            assert b"HTTP" not in receive_until_reset(plain)[0]
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(relay, pki, trustme.CA())
        with connect(relay, pki) as client:  # none of them delays another
            client.sendall(POST)
            assert receive(client, len(OK)) == OK


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_stream_through_two_tls_connections_is_the_upstreams_bytes(tmp_path: Path, pki: Pki, secure: bool) -> None:
    answer = SSE_HEAD + chunked(*[b"data: %d\n\n" % number for number in range(2000)])
    upstream = tls_upstream(pki.server, answering(answer, answer))
    settings = pki.settings(tmp_path, upstream, **(own(pki) if secure else {}))
    with upstream, RawRecorder(tmp_path / "recorder.sock") as recorder, RunningRelay(settings) as relay:
        with connect(relay, pki) if secure else relay.connect() as client:
            for _ in range(2):
                client.sendall(POST)
                assert receive(client, len(answer)) == answer
        assert all(one.ending is Ending.COMPLETE for one in recorder.ended(2) if isinstance(one, ExchangeEnding))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("leaves", ["client", "upstream"])
def test_a_websocket_through_two_tls_connections(tmp_path: Path, pki: Pki, leaves: str, secure: bool) -> None:
    """Both directions, and the last bytes of the side that leaves."""
    sent, last, got = b"frames" * 100_000, b"close", list[bytes]()

    def talk(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(SWITCHED)
        one.sendall(receive(one, len(sent)))
        if leaves == "upstream":
            one.sendall(last)
            assert isinstance(one, ssl.SSLSocket)
            with contextlib.suppress(OSError):
                one.unwrap()  # sends close_notify; the relay may close at once
            return
        got.append(receive(one, len(last)))
        assert one.recv(1) == b""

    upstream = tls_upstream(pki.server, talk)
    settings = pki.settings(tmp_path, upstream, **(own(pki) if secure else {}))
    with upstream, RawRecorder(tmp_path / "recorder.sock") as recorder, RunningRelay(settings) as relay:
        client = connect(relay, pki) if secure else relay.connect()
        client.sendall(handshake())
        assert receive_head(client) == SWITCHED
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()
        assert receive(client, len(sent)) == sent
        sender.join()
        if leaves == "upstream":
            assert receive_all(client) == last
            client.close()
        else:
            client.sendall(last)
            if isinstance(client, ssl.SSLSocket):
                with contextlib.suppress(OSError):
                    client.unwrap()
            client.close()
            wait_for(lambda: got == [last], "the client's last bytes")
        ended = only(recorder.ended(), ExchangeEnding)
    assert ended.ending is (Ending.CLIENT if leaves == "client" else Ending.COMPLETE)


@pytest.mark.parametrize(("end", "notified"), [("fin", True), ("reset", False)])
def test_an_end_sends_close_notify_and_a_break_does_not(tmp_path: Path, pki: Pki, end: str, notified: bool) -> None:
    with (
        RawUpstream(answering(UNFRAMED, end=end)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, **own(pki))) as relay,
    ):
        client = connect(relay, pki)
        client.sendall(POST)
        assert receive(client, len(UNFRAMED)) == UNFRAMED
        if notified:
            assert client.recv(1) == b""
        else:
            with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
                client.recv(1)
        client.close()


def test_a_refusal_reaches_a_client_that_is_still_sending(tmp_path: Path, pki: Pki) -> None:
    with (
        RawUpstream(answering(OK)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, max_request_body=10_000, **own(pki))) as relay,
        connect(relay, pki) as client,
    ):
        client.sendall(b"POST /x HTTP/1.1\r\nHost: c\r\nContent-Length: 90000000\r\n\r\n" + bytes(300_000))
        assert receive_all(client).startswith(b"HTTP/1.1 413 ")


def test_a_slow_tls_client_throttles_the_upstream(tmp_path: Path, pki: Pki) -> None:
    body = bytes(range(256)) * 80_000
    sent = 0

    def handler(one: socket.socket) -> None:
        nonlocal sent
        receive_request(one)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 100_000):
            one.sendall(body[start : start + 100_000])
            sent = start
        receive_all(one)

    with (
        RawUpstream(handler) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, **own(pki))) as relay,
        connect(relay, pki) as client,
    ):
        client.sendall(POST)
        receive_head(client)
        wait_for(lambda: waiting_for_clients(relay), "bytes that wait for the client")
        time.sleep(1.0)
        assert sent < 18_000_000
        assert 0 < waiting_for_clients(relay) < 1_000_000
        assert receive(client, len(body)) == body


@pytest.mark.parametrize("how", ["notify", "reset"])
def test_a_tls_client_that_leaves_cancels_the_upstream(tmp_path: Path, pki: Pki, how: str) -> None:
    gone = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(UNFRAMED)
        receive_until_reset(one)
        gone.set()

    with (
        RawUpstream(handler) as upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RunningRelay(settings_for(tmp_path, upstream.url, **own(pki))) as relay,
    ):
        client = connect(relay, pki)
        client.sendall(POST)
        assert receive(client, len(UNFRAMED)) == UNFRAMED
        if how == "notify":
            client.settimeout(0.2)
            with pytest.raises(OSError):
                client.unwrap()
        client.close()
        assert gone.wait(PATIENCE_S)
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CLIENT


def test_a_handshake_that_stalls_ends_and_delays_no_other_client(tmp_path: Path, pki: Pki) -> None:
    with (
        RawUpstream(answering(OK)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, header_timeout_s=0.5, **own(pki))) as relay,
    ):
        silent = [relay.connect() for _ in range(50)]
        for one in silent[:25]:
            one.sendall(b"\x16\x03\x01\x02")
        with connect(relay, pki) as client:
            client.sendall(POST)
            assert receive(client, len(OK)) == OK
        for one in silent:
            receive_until_reset(one)
            one.close()


# Certificates' files.


@pytest.fixture
def quick_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(relay_module, "CHECK_S", 0.05)
    yield


def test_a_renewed_certificate_is_loaded_and_a_broken_one_is_not(
    tmp_path: Path, pki: Pki, quick_look: None, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "own.pem"
    place.write_bytes(pki.server.read_bytes())
    lines: list[str] = []
    with (
        RawUpstream(answering(OK)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url, tls_certificate=place), say=lines.append) as relay,
    ):
        first = serial(relay, pki)
        (tmp_path / "half.pem").write_bytes(b"half of it")
        (tmp_path / "half.pem").replace(place)  # at once: a file that is still being written is another broken one
        wait_until(lambda: any("stays in use" in line for line in lines))
        assert serial(relay, pki) == first and len(lines) == 1
        renewed = pki.authority.issue_cert("127.0.0.1")
        (tmp_path / "new.pem").write_bytes(
            b"".join(blob.bytes() for blob in (renewed.private_key_pem, *renewed.cert_chain_pems))
        )
        (tmp_path / "new.pem").replace(place)
        wait_until(lambda: "the TLS certificate was reloaded" in lines)
        assert serial(relay, pki) != first and len(lines) == 2


def serial(relay: RunningRelay, pki: Pki) -> object:
    with connect(relay, pki) as client:
        found = client.getpeercert()
        return found and found["serialNumber"]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holds()


def test_a_key_of_another_certificate_is_refused_and_the_loaded_pair_stays(tmp_path: Path, pki: Pki) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    signed, another = pki.authority.issue_cert("127.0.0.1"), pki.authority.issue_cert("127.0.0.1")
    signed.cert_chain_pems[0].write_to_path(certificate)
    signed.private_key_pem.write_to_path(key)
    own_certificate = ServerCertificate(certificate, key)
    assert not own_certificate.renew()
    another.private_key_pem.write_to_path(key)
    with pytest.raises(ValueError, match="key values mismatch"):
        own_certificate.renew()
    assert not own_certificate.renew()  # logged once
    another.cert_chain_pems[0].write_to_path(certificate)
    assert own_certificate.renew()


@pytest.mark.parametrize("content", [None, b"", b"no PEM", "locked"])
def test_unusable_files_give_a_sentence(tmp_path: Path, pki: Pki, content: bytes | str | None) -> None:
    path = tmp_path / "x.pem"
    if content == "locked":
        subprocess.run(
            ["openssl", "pkey", "-in", pki.server, "-aes256", "-passout", "pass:secret", "-out", path],
            check=True,
            capture_output=True,
        )
        path.write_bytes(path.read_bytes() + pki.server.read_bytes().partition(b"-----END")[2].partition(b"\n")[2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be used|is encrypted"):
        ServerCertificate(path, None)
    with pytest.raises(ValueError, match=r"cannot be used|is encrypted"):
        upstream_context(None, path, None)
    if content != "locked":
        with pytest.raises(ValueError, match="cannot be used"):
            upstream_context(path, None, None)
