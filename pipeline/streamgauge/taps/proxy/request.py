"""A client's request: which upstream it goes to, and the head that is written there.

Names, values and order of fields stay as the client wrote them, except what concerns one connection only (RFC 9110, 7.6.1):
the relay replaces Host with the upstream's, removes hop-by-hop fields, and writes the framing. It refuses requests that could
be read in two ways.
"""

import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from streamgauge.settings.types import version_at_end
from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.climbing import climbs

# Never passed on. Proxy-Authorization is a credential for the first proxy. Trailer announces trailers, which the relay
# does not send. HTTP2-Settings belongs to an upgrade that the relay does not make; it writes that to a WebSocket itself.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization te trailer upgrade http2-settings".split()
)
# The field of a client's token for this proxy (client_access.py). Never passed on either.
TOKEN_HEADER = b"x-streamgauge-token"
# The field of a client's offer of extensions to a WebSocket. It is not passed on: with one (permessage-deflate) the capture
# would have to decompress each message, and a client works without.
_EXTENSIONS = b"sec-websocket-extensions"
# Written by the relay: a Connection field that names them does not remove them.
_OURS = frozenset((b"host", b"content-length", b"transfer-encoding"))
# Gateways after the relay that turn names into variables (CGI, WSGI) take these for the fields that mark a body's end.
_LOOK_ALIKE = frozenset((b"content_length", b"transfer_encoding"))
# Digits of a plausible length: 18 are an exabyte, and fit into 64 bits.
_LENGTH = re.compile(rb"[0-9]{1,18}")
_BLANKS = b" \t"

