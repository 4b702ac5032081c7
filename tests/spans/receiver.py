"""A receiver of OTLP/HTTP: it keeps the spans, or answers as a test wants."""

import gzip
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.http_serving import LocalServer, Quiet

PROTOBUF = "application/x-protobuf"


@dataclass
class Answer:
    """`rejected`: spans that are not taken, although the status is 200; `wait`: until it is set, no answer comes."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    rejected: int = 0
    wait: threading.Event | None = None


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: "Receiver"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status, answer, content = 404, Answer(404), b""
        if self.path == "/v1/traces" and self.headers["content-type"] == PROTOBUF:
            plain = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            answer = self.server.take(
                {name.lower(): value for name, value in self.headers.items()},
                ExportTraceServiceRequest.FromString(plain),
            )
            status = answer.status
            partial = ExportTracePartialSuccess(rejected_spans=answer.rejected)
            content = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
        if answer.wait is not None:
            answer.wait.wait(60)
        self.send_response(status)
        for name, value in {"content-type": PROTOBUF, "content-length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class Receiver(LocalServer):
    """Keeps the spans of the requests that it accepts. `answers`: of the next requests, in their order; then each is
    accepted. `headers`: those of each request, with names in lower case.
    """

    def __init__(self, *answers: Answer) -> None:
        super().__init__(_Handler)
        self._answers = list(answers)
        self._lock = threading.Lock()
        self.headers: list[dict[str, str]] = []
        self.spans: list[Any] = []
        self.resources: list[Any] = []

    def take(self, headers: dict[str, str], request: ExportTraceServiceRequest) -> Answer:
        """Notes a request. Returns what to answer."""
        with self._lock:
            self.headers.append(headers)
            answer = self._answers.pop(0) if self._answers else Answer()
            if answer.status == 200:
                self.resources += [one.resource for one in request.resource_spans]
                self.spans += [
                    span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans
                ]
            return answer
