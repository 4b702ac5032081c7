"""The relay: owns the clients' connections, the connectors to upstreams, and the connection to the recorder."""

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamgauge.recorder.loop_client import LoopClient
from streamgauge.runtime.certificates import CHECK_S, ServerCertificate
from streamgauge.runtime.faults import report_fault, reported_task
from streamgauge.spool.read_counters import Counters, Incident
from streamgauge.taps.proxy.acceptor import Acceptor
from streamgauge.taps.proxy.capture_gate import named_headers
from streamgauge.taps.proxy.client import LINGER_S, Client
from streamgauge.taps.proxy.client_access import ClientAccess, client_tokens
from streamgauge.taps.proxy.limits import (
    HANDSHAKE_S,
    MAX_CLIENT_BYTES,
    SHED_HANDSHAKE_S,
    ByteBudget,
    Connections,
    capacity_of,
)
from streamgauge.taps.proxy.pump_handle import BUILT, PumpHandle
from streamgauge.taps.proxy.refusals import Refusals
from streamgauge.taps.proxy.relay_settings import RelaySettings
from streamgauge.taps.proxy.request import Route, Routes
from streamgauge.taps.proxy.tls import upstream_context
from streamgauge.taps.proxy.upstream import Connector

# Connections that are closed at a time to make room.
SHED_AT_A_TIME = 32
# After a search that has found none, the next one for the same address waits for this long (seconds): a search looks at all
# clients, and one address may open connections above its limit all the time. The pauses of SEARCHES addresses are kept.
SEARCH_S = 0.1
SEARCHES = 1_000
# After the drain's deadline, the connections that were cut have this long to close (seconds).
CUT_S = 1.0


