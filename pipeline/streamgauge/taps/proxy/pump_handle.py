"""Hands responses to the native pump (`_pump.c`), which returns them with the read that it did not finish.

OFFERED --a second read came, and all written bytes have gone out--> PUMPED --returned--> the relay moves the rest. A response
is handed to the pump once at most. Where the pump was not built, no response is offered.
"""

import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING

from streamgauge.core.http1.framing import BodyPosition
from streamgauge.recorder.loop_client import BATCH_BYTES, LoopClient
from streamgauge.recorder.protocol import Encoded, ReadsDropped, ResponseReads
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.taps.proxy.response import ResponseFraming

if TYPE_CHECKING:
    from streamgauge.taps.proxy.exchange import Exchange

try:
    from streamgauge.taps.proxy.native._pump import Pump
except ImportError:  # no Linux, or no compiler when it was installed
    BUILT = False
else:
    BUILT = True

# How long the pump holds a response's reads, so that they reach the recorder together (seconds): at 20 reads a second
# the recorder then takes a third less CPU for each read. When a response is returned, its reads go at once.
HOLD_S = 1.0
# The relay moves this many reads of a response, with the head's, by itself: a shorter response is not worth the
# handover.
READS_BEFORE_PUMP = 2
# Bytes that the pump may hold. Above half of it, the pump no longer holds reads back for HOLD_S.
_HELD_BYTES = 16 * 1024 * 1024
# Bytes that are collected in one turn of the loop: this takes a millisecond, in which the loop does nothing else.
_TURN_BYTES = 1024 * 1024


class PumpedResponse:
    """A response's body that is offered to the pump, or that the pump has."""

    __slots__ = ("_exchange", "_framing", "_pump", "_reads", "_token")

    def __init__(self, pump: "PumpHandle", exchange: "Exchange") -> None:
        self._pump = pump
        self._exchange = exchange
        self._framing: ResponseFraming | None = None
        self._reads = 0
        self._token: int | None = None

    def count_read(self, framing: ResponseFraming) -> bool:
        """Counts a read that the relay moved by itself. Returns False if the pump cannot follow the rest of the body."""
        self._framing = framing
        self._reads += 1
        if self._reads == READS_BEFORE_PUMP:
            self._pump.loop.call_soon(self._start_pumping)
        return framing.position is not None

    @property
    def moved_ns(self) -> int:
        """When the pump last moved data of this response (monotonic ns); 0 while the pump does not have it."""
        return 0 if self._token is None else self._pump.pump.moved(self._token)

    def end(self) -> None:
        """Withdraws the offer. If the pump has the response, it is returned before this method returns."""
        self._framing = None
        if self._token is not None:
            self._pump.pump.recall(self._token)
            self._pump.collect(all_of_it=True)

    def _start_pumping(self) -> None:
        framing, self._framing = self._framing, None
        position = None if framing is None else framing.position
        sockets = None if position is None else self._exchange.sockets()
        if position is not None and sockets is not None:
            self._token = self._pump.hand_over(self, position, *sockets)

    def returned(
        self, at_ns: int, position: BodyPosition, data: bytes | None, sent: int, reset: bool, lost: int
    ) -> None:
        """Passes the response on to its exchange: see `Exchange.returned`."""
        self._token = None
        self._exchange.returned(at_ns, position, data, sent, reset, lost)


