"""A connection to an upstream, and the pool of those that may be used again."""

import asyncio
import errno
import select
import socket
import ssl
import time
from typing import Any, Protocol, cast

from aiohappyeyeballs import start_connection

from streamgauge.taps.proxy.request import Route
from streamgauge.taps.proxy.wire import Wire

# A connection is used again within this time (seconds): common servers close idle ones after 5, and one that closes while
# a request is on its way to it costs that request.
POOL_IDLE_S = 4.0
# Idle connections to one upstream: a burst of more concurrent streams connects anew.
POOL_SIZE = 256
# What may wait for a socket that takes nothing (bytes), besides the read at hand: enough to fill the pipe again.
WRITE_BUFFER_BYTES = 64 * 1024

# An address that does not answer keeps the next one waiting for so long (seconds; RFC 8305, 5: the recommended delay).
NEXT_ADDRESS_S = 0.25
# How long a TLS connection that we close waits for the other side's close_notify (seconds): nothing of it is needed.
TLS_SHUTDOWN_S = 1.0

_CLOSING = select.POLLIN | select.POLLHUP | select.POLLERR


class UnreachableError(OSError):
    """No connection could be made. `timed_out`: in time; the text is a phrase of ours."""

    def __init__(self, why: str, timed_out: bool = False) -> None:
        super().__init__(why)
        self.timed_out = timed_out


class Answered(Protocol):
    """Who waits for what an upstream sends. Stamps are monotonic ns, taken before anything else."""

    def arrived(self, at_ns: int, data: bytes) -> None: ...

    def upstream_ended(self, at_ns: int, reset: bool) -> None: ...

    def upstream_blocked(self, blocked: bool) -> None: ...


class Upstream(asyncio.Protocol):
    """One connection. `exchange`: whose answer is awaited; None while it rests in its pool."""

    __slots__ = ("_poll", "_pool", "blocked", "exchange", "idle_since", "transport", "wire")

    def __init__(self, pool: "Pool") -> None:
        self.exchange: Answered | None = None
        self.blocked = False
        self.idle_since = 0.0
        self.transport: asyncio.Transport
        self.wire: Wire
        self._pool = pool
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
        self._over(reset=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """An end that was not told by `eof_received` is a reset, or a TLS connection without a close_notify: what came
        may have been cut off by anybody (RFC 8446, 6.1; RFC 9112, 9.8).
        """
        self._over(reset=True)

    def pause_writing(self) -> None:
        self._block(True)

    def resume_writing(self) -> None:
        self._block(False)

    def _block(self, blocked: bool) -> None:
        self.blocked = blocked
        if self.exchange is not None:
            self.exchange.upstream_blocked(blocked)

    def _over(self, reset: bool) -> None:
        self._pool.forget(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.upstream_ended(time.monotonic_ns(), reset)

    def abort(self) -> None:
        """Drops the connection at once."""
        self.exchange = None
        self._pool.forget(self)
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


class Pool:
    """Connections to one upstream: the one used last is taken first."""

    def __init__(
        self, route: Route, tls: ssl.SSLContext | None, connect_timeout_s: float, most_idle: int = POOL_SIZE
    ) -> None:
        self._route = route
        self._tls = tls if route.tls else None
        self._timeout_s = connect_timeout_s
        self._most_idle = most_idle
        self._idle: list[Upstream] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def take(self) -> Upstream | None:
        """An idle connection that is still good; None if there is none."""
        while self._idle:
            one = self._idle.pop()
            if self._loop.time() - one.idle_since < POOL_IDLE_S and one.usable():
                return one
            one.abort()
        return None

    def give(self, one: Upstream) -> None:
        """Takes back a connection whose exchange is whole."""
        one.exchange = None
        if one.transport.is_closing() or len(self._idle) >= self._most_idle or one.blocked:
            one.abort()
            return
        one.hold(False)
        one.idle_since = self._loop.time()
        self._idle.append(one)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(POOL_IDLE_S, self._sweep)

    def forget(self, one: Upstream) -> None:
        """The connection is gone."""
        if one in self._idle:
            self._idle.remove(one)

    def close(self) -> None:
        """Drops what is idle."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for one in list(self._idle):
            one.abort()

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._loop.time()
        for one in [one for one in self._idle if now - one.idle_since >= POOL_IDLE_S]:
            one.abort()
        if self._idle:
            oldest = self._idle[0].idle_since
            self._sweeper = self._loop.call_later(oldest + POOL_IDLE_S - now, self._sweep)

    async def connect(self) -> Upstream:
        """A new connection. Raises UnreachableError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connect()
        except TimeoutError:
            raise UnreachableError("no connection in time", timed_out=True) from None
        except ssl.SSLCertVerificationError:
            raise UnreachableError("its TLS certificate is not trusted, or not for its name") from None
        except ssl.SSLError:
            raise UnreachableError("the TLS handshake failed") from None
        except socket.gaierror:
            raise UnreachableError("its name was not found") from None
        except ConnectionRefusedError:
            raise UnreachableError("it refused the connection") from None
        except (UnicodeError, RuntimeError):  # a name that no resolver takes; uvloop, of a socket that went away
            raise UnreachableError("the connection failed") from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise UnreachableError("the tap has no file descriptor left (raise ulimit -n)") from None
            raise UnreachableError("the connection failed") from None

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
