"""The admin port: /metrics, /health/live, /health/ready, and what the process adds: its page of streams.

It shows no settings and takes no commands. A web page must not read it through a visitor's browser (DNS rebinding). So a
request is served only if its Host is an address of this port, a loopback name, or a name from the operator. Ports in Host
are not compared: a port mapping changes them, and rebinding cannot use them.

Every process that reaches the port can use it, unless it has a token (`admin_access.py`): then a request without it gets a
401, but for /health. Guesses are slowed down. Connections are limited, and what a client sends is never
logged, but for paths in the admin log, if it is kept (`admin_log.py`).
"""

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import hdrs, web

from streamgauge.errors import Unavailable
from streamgauge.metrics.admin_access import CHALLENGE, OPEN, Access, TokenGuesses
from streamgauge.metrics.admin_log import LIMITED, MALFORMED, OTHER_HOST, WITHOUT_TOKEN, Refusals
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.certificates import CHECK_S, ServerCertificate
from streamgauge.runtime.faults import report_fault, reported_task
from streamgauge.runtime.listeners import Address, reachable_host, sockets_of

# A connection without a complete request for this long is closed (seconds); a scrape or a probe is one short request.
KEEPALIVE_S = 75.0

# How long a client may take to receive one answer (seconds): Prometheus gives up after 10 by default.
ANSWER_S = 30.0

# Limit of connections that wait to be accepted: scrapers and probes are few.
BACKLOG = 32

# Limit of open connections: scrapers, probes and an operator's tools keep one each. A connection beyond it closes the
# one whose last request is oldest, so that a scrape is answered however many others stay open.
MAX_CONNECTIONS = 64

# How long a TLS handshake, and the end of a TLS connection, may take (seconds): several round trips on a slow network. The
# connection is open meanwhile, and not among the MAX_CONNECTIONS.
HANDSHAKE_S = 10.0

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# What may follow a name in a Host header: a port, or nothing.
_PORT = re.compile("(:[0-9]{1,5})?")
# Of every answer: it may load nothing, and no other page may embed it, read it, or learn its address. A page of its own
# replaces the policy.
_ALWAYS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "streamgauge",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_log = logging.getLogger(__name__)
# aiohttp logs each request that it cannot parse, with a traceback that quotes it. The client gets a 400, which is
# enough.
_PARSER_LOG = logging.getLogger(f"{__name__}.parser")
_PARSER_LOG.setLevel(logging.CRITICAL)

# True: ready or alive. False, or a sentence with the reason: not.
Check = Callable[[], bool | str]

_HOST_REFUSED = (
    "the admin port does not accept this Host header: to allow the name, start with --admin-host NAME"
    " (STREAMGAUGE_ADMIN_HOST)\n"
)
_UNAUTHORIZED = (
    "the admin port requires its token: send it as `Authorization: Bearer TOKEN`, or as the password of any user\n"
)
_LIMITED = "too many requests with a wrong token: try again in a second\n"
# Paths whose reads are not in the admin log: of probes and scrapers, and parts of the page.
_NOT_LOGGED = ("/metrics", "/static/")


@dataclass(frozen=True)
class Answer:
    """An answer of a page. `headers`: those besides its type, and besides those that each answer has."""

    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str]


# Answers a request that cannot be read, with a status.
Malformed = Callable[[web.BaseRequest, int], web.Response]

# Answers a GET of a path, with its query; None if there is no such page.
Pages = Callable[[str, Mapping[str, str]], Awaitable[Answer | None]]


async def no_pages(_path: str, _query: Mapping[str, str]) -> Answer | None:
    """No pages."""
    return None


class AdminAddressError(Unavailable):
    """The admin address cannot be used. The text is one sentence for an operator."""