# Refused methods: CONNECT, and the methods of RTSP, Icecast and HTTP/2 that llhttp knows.
_NOT_OURS = frozenset(
    b"CONNECT PRI SOURCE DESCRIBE ANNOUNCE SETUP PLAY PAUSE TEARDOWN GET_PARAMETER SET_PARAMETER REDIRECT RECORD "
    b"FLUSH".split()
)
# A path and a query (RFC 9112, 3.2.1). A fragment belongs to neither, and some servers read a backslash as a slash.
_TARGET = re.compile(rb"/[^\0-\x20\x7f-\xff#?\\]*(?:\?[^\0-\x20\x7f-\xff#]*)?")
# A Host that no web page can own: an address, localhost, a name without a dot. May have a port.
_LOCAL_HOST = re.compile(
    rb"(?:\[[0-9a-f:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}|(?:[a-z0-9_-]+\.)?localhost|[a-z0-9_-]+)(?::[0-9]*)?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}

Framing = Literal["none", "length", "chunked"]


class RefusedError(ValueError):
    """A request or exchange for which the relay sends its own response. `target`: the request's; empty if it is not known."""

    def __init__(self, code: Refusal, message: str, target: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.target = target

    @property
    def status(self) -> int:
        """The status of the response."""
        return self.code.status


class Route(msgspec.Struct, frozen=True):
    """An upstream, from its URL. `authority`: the value of its Host; `base`: the URL's path without a trailing slash;
    `version`: the end of `base` that is a version of an API (`version_at_end`), empty if it is none.
    """

    name: str | None
    host: str
    port: int
    tls: bool
    authority: bytes
    base: bytes
    version: bytes

    @property
    def label(self) -> str:
        """Its name in messages to clients: quoted, or "server" for an upstream without a name, whose address stays hidden."""
        return repr(self.name) if self.name else "server"

    def without_version(self, target: bytes) -> bytes:
        """A target without the version that already ends the URL: clients have it in their base URL, too."""
        version = self.version
        while version and (target + b"/").startswith((version + b"/", version + b"?")):
            target = target[len(version) :]
        return target

    @property
    def recorded_name(self) -> str:
        """Its name in records and metrics. An upstream without a name has its URL's host, with the port unless that is the
        scheme's default. The httpx tap uses the same name for the same URL.
        """
        return self.name or self.authority.decode()


class Request(msgspec.Struct):
    """A request's head as the client wrote it; `names` are those of the headers in lower case.

    `minor`: the minor version of HTTP/1. `began_ns`: when the read with its first byte came (monotonic ns). `client_name`:
    the name of the client, if the proxy authenticates clients (client_access.py). `is_handshake`: of a WebSocket.
    """

    method: bytes
    target: bytes
    minor: int
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    began_ns: int
    names: list[bytes] = []
    client_name: str | None = None
    is_handshake: bool = False

    def __post_init__(self) -> None:
        if not self.names:
            self.names = [name.lower() for name, _ in self.headers]

    def values(self, name: bytes) -> list[bytes]:
        """The values of each field of this lower-case name, in order."""
        if name not in self.names:
            return []
        return [value for lower, (_, value) in zip(self.names, self.headers, strict=True) if lower == name]


class Outgoing(msgspec.Struct, frozen=True):
    """A request for the upstream: its route, the target without prefix, the head's bytes and the body's framing."""

    route: Route
    target: bytes
    head: bytes
    framing: Framing


def route_of(name: str, url: str) -> Route:
    """The route of a configured upstream. Raises ValueError for a URL that is not http or https, has no host, or has a user,
    query or fragment.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError(f"the URL of the upstream {name or url!r} may contain only a scheme, host, port and path")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port == _DEFAULT_PORTS[parts.scheme] else f"{shown}:{port}"
    base = parts.path.rstrip("/")
    version = version_at_end(base).encode()
    return Route(name or None, host, port, parts.scheme == "https", authority.encode(), base.encode(), version)


class Routes:
    """The configured upstreams. `single`: requests carry no prefix, and all go to the only one. `stripped`: lower-case names
    of further fields that are not passed on. Raises ValueError.
    """

    def __init__(
        self, upstreams: list[tuple[str, str]], single: bool, stripped: frozenset[bytes] = frozenset()
    ) -> None:
        self.all = [route_of(name, url) for name, url in upstreams]
        if not self.all or (single and len(self.all) > 1):
            raise ValueError("give one upstream without a prefix, or one or more with prefixes")
        self._only = self.all[0] if single else None
        self._dropped = HOP_BY_HOP | {TOKEN_HEADER} | stripped
        self._by_name = {(route.name or "").encode(): route for route in self.all}

    def outgoing(self, request: Request) -> Outgoing:
        """Returns `request` as it is sent to its upstream. Raises RefusedError."""
        check(request)
        framing = framing_of(request)
        route, target = self._find(request)
        return Outgoing(route, target, write_head(request, route, target, framing, self._dropped), framing)

    def upstream_of(self, target: bytes) -> str | None:
        """The name in records of the upstream that a request's target names; None if it names none."""
        named = self._named_in(target)
        return None if named is None else named[0].recorded_name

    def _find(self, request: Request) -> tuple[Route, bytes]:
        named = self._named_in(request.target)
        if named is None:
            raise RefusedError(Refusal.UNKNOWN_UPSTREAM, self._hint(request))
        return named

    def _named_in(self, target: bytes) -> tuple[Route, bytes] | None:
        """The upstream that a target names, and the target below its URL; None if it names none."""
        if self._only is not None:
            return self._only, self._only.without_version(target)
        end = next((at for at, byte in enumerate(target) if at and byte in b"/?"), len(target))
        route = self._by_name.get(target[1:end])
        return None if route is None else (route, route.without_version(target[end:]))

    def _hint(self, request: Request) -> str:
        """What a client with a wrong name is told. The names of the upstreams are not for web pages that a user visits."""
        if may_be_of_a_web_page(request):
            return "No upstream has this name. Start the path of the base URL with a name that the proxy's --upstream gives."
        known = ", ".join(f"/{name.decode()}/" for name in sorted(self._by_name))
        return f"No upstream has this name. Start the path of the base URL with one of {known}."


def may_be_of_a_web_page(request: Request) -> bool:
    """Whether a script of a web page of any site may have sent the request, and may read the response.

    Browsers name the page's site in Origin, and in Sec-Fetch-Site. A page that rebinds its own name to the proxy's address
    (DNS rebinding) sends neither across sites, but its name as Host. So a Host that others can own counts, too: one that is
    no address, not localhost, and no name without a dot, which only the local network can resolve.
    """
    sites = [site.strip(_BLANKS).lower() for site in request.values(b"sec-fetch-site")]
    if b"origin" in request.names or any(site != b"none" for site in sites):
        return True
    host = b"".join(request.values(b"host")[:1]).strip(_BLANKS).lower()
    return not _LOCAL_HOST.fullmatch(host)


def check(request: Request) -> None:
    """Raises RefusedError for a request that is not for an origin server, or that could be read in two ways."""
    if request.method in _NOT_OURS:
        raise RefusedError(Refusal.METHOD_REFUSED, "The relay does not forward this method.")
    check_target(request.target)
    if not _LOOK_ALIKE.isdisjoint(request.names):
        raise RefusedError(Refusal.AMBIGUOUS_FRAMING, "Write header names with '-': Content-Length, Transfer-Encoding.")
    hosts = request.names.count(b"host")
    if hosts > 1 or (not hosts and request.minor):
        raise RefusedError(Refusal.MALFORMED_REQUEST, "A request requires exactly one Host header.")


def check_target(target: bytes) -> None:
    """Raises RefusedError for a target that is no path and query (RFC 9112, 3.2.1), or that has a '..' segment."""
    if target[:1] != b"/":
        raise RefusedError(
            Refusal.TARGET_REFUSED,
            "This is a reverse proxy: send only the path, and do not configure it as an HTTP proxy.",
        )
    if not _TARGET.fullmatch(target):
        raise RefusedError(
            Refusal.TARGET_REFUSED, "A path may not contain a fragment (#), a backslash or non-ASCII characters."
        )
    if climbs(target.partition(b"?")[0]):
        raise RefusedError(Refusal.TARGET_REFUSED, "A path may not contain '..' segments: send the resolved path.")


def framing_of(request: Request) -> Framing:
    """How the body's end is marked. Raises RefusedError if that could be read in two ways."""
    lengths, transfers = request.values(b"content-length"), request.values(b"transfer-encoding")
    if transfers:
        if lengths or len(transfers) > 1 or not request.minor or transfers[0].strip(_BLANKS).lower() != b"chunked":
            raise RefusedError(
                Refusal.AMBIGUOUS_FRAMING, "Send either Content-Length or Transfer-Encoding: chunked, and only once."
            )
        return "chunked"
    if not lengths:
        return "none"
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0].strip(_BLANKS)):
        raise RefusedError(Refusal.AMBIGUOUS_FRAMING, "Send one Content-Length, with at most 18 digits.")
    return "length"


