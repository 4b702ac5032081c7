"""One request and its response: from the client's complete request head to the response's last byte, or to an earlier end.

CONNECTING --connected--> ASKED --response whole--> OVER. All other ends (client, upstream, time, drain) lead to OVER too,
through `_finish` alone. The end is reported to the capture once the client has taken all bytes, or has left.
"""

import asyncio
import time

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.http1.body_position import BodyPosition
from streamgauge.recorder.exchange_capture import CaptureClient
from streamgauge.runtime.faults import reported_task
from streamgauge.taps.proxy import error_responses
from streamgauge.taps.proxy.capture_gate import CaptureGate, relayed_request
from streamgauge.taps.proxy.client_interface import ClientSide, ConnectionFate
from streamgauge.taps.proxy.pump_handle import PumpedResponse, PumpHandle
from streamgauge.taps.proxy.request import Outgoing, RefusedError, Request
from streamgauge.taps.proxy.response import ResponseFault, ResponseFraming
from streamgauge.taps.proxy.upstream import WRITE_BUFFER_BYTES, Connector, UnreachableError, Upstream

# Safe methods: if a reused connection turns out to be dead, the relay sends the request again (RFC 9110, 9.2.2).
_REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class Exchange:
    """One exchange. `quiet_ns`: when data last moved (monotonic ns); `wants_no_body`: the request's body must wait."""

    __slots__ = (
        "_any_byte",
        "_blocked_ns",
        "_body_bytes",
        "_client",
        "_connected_ns",
        "_connecting",
        "_connector",
        "_flows",
        "_framing",
        "_gate",
        "_gone_ns",
        "_head",
        "_last",
        "_outgoing",
        "_passed",
        "_pending",
        "_pending_bytes",
        "_pump",
        "_pumped",
        "_request",
        "_reusable",
        "_reused",
        "_sent_due",
        "_unsent_bytes",
        "_upstream",
        "over",
        "quiet_ns",
        "request_whole",
    )

    def __init__(
        self, client: ClientSide, request: Request, outgoing: Outgoing, connector: Connector, pump: PumpHandle | None
    ) -> None:
        self.over = self.request_whole = False
        self.quiet_ns = time.monotonic_ns()
        self._client = client
        self._request = request
        self._outgoing = outgoing
        self._connector = connector
        self._upstream: Upstream | None = None
        self._reused = False
        self._connecting: asyncio.Task[None] | None = None
        self._connected_ns: int | None = None
        self._pending: list[bytes] = [outgoing.head]
        self._pending_bytes = self._body_bytes = 0
        self._sent_due = False
        self._framing = ResponseFraming(request.method, in_c=pump is not None)
        self._any_byte = False  # of any response, also of an interim one, has come
        self._head = b""  # the beginning of an incomplete head, held back
        self._passed = False  # a byte of any response, also of an interim one, went to the client
        self._flows = False  # the final head went to the client: nothing is held back any more
        self._reusable = True  # the upstream sent its response after the whole request, and no byte after it
        self._pump = pump  # while the response may be handed to the pump
        self._pumped: PumpedResponse | None = None
        self._last: tuple[Ending, TransportFault | None, int, ConnectionFate] | None = None
        self._blocked_ns = self._unsent_bytes = 0
        self._gone_ns: int | None = None

    def begin(self, recorder: CaptureClient, tenant_header: str | None) -> None:
        """Takes an idle connection of this client, or starts to connect. The next `flush` writes the pending bytes."""
        self._gate = CaptureGate(recorder, relayed_request(self._request, self._outgoing, tenant_header))
        one = self._client.own.take(self._connector)
        self._reused = one is not None
        if one is None:
            self._connect()
        else:
            self._attach(one)

    # The request, from the client.

    @property
    def nothing_passed(self) -> bool:
        """No byte of a final response went to the client: the relay may send its own response."""
        return self._framing.untouched

    @property
    def waits_for_client(self) -> bool:
        """The exchange waits for the rest of the client's request."""
        return not self.request_whole and not self.wants_no_body

    @property
    def wants_no_body(self) -> bool:
        if self._upstream is None:
            return self._pending_bytes >= WRITE_BUFFER_BYTES
        return self._upstream.blocked

    def ask(self, data: bytes) -> None:
        """Takes a piece of the request's body."""
        if self.over:
            return
        self.quiet_ns = time.monotonic_ns()
        self._body_bytes += len(data)
        self._pending.append(b"%x\r\n%b\r\n" % (len(data), data) if self._outgoing.framing == "chunked" else data)
        self._pending_bytes += len(data)
        self._gate.request_body(data)

    def ask_no_more(self) -> None:
        """The client's request is complete."""
        self.request_whole = True
        if self.over:
            return
        if self._outgoing.framing == "chunked":
            self._pending.append(b"0\r\n\r\n")
        self._sent_due = True

    def flush(self) -> None:
        """Writes the bytes from one read of the client to the upstream in one piece."""
        if self._upstream is not None:
            if self._pending:
                data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
                self._pending, self._pending_bytes = [], 0
                self._upstream.wire.write(data)
            self._report_sent()
        self._gate.begin()

    def client_left(self, unsent_bytes: int) -> None:
        """The client's connection has ended. `unsent_bytes`: bytes of the response that its socket had not taken."""
        self._end_pumping()
        now = time.monotonic_ns()
        self._client_moves(now)
        self._gone_ns, self._unsent_bytes = now, unsent_bytes
        if self._last is not None:
            self._conclude()
        elif not self.over:
            self._finish(Ending.CLIENT, now, ConnectionFate.GONE)

    def client_blocked(self) -> None:
        """The client takes no more data: the relay stops reading from the upstream."""
        if self._upstream is not None:
            self._upstream.hold(True)

    def client_resumed(self) -> None:
        """The client has taken all that was written."""
        now = time.monotonic_ns()
        self._client_moves(now)
        self.quiet_ns = now
        if self._last is not None:
            self._conclude()
        elif self._upstream is not None:
            self._upstream.hold(False)

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
            self._answer(error_responses.silent(self._outgoing.route.label, seconds), TransportFault.IDLE_TIMEOUT, now)
        else:
            self._finish(Ending.TIMEOUT, now, self._break(), TransportFault.IDLE_TIMEOUT)

    def cut(self) -> None:
        """The relay stops. It resets the client's connection next, so that a partial response does not look complete."""
        self._end_pumping()
        self._client_moves(time.monotonic_ns())
        if self._last is not None:
            self._unsent_bytes = self._client.transport.get_write_buffer_size()
            self._conclude()
        elif not self.over:
            self._finish(Ending.CUT, time.monotonic_ns(), ConnectionFate.GONE)

    # The response, from the upstream.

    def arrived(self, at_ns: int, data: bytes, sent: int = 0) -> None:
        """Takes a read from the upstream. `sent`: how many of its bytes the pump has already sent to the client."""
        framing, gate = self._framing, self._gate
        awaits_head = not self._flows and framing.untouched
        size = framing.feed(data)
        if awaits_head and not framing.untouched:
            self._reusable = self._is_written
        if framing.fault is not None and self._refuses(framing.fault, at_ns):
            return
        if size != len(data):
            data, self._reusable = data[:size], False
        if self._flows:
            self._client.wire.write(data[sent:] if sent else data)
        else:
            self._pass_on(data)
        self.quiet_ns = at_ns
        self._any_byte = True
        if gate.capture is not None:
            gate.capture.read(at_ns, data)
        elif gate.waits:
            gate.read_early(at_ns, data, framing)
        if framing.complete:
            self._whole(at_ns)
        elif self._pump is not None and self._flows:
            self._offer(self._pump)

    def _pass_on(self, data: bytes) -> None:
        """Writes to the client, but holds an incomplete head back: without its rest, the relay sends its own response."""
        if self._head:
            data, self._head = self._head + data, b""
        if half := self._framing.half_head:
            data, self._head = data[:-half], data[-half:]
            if not data:
                return
        self._passed, self._flows = True, not self._framing.untouched
        self._client.wire.write(data)

    def upstream_ended(self, at_ns: int, fault: TransportFault | None) -> None:
        """The upstream's connection has ended before the response was known to be complete. `fault` None: a clean end."""
        self._upstream = None
        if fault is None and self._framing.end_of_input():
            self._finish(Ending.COMPLETE, at_ns, ConnectionFate.CLOSE)
        elif self._repeats():
            self._framing = ResponseFraming(self._request.method, in_c=self._pump is not None)
            self._pending, self._pending_bytes, self._reused = [self._outgoing.head], 0, False
            self._connect()
        elif self._framing.untouched:
            refused = error_responses.unreachable(self._outgoing.route.label, "it closed the connection")
            self._answer(refused, fault or TransportFault.CLOSED, at_ns)
        else:
            after = self._break() if fault is None else ConnectionFate.RESET
            self._finish(Ending.RESET, at_ns, after, fault or TransportFault.CLOSED)

    def upstream_blocked(self, blocked: bool) -> None:
        """The upstream takes no more of the request, or takes it again."""
        if not blocked:
            self.quiet_ns = time.monotonic_ns()
            self._report_sent()
        self._client.settle_reading()

    # The middle of the response, which may be handed to the pump.

    def _offer(self, pump: PumpHandle) -> None:
        """Counts a read that the relay moved: after some reads the pump takes over, if it can follow this body's framing."""
        if self._pumped is None:
            self._pumped = PumpedResponse(pump, self)
        if not self._pumped.count_read(self._framing):
            self._pump = self._pumped = None

    def sockets(self) -> tuple[int, int, int | None] | None:
        """See `pump_handle.PumpOwner`: plain sockets without unsent data, once the request is complete."""
        self._pump, one = None, self._upstream
        if self.over or one is None or not self.request_whole or self._client.blocked_ns is not None:
            return None
        upstream, client = one.wire.idle_socket, self._client.wire.idle_socket
        if upstream is None or client is None or not self._gate.may_be_pumped:
            return None
        one.hold(True)
        return upstream, client, self._gate.stream

    def returned(self, at_ns: int, place: BodyPosition, data: bytes | None, sent: int, reset: bool, lost: int) -> None:
        """See `pump_handle.PumpOwner`."""
        self._pumped, one = None, self._upstream
        self._gate.reads_dropped(lost)
        self.quiet_ns = max(self.quiet_ns, at_ns)
        self._framing.continue_at(place)
        assert one is not None
        if reset:
            one.abort()
            self.upstream_ended(at_ns, TransportFault.RESET)
            return
        one.hold(False)
        if data is not None:
            self.arrived(at_ns, data, sent)

    def _end_pumping(self) -> None:
        self._pump = None
        if self._pumped is not None:
            self._pumped.end()

    # Internal.

    @property
    def _is_written(self) -> bool:
        """The upstream's socket has taken the whole request. An upstream that responds earlier may leave a part of the body
        unread, and read the next request on that connection as the rest of it: the connection is not reused.
        """
        one = self._upstream
        is_empty = one is not None and not one.transport.get_write_buffer_size()
        return self.request_whole and not self._pending and is_empty

    def _break(self) -> ConnectionFate:
        """How to show the client that the response is incomplete: by a reset if the connection's end also ends the body."""
        return ConnectionFate.RESET if self._framing.until_eof and self._framing.fault is None else ConnectionFate.CLOSE

    def _connect(self) -> None:
        self._connecting = reported_task("the connection to an upstream", self._connect_now())

    async def _connect_now(self) -> None:
        try:
            one = await self._connector.connect()
        except UnreachableError as fault:
            self._connecting = None
            if not self.over:
                refused = error_responses.unreachable(self._outgoing.route.label, str(fault), fault.fault)
                self._answer(refused, fault.fault, time.monotonic_ns())
            return
        self._connecting = None
        self._connected_ns = time.monotonic_ns()
        if self.over:
            one.abort()
        else:
            self._attach(one)
            self.flush()
            self._client.settle_reading()

    def _attach(self, one: Upstream) -> None:
        if one.transport.is_closing():  # it ended in the same turn of the loop in which it was made
            self.upstream_ended(time.monotonic_ns(), TransportFault.CLOSED)
            return
        self._upstream, one.exchange = one, self
        self.quiet_ns = time.monotonic_ns()
        if self._client.blocked_ns is not None:
            one.hold(True)

    def _report_sent(self) -> None:
        """Reports the request as sent, once its last byte was written and the upstream's connection takes more."""
        if self._sent_due and self._upstream is not None and not self._upstream.blocked:
            self._sent_due = False
            self._gate.request_sent(time.monotonic_ns(), self._connected_ns, self._body_bytes)

    def _repeats(self) -> bool:
        """Whether the request may be sent again, on a new connection."""
        safe = self._request.method in _REPEATABLE and self._outgoing.framing == "none"
        return self._reused and safe and not self._any_byte

    def _refuses(self, fault: ResponseFault, at_ns: int) -> bool:
        """Ends the exchange if the faulty response cannot be passed on as it is. Returns whether it has ended."""
        if not self._passed and fault is not ResponseFault.BAD_CHUNKS:
            refused = error_responses.invalid(self._outgoing.route.label, fault.value)
            self._answer(refused, TransportFault.NOT_HTTP, at_ns)
            return True
        if fault is ResponseFault.UPGRADED:
            self._finish(Ending.RESET, at_ns, ConnectionFate.RESET, TransportFault.NOT_HTTP)
            return True
        return False

    def _answer(self, refused: RefusedError, fault: TransportFault | None, at_ns: int) -> None:
        self._client.answer(refused)
        self._finish(fault.ending if fault else Ending.RESET, at_ns, ConnectionFate.ANSWERED, fault)

    def _whole(self, at_ns: int) -> None:
        persistent = self._framing.persistent
        if self._request.minor == 0:  # an HTTP/1.0 client needs `Connection: keep-alive` in the response
            persistent = persistent and self._framing.has_keep_alive
        if self._upstream is not None and persistent and self._is_written and self._reusable:
            one, self._upstream = self._upstream, None
            self._client.own.give(one)
        keep = persistent and self.request_whole and self._request.keep_alive
        self._finish(Ending.COMPLETE, at_ns, ConnectionFate.KEEP if keep else ConnectionFate.CLOSE)

    def _finish(self, ending: Ending, at_ns: int, after: ConnectionFate, fault: TransportFault | None = None) -> None:
        self.over = True
        self._gate.begin()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        self._last = (ending, fault, at_ns, after)
        if self._client.blocked_ns is None or after is ConnectionFate.GONE:
            self._conclude()

    def _conclude(self) -> None:
        assert self._last is not None
        (ending, fault, at_ns, after), self._last = self._last, None
        self._gate.end(at_ns, ending, fault, self._gone_ns, self._blocked_ns, self._unsent_bytes)
        self._client.exchange_over(after)

    def _client_moves(self, now: int) -> None:
        if self._client.blocked_ns is not None:
            self._blocked_ns += now - self._client.blocked_ns
            self._client.blocked_ns = None
