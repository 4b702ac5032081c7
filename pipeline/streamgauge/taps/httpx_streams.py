"""A request's and a response's stream, as the httpx tap puts them in the place of the libraries' own."""

import re
import socket
import ssl
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.runtime.faults import report_fault
from streamgauge.taps.inprocess.capture import NotedStream

_LIBRARIES = ("httpx", "httpx2")
# What the libraries call an upstream that says nothing for too long; the same name stands for all kinds of it.
_TIMEOUTS = frozenset(("TimeoutException", "TimeoutError"))

_FAULTS = {
    "ConnectTimeout": TransportFault.CONNECT_TIMEOUT,
    "ReadTimeout": TransportFault.IDLE_TIMEOUT,
    "WriteTimeout": TransportFault.IDLE_TIMEOUT,
}
_CAUSES = {
    socket.gaierror: TransportFault.DNS,
    ssl.SSLCertVerificationError: TransportFault.TLS_CERTIFICATE,
    ssl.SSLError: TransportFault.TLS,
    ConnectionRefusedError: TransportFault.REFUSED,
    ConnectionError: TransportFault.RESET,
}
# Of errors that were raised for others, so many are looked at.
_MAX_CAUSES = 8
# h11's words for a connection that ended too early.
_CLOSED = re.compile(r"disconnected|closed")

# Either library's: they share names, and no base class.
Stream = Any


class RequestNotes:
    """A request's body on its way, as the capture hears of it: what went out the first time counts."""

    def __init__(self, capture: NotedStream | None, content: bytes | None) -> None:
        self._capture, self._content = capture, content
        self._size = 0
        self._sent: tuple[int | None, int] | None = None
        self._begun = False
        if capture is not None and content:
            capture.asked(content)

    def begins(self) -> bool:
        """Whether this is the first time that it goes out."""
        first, self._begun = not self._begun, True
        return first

    def piece(self, data: bytes) -> None:
        """A piece goes out."""
        self._size += len(data)
        if self._capture is not None and self._content is None:
            self._capture.asked(data)

    def ends(self) -> None:
        """All has gone out."""
        self._tell((time.monotonic_ns(), self._size))

    def answered(self, capture: NotedStream) -> None:
        """There is an answer. Tells a capture that began with it, and of a body that went out unseen."""
        if self._capture is None:
            self._capture = capture
            if self._sent is not None:
                capture.sent(*self._sent)
        if self._content is not None and not self._begun:
            self._tell((None, len(self._content)))

    def _tell(self, sent: tuple[int | None, int]) -> None:
        self._sent = sent
        if self._capture is not None:
            self._capture.sent(*sent)


class NotedRequestStream:
    """A request's stream that says when it has been read."""

    def __init__(self, stream: Stream, asked: RequestNotes) -> None:
        self._of, self._asked = stream, asked

    def __iter__(self) -> Iterator[bytes]:
        first = self._asked.begins()
        for piece in self._of:
            if first:
                _quietly(self._asked.piece, piece)
            yield piece
        if first:
            _quietly(self._asked.ends)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        first = self._asked.begins()
        async for piece in self._of:
            if first:
                _quietly(self._asked.piece, piece)
            yield piece
        if first:
            _quietly(self._asked.ends)

    def close(self) -> None:
        self._of.close()

    async def aclose(self) -> None:
        await self._of.aclose()


def _quietly(tell: Callable[..., None], *facts: object) -> None:
    try:
        tell(*facts)
    except Exception as error:  # noqa: BLE001 - capture fails open
        report_fault("the transport, in a request body", error)


class Answer:
    """A response's stream. A chunk is stamped, noted and handed on.

    Noted first, since afterwards there may be no turn: whoever has read enough closes the response and not what iterates it,
    and the last chunk, with its terminal and usage, would come too late. It takes some 0.2 us (bench/inprocess.py).
    """

    def __init__(self, stream: Stream, capture: NotedStream) -> None:
        self._of, self._capture = stream, capture

    def __del__(self) -> None:
        try:
            tell_end(self._capture, Ending.CLIENT)
        except Exception as error:  # noqa: BLE001 - raised here it would be printed with its text
            report_fault("the transport, on a response that was never closed", error)


