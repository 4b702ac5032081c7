"""The httpx tap: a transport that wraps another, for httpx and httpx2, sync and async.

    OpenAI(http_client=httpx.Client(transport=TapTransport()))

Bytes, errors and closes pass through unchanged. The request's class shows which of the two libraries is in use; this module
imports neither. Errors in the tap itself never reach the application.
"""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.runtime.faults import report_fault
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.httpx_streams import (
    CapturedRequestStream,
    RequestBodyCapture,
    Stream,
    library_of,
    stream_classes_of,
)
from streamgauge.taps.inprocess.background_senders import sender_of
from streamgauge.taps.inprocess.capture import (
    SeenRequest,
    attributes_of,
    is_event_stream,
    is_llm,
    start_capture,
    why_uncaptured,
)
from streamgauge.taps.inprocess.endings import report_ending, report_failure

_TAP = "httpx"
# The same variable as for the command line's setting.
_TENANT_HEADER = "STREAMGAUGE_TENANT_HEADER"

# Classes of either library. The type checker sees our transports as subclasses of both.
_Request = Any
_Response = Any
_Transport = Any
if TYPE_CHECKING:
    _AnyTransport = Any
else:
    _AnyTransport = object


class _Settings(NamedTuple):
    upstream: str | None
    data_dir: Path | str | None
    tenant_header: str | None
    attributes: tuple[Attribute, ...]


