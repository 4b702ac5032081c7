"""Connections to upstreams. Each belongs to one client connection, and carries no other client's requests.

So a client sees the same closed connections that it would see without a relay. Data that remains on a connection (bytes that
an upstream sends late, a body that it did not read) cannot reach another client.
"""

import asyncio
import errno
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, cast

from aiohappyeyeballs import start_connection

from streamgauge.core.capture.segments import TransportFault
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.proxy.limits import KEPT_MOST
from streamgauge.taps.proxy.request import Route
from streamgauge.taps.proxy.wire import Wire

if TYPE_CHECKING:
    from streamgauge.taps.proxy.exchange import Exchange

# An idle connection is reused within this time (seconds). Common servers close idle connections after 5 s, and a
# request fails if the server closes while it is on its way.
KEPT_S = 4.0
# EARLY_CLOSE_S: a server that closes an idle connection within this time after a response (seconds) is assumed to close
# after each response: a request that follows at once could cross the close. DISTRUST_S: its connections are then not
# reused for this long (seconds).
EARLY_CLOSE_S = 1.0
DISTRUST_S = 60.0
# Before connections to an upstream are reused, one is watched for this long (seconds) to see whether it stays open.
WATCH_S = 0.25
# Bytes that may wait for a socket that accepts no more, besides the current read: enough to fill the socket again.
WRITE_BUFFER_BYTES = 64 * 1024

# The next address is tried when one has not answered for this long (seconds; RFC 8305, 5: the recommended delay).
NEXT_ADDRESS_S = 0.25
# When the relay closes a TLS connection, it waits this long for the upstream's close_notify (seconds), which it does
# not need.
TLS_SHUTDOWN_S = 1.0
# When a client ends a WebSocket, its last frames have this long to go out to an upstream that accepts no more (seconds).
CLOSE_S = 5.0

_CLOSING = select.POLLIN | select.POLLHUP | select.POLLERR


class UnreachableError(OSError):
    """No connection could be made. The text is a phrase from the relay's code. `fault` None: the cause is in the relay: no
    descriptors, or a bug.
    """

    def __init__(self, why: str, fault: TransportFault | None) -> None:
        super().__init__(why)
        self.fault = fault


