"""Reports a WebSocket, or a call of JSON-RPC, to the recorder. As in exchange_capture.py, no method raises, waits or changes
a byte.

A session may outlive its recorder. It is reported to the next one as well: a WebSocket is read on at its next whole frame,
and a call is not measured.

A tap calls `open` once the upstream has accepted a handshake, or `open_call` when the answer to a call begins; then
`client_data` and `upstream_data` with what either side sent, then `end`. No read is counted here: how many responses and
reads a WebSocket holds, only the recorder sees (websocket_session.py).
"""

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call
from streamgauge.recorder.exchange_capture import ConnectedClient
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import CallOpened, ExchangeEnding, RequestStarted, WebSocketOpened, WireData
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.response_counters import NotCaptured

_Arguments = ParamSpec("_Arguments")
_Method = Callable[Concatenate["SessionCapture", _Arguments], None]


def _fails_open(method: _Method[_Arguments]) -> _Method[_Arguments]:
    """Makes a method raise nothing: a bug in it ends the capture, and the connection continues."""

    def guarded(self: "SessionCapture", /, *args: _Arguments.args, **options: _Arguments.kwargs) -> None:
        try:
            method(self, *args, **options)
        except Exception as error:  # noqa: BLE001 - a bug of ours, of any type, which must not reach the traffic
            self.fail(error)

    return guarded


class SessionCapture:
    """The capture of one WebSocket or call. `stream`: its number; 0: it is not reported. Then its response is counted as not
    captured, if it `counts`.
    """

    __slots__ = (
        "_client",
        "_connections",
        "_counts",
        "_ended",
        "_missing",
        "_opened",
        "_reports",
        "_upstream",
        "stream",
    )

    def __init__(self, client: ConnectedClient, upstream: str | None, *, counts: bool = True) -> None:
        self.stream = 0
        self._counts = counts
        self._client, self._upstream = client, upstream
        self._reports = self._ended = False
        self._opened: WebSocketOpened | CallOpened | None = None
        self._connections = 0  # of the client, when `_opened` was put last
        self._missing: set[bool] = (
            set()
        )  # the directions (from the client: True) of which bytes are missing, unreported

    @_fails_open
    def open(self, request: RequestStarted, headers: list[tuple[str, str]]) -> None:
        """Reports the handshake: its request, whose `stream` is set here, and the allowed headers of the answer."""
        if self._is_admitted(request.party):
            self._put_opened(WebSocketOpened(self._client.new_stream(), request, headers))

    @_fails_open
    def open_call(self, at_ns: int, call: Call, party: Party | None) -> None:
        """Reports a call, whose request began at `at_ns`."""
        if self._is_admitted(party):
            self._put_opened(CallOpened(self._client.new_stream(), at_ns, self._upstream, call))

    def _is_admitted(self, party: Party | None) -> bool:
        if self._client.overfull or not self._client.admits(party):
            if self._counts:
                self._client.count_response(self._upstream, NotCaptured.RECORDER_BEHIND)
            return False
        return True

    def _put_opened(self, opened: WebSocketOpened | CallOpened) -> None:
        self._client.put(opened, _size_of(opened))
        self._connections = self._client.connections
        self.stream, self._opened, self._reports = opened.stream, opened, True

    def client_data(self, at_ns: int, data: bytes) -> None:
        """Reports a read from the client."""
        self._data(at_ns, data, from_client=True)

    def upstream_data(self, at_ns: int, data: bytes) -> None:
        """Reports a read from the upstream."""
        self._data(at_ns, data, from_client=False)

    def lose_upstream_data(self) -> None:
        """Reports that bytes of the upstream were not seen."""
        self._missing.add(False)

    @_fails_open
    def _data(self, at_ns: int, data: bytes, *, from_client: bool) -> None:
        """Reports a read; without room it is missing, which the next report of this direction says."""
        if not self._reports:
            return
        if not self._client.take_room(self.stream, len(data)):
            self._missing.add(from_client)
            return
        if self._client.connections != self._connections and self._opened is not None:
            first, self._connections = self._connections == 0, self._client.connections
            if not first:  # what waited for the first recorder reaches it
                self._put_opened(self._opened)
                self._missing.update((True, False))
        is_gap = from_client in self._missing
        self._client.put(WireData(self.stream, at_ns, bytes(data), from_client, is_gap), len(data))
        self._missing.discard(from_client)

    @_fails_open
    def end(self, at_ns: int, ending: Ending, fault: TransportFault | None, gone_ns: int | None = None) -> None:
        """Reports the end of the connection, even if the client is full. Only the first call has an effect."""
        if not self._ended and self.stream:
            for from_client in self._missing:
                self._client.put(WireData(self.stream, at_ns, b"", from_client, True), 0)
            self._client.put(ExchangeEnding(self.stream, at_ns, ending, gone_ns, fault=fault), 0)
        self._ended, self._reports = True, False

    def fail(self, error: Exception) -> None:
        """Ends the capture after an internal error."""
        report_fault("the capture of a session", error)
        was_open, self._reports = self.stream != 0, False
        try:
            self._client.count_fault()
            if not was_open and self._counts:
                self._client.count_response(self._upstream, NotCaptured.CAPTURE_FAULT)
            self._missing.update((True, False))
        except Exception as failed:  # noqa: BLE001 - as above
            report_fault("the counters of a tap", failed)


def _size_of(opened: WebSocketOpened | CallOpened) -> int:
    """The bytes of an opening's contents."""
    if isinstance(opened, CallOpened):
        return len(opened.call.tool or "")
    request = opened.request
    pairs = (*request.headers, *request.attributes, *opened.headers)
    return len(request.target) + sum([len(name) + len(value) for name, value in pairs])
