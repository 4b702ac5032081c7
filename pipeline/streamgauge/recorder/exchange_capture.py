"""Reports one exchange to the recorder; all taps use it. No method raises, waits or changes a byte: after a fault in the
capture the exchange continues, and its record is marked incomplete.

A tap calls `start`, then in the order of the traffic `request_body`, `request_sent`, `response_head` (only a tap that does
not read the wire) and `read`, then `end`. The messages go to a client of the recorder (client.py).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.fail_open import fails_open
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    RESPONSE_HEADERS,
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
)
from streamgauge.runtime.faults import report_fault
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured

# Header fields as a tap has them, as text or bytes (Latin-1).
Headers = Iterable[tuple[str | bytes, str | bytes]]


class CaptureClient(Protocol):
    """Queues messages and counts reads. No method waits; each may raise."""

    @property
    def full(self) -> bool:
        """Whether no more reads and request bodies are accepted."""

    @property
    def overfull(self) -> bool:
        """Whether no more starts of exchanges are accepted either."""

    def has_room(self, stream: int, size: int) -> bool:
        """Whether a read or a piece of a body of this size may be put for a stream."""

    def take_room(self, stream: int, size: int) -> bool:
        """As `has_room`, and takes it from the stream's share, if there are shares."""

    def admits(self, party: Party | None) -> bool:
        """Whether a new stream of this party may begin, while the recorder is behind. Counts it if not."""

    def new_stream(self) -> int:
        """A number for the next stream: unique among the streams that a recorder may know."""

    def put(self, message: Message, size: int) -> None:
        """Queues a message with `size` bytes of content, even if `full` is set."""

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        """Queues a read and counts it as seen. Returns False without room. Then, and if it raises, nothing is counted."""

    def count_dropped(self, reason: DropReason) -> None:
        """Counts a read as seen and dropped."""

    def count_fault(self) -> None:
        """Counts an exchange whose capture ended because of a bug."""

    def count_response(self, upstream: str | None, without: NotCaptured | None = None) -> None:
        """Counts a response that passes. `without`: why it is not captured; None: its start was put before."""


class ConnectedClient(CaptureClient, Protocol):
    """A client that says when it has connected again."""

    @property
    def connections(self) -> int:
        """How many connections to a recorder were made so far: a new one may be to another recorder."""


