"""One request and its answer: from a client's whole request head to the answer's last byte, or to whatever ends it.

CONNECTING --connected--> ASKED --response whole--> OVER. All other ends (client, upstream, time, drain) lead to OVER too,
through `_finish` alone. It reports the end to the capture once the client has taken all bytes, or has left.
"""

import asyncio
import time

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.runtime.faults import reported_task
from streamgauge.taps.proxy import error_responses
from streamgauge.taps.proxy.body_position import BodyPosition
from streamgauge.taps.proxy.capture_gate import CaptureGate
from streamgauge.taps.proxy.client_interface import ClientSide, ConnectionFate
from streamgauge.taps.proxy.outbox import RecorderClient
from streamgauge.taps.proxy.pump_handle import PumpedResponse, PumpHandle
from streamgauge.taps.proxy.request import Outgoing, RefusedError, Request
from streamgauge.taps.proxy.response import ResponseFault, ResponseFraming
from streamgauge.taps.proxy.upstream import WRITE_BUFFER_BYTES, Connector, UnreachableError, Upstream

# Methods that change nothing: on a used connection that turns out dead they are asked again (RFC 9110, 9.2.2).
_REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class Exchange:
    """See above. `quiet_ns`: when something last moved; `wants_no_body`: the request's body has to wait."""

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
        self, client: ClientSide, request: Request, outgoing: Outgoing, connector: Connector, lender: PumpHandle | None
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
        self._framing = ResponseFraming(request.method == b"HEAD", plainly=lender is not None)
        self._any_byte = False  # of any answer, an interim one too
        self._head = b""  # the half of a head that came
        self._passed = False  # something of an answer went to the client
        self._flows = False  # its final head did: nothing is held back any more
        self._reusable = True  # the upstream kept to the order: a whole request, then one answer and nothing more
        self._pump = lender  # while the answer may be lent
        self._pumped: PumpedResponse | None = None
        self._last: tuple[Ending, TransportFault | None, int, ConnectionFate] | None = None
        self._blocked_ns = self._unsent_bytes = 0
        self._gone_ns: int | None = None

    def begin(self, outbox: RecorderClient, tenant_header: str | None) -> None:
        """Takes a connection that is the client's own, or starts one; what is pending is written with the next `flush`."""
        self._gate = CaptureGate(outbox, self._request, self._outgoing, tenant_header)
        one = self._client.own.take(self._connector)
        self._reused = one is not None
        if one is None:
            self._connect()
        else:
            self._attach(one)

    # The request, from the client.

    @property
    def nothing_passed(self) -> bool:
        """No byte of a final answer went to the client: it may get one of ours."""
        return self._framing.untouched

    @property
    def waits_for_client(self) -> bool:
        """The rest of the request is what is missing."""
        return not self.request_whole and not self.wants_no_body

    @property
    def wants_no_body(self) -> bool:
        if self._upstream is None:
            return self._pending_bytes >= WRITE_BUFFER_BYTES
        return self._upstream.blocked

    def ask(self, data: bytes) -> None:
        """A piece of the request's body."""
        if self.over:
            return
        self.quiet_ns = time.monotonic_ns()
        self._body_bytes += len(data)
        self._pending.append(b"%x\r\n%b\r\n" % (len(data), data) if self._outgoing.framing == "chunked" else data)
        self._pending_bytes += len(data)
        self._gate.asked(data)

    def ask_no_more(self) -> None:
        """The request is whole."""
        self.request_whole = True
        if self.over:
            return
        if self._outgoing.framing == "chunked":
            self._pending.append(b"0\r\n\r\n")
        self._sent_due = True

    def flush(self) -> None:
        """What one read of the client brought goes to the upstream in one piece."""
        if self._upstream is not None:
            if self._pending:
                data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
                self._pending, self._pending_bytes = [], 0
                self._upstream.wire.write(data)
            self._tell_sent()
        self._gate.begin()

    def client_left(self, unsent_bytes: int) -> None:
        """The client's connection has ended."""
        self._end_pumping()
        now = time.monotonic_ns()
        self._client_moves(now)
        self._gone_ns, self._unsent_bytes = now, unsent_bytes
        if self._last is not None:
            self._conclude()
        elif not self.over:
            self._finish(Ending.CLIENT, now, ConnectionFate.GONE)

    def client_blocked(self) -> None:
        """The client takes no more: neither does the relay."""
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
        """Nothing moved for too long, unless the pump knows better."""
        moved_ns = self._pumped.moved_ns if self._pumped is not None else 0
        if moved_ns > self.quiet_ns:
            self.quiet_ns = moved_ns
            return
        self._end_pumping()
        now = time.monotonic_ns()
        if self.over:
            return
        if self._framing.untouched:
            self._give_up(error_responses.silent(self._outgoing.route.label, seconds), TransportFault.IDLE_TIMEOUT, now)
        else:
            self._finish(Ending.TIMEOUT, now, self._break(), TransportFault.IDLE_TIMEOUT)

    def cut(self) -> None:
        """The relay stops: nobody may take what came so far for the whole."""
        self._end_pumping()
        self._client_moves(time.monotonic_ns())
        if self._last is not None:
            self._unsent_bytes = self._client.transport.get_write_buffer_size()
            self._conclude()
        elif not self.over:
            self._finish(Ending.CUT, time.monotonic_ns(), ConnectionFate.GONE)

    # The answer, from the upstream.

    def arrived(self, at_ns: int, data: bytes, sent: int = 0) -> None:
        """A read. `sent`: so many of its bytes went to the client already."""
        framing, teller = self._framing, self._gate
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
        if teller.capture is not None:
            teller.capture.arrived(at_ns, data)
        elif teller.waits:
            teller.arrived_early(at_ns, data, framing)
        if framing.complete:
            self._whole(at_ns)
        elif self._pump is not None and self._flows:
            self._offer(self._pump)

    def _pass_on(self, data: bytes) -> None:
        """At once; but half a head waits for its other half, since without it the answer is one of ours."""
        if self._head:
            data, self._head = self._head + data, b""
        if half := self._framing.half_head:
            data, self._head = data[:-half], data[-half:]
            if not data:
                return
        self._passed, self._flows = True, not self._framing.untouched
        self._client.wire.write(data)

    def upstream_ended(self, at_ns: int, fault: TransportFault | None) -> None:
        """The upstream's connection has ended, before the answer was known to be whole."""
        self._upstream = None
        if fault is None and self._framing.end_of_input():
            self._finish(Ending.COMPLETE, at_ns, ConnectionFate.CLOSE)
        elif self._repeats():
            self._framing = ResponseFraming(self._request.method == b"HEAD", plainly=self._pump is not None)
            self._pending, self._pending_bytes, self._reused = [self._outgoing.head], 0, False
            self._connect()
        elif self._framing.untouched:
            refused = error_responses.unreachable(self._outgoing.route.label, "it closed the connection")
            self._give_up(refused, fault or TransportFault.CLOSED, at_ns)
        else:
            after = self._break() if fault is None else ConnectionFate.RESET
            self._finish(Ending.RESET, at_ns, after, fault or TransportFault.CLOSED)

    def upstream_blocked(self, blocked: bool) -> None:
        """The upstream takes no more of the request, or again."""
        if not blocked:
            self.quiet_ns = time.monotonic_ns()
            self._tell_sent()
        self._client.settle_reading()

    # The middle of the answer, which the pump may have.

    def _offer(self, lender: PumpHandle) -> None:
        """Once this read has gone out, the next ones may be the pump's, unless something speaks against it."""
        if self._pumped is None:
            self._pumped = PumpedResponse(lender, self)
        if not self._pumped.came(self._framing):
            self._pump = self._pumped = None

    def sockets(self) -> tuple[int, int, int | None] | None:
        """See `pump_handle.PumpOwner`: plain ones, on which nothing is under way in either direction."""
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
        self._gate.lost(lost)
        self.quiet_ns = max(self.quiet_ns, at_ns)
        self._framing.go_on_at(place)
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

    # Inside.

    @property
    def _is_written(self) -> bool:
        """The whole request is with the upstream's socket. An upstream that answers before may leave a part of the body
        unread, and read the next request on the same connection as the rest of it: that connection is not used again.
        """
        one = self._upstream
        is_empty = one is not None and not one.transport.get_write_buffer_size()
        return self.request_whole and not self._pending and is_empty

    def _break(self) -> ConnectionFate:
        """How a client learns that this is not the whole: where an end would look like one, by a reset."""
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
                self._give_up(refused, fault.fault, time.monotonic_ns())
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
        if one.transport.is_closing():  # it ended in the turn in which it was made
            self.upstream_ended(time.monotonic_ns(), TransportFault.CLOSED)
            return
        self._upstream, one.exchange = one, self
        self.quiet_ns = time.monotonic_ns()
        if self._client.blocked_ns is not None:
            one.hold(True)

    def _tell_sent(self) -> None:
        """Once the last byte is with the socket."""
        if self._sent_due and self._upstream is not None and not self._upstream.blocked:
            self._sent_due = False
            self._gate.sent(time.monotonic_ns(), self._connected_ns, self._body_bytes)

    def _repeats(self) -> bool:
        """Whether the request may be asked again, on a new connection."""
        safe = self._request.method in _REPEATABLE and self._outgoing.framing == "none"
        return self._reused and safe and not self._any_byte

    def _refuses(self, fault: ResponseFault, at_ns: int) -> bool:
        """What no longer can be followed is passed on as it is; unless it is no answer, and nothing of it was."""
        if not self._passed and fault is not ResponseFault.BAD_CHUNKS:
            refused = error_responses.invalid(self._outgoing.route.label, fault.value)
            self._give_up(refused, TransportFault.NOT_HTTP, at_ns)
            return True
        if fault is ResponseFault.UPGRADED:
            self._finish(Ending.RESET, at_ns, ConnectionFate.RESET, TransportFault.NOT_HTTP)
            return True
        return False

    def _give_up(self, refused: RefusedError, fault: TransportFault | None, at_ns: int) -> None:
        self._client.answer(refused)
        self._finish(fault.ending if fault else Ending.RESET, at_ns, ConnectionFate.ANSWERED, fault)

    def _whole(self, at_ns: int) -> None:
        persistent = self._framing.persistent
        if self._request.minor == 0:  # the head is all that tells HTTP/1.0 whether a connection lives on
            persistent = persistent and self._framing.says_keep_alive
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
        self._gate.ended(at_ns, ending, fault, self._gone_ns, self._blocked_ns, self._unsent_bytes)
        self._client.exchange_over(after)

    def _client_moves(self, now: int) -> None:
        if self._client.blocked_ns is not None:
            self._blocked_ns += now - self._client.blocked_ns
            self._client.blocked_ns = None