class SyncAnswer(Answer):
    def __iter__(self) -> Iterator[bytes]:
        note, now, failed = self._capture.arrived, time.monotonic_ns, None
        try:
            for chunk in self._of:
                note(now(), chunk)
                yield chunk
        except BaseException as error:
            failed = error
            raise
        finally:
            tell_failed(self._capture, failed)

    def close(self) -> None:
        try:
            self._of.close()
        finally:
            tell_end(self._capture, Ending.CLIENT)


class AsyncAnswer(Answer):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        note, now, failed = self._capture.arrived, time.monotonic_ns, None
        stream = self._of.__aiter__()
        try:
            async for chunk in stream:
                note(now(), chunk)
                yield chunk
        except BaseException as error:
            failed = error
            raise
        finally:
            tell_failed(self._capture, failed)
            if isinstance(stream, AsyncGenerator):  # as whoever reads it without us does
                await stream.aclose()

    async def aclose(self) -> None:
        try:
            await self._of.aclose()
        finally:
            tell_end(self._capture, Ending.CLIENT)


def tell_end(capture: NotedStream, ending: Ending) -> None:
    """The stream ends now; the first end that is told counts."""
    now = time.monotonic_ns()
    capture.ended(now, ending, now if ending is Ending.CLIENT else None)


def tell_failed(capture: NotedStream, error: BaseException | None) -> None:
    """The stream ends now, with this error; None: in order."""
    if error is None:
        tell_end(capture, Ending.COMPLETE)
        return
    ending = ending_of(error)
    now = time.monotonic_ns()
    fault = None if ending is Ending.CLIENT else fault_of(error)
    capture.ended(now, ending, now if ending is Ending.CLIENT else None, fault)


def fault_of(error: BaseException) -> TransportFault | None:
    """What failed, by the library's name for the error and by the errors that it was raised for; None if they do not tell."""
    names = {kind.__name__ for kind in type(error).__mro__}
    for name, fault in _FAULTS.items():
        if name in names:
            return fault
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        for kind, fault in _CAUSES.items():
            if isinstance(cause, kind):
                return fault
        cause = (cause.__cause__ or cause.__context__) if cause is not None else None
    if "RemoteProtocolError" in names:
        return TransportFault.CLOSED if _CLOSED.search(str(error)) else TransportFault.NOT_HTTP
    return TransportFault.UNREACHABLE if "ConnectError" in names else None


def ending_of(error: BaseException) -> Ending:
    """What ended with this error."""
    if not isinstance(error, Exception):  # closed, cancelled or interrupted by the application
        return Ending.CLIENT
    timed_out = any(kind.__name__ in _TIMEOUTS for kind in type(error).__mro__)
    return Ending.TIMEOUT if timed_out else Ending.RESET


class Kinds(NamedTuple):
    """Our streams as those of one library, which looks whether a stream is one of its own."""

    sync_response: type[Answer]
    async_response: type[Answer]
    asked: Callable[[Stream, RequestNotes], NotedRequestStream]


def library_of(one: object) -> Any:
    """The library that a request or response comes from: it is imported, since it made one."""
    modules = (kind.__module__.partition(".")[0] for kind in type(one).__mro__)
    return sys.modules[next(name for name in modules if name in _LIBRARIES)]


def kinds_of(request: Any) -> Kinds:
    """The streams for the library of this request."""
    return _kinds(library_of(request))


@cache
def _kinds(library: Any) -> Kinds:
    in_memory = type("NotedRequestBytes", (NotedRequestStream, library.ByteStream), {})
    in_pieces = type("NotedRequestStream", (NotedRequestStream, library.SyncByteStream, library.AsyncByteStream), {})

    def asked(stream: Stream, notes: RequestNotes) -> NotedRequestStream:
        kind: type[NotedRequestStream] = in_memory if isinstance(stream, library.ByteStream) else in_pieces
        return kind(stream, notes)

    return Kinds(
        type("TappedStream", (SyncAnswer, library.SyncByteStream), {}),
        type("TappedStream", (AsyncAnswer, library.AsyncByteStream), {}),
        asked,
    )
