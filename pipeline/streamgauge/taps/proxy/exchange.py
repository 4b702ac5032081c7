"""One request and its response: from the client's complete request head to the response's last byte, or to an earlier end.

CONNECTING --connected--> CONNECTED --response complete--> OVER. All other ends (client, upstream, time, drain) lead to OVER
too, through `_finish` alone. The end is reported to the capture once all bytes were written to the client's socket, or the
client has disconnected.
"""

import asyncio
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.http1.framing import BodyPosition
from streamgauge.recorder.exchange_capture import ConnectedClient
from streamgauge.runtime.faults import reported_task
from streamgauge.taps.proxy import refusals
from streamgauge.taps.proxy.capture_gate import CaptureGate, NamedHeaders, relayed_request
from streamgauge.taps.proxy.limits import BODY_RATE
from streamgauge.taps.proxy.pump_handle import PumpedResponse, PumpHandle
from streamgauge.taps.proxy.request import Outgoing, RefusedError, Request
from streamgauge.taps.proxy.response import ResponseFraming
from streamgauge.taps.proxy.upstream import WRITE_BUFFER_BYTES, Connector, UnreachableError, Upstream

if TYPE_CHECKING:
    from streamgauge.taps.proxy.client import Client

# Safe methods: if a reused connection turns out to be dead, the relay sends the request again (RFC 9110, 9.2.2).
_REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class NextState(Enum):
    """The state of the client's connection after an exchange."""

    KEEP_ALIVE = auto()  # it stays open for the next request
    CLOSE = auto()  # the written bytes go out, then FIN
    RESET = auto()  # the written bytes go out, then RST
    GONE = auto()  # the client has closed it, or the relay is cutting it
    ERROR_SENT = auto()  # the relay's own error response was written, and ends it


