"""A WebSocket: its handshake, which is an exchange, and after status 101 the bytes of both sides.

HANDSHAKE --101--> OPEN --either side ends--> OVER. Any other status is passed on as the response that it is, and the client's
connection ends after it: what the client has sent behind its handshake is neither frames nor a request that is known as one.

From the handshake on, this client connection and this upstream connection belong to each other and end together. What the
client sends before 101 waits here, and reaches no other upstream.
"""

import time
from typing import TYPE_CHECKING

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.exchange_capture import ConnectedClient
from streamgauge.taps.proxy.capture_gate import CaptureGate, NamedHeaders, relayed_request
from streamgauge.taps.proxy.exchange import Exchange, NextState
from streamgauge.taps.proxy.request import Outgoing, RefusedError, Request
from streamgauge.taps.proxy.response import ResponseFraming
from streamgauge.taps.proxy.upstream import WRITE_BUFFER_BYTES, Connector, Upstream
from streamgauge.taps.proxy.websocket import key_of

if TYPE_CHECKING:
    from streamgauge.taps.proxy.client import Client

# A WebSocket without a byte in either direction for this long ends (seconds). It is longer than the limit of OpenAI, 60
# minutes for a connection: a client that waits between two responses must not lose its connection to the relay.
QUIET_S = 2 * 60 * 60.0


class WebSocketExchange(Exchange):
    """An exchange that began with the handshake of a WebSocket. `is_open`: the upstream has accepted it."""

    __slots__ = ("_early", "_early_bytes", "_moved_ns", "is_open")

    def __init__(self, client: "Client", request: Request, outgoing: Outgoing, connector: Connector) -> None:
        super().__init__(client, request, outgoing, connector, None)
        self._framing = ResponseFraming(request.method, websocket_key=key_of(request))
        self.is_open = False
        self._early: list[tuple[int, bytes]] = []
        self._early_bytes = 0
        self._moved_ns = self.quiet_ns

    def begin(self, recorder: ConnectedClient, named: NamedHeaders) -> None:
        """Starts to connect: a connection that carried requests is not used."""
        self._gate = CaptureGate(recorder, relayed_request(self._request, self._outgoing, named, self._client.address))
        self._connect()

    # From the client. Its request is never complete: it may always send more.

    @property
    def waits_for_client(self) -> bool:
        """Never: the upstream's answer is due."""
        return False

    @property
    def body_must_wait(self) -> bool:
        """Whether the client must not send more: the upstream's socket, or the buffer before 101, is full."""
        if not self.is_open:
            return self._early_bytes >= WRITE_BUFFER_BYTES
        return self.upstream is not None and self.upstream.blocked

    def end_request(self) -> None:
        """Ends the handshake's head."""
        self._must_report_sent = not self.over

    def client_data(self, at_ns: int, data: bytes) -> None:
        """Passes on a read from the client, once the upstream has accepted the handshake."""
        if self.over:
            return
        self._moved_ns = self.quiet_ns = at_ns
        if not self.is_open:
            self._early.append((at_ns, data))
            self._early_bytes += len(data)
        elif self.upstream is not None:
            self.upstream.wire.write(data)
            if self._gate.websocket is not None:
                self._gate.websocket.client_data(at_ns, data)

    # From the upstream.

    def upstream_data(self, at_ns: int, data: bytes, sent: int = 0) -> None:
        """Passes on a read from the upstream: of its response, then of the WebSocket."""
        if not self.is_open:
            super().upstream_data(at_ns, data, sent)
            return
        self._client.wire.write(data)
        self._moved_ns = self.quiet_ns = at_ns
        if self._gate.websocket is not None:
            self._gate.websocket.upstream_data(at_ns, data)

    def upstream_ended(self, at_ns: int, fault: TransportFault | None) -> None:
        """Called once, when the upstream's connection ends. A WebSocket that is open ends with it."""
        if not self.is_open:
            super().upstream_ended(at_ns, fault)
            return
        self.upstream = None
        ending = Ending.COMPLETE if fault is None else Ending.RESET
        self._finish(ending, at_ns, NextState.CLOSE if fault is None else NextState.RESET, fault)

    def timed_out(self, seconds: float) -> None:
        """Ends the handshake because the upstream does not answer, or a WebSocket that is quiet for QUIET_S."""
        now = time.monotonic_ns()
        if self.is_open and now - self._moved_ns < QUIET_S * 1e9:
            self.quiet_ns = now  # the next check is due after another such time
        else:
            super().timed_out(seconds)

    # Internal.

    def _complete(self, at_ns: int) -> None:
        if self._framing.switched:
            self._open(at_ns)
        else:
            self._finish(Ending.COMPLETE, at_ns, NextState.CLOSE)

    def _open(self, at_ns: int) -> None:
        self.is_open, self._moved_ns = True, at_ns
        early, self._early, self._early_bytes = self._early, [], 0
        for read in early:
            self.client_data(*read)
        self.quiet_ns = at_ns
        if first := self._framing.after_head:
            self.upstream_data(at_ns, first)
        self._client.update_reading()

    def _leave(self, upstream: Upstream, ending: Ending) -> None:
        """A client's last bytes, its close frame among them, still go out."""
        if self.is_open and ending is Ending.CLIENT:
            upstream.close()
        else:
            upstream.abort()

    def _send_error(self, refused: RefusedError, fault: TransportFault | None, at_ns: int) -> None:
        self._gate.begin_unanswered()
        super()._send_error(refused, fault, at_ns)
