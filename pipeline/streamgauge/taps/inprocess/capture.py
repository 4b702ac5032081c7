"""Starts the capture of a request that a tap in an application sees."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamgauge.core.dialects import endpoint_of
from streamgauge.core.http1.head import names_stream
from streamgauge.recorder.exchange_capture import (
    CaptureClient,
    ExchangeCapture,
    Headers,
    attributes_in,
    kept_headers,
)
from streamgauge.recorder.protocol import REQUEST_HEADERS
from streamgauge.recorder.uncaptured import why_not_captured
from streamgauge.settings.attributes import ATTRIBUTES, Attribute
from streamgauge.spool.response_counters import NotCaptured

_CONTENT_TYPE = frozenset(("content-type",))
# The same variable as for the command line's setting.
_ATTRIBUTE = "STREAMGAUGE_ATTRIBUTE"

_log = logging.getLogger("streamgauge")


class SeenRequest(NamedTuple):
    """A request as a tap sees it. `target`: path and query; `began_ns`: time zero, of the monotonic clock.

    `host`: of the server, without its port; None: the server is this application.
    """

    tap: str
    upstream: str | None
    method: str
    target: str
    headers: Headers
    began_ns: int
    host: str | None = None


def start_capture(
    client: CaptureClient,
    request: SeenRequest,
    tenant_header: str | None = None,
    attributes: Sequence[Attribute] = (),
) -> ExchangeCapture:
    """The capture of an exchange that begins with this request. Never raises."""
    capture = ExchangeCapture(client, request.upstream)
    try:
        tenant = tenant_header.lower() if tenant_header else None
        seen = list(request.headers) if attributes else request.headers  # it may be readable only once
        values = attributes_in(seen, attributes)
        headers = kept_headers(seen, REQUEST_HEADERS if tenant is None else REQUEST_HEADERS | {tenant})
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
        attributes=values,
        host=request.host,
    )
    return capture


def attributes_of(headers: Mapping[str, str] | None) -> tuple[Attribute, ...]:
    """The attributes of a tap in an application: `headers` by attribute name; if None, of STREAMGAUGE_ATTRIBUTE.

    Invalid ones are reported, and none is captured: a setting of the tap must not stop the application.
    """
    try:
        written = os.environ.get(_ATTRIBUTE, "") if headers is None else [f"{name}={headers[name]}" for name in headers]
        attributes: tuple[Attribute, ...] = ATTRIBUTES.read(written)
        return attributes
    except (ValueError, TypeError) as error:
        _log.warning("streamgauge: no attributes are captured: %s", error)
        return ()


def is_llm(method: str, target: str) -> bool:
    """Whether a request is to an LLM endpoint. Other requests are captured only if the response is an event stream."""
    return endpoint_of(method, target) is not None


def why_uncaptured(request: SeenRequest, headers: Headers) -> NotCaptured:
    """Why the response with these headers is not captured: the request is to no LLM endpoint, and it is no event stream."""
    return why_not_captured(request.target, [value for _, value in kept_headers(headers, _CONTENT_TYPE)])


def is_event_stream(headers: Headers) -> bool:
    """Whether the response's Content-Type is a stream of events, in any framing that is read."""
    return names_stream(value for _, value in kept_headers(headers, _CONTENT_TYPE))
