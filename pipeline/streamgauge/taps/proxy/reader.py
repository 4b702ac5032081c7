"""Turns a client's bytes into requests, as events in order. llhttp parses; an error becomes the last event.

After the handshake of a WebSocket (websocket.py) nothing more is parsed: `take_rest` returns the bytes that follow it.

The reader parses one request at a time. After a complete request it keeps the following bytes unparsed, until
`parse_next`. So a client that pipelines costs the memory of its bytes, and not that of their much larger parsed form. Only
after a chunked body may the next requests be parsed as well, as far as they lie in the same MIN_PIECE bytes.
"""

import re
from collections import deque

import httptools

from streamgauge.settings.declarations import ProxySettings
from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.limits import MAX_FIELDS, MAX_PIPELINED_BYTES, OBJECT_BYTES
from streamgauge.taps.proxy.request import RefusedError, Request
from streamgauge.taps.proxy.websocket import is_handshake

# Bytes that a chunked body may have between two pieces of content: chunk extensions and trailers. The relay discards
# them.
MAX_BETWEEN = 64 * 1024
# Offers of HTTP itself, in another version or with TLS: the request means the same without them, and a server may ignore
# them (RFC 9110, 7.8). Java's HttpClient and `curl --http2` offer h2c, Apache's HttpClient from 5.4 on TLS/1.2 (RFC 2817).
_IGNORED_UPGRADES = re.compile(rb"|h2c|(?:tls|http)/[0-9.]+", re.IGNORECASE)

_LENGTH = b"content-length"
# Least size of a piece of a chunked body for the parser (bytes): content may be full of blank lines, which end pieces.
MIN_PIECE = 512
# Ends every head and every chunked body, with or without trailers, that llhttp accepts.
_END = b"\r\n\r\n"


class Complete:
    """The event at the end of a request."""


WHOLE = Complete()

# The events of a request: Request, bytes* (its body, after transfer framing), WHOLE. No event follows a RefusedError.
Event = Request | bytes | Complete | RefusedError


