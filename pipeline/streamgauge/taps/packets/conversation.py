"""The HTTP/1.1 of one connection, read from both sides' bytes: requests, and the responses that belong to them in order.

The tap only reads copies of packets, so it cannot refuse a request. It ignores the rest of a connection if the relay would
refuse its request, if it is not HTTP, or if it changes to another protocol. A loss may hide where a message ends; that side
is then `lost` until it can be resumed, and the open exchanges end as cut.

The first of these that holds decides how an exchange ends (RFC 9112, 6.3 and 8):
    its framing shows that it is complete                           complete
    the client ended its side or sent a reset before that           client; complete if the server still sends all of it
    the server sent a reset, or ended its side within the response  reset
    the server ended its side, and only that ends the response      complete
    nothing arrived for the idle timeout                            timeout
"""

from collections import deque

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.packets.exchange import FILLER, PacketExchange, Reporting
from streamgauge.taps.proxy.capture_gate import count_uncaptured
from streamgauge.taps.proxy.reader import WHOLE, RequestReader
from streamgauge.taps.proxy.request import RefusedError, Request, check, framing_of
from streamgauge.taps.proxy.response import ResponseFault

# Limit of requests without a complete response on one connection: clients that pipeline send a handful.
MAX_WAITING = 64


class Conversation:
    """The requests and responses of one connection. `requests_lost`, `responses_lost`: that side must be resumed; `ignored`:
    the rest of the connection is ignored.

    `responses_restart`: the next response begins at the client's last acknowledgement; the connection then clears it.
    `facts`: what identifies the connection in a file.
    """

    __slots__ = ("_ever_lost", "_facts", "_filling", "_gone_ns", "_quiet_ns", "_reader", "_reporting", "_requesting",
                 "_requests", "_upstream", "_waiting", "ignored", "requests_lost", "responses_lost",
                 "responses_restart")  # fmt: skip

    def __init__(self, upstream: str | None, reporting: Reporting, facts: tuple[bytes | int, ...] = ()) -> None:
        self.requests_lost = self.responses_lost = self.responses_restart = self.ignored = False
        self._upstream, self._reporting, self._facts = upstream, reporting, facts
        self._requests = 0  # so far, on this connection
        self._reader = RequestReader()
        self._waiting: deque[PacketExchange] = deque()  # exchanges whose responses have not ended, in order
        self._requesting: PacketExchange | None = None  # the exchange whose request is not complete
        self._gone_ns: int | None = None
        self._quiet_ns = 0
        self._filling = self._ever_lost = False

    @property
    def open(self) -> bool:
        """Whether a captured exchange has not ended."""
        return any(exchange.open for exchange in self._waiting)

    # The client's side.

    def request_bytes(self, at_ns: int, data: bytes) -> None:
        """Reads bytes from the client, which come in order."""
        self._quiet_ns = at_ns
        self._reader.feed(at_ns, data)
        self._handle_events(at_ns)

    def request_bytes_lost(self, at_ns: int, size: int) -> None:
        """Counts bytes from the client that were not captured. If all of them are of one body, only that body is unknown."""
        self._ever_lost = self._filling = True
        if self._requesting is None or self._reader.in_head:
            self._lose_requests()
        while size and not self.requests_lost and not self.ignored:
            self._reader.feed(at_ns, FILLER[:size])
            size -= min(size, len(FILLER))
            self._handle_events(at_ns)
            if size and self._requesting is None:
                self._lose_requests()
        self._filling = False

    def restart(self, at_ns: int) -> None:
        """Cuts the open exchanges and starts a new reader: after requests were lost, a segment clearly begins a request."""
        self._end_all(at_ns, Ending.CUT)
        self._reader.close()
        self._reader, self._requesting = RequestReader(), None
        self.requests_lost = self.responses_lost = False
        self._ever_lost, self._gone_ns = True, None

    def client_ended(self, at_ns: int) -> None:
        """Handles the client's FIN. It may mean only that the client sends no more: the server's end or a reset decides."""
        self._gone_ns = at_ns

    # The server's side.

    def response_bytes(self, at_ns: int, data: bytes) -> None:
        """Reads bytes from the server, which come in order. Bytes without a request before them are ignored."""
        self._quiet_ns = at_ns
        while data and self._waiting and not self.responses_lost:
            exchange = self._waiting[0]
            framing = exchange.framing
            size = exchange.read(at_ns, data)
            if framing.complete:
                self._end_first(at_ns)
            elif framing.fault is not None and framing.fault is not ResponseFault.BAD_CHUNKS:
                self._not_http(at_ns, exchange)
                return
            if size == len(data):
                return
            data = data[size:]

    def response_bytes_lost(self, at_ns: int, size: int) -> None:
        """Counts bytes from the server that were not captured."""
        self._ever_lost = True
        while size and self._waiting and not self.responses_lost:
            exchange = self._waiting[0]
            size -= exchange.lose_bytes(size)
            if exchange.blind:
                self.responses_lost = True
            elif exchange.framing.complete:
                self._end_first(at_ns)

    def server_ended(self, at_ns: int) -> None:
        """Ends the open exchanges at the server's FIN."""
        if self._waiting:
            whole = self._waiting[0].ends_cleanly()
            if self._gone_ns is None and whole:
                self._end_first(at_ns)
            self._end_all(at_ns, Ending.RESET, TransportFault.CLOSED)

    # Both.

    def reset(self, at_ns: int, *, by_client: bool, unsent_bytes: int) -> None:
        """Ends the open exchanges at an RST. `unsent_bytes`: response bytes that the client's host has not acknowledged."""
        if by_client and self._gone_ns is None:
            self._gone_ns = at_ns
        self._end_all(at_ns, Ending.RESET, TransportFault.RESET, unsent_bytes if by_client else 0)

    def tick(self, now_ns: int, idle_ns: int) -> None:
        """Ends exchanges that were silent longer than `idle_ns`. Later bytes of them are not reported."""
        if self._waiting and now_ns - self._quiet_ns > idle_ns:
            self._end_all(self._quiet_ns + idle_ns, Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT)
            self.lose_both_sides()

    def lose_both_sides(self) -> None:
        """Marks both sides as lost: bytes that follow cannot be matched to earlier ones."""
        self._ever_lost = self.responses_lost = True
        self._lose_requests()

    def cut(self, at_ns: int) -> None:
        """Ends the capture of this connection: cuts its open exchanges."""
        self._end_all(at_ns, Ending.CUT)

    def fail(self, at_ns: int) -> None:
        """Ends the open exchanges as if all further bytes were lost, after an internal error."""
        self.responses_lost = True
        while self._waiting:
            exchange = self._waiting.popleft()
            exchange.lose_read()
            exchange.blind = True
            exchange.end(at_ns, Ending.CUT)

    def close(self) -> None:
        """Closes the reader, because the connection has ended."""
        self._reader.close()

    # Inside.

    def _handle_events(self, at_ns: int) -> None:
        events = self._reader.events
        while events and not self.requests_lost and not self.ignored:
            event = events.popleft()
            if event is WHOLE and WHOLE not in events:
                self._reader.parse_next()
            if isinstance(event, Request):
                self._begin(at_ns, event)
            elif isinstance(event, RefusedError):
                self._refused(at_ns)
            elif self._requesting is None:
                continue  # the request is not followed
            elif isinstance(event, bytes):
                self._requesting.request_body(event, lost=self._filling)
            else:
                self._requesting.request_sent(at_ns)
                self._requesting = None

    def _begin(self, at_ns: int, request: Request) -> None:
        try:
            check(request)
            framing_of(request)
        except RefusedError:
            self._refused(at_ns)
            return
        if self.responses_lost or (self._waiting and self._waiting[0].framing.fault is not None):
            # The client sends a new request, so it has received the end of the response that was lost here: the next
            # response begins at the client's acknowledgement number.
            self._end_all(at_ns, Ending.RESET)
            self.responses_lost, self.responses_restart = False, True
        if len(self._waiting) >= MAX_WAITING:
            count_uncaptured(self._reporting.client, self._upstream, NotCaptured.LIMIT)
            self._ignore(at_ns, Ending.CUT)
            return
        self._requesting = PacketExchange(request, self._upstream, self._reporting, (*self._facts, self._requests))
        self._requests += 1
        self._waiting.append(self._requesting)

    def _refused(self, at_ns: int) -> None:
        """Handles a request that the reader refused. If the reader got filler outside a body, the requests are lost; else the
        connection is ignored.
        """
        if self._filling:
            self._lose_requests()
        else:
            count_uncaptured(self._reporting.client, self._upstream, NotCaptured.PROTOCOL)
            self._ignore(at_ns, Ending.CUT)

    def _lose_requests(self) -> None:
        self.requests_lost, self._requesting = True, None

    def _not_http(self, at_ns: int, exchange: PacketExchange) -> None:
        """Handles a response that is not HTTP/1, or changes to another protocol. After a loss the bytes may be the middle of
        an earlier response.
        """
        if self._ever_lost and exchange.framing.fault is ResponseFault.NOT_HTTP:
            exchange.blind = self.responses_lost = True
        else:
            self._ignore(at_ns, Ending.RESET, TransportFault.NOT_HTTP)

    def _ignore(self, at_ns: int, ending: Ending, fault: TransportFault | None = None) -> None:
        self._end_all(at_ns, ending, fault)
        self._reader.close()
        self.ignored, self._requesting = True, None

    def _end_first(self, at_ns: int) -> None:
        self._waiting.popleft().end(at_ns, Ending.COMPLETE)

    def _end_all(self, at_ns: int, ending: Ending, fault: TransportFault | None = None, unsent_bytes: int = 0) -> None:
        """Ends all open exchanges. After the client has ended its side, a reset counts as the client's end."""
        if ending is Ending.RESET and self._gone_ns is not None:
            ending = Ending.CLIENT
        gone_ns = self._gone_ns if ending is Ending.CLIENT else None
        while self._waiting:
            exchange = self._waiting.popleft()
            exchange.blind = exchange.blind or self.responses_lost
            exchange.end(at_ns, ending, fault, gone_ns, unsent_bytes)
            unsent_bytes = 0
