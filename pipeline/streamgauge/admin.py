"""The admin port: /metrics, /health/live, /health/ready, and nothing else.

It shows no settings and takes no commands. A web page must not read it through a visitor's browser (DNS rebinding), so a
request is served only if its Host is an address of this port, a name of the loopback, or one that the operator named.
Ports in Host are not compared: behind a port mapping they differ, and rebinding cannot use them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Self

from aiohttp import hdrs, web

from streamgauge.errors import Unavailable
from streamgauge.metrics.prometheus import Metrics

# A scrape and a probe are one short request each; a connection that stays idle longer is closed (seconds).
KEEPALIVE_S = 75.0

# Connections that wait to be accepted: scrapers and probes are few.
BACKLOG = 32

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Check = Callable[[], bool]


class AdminAddressError(Unavailable):
    """The admin address cannot be listened on; its text is one sentence for an operator."""


class AdminServer:
    """The admin port of one process. `ready` and `live` are asked at each request, on the loop's thread."""

    def __init__(
        self, metrics: Metrics, ready: Check, *, live: Check = lambda: True, hosts: Collection[str] = ()
    ) -> None:
        self._metrics = metrics
        self._hosts = _LOOPBACK | {host_name(host) for host in hosts}
        self._checks: Mapping[str, Check] = {"/health/live": live, "/health/ready": ready}
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None, keepalive_timeout=KEEPALIVE_S))
        self._address: tuple[str, int] | None = None

    async def start(self, address: str) -> None:
        """Listen on HOST:PORT (port 0: any free one). Raises AdminAddressError."""
        host, port = split_address(address)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=BACKLOG).start()
        except OSError as error:
            await self._runner.cleanup()
            raise AdminAddressError(f"the admin port {address} cannot be opened: {error.strerror or error}") from error
        bound = self._runner.addresses[0]
        self._address = (str(bound[0]), int(bound[1]))

    @property
    def address(self) -> str:
        """HOST:PORT as bound. Raises RuntimeError before `start`."""
        if self._address is None:
            raise RuntimeError("the admin port is not open")
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def stop(self) -> None:
        """Close the port and its connections."""
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if not self._may_ask(request):
            return _text(403, "this Host is not served here\n")
        check = self._checks.get(request.path)
        if request.method not in {hdrs.METH_GET, hdrs.METH_HEAD}:
            return _text(404, "not found\n")
        if check is not None:
            return _text(200, "ok\n") if check() else _text(503, f"not {request.path.removeprefix('/health/')}\n")
        if request.path == "/metrics":
            page = self._metrics.page(",".join(request.headers.getall(hdrs.ACCEPT, [])))
            return web.Response(body=page.body, headers={**_ALWAYS, hdrs.CONTENT_TYPE: page.content_type})
        return _text(404, "not found\n")

    def _may_ask(self, request: web.BaseRequest) -> bool:
        given = request.headers.getall(hdrs.HOST, [])
        if len(given) != 1:
            return False
        name = host_name(given[0])
        return name in self._hosts or name == _own_address(request)


def _own_address(request: web.BaseRequest) -> str | None:
    """The address of ours that the client connected to."""
    if request.transport is None:
        return None
    name = request.transport.get_extra_info("sockname")
    # A socket that serves both families says ::ffff:A.B.C.D for IPv4.
    return str(name[0]).removeprefix("::ffff:") if name else None


def host_name(host: str) -> str:
    """A Host's name or address, without its port: lower case, no brackets, no dot at its end."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".") if host.count(":") <= 1 else host.lower()


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as a pair; an IPv6 host stands in brackets. Raises AdminAddressError."""
    host, _, port = address.rpartition(":")
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not plain or not port.isascii() or not port.isdigit() or int(port) > 65_535 or (plain == host and ":" in host):
        raise AdminAddressError(f"an admin address is HOST:PORT; {address!r} is not")
    return plain, int(port)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=_ALWAYS)
