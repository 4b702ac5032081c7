"""Reports the answer to one call of JSON-RPC to the recorder; relay and packet tap use it. As in exchange_capture.py, no
method raises, waits or changes a byte.

A tap calls `open` when the answer begins, then `read`, then `end`. After a part that found no room, after MAX_CALL_BYTES, and
once another recorder has taken the place of the first one, the call cannot be measured: nothing but its end is reported.
"""

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call
from streamgauge.recorder.exchange_capture import ConnectedClient
from streamgauge.recorder.fail_open import fails_open
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import MAX_CALL_BYTES, CallData, CallOpened, ExchangeEnding
from streamgauge.runtime.faults import report_fault


class CallCapture:
    """The capture of one call. `is_open`: it is reported. `reads`: more of its answer is wanted."""

    __slots__ = ("_client", "_connections", "_ended", "_left", "_opened", "is_open", "reads")

    def __init__(self, client: ConnectedClient) -> None:
        self.is_open = self.reads = False
        self._client = client
        self._opened: CallOpened | None = None
        self._connections = 0  # of the client, when the call was opened
        self._left = MAX_CALL_BYTES
        self._ended = False

    @fails_open
    def open(self, at_ns: int, upstream: str | None, call: Call, party: Party | None) -> None:
        """Reports the call, whose request began at `at_ns`. While the recorder is behind, it is not reported."""
        client = self._client
        if client.overfull or not client.admits(party):
            return
        self._opened = CallOpened(client.new_stream(), at_ns, upstream, call)
        self._put_opened(self._opened)
        self.is_open = self.reads = True

    def _put_opened(self, opened: CallOpened) -> None:
        self._connections = self._client.connections
        self._client.put(opened, len(opened.call.tool or ""))

    @fails_open
    def read(self, at_ns: int, data: bytes) -> None:
        """Reports a read of the answer."""
        if not self.reads or self._opened is None:
            return
        if self._is_with_another_recorder() or not self._client.take_room(self._opened.stream, len(data)):
            self.lose_read()
            return
        self._client.put(CallData(self._opened.stream, at_ns, bytes(data)), len(data))
        self._left -= len(data)
        self.reads = self._left > 0

    @fails_open
    def lose_read(self) -> None:
        """Reports that a part of the answer is missing."""
        if self.reads and self._opened is not None:
            self.reads = False
            if not self._is_with_another_recorder():
                self._client.put(CallData(self._opened.stream, 0, b"", is_lost=True), 0)

    @fails_open
    def end(self, at_ns: int, ending: Ending, fault: TransportFault | None) -> None:
        """Reports the end of the exchange, even if the client is full. Only the first call has an effect."""
        if self.is_open and not self._ended and self._opened is not None:
            self._ended, self.reads = True, False
            if self._is_with_another_recorder():
                self._client.put(CallOpened(*_again(self._opened)), 0)
            self._client.put(ExchangeEnding(self._opened.stream, at_ns, ending, fault=fault), 0)

    def _is_with_another_recorder(self) -> bool:
        """Whether the client has connected again. What waited for its first connection reaches that recorder."""
        if self._connections == 0:
            self._connections = min(self._client.connections, 1)
        return self._client.connections != self._connections

    def fail(self, error: Exception) -> None:
        """Ends the capture after an internal error."""
        report_fault("the capture of a call", error)
        self.reads = False
        try:
            self._client.count_fault()
        except Exception as failed:  # noqa: BLE001 - as in `fails_open`
            report_fault("the counters of a tap", failed)


def _again(opened: CallOpened) -> tuple[int, int, str | None, Call, bool]:
    """The opening for a recorder that may not have had the first one."""
    return opened.stream, opened.at_ns, opened.upstream, opened.call, True