class PumpHandle:
    """A relay's pump, and the responses that the pump has (`pumped`)."""

    def __init__(self, client: LoopClient, counters: Counters) -> None:
        self.loop = asyncio.get_running_loop()
        self._client = client
        self._counters = counters
        self.pumped: dict[int, tuple[PumpedResponse, int | None]] = {}  # with the stream's number, by token
        # Reads of each stream that a bug in the capture lost. Kept until the pump returns the stream's response.
        self._missing: Counter[int] = Counter()
        self._seen = counters.pump_seen_word()
        self.pump = Pump(self._room, BATCH_BYTES, round(HOLD_S * 1e9), self._seen)
        self.loop.add_reader(self.pump.fileno(), self.collect)
        client.before_flush = self._collect_due

    def hand_over(
        self, response: PumpedResponse, position: BodyPosition, upstream: int, client: int, stream: int | None
    ) -> int | None:
        """Hands two sockets to the pump, and returns their token. If the pump does not accept them, gives the response back
        to its exchange (`returned`), and returns None.
        """
        try:
            token = self.pump.hand_over(upstream, client, stream is not None, stream or 0, *position)
        except (OSError, MemoryError, ValueError):
            response.returned(0, position, None, 0, False, 0)
            return None
        self.pumped[token] = response, stream
        self._client.schedule_flush()
        return token

    def collect(self, *, due: bool = False, all_of_it: bool = False) -> None:
        """Passes what the pump captured to the recorder's client, then returns responses to their exchanges, which report
        later reads.

        `due`: includes reads that were held for HOLD_S. `all_of_it`: collects all in this turn; otherwise about _TURN_BYTES,
        and the rest in the next turns. Raises MemoryError; the next call then collects the same.
        """
        most, share = sys.maxsize if all_of_it else _TURN_BYTES, self._client.share_of(len(self.pumped))
        batches, lost, returns = self.pump.collect(self._room, due, most, share)
        try:
            if lost:
                self._counters.dropped(DropReason.RECORDER_BEHIND, lost)
            for batch in batches:
                self._put_batch(Encoded(*batch))
        finally:  # capture fails open: the responses continue in any case
            for returned in returns:
                self._return(*returned)

    def _return(
        self, token: int, at_ns: int, phase: int, left: int, data: bytes | None, sent: int, reset: bool, dropped: int
    ) -> None:
        try:
            response, stream = self.pumped.pop(token)
            missing = dropped if stream is None else dropped + self._missing.pop(stream, 0)
            response.returned(at_ns, BodyPosition(phase, left), data, sent, reset, missing)
        except Exception as error:  # noqa: BLE001 - the other responses are returned as well
            self._counters.happened(Incident.CAPTURE_FAULT)
            report_fault("the return of a response from the pump", error)

    def _put_batch(self, batch: Encoded) -> None:
        try:
            self._client.put(batch, len(batch.encoded))
        except Exception as error:  # noqa: BLE001 - capture fails open: streams continue, and their records show the missing reads
            report_fault("the reads of the pump", error)
            self._counters.happened(Incident.CAPTURE_FAULT)
            self._counters.dropped(DropReason.CAPTURE_FAULT, batch.reads)
            self._count_missing(batch)

    def _count_missing(self, batch: Encoded) -> None:
        """Counts the missing reads of each stream, for its record."""
        try:
            messages = batch.decoded()
        except Exception as error:  # noqa: BLE001 - the batch's streams are unknown: each pumped stream counts one missing read
            report_fault("the decoding of the pump's batch", error)
            self._missing.update(stream for _, stream in self.pumped.values() if stream is not None)
            return
        for message in messages:
            if isinstance(message, ResponseReads | ReadsDropped):
                self._missing[message.stream] += (
                    message.reads if isinstance(message, ReadsDropped) else len(message.reads)
                )

    def send_at_once(self) -> None:
        """Ends the waiting for HOLD_S: captured reads go out with the next flush. May be called from any thread."""
        self.pump.send_at_once()

    def close(self) -> None:
        """Ends the pump. Call it after the pump has returned all responses."""
        try:
            self.collect(all_of_it=True)
        finally:
            self._client.before_flush = None
            self.loop.remove_reader(self.pump.fileno())
            self.pump.close()
            self._seen.release()

    @property
    def _room(self) -> int:
        return min(self._client.room_of_reads, _HELD_BYTES)

    def _collect_due(self) -> None:
        try:
            self.collect(due=True)
        finally:  # what memory was too short for is collected with the next flush
            if self.pumped:
                self._client.schedule_flush()
