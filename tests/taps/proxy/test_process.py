"""The relay as a process: it reads settings, reports that it is ready, drains on SIGTERM and ends with its parent."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnding, ResponseRead
from streamgauge.runtime.child import encode_settings
from streamgauge.spool.read_counters import read_balance
from streamgauge.taps.proxy import pump_handle
from streamgauge.taps.proxy.relay_settings import RelaySettings
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawRecorder,
    RawUpstream,
    answering,
    arrived,
    chunked,
    make_certificate,
    only,
    receive,
    receive_all,
    receive_head,
    receive_until_reset,
    settings_for,
)

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SSE = HEAD + chunked(*[b"data: %d\n\n" % number for number in range(20)])
UNFRAMED = HEAD.replace(b"Transfer-Encoding: chunked\r\n", b"") + b"x"
POST = b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}"


class RelayProcess:
    """A relay process, its listening socket inherited."""

    def __init__(self, settings: RelaySettings, environment: dict[str, str] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port: int = listening.getsockname()[1]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamgauge.taps.proxy"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env=os.environ | (environment or {}),
            )
            settings = replace(settings, listen_fd=listening.fileno())
            self.say(encode_settings(settings) + b"\n")
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == b"ready\n"

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def connect(self) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        one.settimeout(PATIENCE_S)
        return one

    def end(self) -> tuple[int, bytes]:
        """Waits for the exit; gives the exit code and what was written to standard error."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        code = process.wait(PATIENCE_S)
        errors = process.stderr.read()
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return code, errors


@contextlib.contextmanager
def running(settings: RelaySettings, environment: dict[str, str] | None = None) -> Iterator[RelayProcess]:
    relay = RelayProcess(settings, environment)
    try:
        yield relay
    finally:
        if relay.process.poll() is None:
            relay.process.kill()
            relay.end()


def test_it_serves_and_drains_at_sigterm(tmp_path: Path) -> None:
    go = threading.Event()

    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(HEAD)
        assert go.wait(PATIENCE_S)
        one.sendall(SSE[len(HEAD) :])

    with RawUpstream(handler) as upstream, RawRecorder(tmp_path / "recorder.sock") as recorder:
        with running(settings_for(tmp_path, upstream.url)) as relay, relay.connect() as client:
            client.sendall(POST)
            assert receive(client, len(HEAD)) == HEAD
            relay.process.send_signal(signal.SIGINT)  # the parent's to handle
            relay.process.send_signal(signal.SIGTERM)
            threading.Timer(0.3, go.set).start()
            assert receive_all(client) == SSE[len(HEAD) :]
            assert relay.end() == (0, b"")
        messages = recorder.ended()
        assert arrived(messages) == SSE
        balance = read_balance(tmp_path / "counters")
        assert balance.seen == balance.waiting == sum(isinstance(message, ResponseRead) for message in messages)


