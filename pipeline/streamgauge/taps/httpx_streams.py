"""Request and response streams with which the httpx tap replaces those of the library."""

import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.inprocess.endings import report_ending, report_failure

_LIBRARIES = ("httpx", "httpx2")
# A stream of either library: the two share names, but no base class.
Stream = Any


class RequestBodyCapture:
    """The capture of a request's body while it is sent. Only the first time counts if the library sends it again."""

    def __init__(self, capture: ExchangeCapture | None, content: bytes | None) -> None:
        self._capture, self._content = capture, content
        self._size = 0
        self._sent: tuple[int | None, None, int] | None = None
        self._begun = False
        if capture is not None and content:
            capture.request_body(content)

    def begin_pass(self) -> bool:
        """Begins an iteration over the body. Returns whether it is the first one."""
        first, self._begun = not self._begun, True
        return first

    def report_piece(self, data: bytes) -> None:
        """Reports a piece that the library is about to send."""
        self._size += len(data)
        if self._capture is not None and self._content is None:
            self._capture.request_body(data)

    def report_sent(self) -> None:
        """Reports that the whole body was sent."""
        self._report_sent((time.monotonic_ns(), None, self._size))

    def response_arrived(self, capture: ExchangeCapture) -> None:
        """Called when the response has arrived. Reports the request to a capture that starts only now, and a body that was
        sent without iteration.
        """
        if self._capture is None:
            self._capture = capture
            if self._sent is not None:
                capture.request_sent(*self._sent)
        if self._content is not None and not self._begun:
            self._report_sent((None, None, len(self._content)))

    def _report_sent(self, sent: tuple[int | None, None, int]) -> None:
        self._sent = sent
        if self._capture is not None:
            self._capture.request_sent(*sent)


class CapturedRequestStream:
    """A request's stream that reports its pieces and its end."""

    def __init__(self, stream: Stream, body: RequestBodyCapture) -> None:
        self._inner, self._body = stream, body

    def __iter__(self) -> Iterator[bytes]:
        first = self._body.begin_pass()
        for piece in self._inner:
            if first:
                _quietly(self._body.report_piece, piece)
            yield piece
        if first:
            _quietly(self._body.report_sent)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        first = self._body.begin_pass()
        async for piece in self._inner:
            if first:
                _quietly(self._body.report_piece, piece)
            yield piece
        if first:
            _quietly(self._body.report_sent)

    def close(self) -> None:
        """Closes the request's own stream, which a synchronous client sends."""
        self._inner.close()

    async def aclose(self) -> None:
        """Closes the request's own stream, which an asynchronous client sends."""
        await self._inner.aclose()


def _quietly(report: Callable[..., None], *facts: object) -> None:
    try:
        report(*facts)
    except Exception as error:  # noqa: BLE001 - capture fails open
        report_fault("the transport, in a request body", error)


class CapturedResponseStream:
    """A response's stream: stamps each chunk, reports it to the capture, then yields it.

    A chunk is reported before it is yielded, because a reader may close the response without resuming its iterator: the last
    chunk, with the terminal and the usage, would then be missing. A report takes about 0.2 us (bench/inprocess.py).
    """

    def __init__(self, stream: Stream, capture: ExchangeCapture) -> None:
        self._inner, self._capture = stream, capture

    def __del__(self) -> None:
        try:
            report_ending(self._capture, Ending.CLIENT)
        except Exception as error:  # noqa: BLE001 - Python prints an error raised in __del__, with its text
            report_fault("the transport, on a response that was never closed", error)


class SyncResponseStream(CapturedResponseStream):
    """The body of a synchronous client's response."""

    def __iter__(self) -> Iterator[bytes]:
        read, now, failed = self._capture.read, time.monotonic_ns, None
        try:
            for chunk in self._inner:
                read(now(), chunk)
                yield chunk
        except BaseException as error:
            failed = error
            raise
        finally:
            report_failure(self._capture, failed)

    def close(self) -> None:
        """Closes the inner stream; a response that was not read to its end then has the ending `client`."""
        try:
            self._inner.close()
        finally:
            report_ending(self._capture, Ending.CLIENT)


class AsyncResponseStream(CapturedResponseStream):
    """The body of an asynchronous client's response."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read, now, failed = self._capture.read, time.monotonic_ns, None
        stream = self._inner.__aiter__()
        try:
            async for chunk in stream:
                read(now(), chunk)
                yield chunk
        except BaseException as error:
            failed = error
            raise
        finally:
            report_failure(self._capture, failed)
            if isinstance(stream, AsyncGenerator):  # as without the tap
                await stream.aclose()

    async def aclose(self) -> None:
        """Closes the inner stream; a response that was not read to its end then has the ending `client`."""
        try:
            await self._inner.aclose()
        finally:
            report_ending(self._capture, Ending.CLIENT)


class StreamClasses(NamedTuple):
    """The streams of this module as subclasses of one library's, since the library checks the class of a stream."""

    sync_response: type[CapturedResponseStream]
    async_response: type[CapturedResponseStream]
    request: Callable[[Stream, RequestBodyCapture], CapturedRequestStream]


def library_of(message: object) -> Any:
    """The library of a request or response. It is imported, since it made the object."""
    modules = (kind.__module__.partition(".")[0] for kind in type(message).__mro__)
    return sys.modules[next(name for name in modules if name in _LIBRARIES)]


def stream_classes_of(request: Any) -> StreamClasses:
    """The stream classes for the library of this request."""
    return _stream_classes(library_of(request))


@cache
def _stream_classes(library: Any) -> StreamClasses:
    in_memory = type("CapturedRequestBytes", (CapturedRequestStream, library.ByteStream), {})
    in_pieces = type(
        "CapturedRequestStream", (CapturedRequestStream, library.SyncByteStream, library.AsyncByteStream), {}
    )

    def request(stream: Stream, body: RequestBodyCapture) -> CapturedRequestStream:
        kind: type[CapturedRequestStream] = in_memory if isinstance(stream, library.ByteStream) else in_pieces
        return kind(stream, body)

    return StreamClasses(
        type("TappedStream", (SyncResponseStream, library.SyncByteStream), {}),
        type("TappedStream", (AsyncResponseStream, library.AsyncByteStream), {}),
        request,
    )
