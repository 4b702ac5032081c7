"""What an in-process tap notes of one stream. Nothing here raises, waits, locks or changes a byte. After an error the
stream continues, and its record is marked incomplete.

Notes are appended to a list; the sender's thread takes them from its front (note_collector.py). A chunk costs one append.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.dialects import endpoint_of
from streamgauge.core.http1.content_type import says_event_stream
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    ExchangeEnded,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
)
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import DropReason

# Overhead of a note besides its data (bytes): a tuple, a stamp, and their list entries.
NOTE_BYTES = 200
# If one stream has more than this not yet collected (bytes), it wakes the sender.
WAKE_BYTES = 1024 * 1024
# Limit of one stream's notes that are not yet collected (bytes): a whole response of the largest size that a recorder
# decodes (16 MiB), which an application may send in one piece, and what arrives until the sender's next turn.
MAX_UNTAKEN_BYTES = 20 * 1024 * 1024

_NO_ROOM = -1  # below any stream's bytes: each read takes the slow path

Headers = Iterable[tuple[str | bytes, str | bytes]]


class Asking(NamedTuple):
    """A request as a tap sees it. `target`: path and query; `began_ns`: time zero, of the monotonic clock."""

    tap: str
    upstream: str | None
    method: str
    target: str
    headers: Headers
    began_ns: int


class Lost(msgspec.Struct, frozen=True):
    """A note that replaces reads for which there was no room, or that came after an internal error."""

    reads: int
    reason: DropReason


class Fault(msgspec.Struct, frozen=True):
    """A note that the capture of this stream failed with an internal error."""


Told = RequestStarted | RequestBody | RequestSent | ResponseHead | ExchangeEnded | Lost | Fault
Note = tuple[int, bytes] | Told


class EndedError(RuntimeError):
    """The process exits, or the sender belongs to the parent process of this fork."""


class Taker(Protocol):
    """Collects the notes. `full`: there is no room for more reads."""

    full: bool

    def begin(self, capture: "NotedStream") -> int:
        """Starts to collect this stream's notes. Returns the stream's number. May raise any error."""

    def wake(self) -> None:
        """Asks for an early turn."""


class NotedStream:
    """One stream. The application writes `notes` and `noted_bytes`; the sender writes `taken_bytes`."""

    __slots__ = (
        "_asked", "_broken", "_ended", "_limit", "_lost", "_taker", "_whole", "noted_bytes", "notes", "stream",
        "taken_bytes",
    )  # fmt: skip

    def __init__(self, taker: Taker, asking: Asking, tenant_header: str | None = None) -> None:
        self.notes: list[Note] = []
        self.noted_bytes = self.taken_bytes = 0
        self.stream = 0
        self._taker = taker
        self._limit = WAKE_BYTES
        self._lost = self._asked = 0
        self._whole = True
        self._ended = self._broken = False
        try:
            self.stream = taker.begin(self)
            self._note(_opened(self.stream, asking, tenant_header))
        except EndedError:
            self._fault(None)
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def asked(self, data: bytes) -> None:
        """A piece of the request's body. It is left out beyond MAX_REQUEST_BODY or without room; `sent` then reports an
        incomplete body.
        """
        try:
            self._asked += len(data)
            if self._asked > MAX_REQUEST_BODY or self._broken or self._taker.full:
                self._whole = False
            elif self._whole and data:
                self._note(RequestBody(self.stream, bytes(data)))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def sent(self, at_ns: int | None, body_bytes: int) -> None:
        """The request is complete and was passed on. `at_ns`: time of its last byte, None if unknown; `body_bytes`: size of
        its body.
        """
        try:
            whole = self._whole and self._asked == body_bytes
            self._note(RequestSent(self.stream, at_ns, None, body_bytes, whole))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def answered(self, at_ns: int, status: int, headers: Headers) -> None:
        """The response's head."""
        try:
            self._note(ResponseHead(self.stream, at_ns, status, _kept(headers, RESPONSE_HEADERS)))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def arrived(self, at_ns: int, data: bytes) -> None:
        """A piece of the response's body. `at_ns`: when it arrived, before it was passed on."""
        try:
            if type(data) is not bytes:
                data = bytes(data)
            if self.noted_bytes - self.taken_bytes > self._limit or self._taker.full:
                self._arrived_amiss(at_ns, data)
            elif data:
                self.noted_bytes += len(data) + NOTE_BYTES
                self.notes.append((at_ns, data))
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error, lost=1)

    def ended(
        self, at_ns: int, ending: Ending, gone_ns: int | None = None, fault: TransportFault | None = None
    ) -> None:
        """The stream has ended; only the first call counts. `gone_ns`: when the client left, if it did; `fault`: what
        failed, if known.
        """
        try:
            if not self._ended:
                self._ended = True
                self._tell_lost()
                self._note(ExchangeEnded(self.stream, at_ns, ending, gone_ns, fault=fault))
                self._limit = _NO_ROOM
        except Exception as error:  # noqa: BLE001 - capture fails open
            self._fault(error)

    def fault(self) -> None:
        """The tap caught and reported an internal error: only the end is noted from now on, and the record is incomplete."""
        self._fault(None)

    def _note(self, note: Note) -> None:
        self.noted_bytes += size_of_note(note)
        self.notes.append(note)

    def _arrived_amiss(self, at_ns: int, data: bytes) -> None:
        """A read while much waits, after a lost read, or after the end."""
        if not data or self._ended:
            return
        if self._broken or self._taker.full or self.noted_bytes - self.taken_bytes > MAX_UNTAKEN_BYTES:
            self._lost += 1
            self._limit = _NO_ROOM
            return
        self._tell_lost()
        self._limit = WAKE_BYTES
        self._note((at_ns, data))
        if self.noted_bytes - self.taken_bytes > WAKE_BYTES:
            self._taker.wake()

    def _tell_lost(self) -> None:
        if self._lost:
            reason = DropReason.CAPTURE_FAULT if self._broken else DropReason.RECORDER_BEHIND
            self._note(Lost(self._lost, reason))
            self._lost = 0

    def _fault(self, error: Exception | None, lost: int = 0) -> None:
        """Stops the capture of this stream. `error`: an internal error to report."""
        if error is not None:
            report_fault("the capture of a tap in an application", error)
        try:
            if not self._broken:
                self._tell_lost()
                self._broken, self._limit = True, _NO_ROOM
                self._note(Fault())
            self._lost += lost
        except Exception as failed:  # noqa: BLE001 - capture fails open, even if this note fails
            report_fault("the notes of a tap in an application", failed)


