"""Reports one stream to the recorder. Nothing here raises, blocks, or changes a byte: after any fault the stream goes on,
and its record says that the capture is incomplete.
"""

import os
import time
from itertools import count

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.dialects import endpoint_of
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    REQUEST_HEADERS,
    ExchangeEnded,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import DropReason, Incident
from streamgauge.taps.proxy.outbox import RecorderClient
from streamgauge.taps.proxy.request import Outgoing, ReportedRequest, Request

_WANTED = frozenset(name.encode() for name in REQUEST_HEADERS)

# Stream numbers of this process. The process id in the high bits makes them differ from those of other relays, and of
# an earlier process of this relay, for as long as a recorder may remember them.
_numbers = count((os.getpid() & 0xFFFFFF) << 36)


class ExchangeCapture:
    """Reports one stream. Created when a request to an LLM endpoint begins, or when a response's head shows an event stream.

    `stream`: its number. `smooth`: reads can be reported as they come; see `_arrived_amiss` for other cases.
    """

    __slots__ = ("_asked", "_broken", "_dropped", "_opened", "_outbox", "_sent", "_whole", "smooth", "stream")

    def __init__(self, outbox: RecorderClient) -> None:
        self._outbox = outbox
        self.stream = next(_numbers)
        self._opened = False
        self._broken = False  # after a bug in the capture: reads are dropped, only the end is reported
        self._dropped = 0  # dropped reads that are not reported yet
        self._asked = 0
        self._whole = True
        self._sent = False
        self.smooth = False  # opened, not broken, and no unreported drops

    def opened(self, began_ns: int, upstream: str | None, told: ReportedRequest) -> None:
        """Reports a stream's start; if the outbox is overfull, the stream is not reported, and its reads are dropped."""
        try:
            if self._outbox.overfull:
                return
            wall_ns = time.time_ns() - (time.monotonic_ns() - began_ns)
            opened = RequestStarted(self.stream, began_ns, wall_ns, upstream, told.method, told.target, told.headers)
            self._outbox.put(opened, told.size)
            self._opened = self.smooth = True
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def asked(self, data: bytes) -> None:
        """Reports a piece of the request's body. Above MAX_REQUEST_BODY, or while the outbox is full, the piece is left out,
        and `sent` reports the body as not whole.
        """
        try:
            self._asked += len(data)
            if self._asked > MAX_REQUEST_BODY or self._outbox.full or not self._tells():
                self._whole = False
            elif self._whole:
                self._outbox.put(RequestBody(self.stream, data), len(data))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def sent(self, at_ns: int, connected_ns: int | None, body_bytes: int) -> None:
        """Reports that the request was sent. Only the first call has an effect: a repeated request is reported once."""
        try:
            if self._tells() and not self._sent:
                self._sent = True
                whole = self._whole and self._asked == body_bytes
                self._outbox.put(RequestSent(self.stream, at_ns, connected_ns, body_bytes, whole), 0)
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def arrived(self, at_ns: int, data: bytes) -> None:
        """Counts a read from the upstream, and reports it."""
        outbox = self._outbox
        try:
            outbox.counters.seen(1)
            if outbox.full or not self.smooth:
                self._arrived_amiss(at_ns, data)
            else:
                outbox.put(ResponseRead(self.stream, at_ns, data), len(data))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error, lost=1)

    def lost(self, reads: int) -> None:
        """Notes reads that the pump lost: they are counted as dropped already, and not reported yet."""
        if reads:
            self._dropped, self.smooth = self._dropped + reads, False

    def ended(
        self,
        at_ns: int,
        ending: Ending,
        fault: TransportFault | None,
        gone_ns: int | None,
        blocked_ns: int,
        unsent_bytes: int,
    ) -> None:
        """Reports the stream's end, even if the outbox is full: each reported stream has only one end."""
        try:
            if self._opened:
                self._tell_dropped()
                self._outbox.put(ExchangeEnded(self.stream, at_ns, ending, gone_ns, blocked_ns, unsent_bytes, fault), 0)
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def _tells(self) -> bool:
        return self._opened and not self._broken

    def _arrived_amiss(self, at_ns: int, data: bytes) -> None:
        """Drops a read that cannot be reported; otherwise reports the drops before it, and then the read."""
        if self._broken:
            self._drop(DropReason.CAPTURE_FAULT)
        elif self._outbox.full or not self._opened:
            self._drop(DropReason.RECORDER_BEHIND)
        else:
            self._tell_dropped()
            self._outbox.put(ResponseRead(self.stream, at_ns, data), len(data))

    def _drop(self, reason: DropReason) -> None:
        self._dropped, self.smooth = self._dropped + 1, False
        self._outbox.counters.dropped(reason)

    def _tell_dropped(self) -> None:
        if self._dropped:
            self._outbox.put(ReadsDropped(self.stream, self._dropped), 0)
            self._dropped, self.smooth = 0, not self._broken

    def _fault(self, error: Exception, lost: int = 0) -> None:
        """Handles a bug in the capture: from here on the stream's reads are dropped."""
        report_fault("the relay's capture", error)
        first, self._broken, self.smooth = not self._broken, True, False
        try:
            if first:
                self._outbox.counters.happened(Incident.CAPTURE_FAULT)
            if lost:
                self._drop(DropReason.CAPTURE_FAULT)
        except Exception as failed:  # noqa: BLE001 - counting fails as well: the stream still goes on
            report_fault("the relay's counters", failed)


def reported_request(request: Request, outgoing: Outgoing, tenant_header: str | None) -> ReportedRequest:
    """What is reported of a request's head: its headers are reduced to REQUEST_HEADERS and the tenant header."""
    tenant = None if tenant_header is None else tenant_header.lower().encode()
    method, target = request.method.decode("latin-1"), outgoing.target.decode("latin-1")
    headers = [
        (name.decode(), value.decode("latin-1"))
        for name, (_, value) in zip(request.names, request.headers, strict=True)
        if name in _WANTED or name == tenant
    ]
    size = len(target) + sum([len(name) + len(value) for name, value in headers])
    return ReportedRequest(endpoint_of(method, target) is not None, method, target, headers, size)
