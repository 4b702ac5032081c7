"""The relay: accepts clients on one listening socket, and knows the upstreams, the pools and the way to the recorder."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamgauge.counters import Counters
from streamgauge.taps.proxy.client import LINGER_S, Client, Limits
from streamgauge.taps.proxy.deputy import Deputy
from streamgauge.taps.proxy.lending import BUILT, Lender
from streamgauge.taps.proxy.outbox import Outbox
from streamgauge.taps.proxy.request import MAX_REQUEST_HEAD, Route, Routes
from streamgauge.taps.proxy.tls import LOOK_S, OwnCertificate, upstream_context
from streamgauge.taps.proxy.upstream import Pool

# Bytes that may wait for a recorder that is away or slow: some 10 s of a busy relay.
CAPTURE_BUFFER_BYTES = 32 * 1024 * 1024
# Connections that the kernel accepts ahead of the loop.
BACKLOG = 1024
# After the drain's deadline, what was cut gets this long to be gone (seconds).
CUT_S = 1.0


class RelaySettings(msgspec.Struct, frozen=True):
    """Settings of one relay process, as its parent hands them over. Times in seconds, sizes in bytes.

    `upstreams`: name and URL of each; `single`: there is one, and requests carry no prefix. `listen_fd`: an inherited
    listening socket; `other_fds`: those of the other relays, if each has its own. `role`: which counters are this process's.
    `tls_*`: the certificate that clients see, if any; `upstream_*`: further authorities for https upstreams, and a
    certificate to show them. All are names of PEM files; a key that is not named lies in its certificate's file. `pump`: use
    it where it was built.
    """

    upstreams: list[tuple[str, str]]
    recorder_socket: str
    counters_path: str
    listen_fd: int = -1
    other_fds: list[int] = []
    single: bool = False
    role: str = "relay-0"
    upstream_idle_timeout_s: float = 900.0
    connect_timeout_s: float = 10.0
    header_timeout_s: float = 60.0
    keep_alive_s: float = 75.0
    drain_timeout_s: float = 30.0
    tenant_header: str | None = None
    max_request_head: int = MAX_REQUEST_HEAD
    max_request_body: int | None = None
    capture_buffer_bytes: int = CAPTURE_BUFFER_BYTES
    tls_certificate: str | None = None
    tls_key: str | None = None
    upstream_ca: str | None = None
    upstream_certificate: str | None = None
    upstream_key: str | None = None
    pump: bool = True


class Relay:
    """A serving relay. Made by `serve`; ended by `drain`."""

    def __init__(self, settings: RelaySettings, say: Callable[[str], None]) -> None:
        self._say = say
        self.routes = Routes(settings.upstreams, settings.single)
        self.limits = Limits(
            settings.header_timeout_s,
            settings.keep_alive_s,
            settings.upstream_idle_timeout_s,
            settings.max_request_head,
            settings.max_request_body,
        )
        self.tenant_header = settings.tenant_header
        self.draining = False
        self._clients: set[Client] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        tls = upstream_context(settings.upstream_ca, settings.upstream_certificate, settings.upstream_key)
        self._own = OwnCertificate(settings.tls_certificate, settings.tls_key) if settings.tls_certificate else None
        self._tls: dict[str, Any] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._deputy: Deputy | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self._pools = {route: Pool(route, tls, settings.connect_timeout_s) for route in self.routes.all}
        self._drain_timeout_s = settings.drain_timeout_s
        self._counters = Counters(Path(settings.counters_path), settings.role)
        self._counters.settle_relay()
        self.outbox = Outbox(Path(settings.recorder_socket), self._counters, settings.capture_buffer_bytes)
        self.lender = Lender(self.outbox, self._counters) if settings.pump and BUILT else None
        self._server: asyncio.Server | None = None

    async def listen(self, listening: socket.socket, others: list[socket.socket]) -> None:
        """Begins to accept; on the others' sockets, what waits there for too long."""
        loop = asyncio.get_running_loop()
        if self._own is not None:
            timeouts = {"ssl_handshake_timeout": self.limits.header_timeout_s, "ssl_shutdown_timeout": LINGER_S}
            self._tls = {"ssl": self._own.context, **timeouts}
            self._looking = loop.call_later(LOOK_S, self._look_for_certificate)
        self._server = await loop.create_server(self._client, sock=listening, backlog=BACKLOG, **self._tls)
        self._deputy = Deputy(others, self._take)

    def _client(self) -> Client:
        return Client(self)

    def _take(self, accepted: socket.socket) -> None:
        """Serves a client of another relay."""
        task = asyncio.get_running_loop().create_task(self._serve(accepted))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it left, or its TLS handshake failed
            await asyncio.get_running_loop().connect_accepted_socket(self._client, accepted, **self._tls)

    def _look_for_certificate(self) -> None:
        assert self._own is not None
        try:
            if self._own.renew():
                self._say("its certificate was renewed")
        except ValueError as fault:
            self._say(f"{fault}; the former one stays in use")
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look_for_certificate)

    def pool(self, route: Route) -> Pool:
        """The connections to an upstream."""
        return self._pools[route]

    async def drain(self, timeout_s: float | None = None) -> None:
        """Accepts no more, lets running exchanges end, cuts at the deadline what is left, and hands over the capture."""
        self.draining = True
        if self._looking is not None:
            self._looking.cancel()
        if self._deputy is not None:
            self._deputy.close()
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.drain()
        await self._all_gone(self._drain_timeout_s if timeout_s is None else timeout_s)
        for client in list(self._clients):
            client.cut()
        await self._all_gone(CUT_S)
        for pool in self._pools.values():
            pool.close()
        if self.lender is not None:
            self.lender.close()
        await self.outbox.close()
        self._counters.close()

    def hurry(self) -> None:
        """What was captured goes to the recorder with the next flush, until the process ends. From any thread."""
        if self.lender is not None:
            self.lender.hurry()

    def came(self, client: Client) -> None:
        """A client has connected."""
        self._clients.add(client)
        self._empty.clear()

    def gone(self, client: Client) -> None:
        """A client's connection has ended."""
        self._clients.discard(client)
        if not self._clients:
            self._empty.set()

    async def _all_gone(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()


def _say_nothing(_: str) -> None:
    pass


async def serve(
    settings: RelaySettings,
    listening: socket.socket,
    others: Sequence[socket.socket] = (),
    say: Callable[[str], None] = _say_nothing,
) -> Relay:
    """A relay that accepts on `listening`, and looks after `others`; it takes them over. `say` takes a sentence for the
    operator. Raises ValueError for upstreams and certificates that cannot be, OSError for a counters file that cannot be
    made.
    """
    relay = Relay(settings, say)
    await relay.listen(listening, list(others))
    return relay