class Relay:
    """The relay of a process. `serve` makes it; `drain` ends it. `clients`: those that it is connected with."""

    def __init__(self, settings: RelaySettings, log: Callable[[str], None]) -> None:
        self._log = log
        stripped = frozenset(attribute.header.encode() for attribute in settings.attribute if settings.strip_attributes)
        self.routes = Routes(settings.upstreams, settings.single, stripped)
        self.named_headers = named_headers(settings.tenant_header, settings.attribute)
        self.settings = settings
        self.draining = False
        self.clients: set[Client] = set()
        self._search_at_ns: dict[str | None, int] = {}  # by address: before it, no search for connections to close
        self._empty = asyncio.Event()
        self._empty.set()
        tls = upstream_context(
            settings.upstream_ca,
            settings.upstream_certificate,
            settings.upstream_key,
            settings.upstream_key_password_file,
        )
        self._certificate = (
            ServerCertificate(
                settings.tls_certificate, settings.tls_key, settings.tls_key_password_file, settings.tls_client_ca
            )
            if settings.tls_certificate
            else None
        )
        self._tls: dict[str, Any] = {}
        tokens = client_tokens(settings.client_token_file)
        self.access = ClientAccess(tokens, by_certificate=settings.tls_client_ca is not None)
        # Files that are read again when they change: what they are in the log, and their `renew`.
        self._renewals: list[tuple[str, Callable[[], bool]]] = []
        if self._certificate is not None:
            self._renewals.append(("the TLS certificate was reloaded", self._certificate.renew))
        if tokens is not None:
            self._renewals.append(("the tokens of clients were reloaded", tokens.renew))
        self._renewal_timer: asyncio.TimerHandle | None = None
        self._acceptor: Acceptor | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._handshakes: dict[
            socket.socket, tuple[str, int]
        ] = {}  # of TLS: the address, and when it began (monotonic ns)
        self.client_bytes = ByteBudget(MAX_CLIENT_BYTES)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        capacity = capacity_of(descriptors, settings.max_connections, len(self.routes.all))
        if capacity < settings.max_connections:
            log(
                f"the limit of {descriptors} file descriptors allows only {capacity} of {settings.max_connections}"
                " connections: raise it (ulimit -n, LimitNOFILE=) or lower --max-connections"
            )
        self._connections = Connections(capacity, settings.max_connections_per_address)
        self._connectors = {
            route: Connector(route, tls, settings.connect_timeout, settings.watch_s) for route in self.routes.all
        }
        self._counters = Counters(Path(settings.counters_path), settings.role)
        self._counters.drop_unsent_reads()
        self._counters.clients(0, capacity)
        self.refusals = Refusals(self._counters, log)
        self.recorder = LoopClient(Path(settings.recorder_socket), self._counters, settings.capture_buffer_bytes)
        self.pump = PumpHandle(self.recorder, self._counters) if settings.pump and BUILT else None

    async def listen(self, listening: socket.socket, others: list[socket.socket]) -> None:
        """Starts to accept clients: on `listening`, and on `others` if clients wait there for too long."""
        loop = asyncio.get_running_loop()
        if self._certificate is not None:
            handshake_s = min(HANDSHAKE_S, self.settings.header_timeout_s)
            timeouts = {"ssl_handshake_timeout": handshake_s, "ssl_shutdown_timeout": LINGER_S}
            self._tls = {"ssl": self._certificate.context, **timeouts}
        if self._renewals:
            self._renewal_timer = loop.call_later(CHECK_S, self._check_files)
        self._acceptor = Acceptor(
            listening,
            others,
            self._connections,
            make_room=self._make_room,
            serve=self._start_serving,
            refuse=self._refuse_connection,
        )

    def _start_serving(self, accepted: socket.socket, address: str) -> None:
        self._counters.clients(self._connections.count)
        task = reported_task("the serving of a connection", self._serve(accepted, address))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        client = Client(self, address)
        if self._tls:
            self._handshakes[accepted] = address, time.monotonic_ns()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: client, accepted, **self._tls)
        except OSError as error:  # the client left, or its TLS handshake failed
            if isinstance(error, ssl.SSLError):
                self._counters.happened(Incident.TLS_REFUSED)
            accepted.close()
        finally:
            self._handshakes.pop(accepted, None)
            if not client.connected:
                self._released(address)

    def _refuse_connection(self, accepted: socket.socket) -> None:
        """Closes a connection above its address's limit."""
        self._counters.happened(Incident.CLIENT_REFUSED)
        accepted.close()

    def _make_room(self, address: str | None) -> None:
        """Closes connections that wait for nothing, those whose bodies are too slow, and those that leave their responses
        unread: of all clients (None), or of one address's clients. First those that could have been closed for the longest
        time. Handshakes of TLS that take too long end, too.
        """
        now = time.monotonic_ns()
        if now < self._search_at_ns.get(address, 0):
            return
        useless = [
            (due, client)
            for client in self.clients
            if address in (None, client.address) and (due := client.may_be_shed_ns()) is not None and due < now
        ]
        if not useless:
            if len(self._search_at_ns) >= SEARCHES:
                self._search_at_ns.clear()
            self._search_at_ns[address] = now + int(SEARCH_S * 1e9)
        for _, client in sorted(useless, key=lambda pair: pair[0])[:SHED_AT_A_TIME]:
            self._counters.happened(Incident.CLIENT_SHED)
            client.shed()
            self.client_disconnected(client)
        self._end_handshakes(address, now - int(SHED_HANDSHAKE_S * 1e9))

    def _end_handshakes(self, address: str | None, before_ns: int) -> None:
        """Ends handshakes that began before `before_ns`: of all clients (None), or of one address's. `_serve` frees their
        places.
        """
        late = [
            accepted
            for accepted, (of, began_ns) in self._handshakes.items()
            if address in (None, of) and began_ns < before_ns
        ]
        for accepted in late[:SHED_AT_A_TIME]:
            del self._handshakes[accepted]
            self._counters.happened(Incident.CLIENT_SHED)
            with contextlib.suppress(OSError):  # the client has left
                accepted.shutdown(socket.SHUT_RDWR)

    def _released(self, address: str) -> None:
        self._connections.remove(address)
        self._counters.clients(self._connections.count)
        if self._acceptor is not None:
            self._acceptor.resume()

    def _check_files(self) -> None:
        for done, renew in self._renewals:
            try:
                if renew():
                    self._log(done)
            except ValueError as fault:
                self._log(f"{fault}; the previous one stays in use")
            except Exception as error:  # noqa: BLE001 - what is in use stays, and the next check may succeed
                report_fault("the renewal of a certificate or of tokens", error)
        if self._certificate is not None:
            self._tls["ssl"] = self._certificate.context
        self._renewal_timer = asyncio.get_running_loop().call_later(CHECK_S, self._check_files)

    def connector(self, route: Route) -> Connector:
        """The connector that all clients of the relay share for this upstream."""
        return self._connectors[route]

    async def drain(self, timeout_s: float | None = None) -> None:
        """Stops accepting, and lets running exchanges end. At the deadline, cuts those that have not ended. Then sends the
        rest of the capture to the recorder.

        `timeout_s`: until the deadline; None: the settings' `drain_timeout`.
        """
        self.draining = True
        within_s = self.settings.drain_timeout if timeout_s is None else timeout_s
        ends = time.monotonic() + within_s
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
        for client in list(self.clients):
            client.drain()
        await self._all_disconnected(within_s)
        for client in list(self.clients):
            client.cut()
        await self._all_disconnected(CUT_S)
        for connector in self._connectors.values():
            connector.close()
        if self.pump is not None:
            self.pump.close()
        lost = await self.recorder.close(ends - time.monotonic())
        if lost:
            self._log(f"{lost} reads are discarded (recorder_gone): the recorder did not accept them in time")
        self._counters.clients(0)
        self._counters.close()

    def send_at_once(self) -> None:
        """Lets captured reads go to the recorder with the next flush. May be called from any thread."""
        if self.pump is not None:
            self.pump.send_at_once()

    def head_passed_on(self, took_ns: int) -> None:
        """Counts the head of a response, written to its client `took_ns` after it was read. Never raises."""
        try:
            self._counters.head_passed_on(took_ns)
        except Exception as error:  # noqa: BLE001 - a bug in counting must not reach the traffic
            report_fault("the counters of a relay", error)

    def client_connected(self, client: Client) -> None:
        """Counts a client among those that a drain waits for."""
        self.clients.add(client)
        self._empty.clear()

    def client_disconnected(self, client: Client) -> None:
        """Frees the place of a client whose connection has ended, or was closed to make room. May be called again."""
        if client in self.clients:
            self.clients.remove(client)
            self._released(client.address)
        if not self.clients:
            self._empty.set()

    async def _all_disconnected(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()


def _log_nothing(_: str) -> None:
    pass


async def serve(
    settings: RelaySettings,
    listening: socket.socket,
    others: Sequence[socket.socket] = (),
    log: Callable[[str], None] = _log_nothing,
) -> Relay:
    """Returns a relay that accepts on `listening`, and on `others` if clients wait there for too long. It owns and closes
    these sockets. `log` writes a line for the operator. Raises ValueError for invalid upstreams or certificates, OSError
    if the counters file cannot be created.
    """
    relay = Relay(settings, log)
    await relay.listen(listening, list(others))
    return relay
