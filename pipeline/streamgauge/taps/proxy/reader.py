"""A client's bytes -> requests, as events in order. Parsing is llhttp's; what it refuses becomes a last event."""

from collections import deque

import httptools

from streamgauge.taps.proxy.request import MAX_REQUEST_HEAD, RefusedError, Request

# What a chunked body may have between two pieces of content: extensions of chunks, trailers; all of it is thrown away
# (bytes).
MAX_BETWEEN = 64 * 1024
# Offers that a client can do without: some send this one with every first request (RFC 9113, 3.1; Java's HttpClient).
_IGNORED_UPGRADES = frozenset((b"h2c",))


_LENGTH = b"content-length"


class Complete:
    """The request is complete."""


WHOLE = Complete()

# A request's events are Request, bytes* (its body, after transfer framing), WHOLE; RefusedError ends everything.
Event = Request | bytes | Complete | RefusedError


class RequestReader:
    """One connection's requests. `events`: what was read and not taken yet; whoever takes them empties it.

    `in_head`: a request's first byte has come, and its head is not complete; since `began_ns`. `max_head`, `max_body`:
    bytes of a request's head, and of its body after transfer framing (None: any).
    """

    def __init__(self, max_head: int = MAX_REQUEST_HEAD, max_body: int | None = None) -> None:
        self.events: deque[Event] = deque()
        self._max_head, self._max_body = max_head, max_body
        self.in_head = False
        self.began_ns = 0
        self._now = 0
        self._again_ns: int | None = None  # when the head that is read again began
        self._head_bytes = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._upgrade: Request | None = None
        self._refused = False
        self._in_body = False
        self._body_bytes = 0
        self._between = 0  # bytes since content came
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, at_ns: int, data: bytes) -> None:
        """Reads `data`; after a refusal, nothing any more."""
        self._now = at_ns
        if self.in_head:
            self._head_bytes += len(data)
        self._between += len(data)
        while data and not self._refused and self._parser is not None:
            data = self._feed(self._parser, data)
        if self.in_head and self._head_bytes > self._max_head:
            self._refuse_head()
        elif self._in_body and self._between > MAX_BETWEEN:
            self._refuse(431, "headers_too_large", f"Trailers and chunk extensions may have {MAX_BETWEEN} bytes.")

    def close(self) -> None:
        """Nothing more will be read."""
        self._parser = None  # it refers to us
        self.events.clear()

    def _feed(self, parser: httptools.HttpRequestParser, data: bytes) -> bytes:
        """Feeds; gives what is to be fed once more."""
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_upgrade() + data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError:
            raise  # a bug of ours
        except httptools.HttpParserError:
            self._refuse(400, "malformed_request", "This is no valid HTTP/1.1 request.")
        return b""

    def _refuse(self, status: int, code: str, message: str) -> None:
        if not self._refused:
            self._refused, self.in_head = True, False
            self.events.append(RefusedError(status, code, message))

    def _refuse_head(self) -> None:
        self._refuse(431, "headers_too_large", f"A request's head may have {self._max_head} bytes.")

    def _refuse_body(self) -> None:
        self._refuse(413, "body_too_large", f"A request's body may have {self._max_body} bytes.")

    def _without_upgrade(self) -> bytes:
        """llhttp stops behind the head of a request that would upgrade, without its body. The relay does not upgrade:
        the head without that field is read again, by a parser that knows of none.
        """
        request, self._upgrade = self._upgrade, None
        if request is None:
            self._refuse(400, "method_refused", "This method is not relayed.")
            return b""
        self._parser, self._again_ns = httptools.HttpRequestParser(self), request.began_ns
        lines = [b"%b %b HTTP/1.%d" % (request.method, request.target, request.minor)]
        lines += [name + b": " + value for name, value in request.headers if name.lower() != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    # Called by llhttp.

    def on_message_begin(self) -> None:
        self.in_head, self._in_body = True, False
        self.began_ns, self._again_ns = self._now if self._again_ns is None else self._again_ns, None
        self._target, self._headers, self._head_bytes, self._body_bytes = b"", [], 0, 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # else a trailer: not passed on
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.in_head, self._in_body, self._between = False, True, 0
        parser = self._parser
        if parser is None or self._refused:
            return
        version, method = parser.get_http_version(), parser.get_method()
        if version not in ("1.0", "1.1"):
            self._refuse(400, "malformed_request", "The relay speaks HTTP/1.1 and HTTP/1.0.")
            return
        keep_alive = parser.should_keep_alive()
        request = Request(method, self._target, int(version[2]), self._headers, keep_alive, self.began_ns)
        if method == b"CONNECT":
            self._refuse(400, "method_refused", "This method is not relayed.")
        elif parser.should_upgrade():
            self._offered(request)
        elif sum(len(name) + len(value) + 4 for name, value in self._headers) + len(self._target) > self._max_head:
            self._refuse_head()
        elif self._max_body is not None and any(int(size) > self._max_body for size in request.values(_LENGTH)):
            self._refuse_body()
        else:
            self.events.append(request)

    def _offered(self, request: Request) -> None:
        """A request that would upgrade its connection: what it cannot do without is refused, and not left unsaid."""
        offers = {offer.strip().lower() for value in request.values(b"upgrade") for offer in value.split(b",")}
        if offers <= _IGNORED_UPGRADES:
            self._upgrade = request
        else:
            self._refuse(501, "upgrade_refused", "The relay makes no upgrades (WebSocket or other): use HTTP alone.")

    def on_body(self, body: bytes) -> None:
        self._between = 0
        self._body_bytes += len(body)
        if self._max_body is not None and self._body_bytes > self._max_body:
            self._refuse_body()
        if not self._refused:
            self.events.append(body)

    def on_message_complete(self) -> None:
        self._in_body, self._between = False, 0
        if self._upgrade is None and not self._refused:
            self.events.append(WHOLE)
