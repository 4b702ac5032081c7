"""Requests as three parsers read them, and the request that the relay must send to an upstream for one of a client's.

h11 and aiohttp's Python parser are not part of the relay; llhttp is, but here it gets the bytes in one piece.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import h11
import httptools
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParserPy

# Larger than any body of these tests (bytes): no parser stops to wait for a reader.
ROOM = 1 << 24

Fields = list[tuple[bytes, bytes]]
# What comes after the last request: nothing; the beginning of one; something else; llhttp stopped at an offer to
# upgrade.
End = Literal["whole", "waits", "refused", "upgrade"]


class Read(NamedTuple):
    """A request whose head is complete. `body`: what has arrived of it, `whole`: all of it; `begins`, `ends`: its
    position.
    """

    method: bytes
    target: bytes
    version: bytes
    fields: Fields
    body: bytes
    whole: bool
    begins: int = 0
    ends: int = 0

    def values(self, name: bytes) -> list[bytes]:
        """The values of each field of this lower-case name."""
        return [value for found, value in self.fields if found.lower() == name]

    @property
    def options(self) -> set[bytes]:
        """The options named by Connection."""
        return {one.strip(b" \t").lower() for value in self.values(b"connection") for one in value.split(b",")} - {b""}


class Reading(NamedTuple):
    """All requests of one connection, in order."""

    requests: list[Read]
    end: End


# --- h11 ------------------------------------------------------------------------------------------------------------

# llhttp accepts empty lines before a request, and more than one blank in its first line; h11 does not. The relay writes
# neither.
_BEGINNING = re.compile(rb"[\r\n]*([^\r\n ]*) +([^\r\n ]*) +(HTTP/1\.[01]\r\n)")


def by_h11(data: bytes, *, tolerant: bool = False) -> Reading:
    """Each request by a new h11 connection. `tolerant`: of what llhttp accepts before and in a first line."""
    found: list[Read] = []
    size = len(data)
    end: End = "whole"
    while data and end == "whole":
        begins = size - len(data)
        if tolerant:
            data = _BEGINNING.sub(rb"\1 \2 \3", data, count=1) if _BEGINNING.match(data) else data
            if not data.strip(b"\r\n"):
                return Reading(found, "waits")
        head, body, end, data = _next_by_h11(data)
        if head is not None:
            fields = [(bytes(name), bytes(value)) for name, value in head.headers.raw_items()]
            ends = size - len(data)
            found.append(Read(head.method, head.target, head.http_version, fields, body, end == "whole", begins, ends))
    return Reading(found, end)


def _next_by_h11(data: bytes) -> tuple[h11.Request | None, bytes, End, bytes]:
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=ROOM)
    head: h11.Request | None = None
    body: list[bytes] = []
    try:
        parser.receive_data(data)
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return head, b"".join(body), "whole", bytes(parser.trailing_data[0])
            else:
                return head, b"".join(body), "waits", b""
    except h11.RemoteProtocolError:
        return head, b"".join(body), "refused", b""


# --- llhttp ---------------------------------------------------------------------------------------------------------


class Collector:
    """The callbacks of llhttp. `requests`: those whose heads are complete."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.requests: list[Read] = []
        self.in_head = False
        self._target = b""
        self._fields: Fields = []
        self._body: list[bytes] = []

    def reading(self, end: End) -> Reading:
        """The reading so far."""
        self._take_body()
        if end == "whole" and (self.in_head or (self.requests and not self.requests[-1].whole)):
            end = "waits"
        return Reading(self.requests, end)

    def _take_body(self) -> None:
        if self._body:
            self.requests[-1] = self.requests[-1]._replace(body=b"".join(self._body))

    def on_message_begin(self) -> None:
        self._take_body()
        self.in_head, self._target, self._fields, self._body = True, b"", [], []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # otherwise it is a trailer
            value = value.strip(b" \t")
            self._fields.append((name, value.lower() if name.lower() == b"transfer-encoding" else value))  # as h11 does

    def on_headers_complete(self) -> None:
        self.in_head = False
        version = self.parser.get_http_version().encode()
        self.requests.append(Read(self.parser.get_method(), self._target, version, self._fields, b"", False))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.requests[-1] = self.requests[-1]._replace(whole=True)


