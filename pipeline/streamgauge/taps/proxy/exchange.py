"""One request and its answer: from a client's whole request head to the answer's last byte, or to whatever ends it.

CONNECTING --connected--> ASKED --answer whole--> OVER. Anything else that ends it (client, upstream, time, drain) goes
to OVER as well; there is one way there, `_finish`, and it tells the capture. Where the client has not taken everything
yet, the telling waits until it has, or left.
"""

import asyncio
import time

from streamgauge.core.dialects import endpoint_of
from streamgauge.core.segments import Ending
from streamgauge.taps.proxy import answers
from streamgauge.taps.proxy.asker import After, Asker
from streamgauge.taps.proxy.capture import StreamCapture
from streamgauge.taps.proxy.outbox import Outbox
from streamgauge.taps.proxy.request import Outgoing, RefusedError, Request
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD, ResponseFault, ResponseFraming
from streamgauge.taps.proxy.upstream import WRITE_BUFFER_BYTES, Pool, UnreachableError, Upstream

# Methods that change nothing: on a used connection that turns out dead they are asked again (RFC 9110, 9.2.2).
_REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS"))
_EVENT_STREAM = b"text/event-stream"


class Exchange:
    """See above. `quiet_ns`: when something last moved; `wants_no_body`: the request's body has to wait."""

    __slots__ = (
        "_any_byte",
        "_blocked_ns",
        "_body_bytes",
        "_capture",
        "_client",
        "_connected_ns",
        "_connecting",
        "_early",
        "_early_bytes",
        "_flows",
        "_framing",
        "_head",
        "_last",
        "_outbox",
        "_outgoing",
        "_passed",
        "_pending",
        "_pending_bytes",
        "_pool",
        "_request",
        "_reused",
        "_sent_due",
        "_stray",
        "_tenant_header",
        "_told",
        "_untold",
        "_upstream",
        "over",
        "quiet_ns",
        "request_whole",
    )

    def __init__(self, client: Asker, request: Request, outgoing: Outgoing, pool: Pool) -> None:
        self.over = False
        self.request_whole = False
        self.quiet_ns = time.monotonic_ns()
        self._client = client
        self._request = request
        self._outgoing = outgoing
        self._pool = pool
        self._upstream: Upstream | None = None
        self._reused = False
        self._connecting: asyncio.Task[None] | None = None
        self._connected_ns: int | None = None
        self._pending: list[bytes] = [outgoing.head]
        self._pending_bytes = 0
        self._body_bytes = 0
        self._sent_due = False
        self._framing = ResponseFraming(request.method == b"HEAD")
        self._any_byte = False  # of any answer, an interim one too
        self._head = b""  # the half of a head that came
        self._passed = False  # something of an answer went to the client
        self._flows = False  # its final head did: nothing is held back any more
        self._stray = False  # the upstream sent more than its answer
        self._untold: list[bytes] | None = []  # of the request's body; None once the telling has begun
        self._capture: StreamCapture | None = None
        self._early: list[tuple[int, bytes]] | None = None  # reads before it is known whether they are captured
        self._early_bytes = 0
        self._told: tuple[int, int | None, int] | None = None
        self._last: tuple[Ending, int, After] | None = None
        self._blocked_ns = 0

    def begin(self, outbox: Outbox, tenant_header: str | None) -> None:
        """Asks the upstream. The head waits for `flush`; and the telling for the head, so that it does not hold that up."""
        self._outbox, self._tenant_header = outbox, tenant_header
        one = self._pool.take()
        if one is None:
            self._connect()
        else:
            self._reused = True
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
        if self._outgoing.framing == "chunked":
            self._put(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._put(data)
        if self._untold is not None:
            self._untold.append(data)
        elif self._capture is not None:
            self._capture.asked(data)

    def ask_no_more(self) -> None:
        """The request is whole."""
        self.request_whole = True
        if self.over:
            return
        if self._outgoing.framing == "chunked":
            self._put(b"0\r\n\r\n")
        self._sent_due = True

    def flush(self) -> None:
        """What one read of the client brought goes to the upstream in one piece."""
        if self._upstream is not None:
            if self._pending:
                data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
                self._pending, self._pending_bytes = [], 0
                self._upstream.transport.write(data)
            self._tell_sent()
        if self._untold is not None:
            self._tell_begun()

    def client_left(self, unsent_bytes: int) -> None:
        """The client's connection has ended."""
        now = time.monotonic_ns()
        self._client_moves(now)
        if self._last is not None:
            self._conclude(now, unsent_bytes)
        elif not self.over:
            self._finish(Ending.CLIENT, now, After.GONE, gone_ns=now, unsent_bytes=unsent_bytes)

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
            self._conclude(None, 0)
        elif self._upstream is not None:
            self._upstream.hold(False)

    def timed_out(self, seconds: float) -> None:
        """Nothing moved for too long."""
        now = time.monotonic_ns()
        if self._framing.untouched:
            self._give_up(answers.silent(self._name, seconds), Ending.TIMEOUT, now)
        else:
            self._finish(Ending.TIMEOUT, now, self._break())

    def cut(self) -> None:
        """The relay stops: nobody may take what came so far for the whole."""
        self._client_moves(time.monotonic_ns())
        if self._last is not None:
            self._conclude(None, self._client.transport.get_write_buffer_size())
        elif not self.over:
            self._finish(Ending.CUT, time.monotonic_ns(), After.GONE)

    # The answer, from the upstream.

    def arrived(self, at_ns: int, data: bytes) -> None:
        framing = self._framing
        size = framing.feed(data)
        if framing.fault is not None and self._refuses(framing.fault, at_ns):
            return
        if size != len(data):
            data, self._stray = data[:size], True
        if self._flows:
            self._client.transport.write(data)
        else:
            self._pass_on(data)
        self.quiet_ns = at_ns
        self._any_byte = True
        if self._capture is not None:
            self._capture.arrived(at_ns, data)
        elif self._early is not None:
            self._capture_late(at_ns, data)
        if framing.complete:
            self._whole(at_ns)

    def _pass_on(self, data: bytes) -> None:
        """At once; but half a head waits for its other half, since without it the answer is one of ours."""
        if self._head:
            data, self._head = self._head + data, b""
        if half := self._framing.half_head:
            data, self._head = data[:-half], data[-half:]
            if not data:
                return
        self._passed, self._flows = True, not self._framing.untouched
        self._client.transport.write(data)

    def upstream_ended(self, at_ns: int, reset: bool) -> None:
        """The upstream's connection has ended, before the answer was known to be whole."""
        self._upstream = None
        if not reset and self._framing.end_of_input():
            self._finish(Ending.COMPLETE, at_ns, After.CLOSE)
        elif self._repeats():
            self._framing = ResponseFraming(self._request.method == b"HEAD")
            self._pending, self._pending_bytes, self._reused = [self._outgoing.head], 0, False
            self._connect()
        elif self._framing.untouched:
            self._give_up(answers.unreachable(self._name, "it closed the connection"), Ending.RESET, at_ns)
        else:
            self._finish(Ending.RESET, at_ns, After.RESET if reset else self._break())

    def upstream_blocked(self, blocked: bool) -> None:
        """The upstream takes no more of the request, or again."""
        if not blocked:
            self.quiet_ns = time.monotonic_ns()
            self._tell_sent()
        self._client.settle_reading()

    # Inside.

    @property
    def _name(self) -> str:
        return repr(self._outgoing.route.name) if self._outgoing.route.name else "server"

    def _break(self) -> After:
        """How a client learns that this is not the whole: where an end would look like one, by a reset."""
        return After.RESET if self._framing.until_eof and self._framing.fault is None else After.CLOSE

    def _connect(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect_now())

    async def _connect_now(self) -> None:
        try:
            one = await self._pool.connect()
        except UnreachableError as fault:
            self._connecting = None
            self._not_connected(fault)
            return
        self._connecting = None
        self._connected_ns = time.monotonic_ns()
        if self.over:
            one.abort()
        else:
            self._attach(one)
            self.flush()
            self._client.settle_reading()

    def _not_connected(self, fault: UnreachableError) -> None:
        if not self.over:
            ending = Ending.TIMEOUT if fault.timed_out else Ending.RESET
            refused = answers.unreachable(self._name, str(fault))
            if fault.timed_out:
                refused = RefusedError(504, "upstream_timeout", refused.message)
            self._give_up(refused, ending, time.monotonic_ns())

    def _attach(self, one: Upstream) -> None:
        if one.transport.is_closing():  # it ended in the turn in which it was made: nothing was written
            self._not_connected(UnreachableError("it closed the connection"))
            return
        self._upstream, one.exchange = one, self
        self.quiet_ns = time.monotonic_ns()
        if self._client.blocked_ns is not None:
            one.hold(True)

    def _put(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)

    def _tell_sent(self) -> None:
        """Once the last byte is with the socket."""
        if self._sent_due and self._upstream is not None and not self._upstream.blocked:
            self._sent_due = False
            self._told = (time.monotonic_ns(), self._connected_ns, self._body_bytes)
            if self._capture is not None:
                self._capture.sent(*self._told)

    def _repeats(self) -> bool:
        """Whether the request may be asked again, on a new connection."""
        safe = self._request.method in _REPEATABLE and self._outgoing.framing == "none"
        return self._reused and safe and not self._any_byte

    def _refuses(self, fault: ResponseFault, at_ns: int) -> bool:
        """What no longer can be followed is passed on as it is; unless it is no answer, and nothing of it was."""
        if not self._passed and fault is not ResponseFault.BAD_CHUNKS:
            self._give_up(answers.invalid(self._name, fault.value), Ending.RESET, at_ns)
            return True
        if fault is ResponseFault.UPGRADED:
            self._finish(Ending.RESET, at_ns, After.RESET)
            return True
        return False

    def _give_up(self, refused: RefusedError, ending: Ending, at_ns: int) -> None:
        self._client.answer(refused)
        self._finish(ending, at_ns, After.ANSWERED)

    def _tell_begun(self) -> None:
        """Tells of the request what is there of it. A path that is no LLM's waits for the answer's head."""
        untold, self._untold = self._untold or [], None
        if endpoint_of(self._request.method.decode("latin-1"), self._outgoing.target.decode("latin-1")) is None:
            self._early = []
            return
        self._open_capture()
        assert self._capture is not None
        for piece in untold:
            self._capture.asked(piece)
        if self._told is not None:
            self._capture.sent(*self._told)

    def _open_capture(self) -> None:
        self._capture = StreamCapture(self._outbox)
        self._capture.opened(self._request, self._outgoing, self._tenant_header)

    def _capture_late(self, at_ns: int, data: bytes) -> None:
        """A path that is no LLM's: its head decides."""
        assert self._early is not None
        self._early.append((at_ns, data))
        self._early_bytes += len(data)
        if self._framing.status is None and self._framing.fault is None and self._early_bytes < MAX_RESPONSE_HEAD:
            return
        early, self._early = self._early, None
        if self._framing.content_type.startswith(_EVENT_STREAM):
            self._open_capture()
            assert self._capture is not None
            if self._told is not None:
                self._capture.sent(*self._told)
            for read in early:
                self._capture.arrived(*read)

    def _whole(self, at_ns: int) -> None:
        persistent = self._framing.persistent
        if self._request.minor == 0:  # the head is all that tells HTTP/1.0 whether a connection lives on
            persistent = persistent and self._framing.says_keep_alive
        if self._upstream is not None and persistent and self.request_whole and not self._stray:
            one, self._upstream = self._upstream, None
            self._pool.give(one)
        keep = persistent and self.request_whole and self._request.keep_alive
        self._finish(Ending.COMPLETE, at_ns, After.KEEP if keep else After.CLOSE)

    def _finish(
        self, ending: Ending, at_ns: int, after: After, *, gone_ns: int | None = None, unsent_bytes: int = 0
    ) -> None:
        self.over = True
        if self._untold is not None:
            self._tell_begun()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        self._last = (ending, at_ns, after)
        if self._client.blocked_ns is None or after is After.GONE:
            self._conclude(gone_ns, unsent_bytes)

    def _conclude(self, gone_ns: int | None, unsent_bytes: int) -> None:
        assert self._last is not None
        (ending, at_ns, after), self._last = self._last, None
        if self._capture is not None:
            self._capture.ended(at_ns, ending, gone_ns, self._blocked_ns, unsent_bytes)
        self._client.exchange_over(after)

    def _client_moves(self, now: int) -> None:
        if self._client.blocked_ns is not None:
            self._blocked_ns += now - self._client.blocked_ns
            self._client.blocked_ns = None
