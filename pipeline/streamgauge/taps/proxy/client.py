"""A client's connection: its requests, one after the other, each an exchange.

IDLE --first byte of a request--> HEAD --head complete--> EXCHANGE --exchange over--> IDLE | CLOSING. A refusal leads to
CLOSING, and so does the end of a WebSocket, after whose handshake no request is read. There the relay reads and discards what
the client still sends: closing at once could cause a reset, and the client could lose the response.
"""

import asyncio
import time
from typing import TYPE_CHECKING, cast

from streamgauge.spool.read_counters import Refusal
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.proxy.capture_gate import count_uncaptured
from streamgauge.taps.proxy.exchange import Exchange, NextState
from streamgauge.taps.proxy.limits import SHED_IDLE_S, SHED_SLOW_S, SHED_UNREAD_S
from streamgauge.taps.proxy.reader import WHOLE, RequestReader
from streamgauge.taps.proxy.refusals import error_response
from streamgauge.taps.proxy.request import RefusedError, Request
from streamgauge.taps.proxy.upstream import WRITE_BUFFER_BYTES, UpstreamPool
from streamgauge.taps.proxy.websocket_exchange import WebSocketExchange
from streamgauge.taps.proxy.wire import Wire, has_closed_its_side, reset_at_close, unacknowledged_bytes

if TYPE_CHECKING:
    from streamgauge.taps.proxy.relay import Relay

# Longest interval between two checks of a client that is not idle (seconds): its deadline may be noticed this late.
TICK_S = 1.0
# How long and how much a client may still send after a response that ends its connection (seconds, bytes).
LINGER_S = 5.0
LINGER_BYTES = 64 * 1024 * 1024
# A client that reads no byte for this long counts as disconnected, even if its host keeps the connection open (seconds).
# The default of the upstream's idle timeout is the same.
BLOCKED_S = 900.0
# While draining, an idle client with TLS has this long to answer the relay's close_notify (seconds). Most clients read
# it only when they send the next request.
CLOSE_NOTIFY_S = 0.5
# Before a reset is passed on, earlier bytes have FLUSH_S to reach the client. This is checked every FLUSH_STEP_S
# (seconds).
FLUSH_S = 5.0
FLUSH_STEP_S = 0.002

_NS = 1_000_000_000
_LINGER_NS, _SHED_IDLE_NS = int(LINGER_S * _NS), int(SHED_IDLE_S * _NS)


