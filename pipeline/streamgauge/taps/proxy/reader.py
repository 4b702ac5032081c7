"""A client's bytes -> requests, as events in order. Parsing is llhttp's; what it refuses becomes a last event."""

from collections import deque

import httptools

from streamgauge.taps.proxy.request import MAX_REQUEST_HEAD, RefusedError, Request


class Whole:
    """The request is complete."""


WHOLE = Whole()

# A request's events are Request, bytes* (its body, after transfer framing), WHOLE; RefusedError ends everything.
Event = Request | bytes | Whole | RefusedError


class RequestReader:
    """One connection's requests. `events`: what was read and not taken yet; whoever takes them empties it.

    `in_head`: a request's first byte has come, and its head is not complete; since `began_ns`.
    """

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
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
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, at_ns: int, data: bytes) -> None:
        """Reads `data`; after a refusal, nothing any more."""
        self._now = at_ns
        if self.in_head:
            self._head_bytes += len(data)
        while data and not self._refused and self._parser is not None:
            data = self._feed(self._parser, data)
        if self.in_head and self._head_bytes > MAX_REQUEST_HEAD:
            self._refuse(431, "headers_too_large", f"A request's head may have {MAX_REQUEST_HEAD} bytes.")

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
        self._target, self._headers, self._head_bytes = b"", [], 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # else a trailer: not passed on
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.in_head, self._in_body = False, True
        parser = self._parser
        if parser is None or self._refused:
            return
        version, method = parser.get_http_version(), parser.get_method()
        if version not in ("1.0", "1.1"):
            self._refuse(400, "malformed_request", "The relay speaks HTTP/1.1 and HTTP/1.0.")
            return
        request = Request(
            method, self._target, int(version[2]), self._headers, parser.should_keep_alive(), self.began_ns
        )
        if method == b"CONNECT":
            self._refuse(400, "method_refused", "This method is not relayed.")
        elif parser.should_upgrade():
            self._upgrade = request
        elif sum(len(name) + len(value) + 4 for name, value in self._headers) + len(self._target) > MAX_REQUEST_HEAD:
            self._refuse(431, "headers_too_large", f"A request's head may have {MAX_REQUEST_HEAD} bytes.")
        else:
            self.events.append(request)

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            self.events.append(body)

    def on_message_complete(self) -> None:
        if self._upgrade is None and not self._refused:
            self.events.append(WHOLE)
