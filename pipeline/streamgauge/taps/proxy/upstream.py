"""Connections to upstreams. Each belongs to one client connection, and carries no other client's requests.

So a client meets the same closed connections that it would meet without a relay, and nothing that one client leaves on a
connection (bytes that an upstream sends late, a body that it did not read) can reach another client.
"""

import asyncio
import errno
import select
import socket
import ssl
import time
from typing import Any, Protocol, cast

from aiohappyeyeballs import start_connection

from streamgauge.core.capture.segments import TransportFault
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.proxy.limits import KEPT_MOST
from streamgauge.taps.proxy.request import Route
from streamgauge.taps.proxy.wire import Wire

# A connection is used again within this time (seconds): common servers close idle ones after 5, and one that closes while
# a request is on its way to it costs that request.
KEPT_S = 4.0
# A server that closes an idle connection within this time (seconds) after an answer closes after each answer: a request that
# follows at once would meet the close. Its connections are not used again for a while (seconds).
EARLY_CLOSE_S = 1.0
DISTRUST_S = 60.0
# Before connections to an upstream are used again, one is watched for this long (seconds) to see whether it stays open.
WATCH_S = 0.25
# What may wait for a socket that takes nothing (bytes), besides the read at hand: enough to fill the pipe again.
WRITE_BUFFER_BYTES = 64 * 1024

# An address that does not answer keeps the next one waiting for so long (seconds; RFC 8305, 5: the recommended delay).
NEXT_ADDRESS_S = 0.25
# How long a TLS connection that we close waits for the other side's close_notify (seconds): nothing of it is needed.
TLS_SHUTDOWN_S = 1.0

_CLOSING = select.POLLIN | select.POLLHUP | select.POLLERR


class UnreachableError(OSError):
    """No connection could be made. The text is a phrase of ours; `fault` None: for want of something that the tap needs."""

    def __init__(self, why: str, fault: TransportFault | None) -> None:
        super().__init__(why)
        self.fault = fault


class Answered(Protocol):
    """Takes what an upstream sends. Stamps are monotonic ns, taken before anything else.

    `fault` of an end: None for one in order, in whose place the HTTP framing says whether the answer is whole.
    """

    def arrived(self, at_ns: int, data: bytes) -> None: ...

    def upstream_ended(self, at_ns: int, fault: TransportFault | None) -> None: ...

    def upstream_blocked(self, blocked: bool) -> None: ...


class Upstream(asyncio.Protocol):
    """One connection. `exchange`: whose answer is awaited; None while it is idle, since `idle_since` (loop time)."""

    __slots__ = ("_poll", "blocked", "connector", "exchange", "idle_since", "transport", "wire")

    def __init__(self, connector: "Connector") -> None:
        self.connector = connector
        self.exchange: Answered | None = None
        self.blocked = False
        self.idle_since: float | None = None
        self.transport: asyncio.Transport
        self.wire: Wire
        self._poll: select.poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.wire = Wire(self.transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)

    def data_received(self, data: bytes) -> None:
        at_ns = time.monotonic_ns()
        if self.exchange is None:  # nobody asked: whatever it is, it belongs to no client
            self.abort()
        else:
            self.exchange.arrived(at_ns, data)

    def eof_received(self) -> None:
        self._over(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """An end that was not told by `eof_received` is a reset, or a TLS connection without a close_notify: what came
        may have been cut off by anybody (RFC 8446, 6.1; RFC 9112, 9.8).
        """
        self._over(TransportFault.RESET if isinstance(exc, ConnectionError) else TransportFault.CLOSED)

    def pause_writing(self) -> None:
        self._block(True)

    def resume_writing(self) -> None:
        self._block(False)

    def _block(self, blocked: bool) -> None:
        self.blocked = blocked
        if self.exchange is not None:
            self.exchange.upstream_blocked(blocked)

    def _over(self, fault: TransportFault | None) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.upstream_ended(time.monotonic_ns(), fault)
        elif self.idle_since is not None:
            self.connector.closed_idle(self, self.idle_since)
            self.idle_since = None

    def rest(self, now: float) -> None:
        """Its exchange is whole: from `now` on it is idle."""
        self.exchange = None
        self.idle_since = now
        self.hold(False)

    def abort(self) -> None:
        """Drops the connection at once."""
        self.exchange = self.idle_since = None
        self.transport.abort()

    def hold(self, held: bool) -> None:
        """Reads no more for now, or again."""
        if self.transport.is_closing():
            return
        if held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def usable(self) -> bool:
        """Still open, with nothing to be read: what the loop has not seen yet is asked of the kernel."""
        if self.transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), _CLOSING)
        return not self._poll.poll(0)