def by_llhttp(data: bytes) -> Reading:
    """Without any leniency."""
    collector = Collector()
    try:
        collector.parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        return collector.reading("upgrade")
    except httptools.HttpParserError:
        return collector.reading("refused")
    return collector.reading("whole")


# --- aiohttp --------------------------------------------------------------------------------------------------------


def by_aiohttp(data: bytes, loop: asyncio.AbstractEventLoop) -> Reading:
    """By the Python parser, which a server of aiohttp uses if its C extension was not built."""
    protocol = BaseProtocol(loop)
    parser = HttpRequestParserPy(protocol, loop, ROOM, max_line_size=ROOM, max_field_size=ROOM, auto_decompress=False)
    try:
        messages, _, rest = parser.feed_data(data)
    except HttpProcessingError:
        return Reading([], "refused")
    found: list[Read] = []
    for message, payload in messages:
        whole = payload.is_eof()
        version = b"%d.%d" % message.version
        method, target = (text.encode("utf-8", "surrogateescape") for text in (message.method, message.path))
        found.append(Read(method, target, version, list(message.raw_headers), _all_of(payload), whole))
    unfinished = rest or parser._tail or parser._lines or (found and not found[-1].whole)
    return Reading(found, "waits" if unfinished else "whole")


def _all_of(payload: object) -> bytes:
    return b"".join(getattr(payload, "_buffer", ()))


# --- what is owed ---------------------------------------------------------------------------------------------------

# Fields that belong to one connection, and what is meant for the first proxy alone (RFC 9110, 7.6.1).
_DROPPED = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization te trailer upgrade http2-settings".split()
)
_OURS = frozenset((b"host", b"content-length", b"transfer-encoding"))
_PREFIX = re.compile(rb"/([^/?]*)(.*)", re.DOTALL)
KEPT = (b"Connection", b"keep-alive")


def owed(read: Read, upstreams: Mapping[bytes, tuple[bytes, bytes]]) -> Read | None:
    """What an upstream must get for a client's request: the route's name is removed, Host and framing are the relay's,
    and fields of the client's connection are dropped. None if its target names none of `upstreams` (authority and base).
    """
    prefix = _PREFIX.fullmatch(read.target)
    if prefix is None or prefix[1] not in upstreams:
        return None
    authority, base = upstreams[prefix[1]]
    target = base + prefix[2]
    dropped = _DROPPED | (read.options - _OURS)
    fields: Fields = []
    for name, value in read.fields:
        lower = name.lower()
        if lower == b"host":
            fields.append((name, authority))
        elif lower == b"content-length" and value.isdigit():
            fields.append((name, b"%d" % int(value)))
        elif lower not in dropped:
            fields.append((name, value))
    if not read.values(b"host"):
        fields.insert(0, (b"Host", authority))
    if read.version == b"1.0" and b"keep-alive" in read.options:
        fields.append(KEPT)
    return read._replace(target=target if target[:1] == b"/" else b"/" + target, fields=fields)


def difference(got: Read, want: Read) -> str | None:
    """Where an upstream's request differs from the expected one; an incomplete one may be its beginning."""
    for name in ("method", "target", "version", "fields"):
        if getattr(got, name) != getattr(want, name):
            return f"its {name}: {getattr(got, name)!r} instead of {getattr(want, name)!r}"
    if got.whole and not want.whole:
        return "it is whole, and the client's is not"
    if got.body != want.body if got.whole else not want.body.startswith(got.body):
        return f"its body: {got.body!r} instead of {want.body!r}"
    return None
