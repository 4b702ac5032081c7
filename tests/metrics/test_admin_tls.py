"""The admin port with TLS: what it speaks, its renewed certificate, and that clients cannot use up its descriptors."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme
import uvloop

from streamgauge.metrics import http_server
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.metrics.http_server import AdminAddressError, AdminServer, split_address
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.certificates import ServerCertificate
from tests.metrics.test_admin_access import TOKEN, bearer

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b\r\n"
PATIENCE_S = 20


class Tls:
    """An authority, and the file of the certificate that the port shows."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.file = folder / "server.pem"
        self.write(self.authority.issue_cert("127.0.0.1"))

    def write(self, signed: trustme.LeafCert) -> None:
        new = self.file.with_suffix(".new")
        signed.private_key_and_cert_chain_pem.write_to_path(new)
        new.replace(self.file)

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context()
        self.authority.configure_trust(made)
        return made


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


def serving(
    tls: Tls,
    test: Callable[[AdminServer], Awaitable[None]],
    token: Token | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def run() -> None:
        access = Access(token, ServerCertificate(tls.file, None))
        async with AdminServer(Metrics(), lambda: True, access=access) as server:
            await server.start("127.0.0.1:0")
            await test(server)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def scrape(server: AdminServer, context: ssl.SSLContext, extra: str = "") -> bytes:
    reader, writer = await asyncio.open_connection(*split_address(server.address), ssl=context)
    try:
        writer.write(REQUEST % extra.encode())
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def waits(server: AdminServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that connects and says nothing."""
    return await asyncio.open_connection(*split_address(server.address))


async def is_closed(reader: asyncio.StreamReader, within_s: float) -> bool:
    try:
        return await asyncio.wait_for(reader.read(1), within_s) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_metrics_over_tls_and_nothing_in_plain_text(
    tls: Tls, caplog: pytest.LogCaptureFixture, loop: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    """On the loop of a tap's parent, and on a worker's."""

    async def test(server: AdminServer) -> None:
        assert server.url.startswith("https://127.0.0.1:")
        answer = await scrape(server, tls.context(), bearer(TOKEN))
        assert answer.startswith(b"HTTP/1.1 200")
        assert (await scrape(server, tls.context())).startswith(b"HTTP/1.1 401")
        reader, writer = await waits(server)
        writer.write(REQUEST % bearer(TOKEN).encode())
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        assert (await scrape(server, tls.context(), bearer(TOKEN))).startswith(b"HTTP/1.1 200")

    serving(tls, test, Token(TOKEN), loop)
    assert caplog.messages == ["the admin port rejected a request without its token (401)"]


def test_a_client_that_does_not_trust_it_or_is_too_old_gets_nothing(tls: Tls) -> None:
    async def test(server: AdminServer) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await scrape(server, ssl.create_default_context())
        old = tls.context()
        old.minimum_version, old.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await scrape(server, old)
        assert (await scrape(server, tls.context())).startswith(b"HTTP/1.1 200")

    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        serving(tls, test)


def test_a_renewed_certificate_is_used_and_an_unusable_one_is_not(
    tls: Tls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "CHECK_S", 0.05)

    async def test(server: AdminServer) -> None:
        tls.file.write_text("half a certificate")
        async with asyncio.timeout(PATIENCE_S):
            while not caplog.messages:  # noqa: ASYNC110 - what logs has no event
                await asyncio.sleep(0.02)
        assert (await scrape(server, tls.context())).startswith(b"HTTP/1.1 200")
        tls.authority = trustme.CA()
        tls.write(tls.authority.issue_cert("127.0.0.1"))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(ssl.SSLCertVerificationError):
                    assert (await scrape(server, tls.context())).startswith(b"HTTP/1.1 200")
                    break
                await asyncio.sleep(0.02)

    serving(tls, test)
    [sentence] = caplog.messages
    assert sentence.endswith("the admin port continues with the previous one")


def test_a_renewal_that_ends_by_a_bug_is_reported(
    tls: Tls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unseen, the certificate would expire."""

    def ends(_: object) -> bool:
        raise RuntimeError("a secret")

    monkeypatch.setattr(http_server, "CHECK_S", 0.05)
    monkeypatch.setattr(ServerCertificate, "renew", ends)

    async def test(server: AdminServer) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not caplog.messages:  # noqa: ASYNC110 - what logs has no event
                await asyncio.sleep(0.02)

    serving(tls, test)
    assert caplog.messages[0].startswith("internal error in the ")
    assert "RuntimeError" in caplog.text
    assert "a secret" not in caplog.text


@pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_clients_that_begin_no_handshake_are_closed_and_a_scrape_is_answered(
    tls: Tls, monkeypatch: pytest.MonkeyPatch, loop: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_S", 2.0)

    async def test(server: AdminServer) -> None:
        clients = [await waits(server) for _ in range(2 * http_server.MAX_CONNECTIONS)]
        clients[0][1].write(b"\x16\x03\x01")  # half a record of TLS
        assert (await scrape(server, tls.context())).startswith(b"HTTP/1.1 200")
        assert all(await asyncio.gather(*(is_closed(reader, PATIENCE_S) for reader, _ in clients)))
        for _, writer in clients:
            writer.close()

    serving(tls, test, loop=loop)


def test_after_stop_nothing_listens_and_no_handshake_is_left(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_S", 1.0)

    async def run() -> None:
        server = AdminServer(Metrics(), lambda: True, access=Access(None, ServerCertificate(tls.file, None)))
        await server.start("127.0.0.1:0")
        reader, writer = await waits(server)
        await asyncio.sleep(0.1)
        host, port = split_address(server.address)
        await server.stop()
        assert await is_closed(reader, PATIENCE_S)
        writer.close()
        with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port), timeout=5):
            pass

    asyncio.run(run())


def test_stop_does_not_wait_for_a_client_that_keeps_its_connection(tls: Tls) -> None:
    """A socket that is left open would be a warning, which fails the test."""

    async def run() -> ssl.SSLSocket:
        server = AdminServer(Metrics(), lambda: True, access=Access(None, ServerCertificate(tls.file, None)))
        await server.start("127.0.0.1:0")
        plain = socket.create_connection(split_address(server.address))
        kept = await asyncio.to_thread(tls.context().wrap_socket, plain, server_hostname="127.0.0.1")
        await asyncio.to_thread(kept.sendall, (REQUEST % b"").replace(b"close", b"keep-alive"))
        assert (await asyncio.to_thread(kept.recv, 15)).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(http_server.HANDSHAKE_S / 2):
            await server.stop()
        return kept

    kept = asyncio.run(run())
    gc.collect()
    kept.close()


def test_a_port_that_is_taken_is_said(tls: Tls) -> None:
    async def test(server: AdminServer) -> None:
        other = AdminServer(Metrics(), lambda: True, access=Access(None, ServerCertificate(tls.file, None)))
        with pytest.raises(AdminAddressError, match="is in use"):
            await other.start(server.address)

    serving(tls, test)
