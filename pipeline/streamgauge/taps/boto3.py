"""The boto3 tap: a hook for clients of Amazon Bedrock's runtime, of boto3 and botocore. The requests stay signed as they are.

    client = tap(boto3.client("bedrock-runtime"))

It uses botocore's events: `before-send` has the signed request, `before-parse` the response before it is parsed, where a
body that streams is replaced by one that reports its bytes as they are read. Each attempt of a retry is an exchange of its
own. This module imports neither library. Errors in the tap itself never reach the application.
"""

import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.runtime.faults import report_fault
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.inprocess.background_senders import sender_of
from streamgauge.taps.inprocess.capture import (
    SeenRequest,
    attributes_of,
    is_event_stream,
    is_llm,
    start_capture,
    why_uncaptured,
)
from streamgauge.taps.inprocess.endings import fault_of, report_ending, report_failure

_TAP = "boto3"
# The same variable as for the command line's setting.
_TENANT_HEADER = "STREAMGAUGE_TENANT_HEADER"
# Bedrock's runtime, as botocore names it in its events.
_SERVICE = "bedrock-runtime"
# Under this id the hook is registered: a second call of `tap` adds nothing.
_HOOK = "streamgauge"

# Faults that show that the whole request was sent: the response was awaited.
_AFTER_SENDING = frozenset((TransportFault.CLOSED, TransportFault.IDLE_TIMEOUT))

_log = logging.getLogger("streamgauge")

_Client = TypeVar("_Client")


class _Settings(NamedTuple):
    upstream: str | None
    data_dir: Path | str | None
    tenant_header: str | None
    attributes: tuple[Attribute, ...]


