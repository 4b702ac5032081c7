"""The relay: accepts clients on one listening socket, and knows the upstreams, the pools and the way to the recorder."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import msgspec

from streamgauge.counters import Counters
from streamgauge.taps.proxy.client import Client, Limits
from streamgauge.taps.proxy.outbox import Outbox
from streamgauge.taps.proxy.request import Route, Routes
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
    listening socket. `role`: which counters are this process's.
    """

    upstreams: list[tuple[str, str]]
    recorder_socket: str
    counters_path: str
    listen_fd: int = -1
    single: bool = False
    role: str = "relay-0"
    upstream_idle_timeout_s: float = 900.0
    connect_timeout_s: float = 10.0
    header_timeout_s: float = 60.0
    keep_alive_s: float = 75.0
    drain_timeout_s: float = 30.0
    tenant_header: str | None = None
    capture_buffer_bytes: int = CAPTURE_BUFFER_BYTES


class Relay:
    """A serving relay. Made by `serve`; ended by `drain`."""

    def __init__(self, settings: RelaySettings) -> None:
        self.routes = Routes(settings.upstreams, settings.single)
        self.limits = Limits(settings.header_timeout_s, settings.keep_alive_s, settings.upstream_idle_timeout_s)
        self.tenant_header = settings.tenant_header
        self.draining = False
        self._clients: set[Client] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        tls = _tls_context() if any(route.tls for route in self.routes.all) else None
        self._pools = {route: Pool(route, tls, settings.connect_timeout_s) for route in self.routes.all}
        self._drain_timeout_s = settings.drain_timeout_s
        self._counters = Counters(Path(settings.counters_path), settings.role)
        self._counters.settle_relay()
        self.outbox = Outbox(Path(settings.recorder_socket), self._counters, settings.capture_buffer_bytes)
        self._server: asyncio.Server | None = None

    async def listen(self, listening: socket.socket) -> None:
        """Begins to accept."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Client(self), sock=listening, backlog=BACKLOG)

    def pool(self, route: Route) -> Pool:
        """The connections to an upstream."""
        return self._pools[route]

    async def drain(self, timeout_s: float | None = None) -> None:
        """Accepts no more, lets running exchanges end, cuts at the deadline what is left, and hands over the capture."""
        self.draining = True
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
        await self.outbox.close()
        self._counters.close()

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
            await asyncio.wait_for(self._empty.wait(), within_s)


async def serve(settings: RelaySettings, listening: socket.socket) -> Relay:
    """A relay that accepts on `listening`, which it takes over. Raises ValueError for upstreams that cannot be, OSError
    for a counters file that cannot be made.
    """
    relay = Relay(settings)
    await relay.listen(listening)
    return relay


def _tls_context() -> ssl.SSLContext:
    """Verifies certificates and names by the system's authorities, or those of SSL_CERT_FILE."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
