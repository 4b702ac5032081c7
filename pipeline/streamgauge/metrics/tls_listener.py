"""Accepts connections of the admin port with TLS. At most MAX_HANDSHAKES are open at a time; a further one ends the oldest.

asyncio's own TLS servers accept any number of connections and hand each over after its handshake. A client that only connects
would use up the descriptors of the process, which the spool and the broker's connections need, too.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

from streamgauge.runtime.certificates import CHECK_S, ServerCertificate
from streamgauge.runtime.faults import report_fault, reported_task

# Limit of connections whose handshake is not complete: scrapers and probes are few, and a handshake takes milliseconds.
MAX_HANDSHAKES = 64

# How long a handshake, and the end of a TLS connection, may take (seconds): several round trips on a slow network.
HANDSHAKE_S = 10.0

# The pause after a failed accept, as without free descriptors (seconds).
_RETRY_S = 1.0

_log = logging.getLogger(__name__)


class TlsListener:
    """Listens until `close`. `protocol`: makes what serves a connection."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], certificate: ServerCertificate) -> None:
        self._protocol = protocol
        self._certificate = certificate
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}  # the oldest first
        self._sockets: list[socket.socket] = []
        self._running: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        """Listens on each address of `host`. Returns the first address as bound. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            for family, kind, number, _, place in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                made = socket.socket(family, kind, number)
                self._sockets.append(made)
                made.setblocking(False)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind(place)
                made.listen(backlog)
        except OSError:
            await self.close()
            raise
        self._running = [reported_task("the admin port", self._accept(one)) for one in self._sockets]
        self._running.append(reported_task("the renewal of the admin port's certificate", self._renew()))
        bound = self._sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def close(self) -> None:
        """Stops listening, and ends the handshakes."""
        for task in self._running:
            task.cancel()
        for accepted in self._handshakes.values():
            _cut(accepted)
        await asyncio.gather(*self._running, *self._handshakes, return_exceptions=True)
        for one in self._sockets:
            one.close()
        self._sockets = []

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                report_fault("the admin port", error)
                await asyncio.sleep(_RETRY_S)
                continue
            if len(self._handshakes) >= MAX_HANDSHAKES:
                _cut(self._handshakes.pop(next(iter(self._handshakes))))
            task = loop.create_task(self._handshake(accepted))
            self._handshakes[task] = accepted
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _handshake(self, accepted: socket.socket) -> None:
        """Ends with the handshake, whether it succeeds or fails: a client that does not speak TLS is of no interest."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # also of ssl, and a time limit
            await loop.connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=self._certificate.context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=HANDSHAKE_S,
            )

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                self._certificate.renew()
            except ValueError as fault:
                _log.warning("%s; the admin port continues with the previous one", fault)


def _cut(accepted: socket.socket) -> None:
    """Ends a connection whose transport is another's: its handshake fails."""
    with contextlib.suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
