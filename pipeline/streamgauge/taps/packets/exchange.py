"""One captured request and its response, reported as the messages of `recorder/protocol.py`.

The messages are those that the relay would send for the same bytes: an LLM path is reported from the request's head on; any
other path only after the response's head shows an event stream, together with everything before it.
"""

from collections.abc import Callable, Iterator

import msgspec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.dialects import endpoint_of
from streamgauge.core.http1.content_type import says_event_stream
from streamgauge.recorder.protocol import (
    MAX_REQUEST_BODY,
    REQUEST_HEADERS,
    ExchangeEnded,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.recorder.stream_id import derived_stream_id
from streamgauge.taps.proxy.request import Request
from streamgauge.taps.proxy.response import MAX_RESPONSE_HEAD, ResponseFraming

_WANTED = frozenset(name.encode() for name in REQUEST_HEADERS)
# Replaces lost bytes where only their number matters: framing counts it, and fails on it anywhere else.
_FILLER = bytes(64 * 1024)


class Telling(msgspec.Struct):
    """How exchanges are reported. `wall_offset_ns`: added to a stamp it gives UTC; `numbers`: the numbers of the next
    streams.

    `draining`: new exchanges are not captured. `derives_ids`: the packets come from a file, and stream ids are derived from
    them, so that reading the file again gives the same ids.
    """

    put: Callable[[Message], None]
    numbers: Iterator[int]
    tap: str
    tenant_header: bytes | None = None
    wall_offset_ns: int = 0
    draining: bool = False
    derives_ids: bool = False


class PacketExchange:
    """One exchange. `whole`: the request is complete; `framing`: that of its response; `blind`: the end of the response
    cannot be found any more.

    `facts`: what identifies the exchange in a file, besides its start.
    """

    __slots__ = ("_asked", "_body_bytes", "_early", "_early_bytes", "_facts", "_request", "_sent", "_stream", "_telling",
                 "_told_all", "_upstream", "blind", "framing", "whole")  # fmt: skip

    def __init__(
        self, request: Request, upstream: str | None, telling: Telling, facts: tuple[bytes | int, ...] = ()
    ) -> None:
        self.whole = self.blind = False
        self._facts = facts
        self._request, self._upstream, self._telling = request, upstream, telling
        self.framing = ResponseFraming(request.method)
        self._stream: int | None = None
        self._asked = self._body_bytes = 0
        self._told_all = True
        self._sent: RequestSent | None = None
        self._early: list[ResponseRead] | None = None  # reads kept until it is known whether the exchange is captured
        self._early_bytes = 0
        if telling.draining:
            return
        if endpoint_of(request.method.decode("latin-1"), request.target.decode("latin-1")) is None:
            self._early = []
        else:
            self._open()

    @property
    def open(self) -> bool:
        """The exchange is captured, and has not ended."""
        return self._stream is not None

    # The request.

    def asked(self, data: bytes, *, lost: bool) -> None:
        """A piece of the request's body. `lost`: only its size is known."""
        self._body_bytes += len(data)
        if lost or self._body_bytes > MAX_REQUEST_BODY:
            self._told_all = False
        elif self._told_all and self._stream is not None:
            self._asked += len(data)
            self._telling.put(RequestBody(self._stream, data))

    def sent(self, at_ns: int) -> None:
        """The request's last byte was captured. The connection existed before the request, so there is no connect time."""
        self.whole = True
        self._sent = RequestSent(0, at_ns, None, self._body_bytes, self._told_all and self._asked == self._body_bytes)
        self._tell_sent()

    # The answer.

    def arrived(self, at_ns: int, data: bytes) -> int:
        """Bytes from the server. Returns how many of them belong to this response."""
        size = self.framing.feed(data)
        if size:
            piece = data if size == len(data) else data[:size]
            if self._stream is not None:
                self._telling.put(ResponseRead(self._stream, at_ns, piece))
            elif self._early is not None:
                self._arrived_early(self._early, ResponseRead(0, at_ns, piece))
        return size

    def lost(self, size: int) -> int:
        """`size` bytes from the server were not captured. Returns how many of them belong to this response.

        Where framing only counts bytes, it continues. Elsewhere, within a head or a line of the framing, the exchange becomes
        `blind`.
        """
        self.dropped()
        left = size
        if self.framing.untouched:
            self.blind = True
        while left and not self.blind and not self.framing.complete:
            taken = self.framing.feed(_FILLER[:left])
            self.blind = self.framing.position is None and not self.framing.complete
            left -= taken
        return size - left

    def ends_cleanly(self) -> bool:
        """The server ended its side. Returns whether the response is complete with that."""
        return self.framing.end_of_input()

    def ended(
        self,
        at_ns: int,
        ending: Ending,
        fault: TransportFault | None = None,
        gone_ns: int | None = None,
        unsent_bytes: int = 0,
    ) -> None:
        """The exchange has ended. A blind one is reported as cut, since its real end is unknown."""
        if self._stream is not None:
            cut = Ending.CUT if self.blind else ending
            self._telling.put(ExchangeEnded(self._stream, at_ns, cut, gone_ns, None, unsent_bytes, fault))
        self._stream = self._early = None

    # Inside.

    def _arrived_early(self, early: list[ResponseRead], read: ResponseRead) -> None:
        early.append(read)
        self._early_bytes += len(read.data)
        if self.framing.status is not None or self.framing.fault or self._early_bytes >= MAX_RESPONSE_HEAD:
            self._open_late()

    def _open_late(self) -> None:
        """Decides on a path that is not an LLM's, from the content type of the response."""
        early, self._early = self._early or [], None
        if says_event_stream((self.framing.content_type,)):
            stream = self._open()
            for read in early:
                self._telling.put(ResponseRead(stream, read.at_ns, read.data))

    def _open(self) -> int:
        request, telling = self._request, self._telling
        self._stream = next(telling.numbers)
        headers = [
            (name.decode(), value.decode("latin-1"))
            for name, (_, value) in zip(request.names, request.headers, strict=True)
            if name in _WANTED or name == telling.tenant_header
        ]
        method, target = request.method.decode("latin-1"), request.target.decode("latin-1")
        wall_ns = request.began_ns + telling.wall_offset_ns
        opened = RequestStarted(
            self._stream, request.began_ns, wall_ns, self._upstream, method, target, headers, telling.tap
        )
        if telling.derives_ids:
            opened = msgspec.structs.replace(opened, stream_id=derived_stream_id(wall_ns, *self._facts))
        telling.put(opened)
        self._tell_sent()
        return self._stream

    def _tell_sent(self) -> None:
        if self._stream is not None and self._sent is not None:
            self._telling.put(msgspec.structs.replace(self._sent, stream=self._stream))

    def dropped(self) -> None:
        """Reports that a part of the response was lost here."""
        if self._stream is not None:
            self._telling.put(ReadsDropped(self._stream, 1))
        self._early = None  # the response's head is not known whole, so the exchange is not captured