def size_of_note(note: Note) -> int:
    """The size of a note with its overhead (bytes)."""
    if type(note) is tuple:
        return len(note[1]) + NOTE_BYTES
    if type(note) is RequestBody:
        return len(note.data) + NOTE_BYTES
    if type(note) is RequestStarted or type(note) is ResponseHead:
        return sum(len(name) + len(value) for name, value in note.headers) + NOTE_BYTES
    return NOTE_BYTES


def is_llm(method: str, target: str) -> bool:
    """Whether a request is captured whatever the response is; other requests are captured only if it is an event stream."""
    return endpoint_of(method, target) is not None


def is_event_stream(headers: Headers) -> bool:
    """Whether the response's Content-Type is an event stream."""
    return says_event_stream(value for _, value in _kept(headers, frozenset(("content-type",))))


def _opened(stream: int, asking: Asking, tenant_header: str | None) -> RequestStarted:
    tenant = tenant_header.lower() if tenant_header else None
    wanted = REQUEST_HEADERS if tenant is None else REQUEST_HEADERS | {tenant}
    wall_ns = time.time_ns() - (time.monotonic_ns() - asking.began_ns)
    headers = _kept(asking.headers, wanted)
    method, target = asking.method, asking.target
    return RequestStarted(
        stream, asking.began_ns, wall_ns, asking.upstream, method, target, headers, asking.tap, tenant_header=tenant
    )


def _kept(headers: Headers, wanted: frozenset[str]) -> list[tuple[str, str]]:
    """The wanted headers; others never leave the process."""
    pairs = ((_text(name).lower(), value) for name, value in headers)
    return [(name, _text(value)) for name, value in pairs if name in wanted]


def _text(raw: str | bytes) -> str:
    return raw.decode("latin-1") if isinstance(raw, bytes) else raw
