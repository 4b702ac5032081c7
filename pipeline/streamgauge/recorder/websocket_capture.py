"""Reports one WebSocket to the recorder; the relay uses it. As in exchange_capture.py, no method raises, waits or changes a
byte.

A WebSocket may outlive its recorder. It is reported to the next one as well, which reads on at the next whole frame.

The relay calls `open` once the upstream has accepted the handshake, then `client_data` and `upstream_data` with what either
side sent, then `end`. The relay counts nothing here: how many responses and reads the bytes hold, only the recorder sees
(websocket_session.py).
"""

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.exchange_capture import ConnectedClient
from streamgauge.recorder.fail_open import fails_open
from streamgauge.recorder.protocol import ExchangeEnding, RequestStarted, WebSocketData, WebSocketOpened
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.response_counters import NotCaptured


class WebSocketCapture:
    """The capture of one WebSocket."""

    __slots__ = ("_client", "_connections", "_ended", "_missing", "_opened", "_reports", "_upstream", "stream")

    def __init__(self, client: ConnectedClient, upstream: str | None) -> None:
        self.stream = 0
        self._client, self._upstream = client, upstream
        self._reports = self._ended = False
        self._opened: WebSocketOpened | None = None
        self._connections = 0  # of the client, when `_opened` was put last
        self._missing: set[bool] = (
            set()
        )  # the directions (from the client: True) of which bytes are missing, unreported

    @fails_open
    def open(self, request: RequestStarted, headers: list[tuple[str, str]]) -> None:
        """Reports the handshake: its request, whose `stream` is set here, and the allowed headers of the answer."""
        client = self._client
        if client.overfull or not client.admits(request.party):
            client.count_response(self._upstream, NotCaptured.RECORDER_BEHIND)
            return
        opened = WebSocketOpened(client.new_stream(), request, headers)
        self._put_opened(opened)
        self.stream, self._opened, self._reports = opened.stream, opened, True

    def _put_opened(self, opened: WebSocketOpened) -> None:
        request = opened.request
        pairs = (*request.headers, *request.attributes, *opened.headers)
        size = len(request.target) + sum([len(name) + len(value) for name, value in pairs])
        self._client.put(opened, size)
        self._connections = self._client.connections

    def client_data(self, at_ns: int, data: bytes) -> None:
        """Reports a read from the client."""
        self._data(at_ns, data, from_client=True)

    def upstream_data(self, at_ns: int, data: bytes) -> None:
        """Reports a read from the upstream."""
        self._data(at_ns, data, from_client=False)

    @fails_open
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
        self._client.put(WebSocketData(self.stream, at_ns, bytes(data), from_client, is_gap), len(data))
        self._missing.discard(from_client)

    @fails_open
    def end(self, at_ns: int, ending: Ending, fault: TransportFault | None, gone_ns: int | None = None) -> None:
        """Reports the end of the connection, even if the client is full. Only the first call has an effect."""
        if not self._ended and self.stream:
            for from_client in self._missing:
                self._client.put(WebSocketData(self.stream, at_ns, b"", from_client, True), 0)
            self._client.put(ExchangeEnding(self.stream, at_ns, ending, gone_ns, fault=fault), 0)
        self._ended, self._reports = True, False

    def fail(self, error: Exception) -> None:
        """Ends the capture after an internal error."""
        report_fault("the capture of a WebSocket", error)
        was_open, self._reports = self.stream != 0, False
        try:
            self._client.count_fault()
            if not was_open:
                self._client.count_response(self._upstream, NotCaptured.CAPTURE_FAULT)
            else:
                self._missing.update((True, False))
        except Exception as failed:  # noqa: BLE001 - as above
            report_fault("the counters of a tap", failed)