def tap(
    client: _Client,
    *,
    upstream: str | None = None,
    data_dir: Path | str | None = None,
    tenant_header: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> _Client:
    """Hooks the tap into a client of `bedrock-runtime`, or into a session before it makes its clients. Returns what it got.

    `upstream`: its name in records (default: the URL's host and port). `data_dir`: the agent's data directory (default:
    STREAMGAUGE_DATA_DIR, then the default of `streamgauge up`). `tenant_header`: the request header that names the tenant
    (default: STREAMGAUGE_TENANT_HEADER). `attributes`: names of attributes, each with the request header from which it is
    read (default: STREAMGAUGE_ATTRIBUTE). Never raises: what has no events of botocore is returned with a warning.
    """
    try:
        register = _register_of(client)
        if register is None:
            _log.warning("streamgauge: %s is no client or session of boto3: nothing is captured", type(client).__name__)
            return client
        tenant = tenant_header or os.environ.get(_TENANT_HEADER)
        hook = _Hook(_Settings(upstream, data_dir, tenant, attributes_of(attributes)))
        for event, handler in hook.handlers.items():
            register(f"{event}.{_SERVICE}", handler, unique_id=f"{_HOOK}-{event}")
    except Exception as error:  # noqa: BLE001 - capture fails open
        report_fault("the hook of boto3, when it was registered", error)
    return client


def _register_of(client: object) -> Callable[..., object] | None:
    """The function that registers a handler: of a client's events, a session's of boto3, or a session of botocore."""
    meta = getattr(client, "meta", None)
    emitter = getattr(meta, "events", None) or getattr(client, "events", None) or client
    register = getattr(emitter, "register", None)
    return register if callable(register) else None


# The attempt whose response is awaited. botocore tells the handlers of one attempt nothing that they share.
_awaited: ContextVar["_Exchange | None"] = ContextVar("streamgauge_boto3_awaited", default=None)


class _Hook:
    """The handlers of the events. None raises, and each returns None: botocore would take another value for a response."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self.handlers: dict[str, Callable[..., None]] = {
            "before-send": self._before_send,
            "before-parse": self._before_parse,
            "response-received": self._response_received,
        }

    def _before_send(self, request: Any, **_: object) -> None:
        try:
            exchange = _Exchange(self._settings, request)
            _awaited.set(exchange)
            # An error while the body of an error is read reaches no handler: then the end of the request is the end.
            weakref.finalize(request, exchange.abandon).atexit = False
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the hook of boto3, before a request", error)

    def _before_parse(self, response_dict: Any, **_: object) -> None:
        exchange = _awaited.get()
        if exchange is not None:
            _awaited.set(None)
            exchange.capture_response(response_dict)

    def _response_received(self, exception: BaseException | None = None, **_: object) -> None:
        exchange = _awaited.get()
        if exchange is not None:
            _awaited.set(None)
            exchange.request_failed(exception)


class _Exchange:
    """A request and its response, with their capture. No method raises."""

    def __init__(self, settings: _Settings, request: Any) -> None:
        self._began_ns = time.monotonic_ns()
        self._settings = settings
        self._upstream = settings.upstream
        self._capture: ExchangeCapture | None = None
        self._seen: SeenRequest | None = None
        self._is_answered = False
        try:
            self._begin(request)
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the hook of boto3, before a request", error)

    def _begin(self, request: Any) -> None:
        url = urlsplit(request.url)
        self._upstream = self._settings.upstream or url.netloc
        target = url.path + (f"?{url.query}" if url.query else "")
        headers = list(request.headers.items())
        seen = SeenRequest(_TAP, self._upstream, request.method, target, headers, self._began_ns, url.hostname)
        self._body = _bytes_of(request.body)
        if is_llm(request.method, target):
            self._capture = self._start_capture(seen)
            if self._body:
                self._capture.request_body(self._body)
        self._seen = seen

    def _start_capture(self, seen: SeenRequest) -> ExchangeCapture:
        settings = self._settings
        return start_capture(sender_of(settings.data_dir), seen, settings.tenant_header, settings.attributes)

    def capture_response(self, response: Any) -> None:
        """Reports the head of the response, and its body if it was read; replaces a body that is still to be read."""
        try:
            at_ns = time.monotonic_ns()
            self._is_answered = True
            self._capture_response(response, at_ns)
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the hook of boto3, on a response", error)
            if self._capture is not None:
                report_ending(self._capture, Ending.CUT)
            else:
                self._count_uncaptured(NotCaptured.CAPTURE_FAULT)

    def _capture_response(self, response: Any, at_ns: int) -> None:
        headers, body = list(response["headers"].items()), response["body"]
        if self._capture is None and self._seen is not None and is_event_stream(headers):
            self._capture = self._start_capture(self._seen)
        capture, seen = self._capture, self._seen
        if capture is None:
            self._count_uncaptured(NotCaptured.CAPTURE_FAULT if seen is None else why_uncaptured(seen, headers))
            return
        self._report_sent(capture)
        is_read = isinstance(body, bytes)
        # When the head of a body that was read at once had come, is not known.
        capture.response_head(None if is_read else at_ns, response["status_code"], headers)
        if is_read:
            if body:
                capture.read(at_ns, body)
            _report_end(capture, _length_in(headers), len(body))
            return
        response["body"] = _captured(body, capture, headers)

    def _report_sent(self, capture: ExchangeCapture) -> None:
        """Reports that the request was sent; botocore does not say when."""
        if self._body is not None:
            capture.request_sent(None, None, len(self._body))

    def request_failed(self, error: BaseException | None) -> None:
        """Reports that the request got no response."""
        try:
            self._is_answered = True
            capture = self._capture
            if capture is None:
                return
            if error is not None and fault_of(error) in _AFTER_SENDING:
                self._report_sent(capture)
            report_failure(capture, error)
        except Exception as bug:  # noqa: BLE001 - capture fails open
            report_fault("the hook of boto3, after a request that failed", bug)

    def abandon(self) -> None:
        """Ends the capture of a request that is gone, and of which no response was seen."""
        try:
            if not self._is_answered and self._capture is not None:
                report_ending(self._capture, Ending.CUT)
        except Exception as bug:  # noqa: BLE001 - capture fails open
            report_fault("the hook of boto3, after a request", bug)

    def _count_uncaptured(self, reason: NotCaptured) -> None:
        try:
            sender_of(self._settings.data_dir).count_response(self._upstream, reason)
        except Exception as error:  # noqa: BLE001 - capture fails open
            report_fault("the counters of the hook of boto3", error)


def _bytes_of(body: object) -> bytes | None:
    """A request's body if it is in memory, else None; botocore has one as bytes, or as text before it is sent."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, bytes | bytearray) else None


def _report_end(capture: ExchangeCapture, announced: int | None, size: int) -> None:
    """Reports the end of a body. botocore does not compare its size with the one that the head announced."""
    is_cut = announced is not None and size < announced
    ending, fault = (Ending.RESET, TransportFault.CLOSED) if is_cut else (Ending.COMPLETE, None)
    capture.end(time.monotonic_ns(), ending, fault)


def _length_in(headers: list[tuple[str, str]]) -> int | None:
    length = next((value for name, value in headers if name.lower() == "content-length"), "")
    return int(length) if length.isascii() and length.isdigit() else None


def _captured(body: Any, capture: ExchangeCapture, headers: list[tuple[str, str]]) -> Any:
    """The body that reports what is read of it."""
    streaming: Any = getattr(sys.modules.get("botocore.response"), "StreamingBody", None)
    is_streaming = streaming is not None and type(body) is streaming
    if is_streaming:
        return _captured_class(streaming)(body, _length_in(headers), capture)
    if callable(getattr(body, "stream", None)):
        return CapturedStream(body, _length_in(headers), capture)
    raise TypeError(f"a body of the type {type(body).__name__}")


class CapturedStream:
    """The body of an event stream, of urllib3: stamps each chunk, reports it to the capture, then yields it.

    A chunk is reported before it is yielded, because a reader may leave without resuming the iterator. All else is the
    body's own.
    """

    def __init__(self, body: Any, length: int | None, capture: ExchangeCapture) -> None:
        self._inner, self._length, self._capture = body, length, capture

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def stream(self, *args: Any, **options: Any) -> Iterator[bytes]:
        """The chunks of the body, as urllib3 gives them."""
        read, now, size = self._capture.read, time.monotonic_ns, 0
        try:
            for chunk in self._inner.stream(*args, **options):
                read(now(), chunk)
                size += len(chunk)
                yield chunk
        except BaseException as error:
            _quietly(report_failure, self._capture, error)
            raise
        _quietly(_report_end, self._capture, self._length, size)

    def close(self) -> None:
        """Closes the body; one that was not read to its end then has the ending `client`."""
        try:
            self._inner.close()
        finally:
            _quietly(report_ending, self._capture, Ending.CLIENT)

    def __del__(self) -> None:
        _quietly(report_ending, self._capture, Ending.CLIENT)


def _quietly(report: Callable[..., None], *facts: object) -> None:
    try:
        report(*facts)
    except Exception as error:  # noqa: BLE001 - capture fails open
        report_fault("the hook of boto3, at the end of a response", error)


class _CapturedBody:
    """The body of InvokeModel, which is one answer: reports what is read of it."""

    def __init__(self, body: Any, length: int | None, capture: ExchangeCapture) -> None:
        self._capture = capture
        super().__init__(body._raw_stream, length)  # type: ignore[call-arg]  # of StreamingBody

    def read(self, amt: int | None = None) -> bytes:
        """Reads as StreamingBody does, and reports the bytes."""
        data: bytes = self._reported(super().read, amt)  # type: ignore[misc]
        if data:
            self._capture.read(time.monotonic_ns(), data)
        if amt is None or amt < 0 or (not data and amt):
            _quietly(report_ending, self._capture, Ending.COMPLETE)
        return data

    def readinto(self, b: Any) -> int:
        """Reads as StreamingBody does, and reports the bytes."""
        size: int = self._reported(super().readinto, b)  # type: ignore[misc]
        if size:
            self._capture.read(time.monotonic_ns(), bytes(memoryview(b)[:size]))
        elif len(b):
            _quietly(report_ending, self._capture, Ending.COMPLETE)
        return size

    def readlines(self, hint: int = -1) -> list[bytes]:
        """Reads as StreamingBody does, and reports the lines."""
        lines: list[bytes] = self._reported(super().readlines)  # type: ignore[misc]
        self._capture.read(time.monotonic_ns(), b"".join(lines))
        _quietly(report_ending, self._capture, Ending.COMPLETE)
        return lines

    def __enter__(self) -> Any:
        # What is read of the body of urllib3 itself is not seen.
        _quietly(report_ending, self._capture, Ending.CUT)
        return super().__enter__()  # type: ignore[misc]

    def close(self) -> None:
        """Closes the body; one that was not read to its end then has the ending `client`."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            _quietly(report_ending, self._capture, Ending.CLIENT)

    def __del__(self) -> None:
        _quietly(report_ending, self._capture, Ending.CLIENT)

    def _reported(self, read: Callable[..., Any], *args: Any) -> Any:
        try:
            return read(*args)
        except BaseException as error:
            _quietly(report_failure, self._capture, error)
            raise


@cache
def _captured_class(streaming: Hashable) -> Any:
    return type("StreamingBody", (_CapturedBody, streaming), {})  # type: ignore[arg-type]
