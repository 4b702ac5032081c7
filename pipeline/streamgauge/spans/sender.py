"""Send spans to a receiver of OTLP/HTTP, by the official exporter, in a thread of their own.

A receiver that is slow or away delays nothing: records wait in a bounded queue, and a span that cannot be sent is lost and
counted, with the reason. Records stay in the ledger, so what is lost is the copy.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from streamgauge.runtime.faults import report_fault
from streamgauge.spans.span import Addresses, NoSpanError, span_of

_LOG = logging.getLogger("streamgauge.spans")

# The most records that wait, and their bytes: some minutes of a busy worker, during which a receiver may be restarted. A
# record has some KiB, but a forged one may be as large as its topic allows.
MAX_WAITING = 10_000
MAX_WAITING_BYTES = 64 * 1024**2
# Spans of one request, as the SDK's batch processor has it.
_BATCH = 512
# How long the first record waits for others (seconds).
_GATHER_S = 1.0
# Time limit for a request with its retries, which the exporter makes after 1, 2, 4, 8 and 16 s (seconds).
_REQUEST_S = 60.0
# How long nothing is sent after a request has failed (seconds).
_PAUSE_S = 5.0
# Answers after which a request may be repeated (OTLP/HTTP). The exporter has done so already, as long as it may.
_BUSY = frozenset({429, 502, 503, 504})
_PATH = "/v1/traces"

# The results of a span: the values of the label `result` of streamgauge_spans_total.
SENT, QUEUE_FULL, NO_SPAN = "sent", "queue_full", "no_span"
UNREACHABLE, BUSY, REFUSED, STOPPED = "unreachable", "busy", "refused", "stopped"
RESULTS = (SENT, QUEUE_FULL, NO_SPAN, UNREACHABLE, BUSY, REFUSED, STOPPED)
_CURES = {
    UNREACHABLE: "check that the receiver runs, and that --otlp names its port for OTLP/HTTP, which is 4318 for most",
    BUSY: "the receiver is overloaded, or limits its clients",
    REFUSED: "check the path of --otlp, and the headers that the receiver asks for (--otlp-header-file)",
}


class _Session(requests.Session):
    """Keeps the last answer, of which the exporter reports success or failure only."""

    def __init__(self) -> None:
        super().__init__()
        # An entry in a netrc file would replace the header `authorization` of --otlp-header.
        self.auth = lambda request: request
        self.reset()

    def reset(self) -> None:
        self.asked, self.status, self.body, self.fault = False, 0, b"", ""

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """See requests.Session.request."""
        self.asked, self.status = True, 0
        try:
            response = super().request(*args, **options)
        except requests.RequestException as error:
            self.fault = type(error).__name__
            raise
        self.status, self.body = response.status_code, response.content
        return response


class SpanSender:
    """Makes spans of records and sends them. Give it records with `put`, and `close` it.

    `url`: of the receiver; `headers`: of each request. `count` is called with a result, and the number of spans that had it,
    from several threads. `request_s`, `gather_s`, `pause_s`: see the constants.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        count: Callable[[str, int], None],
        addresses: Addresses | None = None,
        *,
        request_s: float = _REQUEST_S,
        gather_s: float = _GATHER_S,
        pause_s: float = _PAUSE_S,
    ) -> None:
        # The exporter logs every failed request, with what the receiver answered. One sentence of ours has the cure.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL + 1)
        self.url = url if url.endswith(_PATH) else url + _PATH
        self._count = count
        self._addresses = addresses
        self._gather_s, self._pause_s = gather_s, pause_s
        self._session = _Session()
        self._exporter = OTLPSpanExporter(
            self.url, headers=headers, timeout=request_s, compression=Compression.Gzip, session=self._session
        )
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = self._in_hand = self._lost = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._failing = ""
        self._closed = False
        # A daemon: a request to a receiver that does not answer must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, records: Iterable[bytes]) -> None:
        """Accept records as JSON. Never waits, and raises nothing."""
        refused = 0
        with self._changed:
            for record in records:
                if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + len(record) > MAX_WAITING_BYTES:
                    refused += 1
                else:
                    self._waiting.append(record)
                    self._waiting_bytes += len(record)
            self._changed.notify()
        if refused:
            self._lose(QUEUE_FULL, refused)

    def close(self, patience_s: float) -> None:
        """Send what waits, for at most so many seconds. What is left is lost, and counted."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            self._stopping.set()
            self._changed.notify()
        self._thread.join(patience_s)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # it ends the pause before a retry
        self._thread.join(max(deadline - time.monotonic(), 0.1))
        with self._changed:
            self._closed = True
            left = len(self._waiting) + self._in_hand
            self._waiting.clear()
        if left:
            self._count(STOPPED, left)
            _LOG.warning("%d spans were not sent before the end: their records are in the ledger", left)

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._send(batch)
            except Exception as error:  # noqa: BLE001 - a fault in one batch must not end the thread
                report_fault("the sender of spans", error)
                self._lose(NO_SPAN, len(batch))
            with self._changed:
                self._in_hand = 0

    def _next(self) -> list[bytes]:
        """The next batch; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
        if len(self._waiting) < _BATCH:
            self._stopping.wait(self._gather_s)
        with self._changed:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
            self._waiting_bytes -= sum(map(len, batch))
            self._in_hand = len(batch)
            return batch

    def _send(self, batch: Sequence[bytes]) -> None:
        spans: list[ReadableSpan] = []
        for record in batch:
            try:
                spans.append(span_of(record, self._addresses))
            except NoSpanError:
                self._lose(NO_SPAN, 1)
        if not spans:
            return
        self._session.reset()
        succeeded = self._exporter.export(spans) is SpanExportResult.SUCCESS
        status = self._session.status
        if succeeded and 200 <= status < 300:
            self._received(len(spans))
        elif not self._session.asked:  # it could not be encoded, or the exporter is shut down
            self._lose(STOPPED if self._stopping.is_set() else NO_SPAN, len(spans))
        else:
            # A redirect is not followed: the headers are for the receiver alone. The exporter takes it for a success.
            self._fail(BUSY if status in _BUSY else REFUSED if status else UNREACHABLE, len(spans), status)
            self._stopping.wait(self._pause_s)

    def _received(self, number: int) -> None:
        rejected = min(_rejected_of(self._session.body), number)
        self._report(SENT, number - rejected)
        if rejected:
            self._fail(REFUSED, rejected, self._session.status)
        elif self._failing:
            _LOG.warning("spans can be sent again; %d were lost meanwhile", self._lost)
            self._failing, self._lost = "", 0

    def _fail(self, result: str, number: int, status: int) -> None:
        self._lose(result, number)
        if result != self._failing:
            why = f"it answers {status}" if status else self._session.fault
            _LOG.warning(
                "spans cannot be sent to %s (%s): %s. Lost spans are counted in streamgauge_spans_total, by reason",
                self.url, why, _CURES[result],
            )  # fmt: skip
        self._failing = result

    def _lose(self, result: str, number: int) -> None:
        with self._changed:
            self._lost += number
        self._report(result, number)

    def _report(self, result: str, number: int) -> None:
        with self._changed:
            if self._closed:  # `close` has counted what was left
                return
        self._count(result, number)


def _rejected_of(body: bytes) -> int:
    """The spans that a receiver rejected although it accepted the request."""
    try:
        rejected: int = ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans
    except Exception:  # noqa: BLE001 - protobuf's own; some receivers answer with JSON
        return 0
    return max(rejected, 0)