class AdminServer:
    """The admin port of one process. Each health request calls `ready` or `live`, on the event loop's thread."""

    def __init__(
        self,
        metrics: Metrics,
        ready: Check,
        *,
        live: Check = lambda: True,
        hosts: Collection[str] = (),
        pages: Pages = no_pages,
        access: Access = OPEN,
        notes: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`notes`: lines that follow the answers of health, for what an operator must correct."""
        self._metrics = metrics
        self._pages = pages
        self._hosts = _LOOPBACK | {name for host in hosts if (name := host_name(host))}
        self._notes = notes
        self._checks: Mapping[str, Check] = {"/health/live": live, "/health/ready": ready}
        self._refusals = Refusals(metrics, access.log)
        self._guesses = TokenGuesses()
        self._server = _BoundedServer(self._answer, self._malformed)
        self._runner = web.ServerRunner(self._server)
        self._access = access
        self._listening: list[asyncio.Server] = []
        self._address: Address | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def start(self, address: str) -> None:
        """Listens on HOST:PORT (port 0: any free one). Raises AdminAddressError."""
        host, port = split_address(address)
        try:
            sockets = await asyncio.to_thread(sockets_of, Address(host, port), "--admin")
        except Unavailable as error:
            raise AdminAddressError(str(error)) from None
        await self.serve(sockets)

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serves connections to listening sockets, which `stop` closes."""
        await self._runner.setup()
        self._listening = [await self._listen(listening) for listening in sockets]
        host, port = sockets[0].getsockname()[:2]
        self._address = Address(str(host), int(port))
        if self._access.certificate is not None:
            renewal = _renew(self._access.certificate)
            self._renewal = reported_task("the renewal of the admin port's certificate", renewal)

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        """Serves as aiohttp's SockSite, which has no limit of its own for handshakes."""
        loop, certificate = asyncio.get_running_loop(), self._access.certificate
        if certificate is None:
            return await loop.create_server(self._server, sock=listening, backlog=BACKLOG)
        return await loop.create_server(
            self._server,
            sock=listening,
            backlog=BACKLOG,
            ssl=certificate.context,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=HANDSHAKE_S,
        )

    @property
    def address(self) -> str:
        """HOST:PORT as bound. Raises RuntimeError before `start`."""
        return str(self._bound)

    @property
    def url(self) -> str:
        """The port's URL for a client on this host, without a path. Raises RuntimeError before `start`."""
        return f"{self._access.scheme}://{Address(reachable_host(self._bound.host), self._bound.port)}"

    @property
    def _bound(self) -> Address:
        if self._address is None:
            raise RuntimeError("the admin port is not open")
        return self._address

    async def stop(self) -> None:
        """Closes the port and its connections."""
        if self._renewal is not None:
            self._renewal.cancel()
        for server in self._listening:
            server.close()
        await self._runner.cleanup()
        self._server.abort_connections()
        if self._access.log is not None:
            self._access.log.close()  # writes what is counted only

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Answers a request and bounds the time of sending: aiohttp would wait without limit for a client that does not
        read.
        """
        self._server.note_request(request.protocol)
        try:
            response = await self._response(request)
        except Exception as error:  # noqa: BLE001 - an internal error in a check or a page must not end the admin port
            report_fault("the admin port", error)
            response = _text(500, "internal error\n")
        if self._access.log is not None:
            self._access.log.write_due()
        try:
            async with asyncio.timeout(ANSWER_S):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _response(self, request: web.BaseRequest) -> web.Response:
        if not self._is_allowed_host(request):
            named = host_name(request.headers.get(hdrs.HOST, "[")) is not None
            self._refusals.add(OTHER_HOST, _client_of(request), request.path, quiet=not named)
            return _text(403, _HOST_REFUSED)
        check = self._checks.get(request.path)
        reads = request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
        if not (check is not None and reads) and (refused := await self._without_token(request)) is not None:
            return refused
        if not reads:
            return _text(404, "not found\n")
        if check is not None:
            return _answer_of(check(), request.path.removeprefix("/health/"), self._notes())
        if request.path == "/metrics":
            page = self._metrics.page(",".join(request.headers.getall(hdrs.ACCEPT, [])))
            return web.Response(body=page.body, headers={**_ALWAYS, hdrs.CONTENT_TYPE: page.content_type})
        answer = await self._pages(request.path, request.query)
        if self._access.log is not None and not request.path.startswith(_NOT_LOGGED):
            status = 404 if answer is None else answer.status
            self._access.log.read(_client_of(request), request.path, status, token=self._access.token is not None)
        if answer is not None:
            headers = {**_ALWAYS, **answer.headers, hdrs.CONTENT_TYPE: answer.content_type}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        return _text(404, "not found\n")

    async def _without_token(self, request: web.BaseRequest) -> web.Response | None:
        """The answer to a request that has not the port's token; None for any other."""
        token, client = self._access.token, _client_of(request)
        if token is None:
            return None
        credentials = request.headers.getall(hdrs.AUTHORIZATION, [])
        if credentials and not self._guesses.may_try(client):
            self._refusals.add(LIMITED, client, request.path)
            response = _text(429, _LIMITED)
            response.headers[hdrs.RETRY_AFTER] = "1"
            return response
        if len(credentials) == 1 and token.accepts(credentials[0]):
            self._guesses.was_right(client)
            return None
        self._refusals.add(WITHOUT_TOKEN, client, request.path)
        if credentials:
            await self._guesses.delay(client)
        response = _text(401, _UNAUTHORIZED)
        response.headers[hdrs.WWW_AUTHENTICATE] = CHALLENGE
        return response

    def _malformed(self, request: web.BaseRequest, status: int) -> web.Response:
        """The answer to a request that aiohttp cannot read."""
        self._refusals.add(MALFORMED, _client_of(request), "", quiet=True)
        return _text(status, "the request is malformed\n" if status < 500 else "internal error\n")

    def _is_allowed_host(self, request: web.BaseRequest) -> bool:
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) != 1:
            return False
        name = host_name(hosts[0])
        return name is not None and (name in self._hosts or name == _own_address(request))