def test_the_drain_ends_at_its_deadline(tmp_path: Path) -> None:
    with (
        RawUpstream(answering(HEAD)) as upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        running(settings_for(tmp_path, upstream.url, drain_timeout=0.3)) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        assert receive(client, len(HEAD)) == HEAD
        relay.process.send_signal(signal.SIGTERM)
        assert receive_until_reset(client) == (b"", True)
        assert relay.end() == (0, b"")
        assert only(recorder.ended(), ExchangeEnding).ending is Ending.CUT


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    with (
        RawUpstream(answering(HEAD)) as upstream,
        running(settings_for(tmp_path, upstream.url)) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        assert receive(client, len(HEAD)) == HEAD
        relay.say(b"anything\n")
        assert relay.process.poll() is None
        assert relay.process.stdin is not None
        relay.process.stdin.close()
        code, _ = relay.end()
        assert code == 3


@pytest.mark.skipif(not pump_handle.BUILT, reason="the pump is not built: it needs Linux and a C compiler")
def test_reads_held_by_the_pump_reach_the_recorder_when_the_parent_has_ended(tmp_path: Path) -> None:
    def handler(one: socket.socket) -> None:
        receive_head(one)
        one.sendall(UNFRAMED)
        for number in range(10):
            time.sleep(0.02)
            one.sendall(b"%d" % number)
        ended.wait(PATIENCE_S)

    ended = threading.Event()
    with (
        RawUpstream(handler) as upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        running(settings_for(tmp_path, upstream.url)) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        assert receive(client, len(UNFRAMED) + 10) == UNFRAMED + b"0123456789"
        assert relay.process.stdin is not None
        relay.process.stdin.close()
        assert relay.end()[0] == 3
        assert arrived(recorder.messages).endswith(b"0123456789")
        ended.set()


def test_several_share_one_socket(tmp_path: Path) -> None:
    """As started by a supervisor: each relay inherits the same listening socket."""
    with RawUpstream(answering(*[SSE] * 40)) as upstream, socket.create_server(("127.0.0.1", 0)) as listening:
        relays = []
        for number in range(2):
            settings = settings_for(tmp_path, upstream.url, listen_fd=listening.fileno(), role=f"relay-{number}")
            process = subprocess.Popen(
                [sys.executable, "-m", "streamgauge.taps.proxy"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[listening.fileno()],
            )
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(encode_settings(settings) + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            relays.append(process)
        try:
            for _ in range(20):
                with socket.create_connection(listening.getsockname(), PATIENCE_S) as client:
                    client.sendall(POST)
                    assert receive(client, len(SSE)) == SSE
            for process in relays:
                process.terminate()
                assert process.wait(PATIENCE_S) == 0
        finally:
            for process in relays:
                process.kill()
                process.communicate()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"no json\n", 2),
        (b"", 2),
        (b'{"upstreams":[],"recorder_socket":"r","counters_path":"%b/c","listen_fd":0}\n', 2),
        (b'{"upstreams":[["a","http://a"]],"recorder_socket":"r","counters_path":"%b/c","listen_fd":99}\n', 2),
        (b'{"upstreams":[["a","http://a"]],"recorder_socket":"r","counters_path":"%b/no/c","listen_fd":LISTEN}\n', 3),
    ],
)
def test_invalid_settings_end_it_with_a_sentence(tmp_path: Path, line: bytes, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamgauge.taps.proxy"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(line.replace(b"LISTEN", b"%d" % listening.fileno()).replace(b"%b", bytes(tmp_path)))
        process.stdin.flush()
        if not line:
            process.stdin.close()
        assert process.wait(PATIENCE_S) == code
        errors = process.stderr.read()
        assert errors.startswith(b"relay: ") and b"Traceback" not in errors
        process.stderr.close()
        process.stdin.close()


def tls_upstream(folder: Path, name: str, close: str, answer: bytes = SSE) -> tuple[RawUpstream, Path]:
    """An upstream behind TLS for a host name; after its response it closes with "notify" or "silent", or with "" keeps
    the connection open.
    """
    certificate, key = make_certificate(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2", "http/1.1"])

    def talk(secure: ssl.SSLSocket) -> None:
        assert secure.selected_alpn_protocol() == "http/1.1"
        while receive_head(secure) and receive(secure, 2) == b"{}":
            secure.sendall(answer)
            if close == "notify":
                secure.unwrap()
            if close:
                return

    def handler(one: socket.socket) -> None:
        try:
            secure = context.wrap_socket(one, server_side=True)
        except ssl.SSLError:
            return  # the relay did not trust it
        with secure:
            talk(secure)

    return RawUpstream(handler), certificate


def test_tls_upstreams_are_verified_and_their_connections_reused(tmp_path: Path) -> None:
    upstream, certificate = tls_upstream(tmp_path, "IP:127.0.0.1", "")
    settings, environment = (
        settings_for(tmp_path, f"https://127.0.0.1:{upstream.port}"),
        {"SSL_CERT_FILE": str(certificate)},
    )
    with upstream, running(settings, environment) as relay, relay.connect() as client:
        for _ in range(2):
            client.sendall(POST)
            assert receive(client, len(SSE)) == SSE
        assert upstream.connections == 1


def test_tls_for_another_name_is_refused(tmp_path: Path) -> None:
    upstream, certificate = tls_upstream(tmp_path, "DNS:other.example", "")
    settings, environment = (
        settings_for(tmp_path, f"https://127.0.0.1:{upstream.port}"),
        {"SSL_CERT_FILE": str(certificate)},
    )
    with upstream, running(settings, environment) as relay, relay.connect() as client:
        client.sendall(POST)
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 502 ") and b"is for another host name" in received


def test_a_slow_client_of_a_tls_upstream_gets_everything(tmp_path: Path) -> None:
    body = bytes(range(256)) * 40_000
    upstream, certificate = tls_upstream(tmp_path, "IP:127.0.0.1", "notify", UNFRAMED + body)
    settings, environment = (
        settings_for(tmp_path, f"https://127.0.0.1:{upstream.port}"),
        {"SSL_CERT_FILE": str(certificate)},
    )
    with upstream, running(settings, environment) as relay, relay.connect() as client:
        client.sendall(POST)
        time.sleep(0.5)
        assert receive_all(client) == UNFRAMED + body


@pytest.mark.parametrize(("close", "ending"), [("notify", Ending.COMPLETE), ("silent", Ending.RESET)])
def test_tls_ends(tmp_path: Path, close: str, ending: Ending) -> None:
    answer = UNFRAMED if close == "notify" else SSE[:-20]
    upstream, certificate = tls_upstream(tmp_path, "IP:127.0.0.1", close, answer)
    settings, environment = (
        settings_for(tmp_path, f"https://127.0.0.1:{upstream.port}"),
        {"SSL_CERT_FILE": str(certificate)},
    )
    with (
        upstream,
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        running(settings, environment) as relay,
        relay.connect() as client,
    ):
        client.sendall(POST)
        data, _ = receive_until_reset(client)
        assert data == answer
        messages = recorder.ended()
        assert only(messages, ExchangeEnding).ending is ending
        assert arrived(messages) == data