class Upstream(asyncio.Protocol):
    """A connection to an upstream. `exchange`: the exchange that uses it; None while it is idle, since `idle_since` (loop
    time). Stamps are monotonic ns, taken before anything else.
    """

    __slots__ = ("_poll", "blocked", "connector", "exchange", "idle_since", "transport", "wire")

    def __init__(self, connector: "Connector") -> None:
        self.connector = connector
        self.exchange: Exchange | None = None
        self.blocked = False
        self.idle_since: float | None = None
        self.transport: asyncio.Transport
        self.wire: Wire
        self._poll: select.poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sets `transport` and `wire`; with TLS, after the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.wire = Wire(self.transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)

    def data_received(self, data: bytes) -> None:
        """Passes a read to the exchange; drops the connection if it is idle."""
        at_ns = time.monotonic_ns()
        if self.exchange is None:  # no request was sent: these bytes belong to no exchange
            self.abort()
        else:
            self.exchange.upstream_data(at_ns, data)

    def eof_received(self) -> None:
        """Reports a clean end. The transport then closes the relay's side, too, without the unsent bytes of a request: it
        would wait for an upstream that does not read them.
        """
        self._ended(None)
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports an end without `eof_received` as a fault: it is a reset, or a TLS connection ended without close_notify, so
        that an attacker may have cut off the data (RFC 8446, 6.1; RFC 9112, 9.8).
        """
        self._ended(TransportFault.RESET if isinstance(exc, ConnectionError) else TransportFault.CLOSED)

    def pause_writing(self) -> None:
        """Reports that more than WRITE_BUFFER_BYTES wait for the socket."""
        self._block(True)

    def resume_writing(self) -> None:
        """Reports that the write buffer is empty."""
        self._block(False)

    def _block(self, blocked: bool) -> None:
        self.blocked = blocked
        if self.exchange is not None:
            self.exchange.upstream_blocked(blocked)

    def _ended(self, fault: TransportFault | None) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.upstream_ended(time.monotonic_ns(), fault)
        elif self.idle_since is not None:
            self.connector.closed_while_idle(self, self.idle_since)
            self.idle_since = None

    def mark_idle(self, now: float) -> None:
        """Detaches the complete exchange: from `now` on (loop time) the connection is idle."""
        self.exchange = None
        self.idle_since = now
        self.pause_reading(False)

    def abort(self) -> None:
        """Drops the connection at once."""
        self.exchange = self.idle_since = None
        self.transport.abort()

    def close(self) -> None:
        """Ends the connection once the written bytes have gone out, or after CLOSE_S. Reads from it are dropped."""
        self.exchange = self.idle_since = None
        if not self.transport.is_closing():
            self.transport.close()
            asyncio.get_running_loop().call_later(CLOSE_S, self.transport.abort)

    def pause_reading(self, paused: bool) -> None:
        """Pauses reading, or resumes it (`paused` False)."""
        if self.transport.is_closing():
            return
        if paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def usable(self) -> bool:
        """Whether it is open, with nothing to be read. Polls the socket for events that the loop has not handled yet."""
        if self.transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), _CLOSING)
        return not self._poll.poll(0)


class UpstreamPool:
    """The idle connections that one client's connection may reuse: one per upstream, and KEPT_MOST at most."""

    __slots__ = ("_idle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: dict[Connector, Upstream] = {}  # the one used last comes last

    def take(self, connector: "Connector") -> Upstream | None:
        """Returns the idle connection to that upstream, if it is still usable; None if there is none."""
        upstream = self._idle.pop(connector, None)
        if upstream is None:
            self._drop_beyond(KEPT_MOST - 1)  # the caller opens a new one
            return None
        if not self._is_old(upstream) and upstream.usable():
            upstream.idle_since = None
            return upstream
        upstream.abort()
        return None

    def put_back(self, upstream: Upstream) -> None:
        """Keeps a connection whose exchange is complete for reuse; drops it if it may not be reused."""
        if upstream.transport.is_closing() or upstream.blocked:
            upstream.abort()
            return
        upstream.mark_idle(self._loop.time())
        if upstream.connector.may_reuse(upstream):
            self._idle[upstream.connector] = upstream
            self._drop_beyond(KEPT_MOST)

    @property
    def is_empty(self) -> bool:
        """Whether it keeps no connection."""
        return not self._idle

    def sweep(self) -> None:
        """Drops connections that have been idle for too long."""
        for connector in [connector for connector, upstream in self._idle.items() if self._is_old(upstream)]:
            self._idle.pop(connector).abort()

    def close(self) -> None:
        """Drops all."""
        self._drop_beyond(0)

    def _drop_beyond(self, most: int) -> None:
        while len(self._idle) > most:
            self._idle.pop(next(iter(self._idle))).abort()

    def _is_old(self, upstream: Upstream) -> bool:
        return upstream.idle_since is None or self._loop.time() - upstream.idle_since >= KEPT_S


class Connector:
    """Connects to one upstream, and decides whether its connections may be used for more than one request.

    UNKNOWN --a watched connection stayed open--> TRUSTED --a close early after a response--> DISTRUSTED --time--> UNKNOWN.
    `watch_s` 0: trusted from the start.
    """

    def __init__(
        self, route: Route, tls: ssl.SSLContext | None, connect_timeout_s: float, watch_s: float = WATCH_S
    ) -> None:
        self._route = route
        self._tls = tls if route.tls else None
        self._timeout_s = connect_timeout_s
        self._watch_s = watch_s
        self._trusted = not watch_s
        self._distrusted_until = 0.0
        self._watched: Upstream | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def may_reuse(self, upstream: Upstream) -> bool:
        """Whether a connection that has just become idle may be kept for its client's next request. If not, the connector
        watches it or drops it, and the caller must not use it.
        """
        if self._trusted:
            return True
        if self._watched is None and self._loop.time() >= self._distrusted_until:
            self._watched = upstream
            self._watch = self._loop.call_later(self._watch_s, self._stayed_open)
        else:
            upstream.abort()
        return False

    def closed_while_idle(self, upstream: Upstream, since: float) -> None:
        """Called when the upstream has closed a connection that was idle since `since` (loop time)."""
        if upstream is self._watched:
            self._end_watch()
        now = self._loop.time()
        if now - since < EARLY_CLOSE_S:
            self._trusted, self._distrusted_until = False, now + DISTRUST_S

    def close(self) -> None:
        """Drops the connection that is watched, if any."""
        self._end_watch()

    def _stayed_open(self) -> None:
        self._trusted = self._watched is not None and not self._watched.transport.is_closing()
        self._end_watch()

    def _end_watch(self) -> None:
        if self._watched is not None:
            self._watched.abort()
        if self._watch is not None:
            self._watch.cancel()
        self._watched = self._watch = None

    async def connect(self) -> Upstream:
        """A new connection. Raises UnreachableError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connect()
        except TimeoutError:
            raise UnreachableError("the connection timed out", TransportFault.CONNECT_TIMEOUT) from None
        except ssl.SSLCertVerificationError:
            why = "its TLS certificate is not trusted or is for another host name"
            raise UnreachableError(why, TransportFault.TLS_CERTIFICATE) from None
        except ssl.SSLError:
            raise UnreachableError("the TLS handshake failed", TransportFault.TLS) from None
        except socket.gaierror:
            raise UnreachableError("its host name was not found", TransportFault.DNS) from None
        except ConnectionRefusedError:
            raise UnreachableError("it refused the connection", TransportFault.REFUSED) from None
        except (UnicodeError, RuntimeError):  # a name that cannot be encoded; uvloop's error for a closed socket
            raise UnreachableError("the connection failed", TransportFault.UNREACHABLE) from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise UnreachableError("the tap has no file descriptor left (raise ulimit -n)", None) from None
            raise UnreachableError("the connection failed", TransportFault.UNREACHABLE) from None
        except Exception as error:  # noqa: BLE001 - a bug: the client gets a response, and does not wait for a timeout
            report_fault("the connection to an upstream", error)
            raise UnreachableError("the connection failed", None) from None

    async def _connect(self) -> Upstream:
        """Tries the host's addresses, with alternating families, each a little after the one before (RFC 8305). Uses the
        first that connects.
        """
        route = self._route
        addresses = await self._loop.getaddrinfo(route.host, route.port, type=socket.SOCK_STREAM)
        if len(addresses) == 1:
            return await self._open(host=str(addresses[0][4][0]), port=route.port)
        return await self._open(sock=await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_S))

    async def _open(self, **where: Any) -> Upstream:
        if self._tls is not None:
            where |= {"ssl": self._tls, "server_hostname": self._route.host, "ssl_shutdown_timeout": TLS_SHUTDOWN_S}
        _, upstream = await self._loop.create_connection(lambda: Upstream(self), **where)
        return upstream