def write_head(request: Request, route: Route, target: bytes, framing: Framing, dropped: frozenset[bytes]) -> bytes:
    """Returns the head for the upstream, without the fields `dropped`. Raises RefusedError if a field contains CR, LF or
    NUL.
    """
    if named := request.values(b"connection"):
        dropped = dropped | ({option.strip(_BLANKS).lower() for value in named for option in value.split(b",")} - _OURS)
    if request.is_handshake:
        dropped = dropped | {_EXTENSIONS}
    path = route.base + target
    lines = [b"%b %b HTTP/1.%d" % (request.method, path if path[:1] == b"/" else b"/" + path, request.minor)]
    host = b"Host: " + route.authority
    for lower, (name, value) in zip(request.names, request.headers, strict=True):
        if lower == b"host":
            lines.append(name + b": " + route.authority)
            host = b""
        elif lower == b"transfer-encoding":
            lines.append(name + b": chunked")
        elif lower == b"content-length":
            lines.append(b"%b: %d" % (name, int(value)))
        elif lower not in dropped:
            lines.append(name + b": " + value)
    if host:
        lines.insert(1, host)
    if request.minor == 0 and request.keep_alive:
        lines.append(b"Connection: keep-alive")  # HTTP/1.0 closes connections by default
    if request.is_handshake:
        lines += [b"Connection: Upgrade", b"Upgrade: websocket"]
    head = b"\r\n".join((*lines, b"", b""))
    if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1 or b"\0" in head:
        raise RefusedError(Refusal.MALFORMED_REQUEST, "A header contains a line break.")
    return head
