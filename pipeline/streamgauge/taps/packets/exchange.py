"""One captured request and its response: finds where the response ends, and reports both as the relay would for the same
bytes.
"""

from urllib.parse import urlsplit

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.exchange_capture import ConnectedClient
from streamgauge.recorder.protocol import MAX_REQUEST_BODY
from streamgauge.recorder.stream_id import derived_stream_id
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.proxy.capture_gate import (
    NO_NAMED_HEADERS,
    CapturedRequest,
    CaptureGate,
    NamedHeaders,
    count_uncaptured,
)
from streamgauge.taps.proxy.request import Request
from streamgauge.taps.proxy.response import ResponseFraming

# Fed to the framing in place of lost bytes. Inside a body the framing only counts them; in a head or a chunk's line they
# are a fault.
FILLER = bytes(64 * 1024)


class Reporting:
    """Where and how exchanges are reported. `tap`: its name in records; `wall_offset_ns`: added to a stamp it gives UTC.

    `draining`: new exchanges are not captured. `derives_ids`: the packets come from a file, and stream ids are derived from
    them, so that reading the file again gives the same ids.
    """

    def __init__(
        self,
        client: ConnectedClient,
        tap: str,
        named: NamedHeaders = NO_NAMED_HEADERS,
        wall_offset_ns: int = 0,
        *,
        derives_ids: bool = False,
    ) -> None:
        self.client, self.tap, self.wall_offset_ns, self.derives_ids = client, tap, wall_offset_ns, derives_ids
        self.named = named
        self.draining = False


class PacketExchange:
    """A captured exchange. `framing`: that of its response; `blind`: the end of the response cannot be found any more.

    `facts`: what identifies the exchange in a file, besides its start.
    """

    __slots__ = ("_body_bytes", "_gate", "blind", "framing")

    def __init__(
        self, request: Request, upstream: str | None, reporting: Reporting, facts: tuple[bytes | int, ...] = ()
    ) -> None:
        self.blind = False
        self.framing = ResponseFraming(request.method, watches=True)
        self._body_bytes = 0
        self._gate: CaptureGate | None = None  # None: not captured, or ended
        if reporting.draining:
            count_uncaptured(reporting.client, upstream, NotCaptured.STOPPING)
            return
        wall_ns = request.began_ns + reporting.wall_offset_ns
        stream_id = derived_stream_id(wall_ns, *facts) if reporting.derives_ids else None
        captured = CapturedRequest(
            request,
            request.target,
            upstream,
            reporting.named,
            wall_ns,
            reporting.tap,
            stream_id,
            host=_host_of(request),
        )
        self._gate = CaptureGate(reporting.client, captured)
        self._gate.begin()

    @property
    def open(self) -> bool:
        """Whether the exchange is captured, and has not ended."""
        return self._gate is not None and self._gate.capture is not None

    # The request.

    def request_body(self, data: bytes, *, lost: bool) -> None:
        """Reports a piece of the request's body. `lost`: only its size is known."""
        self._body_bytes += len(data)
        if self._gate is None:
            return
        if lost or self._body_bytes > MAX_REQUEST_BODY:
            self._gate.lose_request_body()
        else:
            self._gate.request_body(data)

    def request_sent(self, at_ns: int) -> None:
        """Reports that the request's last byte was captured. The connection is older, so there is no connect time."""
        if self._gate is not None:
            self._gate.request_sent(at_ns, None, self._body_bytes)

    # The response.

    def read(self, at_ns: int, data: bytes) -> int:
        """Reads bytes from the server. Returns how many of them belong to this response."""
        size, gate = self.framing.feed(data), self._gate
        if size and gate is not None:
            piece = data if size == len(data) else data[:size]
            if gate.capture is not None:
                gate.capture.read(at_ns, piece)
            else:
                gate.other_read(at_ns, piece, self.framing)
        return size

    def lose_bytes(self, size: int) -> int:
        """Skips `size` bytes from the server that were not captured. Returns how many of them belong to this response.

        Where the framing only counts bytes, it continues. Elsewhere, within a head or a line of the framing, the exchange
        becomes `blind`.
        """
        self.lose_read()
        left = size
        if self.framing.untouched:
            self.blind = True
        while left and not self.blind and not self.framing.complete:
            taken = self.framing.feed(FILLER[:left])
            self.blind = self.framing.position is None and not self.framing.complete
            left -= taken
        return size - left

    def lose_read(self) -> None:
        """Reports that a part of the response was lost here."""
        if self._gate is not None:
            self._gate.lose_read(DropReason.PACKETS_LOST)

    def ends_cleanly(self) -> bool:
        """Reports that the server ended its side. Returns whether that completes the response."""
        return self.framing.end_of_input()

    def end(
        self,
        at_ns: int,
        ending: Ending,
        fault: TransportFault | None = None,
        gone_ns: int | None = None,
        unsent_bytes: int = 0,
    ) -> None:
        """Reports the end of the exchange. A blind one is reported as cut, since its real end is unknown."""
        if self._gate is not None:
            if self.framing.fault is not None:
                self._gate.count_uncaptured(NotCaptured.PACKETS_LOST if self.blind else NotCaptured.PROTOCOL)
            self._gate.end(at_ns, Ending.CUT if self.blind else ending, fault, gone_ns, None, unsent_bytes)
            self._gate = None


def _host_of(request: Request) -> str | None:
    """The host that the request names, without its port; None if it names none, or several."""
    hosts = request.values(b"host")
    try:
        return urlsplit(f"//{hosts[0].decode('latin-1').strip()}").hostname if len(hosts) == 1 else None
    except ValueError:  # a bracket without an IPv6 address
        return None