class ExchangeCapture:
    """The capture of one exchange. `stream`: its number; `steady`: reads need no check before they are reported: the exchange
    has started and not ended, nothing failed, and all drops are reported.
    """

    __slots__ = ("_body_bytes", "_body_is_whole", "_broken", "_client", "_counted", "_dropped", "_ended", "_sent",
                 "_started", "_upstream", "steady", "stream")  # fmt: skip

    def __init__(self, client: CaptureClient, upstream: str | None = None) -> None:
        """`upstream`: its name in records, if the capture may fail before `start`."""
        self._client, self._upstream = client, upstream
        self._counted = False  # as a response
        self.stream = 0
        self.steady = False
        self._started = self._ended = self._sent = False
        self._broken = False  # after a bug: reads are dropped, and only the end is reported
        self._dropped = 0  # dropped reads that are not reported yet
        self._body_bytes = 0
        self._body_is_whole = True

    @fails_open
    def start(
        self,
        at_ns: int | None,
        wall_ns: int | None,
        upstream: str | None,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        *,
        tap: str,
        dialect: str | None = None,
        stream_id: bytes | None = None,
        tenant_header: str | None = None,
        attributes: list[tuple[str, str]] | None = None,
        client_name: str | None = None,
        party: Party | None = None,
        host: str | None = None,
        form_model: str | None = None,
    ) -> None:
        """Reports the start of the exchange: see RequestStarted. If the client is overfull, or does not admit the party,
        nothing of the exchange is reported, and its reads are dropped.
        """
        client, self._upstream = self._client, upstream
        self.stream = client.new_stream()
        if client.overfull or not client.admits(party):
            self._counted = True
            client.count_response(upstream, NotCaptured.RECORDER_BEHIND)
            return
        attributes = attributes or []
        size = len(target) + sum([len(name) + len(value) for pairs in (headers, attributes) for name, value in pairs])
        started = RequestStarted(
            self.stream, at_ns, wall_ns, upstream, method, target, headers, tap, dialect, stream_id, tenant_header,
            attributes, client_name, party, host, form_model,
        )  # fmt: skip
        client.put(started, size)
        self._started = self.steady = self._counted = True
        client.count_response(upstream)

    @fails_open
    def request_body(self, data: bytes) -> None:
        """Reports a piece of the request's body. Above MAX_REQUEST_BODY, or if there is no room, the piece is left out, and
        `request_sent` reports the body as not whole.
        """
        client = self._client
        self._body_bytes += len(data)
        if self._body_bytes > MAX_REQUEST_BODY or not self._reports:
            self._body_is_whole = False
        elif self._body_is_whole and data:
            if client.take_room(self.stream, len(data)):
                client.put(RequestBody(self.stream, bytes(data)), len(data))
            else:
                self._body_is_whole = False

    def lose_request_body(self) -> None:
        """Marks the request's body as not whole: a piece of it was not captured."""
        self._body_is_whole = False

    @fails_open
    def request_sent(self, at_ns: int | None, connected_ns: int | None, body_bytes: int) -> None:
        """Reports that the request was sent. Only the first call has an effect: a repeated request is reported once."""
        if self._reports and not self._sent:
            self._sent = True
            whole = self._body_is_whole and self._body_bytes == body_bytes
            self._client.put(RequestSent(self.stream, at_ns, connected_ns, body_bytes, whole), 0)

    @fails_open
    def response_head(self, at_ns: int | None, status: int | None, headers: Headers) -> None:
        """Reports the response's head, with the header fields that a recorder needs."""
        if self._reports:
            kept = kept_headers(headers, RESPONSE_HEADERS)
            size = sum([len(name) + len(value) for name, value in kept])
            self._client.put(ResponseHead(self.stream, at_ns, status, kept), size)

    def read(self, at_ns: int | None, data: bytes) -> None:
        """Counts a read from the upstream, and reports it."""
        try:  # instead of the wrapper, whose call would be a good part of a read's time
            if not (self.steady and self._client.put_read(self.stream, at_ns, data)):
                self._read_unsteady(at_ns, data)
        except Exception as error:  # noqa: BLE001 - as in `fails_open`
            self.fail(error, lost=1)

    @fails_open
    def lose_read(self, reason: DropReason) -> None:
        """Counts a read that the tap could not capture, and reports it at this position."""
        self._drop(reason)

    def reads_dropped(self, reads: int) -> None:
        """Reports, at this position, reads that were dropped and are counted already."""
        if reads:
            self._dropped, self.steady = self._dropped + reads, False

    @fails_open
    def end(
        self,
        at_ns: int | None,
        ending: Ending,
        fault: TransportFault | None = None,
        *,
        gone_ns: int | None = None,
        blocked_ns: int | None = None,
        unsent_bytes: int = 0,
    ) -> None:
        """Reports the ending of the exchange, even if the client is full. Only the first call has an effect."""
        if self._started and not self._ended:
            self._report_dropped()
            self._client.put(ExchangeEnding(self.stream, at_ns, ending, gone_ns, blocked_ns, unsent_bytes, fault), 0)
        self._ended, self.steady = True, False

    def fail(self, error: Exception | None = None, lost: int = 0) -> None:
        """Drops the exchange's reads from here on, after an internal error. `error`: None if the tap has reported it; `lost`:
        1 if a read was lost with it.
        """
        if error is not None:
            report_fault("the capture of an exchange", error)
        first, self._broken, self.steady = not self._broken, True, False
        try:
            if first:
                self._client.count_fault()
            if not self._counted:
                self._counted = True
                self._client.count_response(self._upstream, NotCaptured.CAPTURE_FAULT)
            if lost:
                self._drop(DropReason.CAPTURE_FAULT)
        except Exception as failed:  # noqa: BLE001 - as in `fails_open`: a bug in counting must not reach the traffic either
            report_fault("the counters of a tap", failed)

    @property
    def _reports(self) -> bool:
        return self._started and not self._broken and not self._ended

    def _read_unsteady(self, at_ns: int | None, data: bytes) -> None:
        """Drops a read that cannot be reported; otherwise reports the drops before it, and then the read."""
        if self._ended:
            return
        if self._reports and self._client.has_room(self.stream, len(data)):
            self._report_dropped()
            if self._client.put_read(self.stream, at_ns, data):
                return
        self._drop(DropReason.CAPTURE_FAULT if self._broken else DropReason.RECORDER_BEHIND)

    def _drop(self, reason: DropReason) -> None:
        self._dropped, self.steady = self._dropped + 1, False
        self._client.count_dropped(reason)

    def _report_dropped(self) -> None:
        if self._dropped:
            self._client.put(ReadsDropped(self.stream, self._dropped), 0)
            self._dropped, self.steady = 0, self._reports


def kept_headers(headers: Headers, wanted: frozenset[str]) -> list[tuple[str, str]]:
    """The wanted header fields, as text, with names in lower case. No other field leaves the tap's process."""
    pairs = ((_text(name).lower(), value) for name, value in headers)
    return [(name, _text(value)) for name, value in pairs if name in wanted]


def attributes_in(headers: Headers, attributes: Sequence[Attribute]) -> list[tuple[str, str]]:
    """The request's attributes, by name: of each header the first field counts."""
    if not attributes:
        return []
    first = dict(reversed(kept_headers(headers, frozenset(attribute.header for attribute in attributes))))
    return [(attribute.name, first[attribute.header]) for attribute in attributes if attribute.header in first]


def _text(raw: str | bytes) -> str:
    return raw.decode("latin-1") if isinstance(raw, bytes) else raw