class OwnConnections:
    """The idle connections that one client's connection may use again: of each upstream one, and KEPT_MOST at most."""

    __slots__ = ("_idle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: dict[Connector, Upstream] = {}  # the one used last comes last

    def take(self, connector: "Connector") -> Upstream | None:
        """The connection to that upstream, if it is still good; None if there is none."""
        one = self._idle.pop(connector, None)
        if one is None:
            self._drop_beyond(KEPT_MOST - 1)  # there will be a new one
            return None
        if not self._is_old(one) and one.usable():
            one.idle_since = None
            return one
        one.abort()
        return None

    def give(self, one: Upstream) -> None:
        """Takes back a connection whose exchange is whole."""
        if one.transport.is_closing() or one.blocked:
            one.abort()
            return
        one.rest(self._loop.time())
        if one.connector.may_be_used_again(one):
            self._idle[one.connector] = one
            self._drop_beyond(KEPT_MOST)

    def sweep(self) -> None:
        """Drops connections that have been idle for too long."""
        for connector in [connector for connector, one in self._idle.items() if self._is_old(one)]:
            self._idle.pop(connector).abort()

    def close(self) -> None:
        """Drops all."""
        self._drop_beyond(0)

    def _drop_beyond(self, most: int) -> None:
        while len(self._idle) > most:
            self._idle.pop(next(iter(self._idle))).abort()

    def _is_old(self, one: Upstream) -> bool:
        return one.idle_since is None or self._loop.time() - one.idle_since >= KEPT_S


class Connector:
    """Connects to one upstream, and judges whether its connections may be used for more than one request.

    UNKNOWN --a watched connection stayed open--> TRUSTED --a close early after an answer--> DISTRUSTED --time--> UNKNOWN.
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

    def may_be_used_again(self, one: Upstream) -> bool:
        """Whether a connection that has just become idle may be kept for its client's next request. If not, this object has
        taken it over.
        """
        if self._trusted:
            return True
        if self._watched is None and self._loop.time() >= self._distrusted_until:
            self._watched = one
            self._watch = self._loop.call_later(self._watch_s, self._stayed_open)
        else:
            one.abort()
        return False

    def closed_idle(self, one: Upstream, since: float) -> None:
        """The upstream has closed a connection that was idle since then."""
        if one is self._watched:
            self._end_watch()
        now = self._loop.time()
        if now - since < EARLY_CLOSE_S:
            self._trusted, self._distrusted_until = False, now + DISTRUST_S

    def close(self) -> None:
        """Drops a connection that is watched."""
        self._end_watch()

    def _stayed_open(self) -> None:
        self._end_watch()
        self._trusted = True

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
        except (UnicodeError, RuntimeError):  # a name that no resolver takes; uvloop, of a socket that went away
            raise UnreachableError("the connection failed", TransportFault.UNREACHABLE) from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise UnreachableError("the tap has no file descriptor left (raise ulimit -n)", None) from None
            raise UnreachableError("the connection failed", TransportFault.UNREACHABLE) from None
        except Exception as error:  # noqa: BLE001 - a bug: the client gets an answer, and does not wait for a timeout
            report_fault("the connection to an upstream", error)
            raise UnreachableError("the connection failed", None) from None

    async def _connect(self) -> Upstream:
        """Its addresses, by turns of their families, each a little later than the one before; the first that answers."""
        route = self._route
        found = await self._loop.getaddrinfo(route.host, route.port, type=socket.SOCK_STREAM)
        if len(found) == 1:
            return await self._open(host=str(found[0][4][0]), port=route.port)
        return await self._open(sock=await start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_S))

    async def _open(self, **where: Any) -> Upstream:
        if self._tls is not None:
            where |= {"ssl": self._tls, "server_hostname": self._route.host, "ssl_shutdown_timeout": TLS_SHUTDOWN_S}
        _, one = await self._loop.create_connection(lambda: Upstream(self), **where)
        return one
