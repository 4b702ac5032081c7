"""Starts the capture of a request that a tap in an application sees."""

import time
from typing import NamedTuple

from streamgauge.core.dialects import endpoint_of
from streamgauge.core.http1.content_type import names_event_stream
from streamgauge.recorder.exchange_capture import CaptureClient, ExchangeCapture, Headers, kept_headers
from streamgauge.recorder.protocol import REQUEST_HEADERS

_CONTENT_TYPE = frozenset(("content-type",))


class SeenRequest(NamedTuple):
    """A request as a tap sees it. `target`: path and query; `began_ns`: time zero, of the monotonic clock."""

    tap: str
    upstream: str | None
    method: str
    target: str
    headers: Headers
    began_ns: int


def start_capture(client: CaptureClient, request: SeenRequest, tenant_header: str | None = None) -> ExchangeCapture:
    """The capture of an exchange that begins with this request. Never raises."""
    capture = ExchangeCapture(client)
    try:
        tenant = tenant_header.lower() if tenant_header else None
        headers = kept_headers(request.headers, REQUEST_HEADERS if tenant is None else REQUEST_HEADERS | {tenant})
        wall_ns = time.time_ns() - (time.monotonic_ns() - request.began_ns)
    except Exception as error:  # noqa: BLE001 - capture fails open
        capture.fail(error)
        return capture
    capture.start(
        request.began_ns,
        wall_ns,
        request.upstream,
        request.method,
        request.target,
        headers,
        tap=request.tap,
        tenant_header=tenant,
    )
    return capture


def is_llm(method: str, target: str) -> bool:
    """Whether a request is to an LLM endpoint. Other requests are captured only if the response is an event stream."""
    return endpoint_of(method, target) is not None


def is_event_stream(headers: Headers) -> bool:
    """Whether the response's Content-Type is an event stream."""
    return names_event_stream(value for _, value in kept_headers(headers, _CONTENT_TYPE))
