"""Reports the answer to one call of JSON-RPC to the recorder; relay and packet tap use it. As in exchange_capture.py, no
method raises, waits or changes a byte.

A tap calls `open` when the answer begins, then `read`, then `end`. After a part that found no room, and after MAX_CALL_BYTES,
the call cannot be measured: nothing but its end is reported.
"""

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_rpc import Call
from streamgauge.recorder.exchange_capture import CaptureClient
from streamgauge.recorder.fail_open import fails_open
from streamgauge.recorder.fair_shares import Party
from streamgauge.recorder.protocol import MAX_CALL_BYTES, CallData, CallEnded, CallOpened
from streamgauge.runtime.faults import report_fault


class CallCapture:
    """The capture of one call. `is_open`: it is reported. `reads`: more of its answer is wanted."""

    __slots__ = ("_client", "_left", "_opened", "is_open", "reads")

    def __init__(self, client: CaptureClient) -> None:
        self.is_open = self.reads = False
        self._client = client
        self._opened: CallOpened | None = None  # until it has ended
        self._left = MAX_CALL_BYTES

    @fails_open
    def open(self, at_ns: int, upstream: str | None, call: Call, party: Party | None) -> None:
        """Reports the call, whose request began at `at_ns`. While the recorder is behind, it is not reported."""
        client = self._client
        if client.overfull or not client.admits(party):
            return
        opened = CallOpened(client.new_stream(), at_ns, upstream, call)
        client.put(opened, len(call.tool or ""))
        self._opened = opened
        self.is_open = self.reads = True

    @fails_open
    def read(self, at_ns: int, data: bytes) -> None:
        """Reports a read of the answer."""
        if not self.reads or self._opened is None:
            return
        if not self._client.take_room(self._opened.stream, len(data)):
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
            self._client.put(CallData(self._opened.stream, 0, b"", is_lost=True), 0)

    @fails_open
    def end(self, at_ns: int, ending: Ending, fault: TransportFault | None) -> None:
        """Reports the end of the exchange, even if the client is full. Only the first call has an effect."""
        opened, self._opened, self.reads = self._opened, None, False
        if opened is not None:
            self._client.put(CallEnded(opened.stream, at_ns, ending, fault, opened), len(opened.call.tool or ""))

    def fail(self, error: Exception) -> None:
        """Ends the capture after an internal error."""
        report_fault("the capture of a call", error)
        self.reads = False
        try:
            self._client.count_fault()
        except Exception as failed:  # noqa: BLE001 - as in `fails_open`
            report_fault("the counters of a tap", failed)