class Client(asyncio.Protocol):
    """A client's connection. `address`: the address that it counts for, as `limits.address_of` gives it.

    `blocked_ns`: since when the client's socket accepts no more data (monotonic ns); None if it does. `exchange`: the one of
    the request in progress, until its end was reported; None between two requests.
    """

    __slots__ = ("_charged", "_closed_ns", "_closing", "_idle_ns", "_linger_due_ns", "_lingered", "_loop",
                 "_reader", "_reading_paused", "_relay", "_request", "_sleeps", "_taken_ns", "_timer", "_unsent_seen",
                 "_websocket", "address", "blocked_ns", "connected", "exchange", "pool", "transport",
                 "wire")  # fmt: skip

    def __init__(self, relay: "Relay", address: str) -> None:
        self.address = address
        self.connected = False
        self.transport: asyncio.Transport
        self.wire: Wire
        self.blocked_ns: int | None = None
        self._relay = relay
        self._reader = RequestReader(relay.settings.max_request_head, relay.settings.max_request_body, websockets=True)
        self.exchange: Exchange | None = None
        self._websocket: WebSocketExchange | None = None  # `exchange`, if it began with the handshake of a WebSocket
        self._request: Request | None = None
        self._idle_ns = 0
        self._reading_paused = False  # reading is paused
        self._closing = False
        self._linger_due_ns: int | None = None
        self._lingered = 0
        self._charged = 0  # bytes that are charged to the relay's budget for the reader
        self._unsent_seen = 0  # while blocked: bytes in the write buffer at the last check
        self._closed_ns = 0  # when the relay began to close the connection (monotonic ns)
        self._taken_ns = 0  # while blocked: when the client was last seen to take bytes (monotonic ns)
        self._timer: asyncio.TimerHandle | None = None
        self._sleeps = False  # the timer is set to the deadline of an idle client
        self._loop = asyncio.get_running_loop()
        self.pool = UpstreamPool(self._loop)

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the client with the relay, and starts its timer; with TLS, after the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.wire = Wire(self.transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._idle_ns = time.monotonic_ns()
        self.connected = True
        self._relay.client_connected(self)
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Parses a read and handles its events; discards it while the connection is closing, or after a refusal."""
        at_ns = time.monotonic_ns()
        if self._sleeps:
            self._set_timer(TICK_S)
        if self._closing or self._reader.refused:
            self._discard(len(data))
            return
        if self._websocket is not None:
            self._websocket_data(at_ns, data)
            return
        self._reader.feed(at_ns, data)
        self._charge()
        self._handle_events()
        exchange, reader = self.exchange, self._reader
        if exchange is not None and exchange.ends_with_connection and (reader.events or reader.held_bytes):
            # The client may have seen an end, and would take the rest of this response for the next one.
            self._reset_exchange(exchange)

    def _websocket_data(self, at_ns: int, data: bytes) -> None:
        """Passes on bytes that follow the handshake of a WebSocket."""
        websocket = self._websocket
        assert websocket is not None
        if websocket.ends_with_connection:  # the upstream refused: as for a request that comes during such a response
            self._reset_exchange(websocket)
            return
        websocket.client_data(at_ns, data)
        self.update_reading()

    def eof_received(self) -> None:
        """Treats a client that ends its side during an exchange as disconnected, as nginx does. A response that is complete
        still goes out; the transport then closes the relay's side, too.
        """
        if self.exchange is None:
            self._close(lingering=False)
        elif not self.exchange.over:
            self._end_by_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the exchange, frees the upstream connections, and stops the timer. `exc` None: a clean end."""
        if self.exchange is not None:
            self._end_by_client()
        self._relay.client_disconnected(self)
        self.pool.close()
        self._reader.close()
        self._charge()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """Records since when more than WRITE_BUFFER_BYTES wait for the client, and pauses the upstream."""
        self.blocked_ns = self._taken_ns = time.monotonic_ns()
        self._unsent_seen = self.transport.get_write_buffer_size()
        if self.exchange is not None:
            self.exchange.client_blocked()

    def resume_writing(self) -> None:
        """Resumes the upstream: the write buffer is empty."""
        if self.exchange is not None:
            self.exchange.client_resumed()
        self.blocked_ns = None

    # Called by its exchange.

    def head_passed_on(self, took_ns: int) -> None:
        """Called once, when the head of the response was written to the client, `took_ns` after it had been read."""
        self._relay.head_passed_on(took_ns)

    def exchange_over(self, next_state: NextState) -> None:
        """Called once, when the exchange has ended, and its response was written, or the client has disconnected."""
        exchange, self.exchange, self._websocket = self.exchange, None, None
        self._idle_ns = time.monotonic_ns()
        if next_state is NextState.KEEP_ALIVE and not self._relay.draining:
            if WHOLE not in self._reader.events:  # otherwise the next request was read completely
                self._reader.parse_next()
                self._charge()
            if self._reading_paused or self._reader.events:
                self._loop.call_soon(self._handle_events)
        elif next_state is NextState.RESET:
            self._reset_when_flushed(self._loop.time() + FLUSH_S)
        elif next_state in (NextState.KEEP_ALIVE, NextState.CLOSE):
            self._close(lingering=exchange is not None and not exchange.request_complete)

    def send_error(self, refused: RefusedError, counted: bool = False) -> None:
        """Writes the relay's own error response, and closes the connection after it. `counted`: the response is counted as
        captured, or as not captured.
        """
        self._relay.refusals.add(refused)
        if not counted:
            upstream = self._relay.routes.upstream_of(refused.target)
            count_uncaptured(self._relay.recorder, upstream, NotCaptured.REFUSED)
        head_only = self._request is not None and self._request.method == b"HEAD"
        self.transport.write(error_response(refused, head_only))
        self._close(lingering=True)

    def response_refused(self, refused: RefusedError) -> None:
        """Counts and logs a response that the relay stopped forwarding."""
        self._relay.refusals.add(refused, reset=True)

    def update_reading(self) -> None:
        """Pauses reading while the upstream accepts no more of the request's body, and resumes it otherwise. Pipelined
        requests are read as well, and buffered up to a limit: while reading is paused, the loop cannot notice that the client
        disconnects.
        """
        pause = not self._closing and self.exchange is not None and self.exchange.body_must_wait
        if pause == self._reading_paused or self.transport.is_closing():
            return
        self._reading_paused = pause
        if self.exchange is not None:
            self.exchange.body_reading(paused=pause)
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # Called by the relay.

    def may_be_shed_ns(self) -> int | None:
        """From when the client may lose its place to another one (monotonic ns); None while the relay or its upstream owes it
        something. A client without a request in progress, or with a connection that is closing, may lose it soon; one that is
        sending a body, if that is slower than BODY_RATE; one that leaves its response unread, after SHED_UNREAD_S.
        """
        if self.blocked_ns is not None:
            return self.blocked_ns + int(SHED_UNREAD_S * _NS)
        if self._closing:
            if self.transport.get_write_buffer_size():
                return self._closed_ns + int(SHED_UNREAD_S * _NS)
            return None if self._linger_due_ns is None else self._linger_due_ns - _LINGER_NS + _SHED_IDLE_NS
        if self.exchange is not None:
            return None if self.exchange.over else self.exchange.body_due_ns(SHED_SLOW_S)
        return self._idle_ns + _SHED_IDLE_NS

    def shed(self) -> None:
        """Closes the connection, because the relay or its address has reached a limit of connections. A client whose body is
        too slow is told so, and may read this for LINGER_S.
        """
        exchange = self.exchange
        if exchange is None:
            unsent, self._closing = self.transport.get_write_buffer_size(), True
            if unsent:
                self._reset()  # a clean end could complete the response
            else:
                self.transport.abort()
        elif self.blocked_ns is not None or self._closing:
            self._reset_exchange(exchange)
        else:
            self._refuse_slow_body()
            # It counts no longer. It must not keep its descriptor by leaving this response, or an earlier one, unread.
            self._loop.call_later(LINGER_S, self.transport.abort)

    def drain(self) -> None:
        """Lets a running exchange end; closes the connection if there is none."""
        if self.exchange is None and not self._closing:
            self._close(lingering=False)
            if not self.transport.can_write_eof():
                self._loop.call_later(CLOSE_NOTIFY_S, self.transport.abort)

    def cut(self) -> None:
        """Ends the exchange, if any, and resets the connection at once."""
        if self.exchange is not None:
            self.exchange.cut()
        self._reset()

    # Internal.

    def _charge(self) -> None:
        """Charges what the reader buffers to the budget of all clients. If the budget is used up, refuses this client."""
        more = self._reader.held_bytes - self._charged
        if more and not self._relay.client_bytes.charge(more):
            self._reader.refuse_without_memory()
            more = self._reader.held_bytes - self._charged
            self._relay.client_bytes.charge(more)
        self._charged += more

    def _handle_events(self) -> None:
        """Handles the reader's events. A later request, or the refusal of one, waits until the current exchange is over."""
        events = self._reader.events
        while events and not self._closing and not self.transport.is_closing():
            event = events[0]
            if self.exchange is not None and isinstance(event, Request):
                break
            if isinstance(event, RefusedError) and self.exchange is not None and self.exchange.request_complete:
                break  # it concerns the next request
            events.popleft()
            if isinstance(event, Request):
                self._start_exchange(event)
            elif isinstance(event, RefusedError):
                self._refuse(event)
            elif self.exchange is not None and isinstance(event, bytes):
                self.exchange.send_body(event)
            elif self.exchange is not None:
                self.exchange.end_request()
        if self.exchange is not None:
            self.exchange.flush()
        if self._websocket is not None and (rest := self._reader.take_rest()):
            self._charge()
            self._websocket_data(time.monotonic_ns(), rest)
        self.update_reading()

    def _start_exchange(self, request: Request) -> None:
        self._request = request
        try:
            self._relay.access.admit(request, self.transport)
            outgoing = self._relay.routes.outgoing(request)
        except RefusedError as refused:
            refused.target = request.target
            self.send_error(refused)
            return
        connector = self._relay.connector(outgoing.route)
        if request.is_handshake:
            self.exchange = self._websocket = WebSocketExchange(self, request, outgoing, connector)
        else:
            self.exchange = Exchange(self, request, outgoing, connector, self._relay.pump)
        self.exchange.begin(self._relay.recorder, self._relay.named_headers)

    def _refuse(self, refused: RefusedError) -> None:
        """Refuses what the client sent. A running exchange ends as if the client had disconnected."""
        exchange = self.exchange
        if exchange is not None and exchange.over:
            return  # its response is still going out, and the connection ends after it
        self.exchange = None
        if exchange is None:
            self._request = None
        else:
            exchange.client_left(0)
        if exchange is None or exchange.may_send_error:
            self.send_error(refused, exchange is not None and exchange.counted)
        else:
            self._reset_when_flushed(self._loop.time() + FLUSH_S)

    def _refuse_slow_body(self) -> None:
        assert self._request is not None
        message = "The request body did not arrive in time."
        self._refuse(RefusedError(Refusal.BODY_TIMEOUT, message, self._request.target))

    def _end_by_client(self) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            unsent = self.transport.get_write_buffer_size()
            exchange.client_left(self._unsent_seen if self.blocked_ns is not None and not unsent else unsent)
        self.transport.abort()

    def _reset_exchange(self, exchange: Exchange) -> None:
        """Ends the exchange as if the client had disconnected, and resets the connection."""
        self.exchange = None
        self._closing = True
        exchange.client_left(self.transport.get_write_buffer_size())
        self._reset()

    def _close(self, lingering: bool) -> None:
        """Ends the connection after the written bytes have gone out. `lingering`: the client may still be sending."""
        if self._closing:
            return
        self._closing = True
        self._unsent_seen = self.transport.get_write_buffer_size()
        self._taken_ns = self._closed_ns = time.monotonic_ns()
        self._reader.close()
        self._charge()
        if self._sleeps:
            self._set_timer(TICK_S)
        if self.transport.is_closing():  # the client has ended its side, and has not read all
            return
        if lingering and self.transport.can_write_eof():
            self.transport.write_eof()
            self._linger_due_ns = time.monotonic_ns() + _LINGER_NS
            self.update_reading()
        else:  # the TLS transport lingers by itself: it waits for close_notify, and discards other data
            self.transport.close()

    def _discard(self, size: int) -> None:
        self._lingered += size
        if self._lingered > LINGER_BYTES:
            self.transport.abort()

    def _reset_when_flushed(self, until: float) -> None:
        """Resets the connection once the client's host has all bytes, or at `until` (loop time): a reset discards what the
        kernel still holds.
        """
        self._closing = True
        if self.transport.is_closing():
            return
        if unacknowledged_bytes(self.transport) and self._loop.time() < until:
            self._loop.call_later(FLUSH_STEP_S, self._reset_when_flushed, until)
        else:
            self._reset()

    def _reset(self) -> None:
        if not self.transport.is_closing():
            reset_at_close(self.transport)
        self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        """Whether the keep-alive deadline is the only one, so that no check is needed before it. A read from the
        client ends this state, and so does `_close`; a limit or the client itself ends the connection.
        """
        return (
            self.exchange is None
            and self.blocked_ns is None
            and self.pool.is_empty
            and not (self._closing or self._reader.in_head or self._reader.events)
        )

    def _set_timer(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sleeps = after_s > TICK_S
        self._timer = self._loop.call_later(after_s, self._tick)

    def _tick(self) -> None:
        """Handles a deadline that is overdue, and schedules the next check: of an idle client at its deadline, so that it
        costs nothing until then.
        """
        now = time.monotonic_ns()
        self.pool.sweep()
        # A blocked connection has unsent bytes. A size of 0 means that it was just lost: keep the last size.
        waits = self.blocked_ns is not None or self._closing
        if waits and self._unsent_seen != (unsent := self.transport.get_write_buffer_size()):
            self._unsent_seen, self._taken_ns = unsent or self._unsent_seen, now
        if (
            self._reading_paused
            and self.exchange is not None
            and not self.exchange.over
            and has_closed_its_side(self.transport)
        ):
            self._end_by_client()
            return
        due = self._next_deadline_ns()
        if due is not None and now >= due:
            self._handle_deadline()
            due = self._next_deadline_ns()
        wait = TICK_S if due is None else max(due - now, 1_000_000) / _NS
        self._set_timer(wait if self._is_idle else min(TICK_S, wait))

    def _next_deadline_ns(self) -> int | None:
        settings = self._relay.settings
        if self._closing:
            if self.transport.get_write_buffer_size():
                return self._taken_ns + int(BLOCKED_S * _NS)
            return self._linger_due_ns
        if self.exchange is not None:
            if self.blocked_ns is not None:
                return self._taken_ns + int(BLOCKED_S * _NS)
            if self.exchange.over:
                return None
            quiet_due = self.exchange.quiet_ns + int(settings.upstream_idle_timeout * _NS)
            body_due = self.exchange.body_due_ns(settings.body_grace_s)
            return quiet_due if body_due is None else min(quiet_due, body_due)
        if self._reader.in_head:
            return self._reader.began_ns + int(settings.header_timeout_s * _NS)
        # While draining, a client that has just connected may send a first request; an idle one must not delay the end.
        keep_alive_s = CLOSE_NOTIFY_S if self._relay.draining else settings.keep_alive_s
        return self._idle_ns + int(keep_alive_s * _NS)

    def _handle_deadline(self) -> None:
        if self._closing:  # after LINGER_S, or because the client reads nothing
            self.transport.abort()
        elif self.exchange is not None and self.blocked_ns is not None:
            self._end_by_client()
        elif self.exchange is not None and self.exchange.waits_for_client:
            self._refuse_slow_body()
        elif self.exchange is not None:
            self.exchange.timed_out(self._relay.settings.upstream_idle_timeout)
        elif self._reader.in_head:
            self._request = None
            self.send_error(RefusedError(Refusal.HEADER_TIMEOUT, "The request headers did not arrive in time."))
        elif self._relay.draining:
            self.drain()
        else:
            self._close(lingering=False)
