"""Decides when the capture of an exchange starts: at the request for LLM endpoints; otherwise only if the response is an
event stream.
"""

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.http1.content_type import says_event_stream
from streamgauge.taps.proxy.capture import ExchangeCapture, reported_request
from streamgauge.taps.proxy.outbox import RecorderClient
from streamgauge.taps.proxy.request import Outgoing, ReportedRequest, Request
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD, ResponseFraming


class CaptureGate:
    """Reports one exchange, once its capture has started. `capture`: set from then on; `waits`: the response will decide."""

    __slots__ = (
        "_early",
        "_early_bytes",
        "_outbox",
        "_outgoing",
        "_request",
        "_sent",
        "_tenant_header",
        "_untold",
        "capture",
        "waits",
    )

    def __init__(self, outbox: RecorderClient, request: Request, outgoing: Outgoing, tenant_header: str | None) -> None:
        self.capture: ExchangeCapture | None = None
        self.waits = False
        self._outbox = outbox
        self._request = request
        self._outgoing = outgoing
        self._tenant_header = tenant_header
        self._untold: list[bytes] | None = []  # unreported pieces of the request's body; None after `begin`
        self._early: list[tuple[int, bytes]] = []
        self._early_bytes = 0
        self._sent: tuple[int, int | None, int] | None = None

    def asked(self, data: bytes) -> None:
        """Takes a piece of the request's body, which may be empty."""
        if self._untold is not None:
            self._untold += [data] if data else []
        elif self.capture is not None:
            self.capture.asked(data)

    def begin(self) -> None:
        """Reports the request as far as it has come, once. On a path that is no LLM endpoint, the capture `waits` instead."""
        if self._untold is None:
            return
        untold, self._untold = self._untold, None
        told = reported_request(self._request, self._outgoing, self._tenant_header)
        if not told.captured:
            self.waits = True
            return
        capture = self._open(told)
        for piece in untold:
            capture.asked(piece)
        if self._sent is not None:
            capture.sent(*self._sent)

    def sent(self, at_ns: int, connected_ns: int | None, body_bytes: int) -> None:
        """The request's last byte was written to the upstream's connection."""
        self._sent = (at_ns, connected_ns, body_bytes)
        if self.capture is not None:
            self.capture.sent(*self._sent)

    def arrived_early(self, at_ns: int, data: bytes, framing: ResponseFraming) -> None:
        """Keeps a read while `waits`, until the response's head is complete or invalid. If the response is an event stream,
        the capture starts with the kept reads.
        """
        self._early.append((at_ns, data))
        self._early_bytes += len(data)
        if framing.status is None and framing.fault is None and self._early_bytes < MAX_RESPONSE_HEAD:
            return
        early, self._early, self.waits = self._early, [], False
        if says_event_stream((framing.content_type,)):
            capture = self._open(reported_request(self._request, self._outgoing, self._tenant_header))
            if self._sent is not None:
                capture.sent(*self._sent)
            for read in early:
                capture.arrived(*read)

    @property
    def stream(self) -> int | None:
        """The stream's number, if it is captured."""
        return None if self.capture is None else self.capture.stream

    @property
    def may_be_pumped(self) -> bool:
        """Whether the pump may report the reads from here on; also true if the exchange is not captured."""
        return not self.waits if self.capture is None else self.capture.smooth

    def lost(self, reads: int) -> None:
        """Notes reads that the pump lost: they are counted as dropped already, and not reported yet."""
        if self.capture is not None:
            self.capture.lost(reads)

    def ended(
        self,
        at_ns: int,
        ending: Ending,
        fault: TransportFault | None,
        gone_ns: int | None,
        blocked_ns: int,
        unsent_bytes: int,
    ) -> None:
        """Reports the end of the exchange, if it is captured."""
        if self.capture is not None:
            self.capture.ended(at_ns, ending, fault, gone_ns, blocked_ns, unsent_bytes)

    def _open(self, told: ReportedRequest) -> ExchangeCapture:
        self.capture = ExchangeCapture(self._outbox)
        self.capture.opened(self._request.began_ns, self._outgoing.route.recorded_name, told)
        return self.capture