class _Handler(web.RequestHandler):
    """aiohttp's connection, whose own errors have the headers of every answer, and not aiohttp's version."""

    def __init__(self, manager: "_BoundedServer", malformed: "Malformed", **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._malformed = malformed

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun")
        response = self._malformed(request, status)
        response.force_close()
        return response


class _BoundedServer(web.Server):
    """aiohttp's server, with at most MAX_CONNECTIONS connections. `malformed`: answers what aiohttp cannot read."""

    def __init__(
        self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], malformed: "Malformed"
    ) -> None:
        super().__init__(answer, access_log=None, logger=_PARSER_LOG, keepalive_timeout=KEEPALIVE_S)
        self._open: dict[web.RequestHandler, asyncio.Transport] = {}  # by their last request, the oldest first
        self._answer_malformed = malformed

    def __call__(self) -> web.RequestHandler:
        return _Handler(self, self._answer_malformed, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        # A response counts as sent when the kernel has all of it. Not 0: asyncio's TLS would then wait for an empty buffer to
        # become smaller.
        transport.set_write_buffer_limits(1)
        if len(self._open) >= MAX_CONNECTIONS:
            self._open.pop(next(iter(self._open))).abort()
        self._open[handler] = transport

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)

    def abort_connections(self) -> None:
        """Ends the connections that a shutdown has left: those with TLS whose client has not confirmed the end."""
        for transport in self._open.values():
            transport.abort()

    def note_request(self, handler: web.RequestHandler) -> None:
        """Makes the connection the last in the order of latest requests."""
        if (transport := self._open.pop(handler, None)) is not None:
            self._open[handler] = transport


async def _renew(certificate: ServerCertificate) -> None:
    """Loads a changed certificate into its context, for the next handshakes."""
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            certificate.renew()
        except ValueError as fault:
            _log.warning("%s; the admin port continues with the previous one", fault)


def _answer_of(state: bool | str, condition: str, notes: Iterable[str]) -> web.Response:
    lines = "".join(f"{note}\n" for note in notes)
    if state is True:
        return _text(200, f"ok\n{lines}")
    return _text(503, (f"not {condition}: {state}\n" if state else f"not {condition}\n") + lines)


def _client_of(request: web.BaseRequest) -> str:
    """The address of the client, for limits and logs; empty if the connection is gone."""
    name = None if request.transport is None else request.transport.get_extra_info("peername")
    return str(name[0]).removeprefix("::ffff:") if name else ""


def _own_address(request: web.BaseRequest) -> str | None:
    """The local address that the client connected to."""
    if request.transport is None:
        return None
    name = request.transport.get_extra_info("sockname")
    # A dual-stack socket reports ::ffff:A.B.C.D for IPv4.
    return str(name[0]).removeprefix("::ffff:") if name else None


def host_name(host: str) -> str | None:
    """The name or address in a Host header: lower case, without port, brackets and final dot. None if it is malformed.

    Brackets hold an IPv6 address. An IPv6 address without brackets is accepted, too, and then has no port.
    """
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or ":" not in name:
            return None
    elif host.count(":") > 1:
        name, port = host, ""
    else:
        name, colon, number = host.partition(":")
        port = colon + number
    return name.lower().removesuffix(".") if _PORT.fullmatch(port) else None


# The length comes first: Python refuses to convert a very long number.
_PORT_NUMBER = re.compile("[0-9]{1,20}", re.ASCII)
_MAX_PORT = 65_535


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as a pair; an IPv6 host stands in brackets. Raises AdminAddressError."""
    host, _, port = address.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not plain or not _PORT_NUMBER.fullmatch(port) or (plain == host and ":" in host):
        raise AdminAddressError(f"{address!r} is not an admin address: write HOST:PORT")
    if int(port) > _MAX_PORT:
        raise AdminAddressError(f"{address!r} is not an admin address: its port is above {_MAX_PORT}")
    return plain, int(port)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=_ALWAYS)