class _Tap(_AnyTransport):  # type: ignore[misc]
    """Base class of both transports. `inner`: the wrapped transport; None: the library's default transport."""

    _default = "HTTPTransport"

    def __init__(
        self,
        inner: _Transport | None = None,
        *,
        upstream: str | None = None,
        data_dir: Path | str | None = None,
        tenant_header: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """`upstream`: its name in records (default: the URL's host and port). `data_dir`: the agent's data directory
        (default: STREAMGAUGE_DATA_DIR, then the default of `streamgauge up`). `tenant_header`: the request header that
        names the tenant (default: STREAMGAUGE_TENANT_HEADER). `attributes`: names of attributes, each with the request
        header from which it is read (default: STREAMGAUGE_ATTRIBUTE).
        """
        self._settings = _Settings(
            upstream, data_dir, tenant_header or os.environ.get(_TENANT_HEADER), attributes_of(attributes)
        )
        self._inner = inner
        self._making = threading.Lock()

    def _inner_for(self, request: _Request) -> _Transport:
        if self._inner is None:
            with self._making:
                if self._inner is None:
                    self._inner = getattr(library_of(request), self._default)()
        return self._inner


class TapTransport(_Tap):
    """A transport for httpx.Client and httpx2.Client."""

    def handle_request(self, request: _Request) -> _Response:
        """Sends the request through the inner transport, and captures the response of an LLM endpoint."""
        inner, exchange = self._inner_for(request), _Exchange(self._settings, request)
        try:
            response = inner.handle_request(request)
        except BaseException as error:
            exchange.request_failed(error)
            raise
        return exchange.capture_response(response, "sync_response")

    def close(self) -> None:
        """Closes the inner transport."""
        if self._inner is not None:
            self._inner.close()

    def __enter__(self) -> Self:
        if self._inner is not None:
            self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(exc_type, exc_value, traceback)


class AsyncTapTransport(_Tap):
    """A transport for httpx.AsyncClient and httpx2.AsyncClient."""

    _default = "AsyncHTTPTransport"

    async def handle_async_request(self, request: _Request) -> _Response:
        """Sends the request through the inner transport, and captures the response of an LLM endpoint."""
        inner, exchange = self._inner_for(request), _Exchange(self._settings, request)
        try:
            response = await inner.handle_async_request(request)
        except BaseException as error:
            exchange.request_failed(error)
            raise
        return exchange.capture_response(response, "async_response")

    async def aclose(self) -> None:
        """Closes the inner transport."""
        if self._inner is not None:
            await self._inner.aclose()

    async def __aenter__(self) -> Self:
        if self._inner is not None:
            await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._inner is not None:
            await self._inner.__aexit__(exc_type, exc_value, traceback)


class _Exchange:
    """A request and its response, with their capture. No method raises."""

    def __init__(self, settings: _Settings, request: _Request) -> None:
        self._began_ns = time.monotonic_ns()
        self._capture: ExchangeCapture | None = None
        self._request, self._settings = request, settings
        self._upstream = settings.upstream
        self._seen: SeenRequest | None = None
        self._body: RequestBodyCapture | None = None
        self._stream: Stream = None  # the request's own stream, while ours replaces it
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the transport, before a request", error)
            self._restore()

    def _begin(self) -> None:
        request, settings = self._request, self._settings
        url = request.url
        self._upstream = settings.upstream or url.netloc.decode("ascii")
        target = url.raw_path.decode("ascii")
        seen = SeenRequest(_TAP, self._upstream, request.method, target, request.headers.raw, self._began_ns, url.host)
        if is_llm(request.method, target):
            self._capture = self._start_capture(seen)
        self._seen = seen
        self._body = RequestBodyCapture(self._capture, _content_of(request))
        self._stream = request.stream
        request.stream = stream_classes_of(request).request(self._stream, self._body)

    def _start_capture(self, seen: SeenRequest) -> ExchangeCapture:
        settings = self._settings
        return start_capture(sender_of(settings.data_dir), seen, settings.tenant_header, settings.attributes)

    def _restore(self) -> None:
        """Puts the request's own stream back, unless other code has replaced ours."""
        if self._stream is not None and isinstance(self._request.stream, CapturedRequestStream):
            self._request.stream = self._stream
        self._stream = None

    def request_failed(self, error: BaseException) -> None:
        """Reports that the inner transport raised `error`: there is no response."""
        try:
            self._restore()
            if self._capture is not None:
                report_failure(self._capture, error)
        except Exception as bug:  # noqa: BLE001 - capture fails open
            report_fault("the transport, after a request that failed", bug)

    def capture_response(self, response: _Response, kind: str) -> _Response:
        """Returns the response, with its stream wrapped if it is captured."""
        try:
            at_ns = time.monotonic_ns()
            self._restore()
            self._capture_response(response, at_ns, kind)
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the transport, on a response", error)
            if self._capture is not None:
                report_ending(self._capture, Ending.CUT)
            else:
                self._count_uncaptured(NotCaptured.CAPTURE_FAULT)
        return response

    def _count_uncaptured(self, reason: NotCaptured) -> None:
        try:
            sender_of(self._settings.data_dir).count_response(self._upstream, reason)
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the counters of the transport", error)

    def _capture_response(self, response: _Response, at_ns: int, kind: str) -> None:
        headers = response.headers.raw
        if self._capture is None and self._seen is not None and is_event_stream(headers):
            self._capture = self._start_capture(self._seen)
        if self._capture is None:
            seen = self._seen
            self._count_uncaptured(NotCaptured.CAPTURE_FAULT if seen is None else why_uncaptured(seen, headers))
            return
        if self._body is not None:
            self._body.response_arrived(self._capture)
        self._capture.response_head(at_ns, response.status_code, headers)
        if response.is_closed:  # its body is already in memory: its stream will not be read
            _report_whole(self._capture, response, at_ns)
        else:
            response.stream = getattr(stream_classes_of(self._request), kind)(response.stream, self._capture)


def _report_whole(capture: ExchangeCapture, response: _Response, at_ns: int) -> None:
    if isinstance(response.stream, library_of(response).ByteStream):
        capture.read(at_ns, b"".join(response.stream))
    report_ending(capture, Ending.COMPLETE)


def _content_of(request: _Request) -> bytes | None:
    """The request's body if it is in memory, else None."""
    try:
        content = request.content
    except RuntimeError:  # RequestNotRead: the body is read while it is sent
        return None
    return content if isinstance(content, bytes) else None