class RequestReader:
    """Reads the requests of one connection. `events`: events in order; the client's connection removes them.

    `in_head`: a request's first byte has come, at `began_ns` (monotonic), and its head is not complete. `refused`: a request
    was refused, and no more input is parsed. `max_head`, `max_body`: the largest head of a request, and the largest body
    after transfer framing (bytes; None: no limit). `websockets`: handshakes of WebSockets are accepted.
    """

    def __init__(
        self,
        max_head: int = ProxySettings.max_request_head,
        max_body: int | None = None,
        *,
        websockets: bool = False,
    ) -> None:
        self.events: deque[Event] = deque()
        self.in_head = False
        self.began_ns = 0
        self.refused = False
        self._max_head, self._max_body = max_head, max_body
        self._websockets = websockets
        self._waits = False  # a request is complete: the next one is not parsed before `parse_next`
        # Unparsed reads: the time of the read (monotonic ns), its bytes, and the offset from which they are unparsed.
        self._pipelined: deque[tuple[int, bytes, int]] = deque()
        self._pipelined_bytes = 0
        self._overflow = False  # the client sent more than may be buffered
        self._fed_last = b""  # the last three parsed bytes: the end of a head may be split over reads
        self._line, self._is_mixed = b"", False  # see `_keep_line`
        self._now = 0
        self._again_ns: int | None = None  # when the head began that is parsed a second time
        self._head_bytes = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._upgrade: Request | None = None
        self._is_handshake = False  # the last request is the handshake of a WebSocket
        self._in_body = False
        self._body_left: int | None = None  # bytes to come, of a body with a length
        self._body_bytes = 0
        self._between = 0  # bytes since the last content
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    @property
    def held_bytes(self) -> int:
        """The approximate memory of this client's incomplete head and pipelined requests (bytes)."""
        head = self._head_bytes + OBJECT_BYTES * len(self._headers) if self.in_head else 0
        return head + self._pipelined_bytes

    def feed(self, at_ns: int, data: bytes) -> None:
        """Parses `data` up to the end of a request, and buffers the rest. After a refusal it ignores `data`."""
        if self.refused or self._parser is None:
            return
        begin = 0 if self._waits else self._read(at_ns, data, 0)
        if begin < len(data) and self._waits:
            self._buffer(at_ns, data[begin:])

    def parse_next(self) -> None:
        """Parses the next request, as far as it has come. Call it when the exchange of the last request is over."""
        self._waits = False
        while self._pipelined and not self._waits and not self.refused:
            at_ns, data, begin = self._pipelined.popleft()
            begin = self._read(at_ns, data, begin)
            if begin < len(data):
                self._pipelined.appendleft((at_ns, data, begin))
            else:
                self._pipelined_bytes -= len(data) + OBJECT_BYTES
        if self._overflow and not self._waits:
            self._refuse(Refusal.PIPELINED_TOO_MUCH, _TOO_MUCH_PIPELINED)

    def refuse_without_memory(self) -> None:
        """Discards what is buffered for this client and refuses it: the budget of all clients is used up."""
        self._pipelined.clear()
        self._pipelined_bytes = 0
        self._refuse(Refusal.RELAY_BUSY, "Unfinished requests use too much of the relay's memory. Try again.")

    def take_rest(self) -> bytes:
        """Returns the bytes after the handshake of a WebSocket, which are not parsed, and buffers them no longer."""
        rest = b"".join([data[begin:] for _, data, begin in self._pipelined])
        self._pipelined.clear()
        self._pipelined_bytes = 0
        return rest

    def close(self) -> None:
        """Stops reading, and discards what is buffered."""
        self._parser = None  # it refers to this object: a reference cycle
        self.in_head = False
        self.events.clear()
        self._pipelined.clear()
        self._pipelined_bytes = 0

    def _buffer(self, at_ns: int, data: bytes) -> None:
        room = MAX_PIPELINED_BYTES - self._pipelined_bytes - OBJECT_BYTES
        if self._overflow or room <= 0:
            self._overflow = True
            return
        self._overflow = len(data) > room
        held = data[:room]
        self._pipelined.append((at_ns, held, 0))
        self._pipelined_bytes += len(held) + OBJECT_BYTES

    def _read(self, at_ns: int, data: bytes, at: int) -> int:
        """Parses `data` from offset `at` up to the end of a request, in pieces that end where a request may end. Returns the
        offset of the first unparsed byte.
        """
        self._now = at_ns
        while at < len(data) and not self.refused and not self._waits:
            end = self._end_of_piece(data, at)
            piece = data[at:end] if at or end < len(data) else data
            at = end
            self._parse(piece)
        return at

    def _end_of_piece(self, data: bytes, at: int) -> int:
        """Returns the end of the piece that begins at offset `at`: the next offset at which the current request may end.
        llhttp decides where it does end.
        """
        if self._body_left:
            return min(at + self._body_left, len(data))
        before = self._fed_last
        begun = (before + data[at : at + len(_END) - 1]).find(_END)
        if self._in_body:
            least = at + MIN_PIECE
            if begun >= 0 or data.find(_END, at, least + len(_END) - 1) >= 0:
                return min(least, len(data))
            end = data.find(_END, least)
        elif begun >= 0:
            return at + begun + len(_END) - len(before)
        else:
            end = data.find(_END, at)
        return len(data) if end < 0 else end + len(_END)

    def _parse(self, piece: bytes) -> None:
        self._between += len(piece)
        self._keep_line(piece)
        was_in_body, data = self._in_body, piece
        while data and not self.refused and self._parser is not None:
            data = self._feed(self._parser, data)
        self._fed_last = (self._fed_last + piece[-3:])[-3:] if len(piece) < 3 else piece[-3:]
        # A piece in which a body ends and a head begins is not counted: the count is less than MIN_PIECE bytes too low.
        self._head_bytes += len(piece) if self.in_head and not was_in_body else 0
        if not self.in_head:
            self._line = b""
        if self.in_head and self._head_bytes > self._max_head:
            self._refuse_head()
        elif self._in_body and self._between > MAX_BETWEEN:
            self._refuse(
                Refusal.HEADERS_TOO_LARGE, f"Trailers and chunk extensions may have at most {MAX_BETWEEN} bytes."
            )

    def _keep_line(self, piece: bytes) -> None:
        """Keeps the request line, which llhttp does not show. In a piece in which a body ends and a head begins, it is not
        known where the line begins (`_is_mixed`): then the whole head is kept with it.
        """
        if not self.in_head:
            self._line, self._is_mixed = piece, self._in_body
        elif self._is_mixed or b"\n" not in self._line.lstrip(b"\r\n"):
            self._line += piece

    def _is_http(self, method: bytes) -> bool:
        """Whether the request line names HTTP. llhttp gives the version 1.0 of RTSP and ICE, too, as if it were HTTP's."""
        if self._is_mixed:
            other = rb"%b +%b +(?:RTSP|ICE)/" % (re.escape(method), re.escape(self._target))
            return re.search(other, self._line) is None
        return self._line.lstrip(b"\r\n").partition(b"\r\n")[0][-9:-1] == b" HTTP/1."

    def _feed(self, parser: httptools.HttpRequestParser, data: bytes) -> bytes:
        """Feeds the parser, and returns bytes that must be fed next."""
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if not self._is_handshake:
                return self._without_upgrade() + rest
            if rest:  # in one piece with the end of a chunked body
                self._refuse(Refusal.UPGRADE_REFUSED, _PIPELINED_UPGRADE)
        except httptools.HttpParserCallbackError:
            raise  # a bug in one of the callbacks
        except httptools.HttpParserError:
            self._refuse(Refusal.MALFORMED_REQUEST, "This is not a valid HTTP/1.1 request.")
        return b""

    def _refuse(self, code: Refusal, message: str) -> None:
        if not self.refused:
            self.events.append(RefusedError(code, message, b"" if self.in_head else self._target))
            self.refused, self.in_head = True, False

    def _refuse_head(self) -> None:
        self._refuse(
            Refusal.HEADERS_TOO_LARGE, f"The request line and headers may have at most {self._max_head} bytes."
        )

    def _refuse_body(self) -> None:
        self._refuse(Refusal.BODY_TOO_LARGE, f"A request body may have at most {self._max_body} bytes.")

    def _without_upgrade(self) -> bytes:
        """Returns the head without its Upgrade field, for a new parser. llhttp stops after the head of a request that offers
        an upgrade, and does not parse its body; the relay ignores the offer.
        """
        request, self._upgrade = self._upgrade, None
        if request is None:
            self._refuse(Refusal.METHOD_REFUSED, "The relay does not forward this method.")
            return b""
        self._parser, self._again_ns = httptools.HttpRequestParser(self), request.began_ns
        lines = [b"%b %b HTTP/1.%d" % (request.method, request.target, request.minor)]
        lines += [name + b": " + value for name, value in request.headers if name.lower() != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    # Called by llhttp.

    def on_message_begin(self) -> None:
        """Resets the state of a request. Also called for a head that is parsed a second time, without its Upgrade."""
        self.in_head, self._in_body, self._body_left = True, False, None
        self.began_ns, self._again_ns = self._now if self._again_ns is None else self._again_ns, None
        self._target, self._headers, self._head_bytes, self._body_bytes = b"", [], 0, 0

    def on_url(self, url: bytes) -> None:
        """Appends a part of the target, as long as reads split it."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a whole field of the head, up to MAX_FIELDS. Ignores trailers."""
        if self._in_body or self.refused:  # trailers are not forwarded
            return
        if len(self._headers) >= MAX_FIELDS:
            self._refuse(Refusal.HEADERS_TOO_LARGE, f"A request may have at most {MAX_FIELDS} headers.")
            return
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Appends the request as an event, or refuses it by its version, method, upgrade or size."""
        self.in_head, self._in_body, self._between = False, True, 0
        parser = self._parser
        if parser is None or self.refused:
            return
        version, method = parser.get_http_version(), parser.get_method()
        if version not in ("1.0", "1.1") or not self._is_http(method):
            self._refuse(Refusal.MALFORMED_REQUEST, "The relay supports only HTTP/1.1 and HTTP/1.0.")
            return
        keep_alive = parser.should_keep_alive()
        request = Request(method, self._target, int(version[2]), self._headers, keep_alive, self.began_ns)
        lengths = [int(size) for size in request.values(_LENGTH) if size.strip(b" \t").isdigit()]
        if method == b"CONNECT":
            self._refuse(Refusal.METHOD_REFUSED, "The relay does not forward this method.")
        elif parser.should_upgrade():
            self._offered(request)
        elif sum(len(name) + len(value) + 4 for name, value in self._headers) + len(self._target) > self._max_head:
            self._refuse_head()
        elif self._max_body is not None and any(size > self._max_body for size in lengths):
            self._refuse_body()
        else:
            self._body_left = lengths[0] if len(lengths) == 1 else None
            self.events.append(request)

    def _offered(self, request: Request) -> None:
        """Handles a request that offers upgrades: ignores those of _IGNORED_UPGRADES, and refuses a request with others,
        unless it is the handshake of a WebSocket.
        """
        offers = [offer.strip() for value in request.values(b"upgrade") for offer in value.split(b",")]
        if all(map(_IGNORED_UPGRADES.fullmatch, offers)):
            self._upgrade = request
        elif self._websockets and is_handshake(request):
            self._is_handshake = request.is_handshake = True
            self.events.append(request)
        else:
            self._refuse(Refusal.UPGRADE_REFUSED, _NO_UPGRADE)

    def on_body(self, body: bytes) -> None:
        """Appends a piece of the body, without chunk framing, as an event; refuses a body above `max_body`."""
        self._between = 0
        self._body_bytes += len(body)
        if self._body_left is not None:
            self._body_left -= len(body)
        if self._max_body is not None and self._body_bytes > self._max_body:
            self._refuse_body()
        if not self.refused:
            self.events.append(body)

    def on_message_complete(self) -> None:
        """Appends WHOLE, unless the head is to be parsed a second time."""
        self._in_body, self._between, self._target = False, 0, b""
        if self._upgrade is None and not self.refused:
            self._waits = True
            self.events.append(WHOLE)


_NO_UPGRADE = (
    "This is no handshake of a WebSocket (RFC 6455, 4.1), and the relay carries no other protocol besides HTTP/1.1. Send the"
    ' request over HTTP: POST, with "stream": true for server-sent events. A client that can do both has a setting for it.'
)
_PIPELINED_UPGRADE = "Wait for the response to the last request before the handshake of a WebSocket."
_TOO_MUCH_PIPELINED = (
    f"The relay buffers at most {MAX_PIPELINED_BYTES} bytes of pipelined requests."
    " Wait for each response before the next request."
)
