"""How the httpx tap reports failures between an application and its upstream: with real connections that fail."""

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.protocol import ExchangeEnding
from tests.taps.asking import CHAT, SHORT_TIMEOUT_S, STREAM, TIMEOUT_S, WAYS, Asker
from tests.taps.proxy.pki import make_pki
from tests.taps.proxy.rig import RawRecorder, RawUpstream, only, receive_request, receive_until_reset, reset

HALF = STREAM[:-30]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0].__name__}-{way[1]}")
def asker(request: pytest.FixtureRequest, tmp_path: Path) -> Asker:
    library, kind = request.param
    return Asker(library, kind, tmp_path)


def answers(data: bytes, end: Callable[[socket.socket], object]) -> Callable[[socket.socket], None]:
    def handler(one: socket.socket) -> None:
        receive_request(one)
        one.sendall(data)
        end(one)

    return handler


def check(asker: Asker, recorder: RawRecorder, url: str, ending: Ending, fault: TransportFault) -> None:
    assert asker.ask(url + CHAT).error is not None
    ended = only(recorder.ended(), ExchangeEnding)
    assert (ended.ending, ended.fault) == (ending, fault)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://127.0.0.1:1", TransportFault.REFUSED),
        ("http://255.255.255.255", TransportFault.UNREACHABLE),
    ],
)
def test_no_connection(asker: Asker, recorder: RawRecorder, url: str, fault: TransportFault) -> None:
    check(asker, recorder, url, Ending.RESET, fault)


def test_no_name(asker: Asker, recorder: RawRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's result is patched: a real one may take longer than the client waits."""

    def not_found(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    check(asker, recorder, "http://no-such-name.invalid", Ending.RESET, TransportFault.DNS)


@pytest.mark.parametrize(
    ("data", "end", "ending", "fault"),
    [
        (b"", reset, Ending.RESET, TransportFault.RESET),
        (b"", socket.socket.close, Ending.RESET, TransportFault.CLOSED),
        (HALF, socket.socket.close, Ending.RESET, TransportFault.CLOSED),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", socket.socket.close, Ending.RESET, TransportFault.NOT_HTTP),
        (b"", receive_until_reset, Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT),
        (HALF, receive_until_reset, Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT),
    ],
    ids=["reset", "no answer", "half an answer", "no HTTP", "silence", "silence amid an answer"],
)
def test_a_missing_or_partial_response(
    asker: Asker,
    recorder: RawRecorder,
    data: bytes,
    end: Callable[[socket.socket], object],
    ending: Ending,
    fault: TransportFault,
) -> None:
    asker.timeout_s = SHORT_TIMEOUT_S if ending is Ending.TIMEOUT else TIMEOUT_S
    with RawUpstream(answers(data, end)) as upstream:
        check(asker, recorder, upstream.url, ending, fault)


@pytest.mark.parametrize("trusted", [True, False])
def test_tls(asker: Asker, recorder: RawRecorder, tmp_path: Path, trusted: bool) -> None:
    """An unknown authority, and a server that does not speak TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_pki(tmp_path).server)

    def handler(one: socket.socket) -> None:
        if trusted:
            one.recv(100)
            one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        with contextlib.suppress(OSError):
            context.wrap_socket(one, server_side=True)

    with RawUpstream(handler) as upstream:
        url = upstream.url.replace("http:", "https:")
        check(asker, recorder, url, Ending.RESET, TransportFault.TLS if trusted else TransportFault.TLS_CERTIFICATE)
