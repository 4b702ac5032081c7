"""One request and its response, as Envoy reports them: Envoy's messages become the capture of an exchange."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from urllib.parse import urlsplit

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import CaptureClient, ExchangeCapture
from streamgauge.settings.attributes import Attribute
from streamgauge.settings.declarations import Settings
from streamgauge.spool.read_counters import DropReason, Incident
from streamgauge.taps.envoy.endings import LoggedEnding, ending_of
from streamgauge.taps.envoy.messages import CLUSTER, REQUEST_TIME, LogEntry, Part, Processing, time_of
from streamgauge.taps.inprocess.capture import SeenRequest, is_event_stream, is_llm, start_capture, why_uncaptured

TAP = "envoy"
# From this status on a response may be Envoy's own, in place of one that the upstream did not send. Only the access log
# tells, so its head and body are held until the entry comes. Envoy's own bodies have some hundred bytes: what is longer
# than MAX_HELD (bytes) is the upstream's.
_FIRST_DOUBTFUL = 400
MAX_HELD = 64 * 1024


class Unknown(Enum):
    """Why the access log does not tell how an exchange ended. The value is the incident that is counted, if any."""

    MISSING = Incident.ENVOY_LOG_MISSING  # no entry came in time
    AMBIGUOUS = Incident.ENVOY_LOG_AMBIGUOUS  # an entry came that may belong to several exchanges
    NO_ID = Incident.ENVOY_NO_REQUEST_ID  # the request had no x-request-id
    STOPPED = None  # the tap stopped


@dataclass(frozen=True)
class Reporting:
    """Where and how exchanges are reported. `tenant_header`, `attribute`: as in the settings."""

    client: CaptureClient
    tenant_header: str | None = Settings.tenant_header
    attribute: tuple[Attribute, ...] = Settings.attribute


class EnvoyExchange:
    """An exchange. Times are the monotonic clock's (ns) when a message was read, but for those of the access log.

    `request_id`, `started_ns`: by which its entry is found. `upstream`: its name in records. `captured`: False once it is
    known that it has no record. `reported_ns`: when its response ended, or Envoy's report of it; None before.
    `head_wall_ns`: UTC, when the response's head was read. `ambiguous`: an entry came that may be another's.
    """

    def __init__(self, reporting: Reporting, upstream: str | None = None) -> None:
        """`upstream`: its name in records, as Envoy's configuration gives it; None: the name of Envoy's cluster."""
        self.request_id = ""
        self.started_ns: int | None = None
        self.captured = True
        self.reported_ns: int | None = None
        self.head_wall_ns: int | None = None
        self.entry: LogEntry | None = None
        self.ambiguous = False
        self.upstream = upstream
        self._reporting = reporting
        self._seen: SeenRequest | None = None
        self._capture: ExchangeCapture | None = None
        self._request_bytes = self._body_bytes = 0
        self._sent_ns: int | None = None
        self._last_ns = 0
        self._whole = False
        self._held: list[Callable[[], None]] | None = None
        self._held_bytes = 0

    def receive(self, at_ns: int, wall_ns: int, message: Processing) -> None:
        """Takes the next message. `wall_ns`: UTC, at the same moment."""
        self._last_ns = at_ns
        match message.part:
            case Part.RESPONSE_BODY:
                self._read(at_ns, message.body)
            case Part.REQUEST_HEAD if self._seen is None:
                self._begin(at_ns, message)
            case Part.RESPONSE_HEAD if self._seen is not None and self.head_wall_ns is None:
                self.head_wall_ns = wall_ns
                self._response_head(at_ns, message)
            case Part.REQUEST_BODY:
                self._request_body(message.body)
        if not message.ends:
            return
        if message.part in (Part.RESPONSE_HEAD, Part.RESPONSE_BODY, Part.RESPONSE_TRAILERS):
            self._whole = True
            self.reported_ns = at_ns
        elif self._sent_ns is None:
            self._request_sent(at_ns)

    def report_ended(self, at_ns: int, *, is_damaged: bool = False) -> None:
        """Notes that Envoy reports no more. `is_damaged`: a message could not be read, so that a read is missing."""
        if self.reported_ns is None:
            self.reported_ns = at_ns
            if is_damaged:
                self._lose_read()
        if self._capture is None:
            self.captured = False

    def fail(self, error: Exception) -> None:
        """Ends the capture after an internal error: the record is incomplete."""
        capture = self._capture or ExchangeCapture(self._reporting.client, self.upstream)
        capture.fail(error)
        self.captured = self._capture is not None

    @property
    def begun(self) -> bool:
        """Whether the request's head has been read."""
        return self._seen is not None

    @property
    def done(self) -> bool:
        """Whether its end can be reported: Envoy has reported all of it, and its entry has come."""
        return self.entry is not None and self.reported_ns is not None

    def finish(self, unknown: Unknown | None = None) -> None:
        """Reports the end. `unknown`: why there is no entry; the outcome is then what the response alone shows."""
        capture = self._capture
        if capture is None:
            return
        if self.entry is None:
            ended = LoggedEnding(Ending.COMPLETE if self._whole else Ending.CUT, None, headless=False)
        else:
            ended = ending_of(self.entry, whole=self._whole)
        if ended.headless:
            self._held = None
        elif self.entry is not None and not self._whole and self._body_bytes < self.entry.body_bytes:
            self._lose_read()  # by the log Envoy passed on more than it has reported
        self._release()
        at_ns = self._end_ns(ended.ending)
        capture.end(at_ns, ended.ending, ended.fault, gone_ns=at_ns if ended.ending is Ending.CLIENT else None)

    def _end_ns(self, ending: Ending) -> int:
        """When it ended: for a whole response when its end was read; else as the access log has it."""
        if self._seen is None or self.entry is None or self.entry.duration_ns is None or ending is Ending.COMPLETE:
            return self._last_ns if self.reported_ns is None else self.reported_ns
        return max(self._seen.began_ns + self.entry.duration_ns, self._last_ns)

    # The request.

    def _begin(self, at_ns: int, message: Processing) -> None:
        first = dict(reversed(message.headers))
        method, target, host = (_text(first.get(name)) for name in (b":method", b":path", b":authority"))
        self.request_id = _text(first.get(b"x-request-id"))
        self.started_ns = time_of(message.attributes.get(REQUEST_TIME))
        self.upstream = self.upstream or message.attributes.get(CLUSTER)
        self._seen = SeenRequest(TAP, self.upstream, method, target, message.headers, at_ns, _host_of(host))
        if is_llm(method, target):
            self._start(self._seen)

    def _start(self, seen: SeenRequest) -> ExchangeCapture:
        of = self._reporting
        self._capture = capture = start_capture(of.client, seen, of.tenant_header, of.attribute)
        if self._sent_ns is not None:
            capture.request_sent(self._sent_ns, None, self._request_bytes)
        return capture

    def _request_body(self, data: bytes) -> None:
        self._request_bytes += len(data)
        if self._capture is not None:
            self._capture.request_body(data)

    def _request_sent(self, at_ns: int) -> None:
        self._sent_ns = at_ns
        if self._capture is not None:
            self._capture.request_sent(at_ns, None, self._request_bytes)

    # The response.

    def _response_head(self, at_ns: int, message: Processing) -> None:
        seen = self._seen
        assert seen is not None
        if self._capture is None and not is_event_stream(message.headers):
            self.captured = False
            self._reporting.client.count_response(seen.upstream, why_uncaptured(seen, message.headers))
            return
        capture = self._capture or self._start(seen)
        status = _status(dict(message.headers).get(b":status"))
        self._held = [] if status is not None and status >= _FIRST_DOUBTFUL else None
        self._report(0, partial(capture.response_head, at_ns, status, message.headers))

    def _read(self, at_ns: int, data: bytes) -> None:
        if not data or self._capture is None:
            return
        self._body_bytes += len(data)
        if self.head_wall_ns is None:  # without its head, nothing tells what it is
            self._capture.lose_read(DropReason.NOT_REPORTED)
        elif self._held is None:
            self._capture.read(at_ns, data)
        else:
            self._report(len(data), partial(self._capture.read, at_ns, data))

    def _report(self, size: int, report: Callable[[], None]) -> None:
        """Reports now, or when it is known that the response is the upstream's."""
        if self._held is None:
            report()
            return
        self._held.append(report)
        self._held_bytes += size
        if self._held_bytes > MAX_HELD:
            self._release()

    def _lose_read(self) -> None:
        if self._capture is not None:
            self._release()
            self._capture.lose_read(DropReason.NOT_REPORTED)

    def _release(self) -> None:
        held, self._held = self._held, None
        for report in held or ():
            report()


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("latin-1")


def _status(value: bytes | None) -> int | None:
    return int(value) if value is not None and len(value) == 3 and value.isdigit() else None


def _host_of(authority: str) -> str | None:
    """The host of the request, without its port."""
    try:
        return urlsplit(f"//{authority}").hostname
    except ValueError:  # a bracket without an IPv6 address
        return None