class Exchange:
    """An exchange of the relay. `quiet_ns`: when data last moved (monotonic ns). `over`: it has ended, and sends no more.

    `upstream`: its connection to the upstream; None before it is made, and after it was given back or lost.
    """

    __slots__ = ("_blocked_ns", "_body_began_ns", "_body_bytes", "_body_paused_ns", "_client", "_connected_ns",
                 "_connecting", "_connector", "_expects_continue", "_framing", "_gate", "_gone_ns", "_head",
                 "_head_passed", "_must_report_sent",
                 "_outgoing", "_pending", "_pending_bytes", "_pending_end", "_pump", "_pumped", "_request",
                 "_response_begun", "_reusable", "_reused", "_unsent_bytes", "over", "quiet_ns",
                 "request_complete", "upstream")  # fmt: skip

    def __init__(
        self, client: "Client", request: Request, outgoing: Outgoing, connector: Connector, pump: PumpHandle | None
    ) -> None:
        self.over = self.request_complete = False
        self.quiet_ns = time.monotonic_ns()
        self._client = client
        self._request = request
        self._outgoing = outgoing
        self._connector = connector
        self.upstream: Upstream | None = None
        self._reused = False
        self._connecting: asyncio.Task[None] | None = None
        self._connected_ns: int | None = None
        self._pending: list[bytes] = [outgoing.head]
        self._pending_bytes = self._body_bytes = 0
        self._body_began_ns = self.quiet_ns
        self._body_paused_ns: int | None = None  # since when the relay does not read the body
        self._must_report_sent = False
        self._framing = ResponseFraming(request.method)
        self._response_begun = False  # a byte of any response, also of an interim one, has come
        self._head = b""  # the beginning of an incomplete head, not yet written to the client
        self._expects_continue = request.minor > 0 and b"expect" in request.names  # and none was sent yet
        self._head_passed = False  # the final head went to the client: from then on all bytes are written at once
        self._reusable = True  # the upstream sent its response after the whole request, and no byte after it
        self._pump = pump  # while the response may be handed to the pump
        self._pumped: PumpedResponse | None = None
        self._pending_end: tuple[Ending, TransportFault | None, int, NextState] | None = None
        self._blocked_ns = self._unsent_bytes = 0
        self._gone_ns: int | None = None

    def begin(self, recorder: ConnectedClient, named: NamedHeaders) -> None:
        """Reuses an idle connection of this client, or starts to connect. The next `flush` writes the pending bytes."""
        self._gate = CaptureGate(recorder, relayed_request(self._request, self._outgoing, named, self._client.address))
        upstream = self._client.pool.take(self._connector)
        self._reused = upstream is not None
        if upstream is None:
            self._connect()
        else:
            self._attach(upstream)

    # The request, from the client.

    @property
    def may_send_error(self) -> bool:
        """Whether no byte of a final response went to the client, so that the relay may send its own response."""
        return self._framing.untouched

    @property
    def ends_with_connection(self) -> bool:
        """Whether the client has the head of a response whose body ends with its connection."""
        return self._head_passed and self._framing.until_eof

    @property
    def counted(self) -> bool:
        """Whether the response counts as captured, or as not captured."""
        return self._gate.counted

    @property
    def waits_for_client(self) -> bool:
        """Whether the exchange waits for the rest of the client's request."""
        return not self.request_complete and not self.body_must_wait

    def body_due_ns(self, grace_s: float) -> int | None:
        """When the client will have been too slow: `grace_s` after the body began, and the time that its bytes take at
        BODY_RATE (monotonic ns). None unless the exchange waits for the client alone: a response may come before the request
        is complete.
        """
        if not self.waits_for_client or not self._framing.untouched:
            return None
        return self._body_began_ns + int(grace_s * 1e9) + self._body_bytes * (1_000_000_000 // BODY_RATE)

    def body_reading(self, paused: bool) -> None:
        """Called when the relay has paused reading the body, or reads it again."""
        now = time.monotonic_ns()
        if paused:
            self._body_paused_ns = now
        elif self._body_paused_ns is not None:
            self._body_began_ns += now - self._body_paused_ns
            self._body_paused_ns = None

    @property
    def body_must_wait(self) -> bool:
        """Whether the client must not send more of the body: the upstream's socket, or the buffer before it, is full."""
        if self.upstream is None:
            return self._pending_bytes >= WRITE_BUFFER_BYTES
        return self.upstream.blocked

    def send_body(self, data: bytes) -> None:
        """Buffers a piece of the request's body until the next `flush`."""
        if self.over:
            return
        self.quiet_ns = time.monotonic_ns()
        self._body_bytes += len(data)
        self._pending.append(b"%x\r\n%b\r\n" % (len(data), data) if self._outgoing.framing == "chunked" else data)
        self._pending_bytes += len(data)
        self._gate.request_body(data)

    def end_request(self) -> None:
        """Ends the body: the client's request is complete."""
        self.request_complete = True
        if self.over:
            return
        if self._outgoing.framing == "chunked":
            self._pending.append(b"0\r\n\r\n")
        self._must_report_sent = True

    def flush(self) -> None:
        """Writes the bytes from one read of the client to the upstream in one piece."""
        if self.upstream is not None:
            if self._pending:
                data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
                self._pending, self._pending_bytes = [], 0
                self.upstream.wire.write(data)
            self._report_sent()
        self._gate.begin()

    def client_left(self, unsent_bytes: int) -> None:
        """Ends the exchange: the client has disconnected. `unsent_bytes`: written bytes that its socket had not accepted."""
        self._end_pumping()
        now = time.monotonic_ns()
        self._add_blocked_time(now)
        self._gone_ns, self._unsent_bytes = now, unsent_bytes
        if self._pending_end is not None:
            self._conclude()
        elif not self.over:
            self._finish(Ending.CLIENT, now, NextState.GONE)

    def client_blocked(self) -> None:
        """Pauses the upstream: the client's socket accepts no more data."""
        if self.upstream is not None:
            self.upstream.pause_reading(True)

    def client_resumed(self) -> None:
        """Resumes the upstream, or reports the end of the exchange: the client's socket has accepted all written bytes."""
        now = time.monotonic_ns()
        self._add_blocked_time(now)
        self.quiet_ns = now
        if self._pending_end is not None:
            self._conclude()
        elif self.upstream is not None:
            self.upstream.pause_reading(False)

    def timed_out(self, seconds: float) -> None:
        """Ends the exchange because no data moved for `seconds`, unless the pump has moved data since `quiet_ns`."""
        moved_ns = self._pumped.moved_ns if self._pumped is not None else 0
        if moved_ns > self.quiet_ns:
            self.quiet_ns = moved_ns
            return
        self._end_pumping()
        now = time.monotonic_ns()
        if self.over:
            return
        if self._framing.untouched:
            self._send_error(refusals.silent(self._outgoing.route.label, seconds), TransportFault.IDLE_TIMEOUT, now)
        else:
            self._finish(Ending.TIMEOUT, now, self._state_after_incomplete(), TransportFault.IDLE_TIMEOUT)

    def cut(self) -> None:
        """Ends the exchange because the relay stops. The caller resets the client's connection next, so that a partial
        response does not look complete.
        """
        self._end_pumping()
        self._add_blocked_time(time.monotonic_ns())
        if self._pending_end is not None:
            self._unsent_bytes = self._client.transport.get_write_buffer_size()
            self._conclude()
        elif not self.over:
            self._finish(Ending.CUT, time.monotonic_ns(), NextState.GONE)

    # The response, from the upstream.

    def upstream_data(self, at_ns: int, data: bytes, sent: int = 0) -> None:
        """Forwards and captures a read from the upstream. `sent`: how many of its bytes the pump has sent to the client."""
        framing, gate = self._framing, self._gate
        awaits_head = not self._head_passed and framing.untouched
        size = framing.feed(data)
        if awaits_head and not framing.untouched:
            self._reusable = self._is_written
        if framing.fault is not None and not self._head_passed:
            refused = refusals.invalid(self._outgoing.route.label, framing.fault.value)
            self._send_error(refused, TransportFault.NOT_HTTP, at_ns)
            return
        if size != len(data):
            data, self._reusable = data[:size], False
        if self._head_passed:
            self._client.wire.write(data[sent:] if sent else data)
        else:
            self._pass_head(at_ns, data)
        self.quiet_ns = at_ns
        self._response_begun = True
        if gate.capture is not None:
            gate.capture.read(at_ns, data)
        else:
            gate.other_read(at_ns, data, framing)
        if framing.fault is not None:
            self._client.response_refused(refusals.invalid(self._outgoing.route.label, framing.fault.value))
            self._finish(Ending.RESET, at_ns, NextState.RESET, TransportFault.NOT_HTTP)
        elif framing.complete:
            self._complete(at_ns)
        elif self._pump is not None and self._head_passed:
            self._offer(self._pump)

    def _pass_head(self, at_ns: int, data: bytes) -> None:
        """Writes the final head to the client once it is complete, with what follows it in `data`.

        The client gets no interim head of the upstream: some clients take one for a final head, and the final response for
        that to their next request. A 100 that the client expects is written by the relay, once.
        """
        framing, data = self._framing, self._head + data
        if framing.untouched:
            self._head = data[-framing.half_head :] if framing.half_head else b""
            if self._expects_continue and framing.continues:
                self._expects_continue = False
                self._client.wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self._head, self._head_passed = b"", True
        self._client.wire.write(data[framing.before_head :])
        self._client.head_passed_on(time.monotonic_ns() - at_ns)

    def upstream_ended(self, at_ns: int, fault: TransportFault | None) -> None:
        """Called once, when the upstream's connection ends before the response is known to be complete. `fault` None: a clean
        end, after which the HTTP framing decides whether the response is complete.
        """
        self.upstream = None
        if fault is None and self._framing.end_of_input():
            self._finish(Ending.COMPLETE, at_ns, NextState.CLOSE)
        elif self._may_repeat():
            self._framing = ResponseFraming(self._request.method)
            self._pending, self._pending_bytes, self._reused = [self._outgoing.head], 0, False
            self._connect()
        elif self._framing.untouched:
            refused = refusals.unreachable(self._outgoing.route.label, "it closed the connection")
            self._send_error(refused, fault or TransportFault.CLOSED, at_ns)
        else:
            next_state = self._state_after_incomplete() if fault is None else NextState.RESET
            self._finish(Ending.RESET, at_ns, next_state, fault or TransportFault.CLOSED)

    def upstream_blocked(self, blocked: bool) -> None:
        """Called when more than WRITE_BUFFER_BYTES of the request wait for the upstream's socket (`blocked`), and when none
        wait any more.
        """
        if not blocked:
            self.quiet_ns = time.monotonic_ns()
            self._report_sent()
        self._client.update_reading()

    # The middle of the response, which may be handed to the pump.

    def _offer(self, pump: PumpHandle) -> None:
        """Counts a read that the relay moved. After some reads the pump takes over, if it can follow this body's framing."""
        if self._pumped is None:
            self._pumped = PumpedResponse(pump, self)
        if not self._pumped.count_read(self._framing):
            self._end_pumping()  # withdraws an offer that is already scheduled
            self._pumped = None

    def sockets(self) -> tuple[int, int, int | None] | None:
        """Returns the upstream's and the client's descriptor, and the stream's number if it is captured; None if the response
        must not be handed to the pump: it takes plain sockets without unsent data, once the request is complete.

        The exchange does not read or write these sockets until `returned`.
        """
        self._pump, upstream = None, self.upstream
        if self.over or upstream is None or not self.request_complete or self._client.blocked_ns is not None:
            return None
        upstream_fd, client_fd = upstream.wire.idle_socket, self._client.wire.idle_socket
        if upstream_fd is None or client_fd is None or not self._gate.may_be_pumped:
            return None
        upstream.pause_reading(True)
        return upstream_fd, client_fd, self._gate.stream

    def returned(
        self, at_ns: int, position: BodyPosition, data: bytes | None, sent: int, reset: bool, lost: int
    ) -> None:
        """Called when the pump has returned the response. `data`: a read that was not captured, of which `sent` bytes went to
        the client; `position`: of the body before it. `at_ns`: when the last read came (monotonic ns).

        `reset`: the upstream's socket failed. `lost`: earlier reads that were dropped, and are not reported yet.
        """
        self._pumped, upstream = None, self.upstream
        self._gate.reads_dropped(lost)
        self.quiet_ns = max(self.quiet_ns, at_ns)
        self._framing.continue_at(position)
        assert upstream is not None
        if reset:
            upstream.abort()
            self.upstream_ended(at_ns, TransportFault.RESET)
            return
        upstream.pause_reading(False)
        if data is not None:
            self.upstream_data(at_ns, data, sent)

    def _end_pumping(self) -> None:
        self._pump = None
        if self._pumped is not None:
            self._pumped.end()

    # Internal.

    @property
    def _is_written(self) -> bool:
        """Whether the upstream's socket has accepted the whole request. An upstream that responds earlier may leave a part of
        the body unread, and read the next request on that connection as the rest of it: the connection is not reused.
        """
        upstream = self.upstream
        is_empty = upstream is not None and not upstream.transport.get_write_buffer_size()
        return self.request_complete and not self._pending and is_empty

    def _state_after_incomplete(self) -> NextState:
        """The connection's next state after an incomplete response: RESET if a clean end would complete the body."""
        return NextState.RESET if self._framing.until_eof else NextState.CLOSE

    def _connect(self) -> None:
        self._connecting = reported_task("the connection to an upstream", self._connect_and_attach())

    async def _connect_and_attach(self) -> None:
        try:
            upstream = await self._connector.connect()
        except UnreachableError as fault:
            self._connecting = None
            if not self.over:
                refused = refusals.unreachable(self._outgoing.route.label, str(fault), fault.fault)
                self._send_error(refused, fault.fault, time.monotonic_ns())
            return
        self._connecting = None
        self._connected_ns = time.monotonic_ns()
        if self.over:
            upstream.abort()
        else:
            self._attach(upstream)
            self.flush()
            self._client.update_reading()

    def _attach(self, upstream: Upstream) -> None:
        if upstream.transport.is_closing():  # it ended in the same turn of the loop in which it connected
            self.upstream_ended(time.monotonic_ns(), TransportFault.CLOSED)
            return
        self.upstream, upstream.exchange = upstream, self
        self.quiet_ns = time.monotonic_ns()
        if self._client.blocked_ns is not None:
            upstream.pause_reading(True)

    def _report_sent(self) -> None:
        """Reports the request as sent, once its last byte was written and the upstream's socket accepts more."""
        if self._must_report_sent and self.upstream is not None and not self.upstream.blocked:
            self._must_report_sent = False
            self._gate.request_sent(time.monotonic_ns(), self._connected_ns, self._body_bytes)

    def _may_repeat(self) -> bool:
        """Whether the request may be sent again, on a new connection."""
        safe = self._request.method in _REPEATABLE and self._outgoing.framing == "none"
        return self._reused and safe and not self._response_begun

    def _send_error(self, refused: RefusedError, fault: TransportFault | None, at_ns: int) -> None:
        self._gate.begin()
        refused.target = self._request.target
        self._client.send_error(refused, self._gate.counted)
        self._finish(fault.ending if fault else Ending.RESET, at_ns, NextState.ERROR_SENT, fault)

    def _complete(self, at_ns: int) -> None:
        may_keep = self._framing.may_keep_client(self._request.minor)
        if self.upstream is not None and may_keep and self._framing.persistent and self._reusable:
            upstream, self.upstream = self.upstream, None
            self._client.pool.put_back(upstream)
        keep = may_keep and self.request_complete and self._request.keep_alive
        self._finish(Ending.COMPLETE, at_ns, NextState.KEEP_ALIVE if keep else NextState.CLOSE)

    def _finish(self, ending: Ending, at_ns: int, next_state: NextState, fault: TransportFault | None = None) -> None:
        self.over = True
        self._gate.begin()
        if self._connecting is not None:
            self._connecting.cancel()
        if self.upstream is not None:
            self._leave(self.upstream, ending)
            self.upstream = None
        self._pending_end = (ending, fault, at_ns, next_state)
        if self._client.blocked_ns is None or next_state is NextState.GONE:
            self._conclude()

    def _leave(self, upstream: Upstream, ending: Ending) -> None:
        """Ends the upstream's connection, because the exchange is over."""
        upstream.abort()

    def _conclude(self) -> None:
        assert self._pending_end is not None
        (ending, fault, at_ns, next_state), self._pending_end = self._pending_end, None
        self._gate.end(at_ns, ending, fault, self._gone_ns, self._blocked_ns, self._unsent_bytes)
        self._client.exchange_over(next_state)

    def _add_blocked_time(self, now: int) -> None:
        if self._client.blocked_ns is not None:
            self._blocked_ns += now - self._client.blocked_ns
            self._client.blocked_ns = None
