"""The pump (`_pump.c`), from the relay's side: responses are lent to it, and come back with the read that it did not finish.

OFFERED --a second read came, and what was written has gone out--> LENT --returned--> over, for good. Where the pump was not
built nothing is offered.
"""

import asyncio
import sys
from collections import Counter
from typing import Protocol

from streamgauge.recorder.protocol import Encoded, ReadsDropped, ResponseReads
from streamgauge.runtime.faults import report_fault
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.taps.proxy.body_position import BodyPosition
from streamgauge.taps.proxy.outbox import BATCH_BYTES, RecorderClient
from streamgauge.taps.proxy.response import ResponseFraming

try:
    from streamgauge.taps.proxy.native._pump import Pump
except ImportError:  # no Linux, or no compiler when it was installed
    BUILT = False
else:
    BUILT = True

# How long the pump holds a response's reads, so that they reach the recorder together (seconds): at 20 reads a second it then
# takes a third less CPU for each. What ends goes at once.
HOLD_S = 1.0
# So many reads of a response, the head's included, are the relay's: what is over with them is not worth a thread.
READS_BEFORE_PUMP = 2
# What the pump may hold (bytes). From half of it on it holds nothing for longer than it must.
_HELD_BYTES = 16 * 1024 * 1024
# What is collected in one turn of the loop (bytes): it takes a millisecond, for which the loop serves nobody.
_TURN_BYTES = 1024 * 1024


class PumpOwner(Protocol):
    """The exchange, to its loan."""

    def sockets(self) -> tuple[int, int, int | None] | None:
        """The upstream's and the client's descriptor, and the stream's number if it is captured; None: not now, not ever.

        From here on nobody else reads or writes them.
        """

    def returned(self, at_ns: int, place: BodyPosition, data: bytes | None, sent: int, reset: bool, lost: int) -> None:
        """It is back. `data`: a read of which `sent` bytes went out, and which nobody has captured; `place` is before it.

        `reset`: the upstream broke off. `lost`: reads before that which were not captured, and not told.
        """


class PumpedResponse:
    """One response's body."""

    __slots__ = ("_framing", "_owner", "_pump", "_reads", "_token")

    def __init__(self, lender: "PumpHandle", borrower: PumpOwner) -> None:
        self._pump = lender
        self._owner = borrower
        self._framing: ResponseFraming | None = None
        self._reads = 0
        self._token: int | None = None

    def came(self, framing: ResponseFraming) -> bool:
        """A read that the relay has passed on itself. False: what comes cannot be lent."""
        self._framing = framing
        self._reads += 1
        if self._reads == READS_BEFORE_PUMP:
            self._pump.loop.call_soon(self._start_pumping)
        return framing.place is not None

    @property
    def moved_ns(self) -> int:
        """When something last came while it is lent; else 0."""
        return 0 if self._token is None else self._pump.pump.moved(self._token)

    def end(self) -> None:
        """Nothing more is lent; what is, is returned before this returns."""
        self._framing = None
        if self._token is not None:
            self._pump.pump.recall(self._token)
            self._pump.collect(all_of_it=True)

    def _start_pumping(self) -> None:
        framing, self._framing = self._framing, None
        place = None if framing is None else framing.place
        sockets = None if place is None else self._owner.sockets()
        if place is not None and sockets is not None:
            self._token = self._pump.lend(self, place, *sockets)

    def returned(self, at_ns: int, place: BodyPosition, data: bytes | None, sent: int, reset: bool, lost: int) -> None:
        self._token = None
        self._owner.returned(at_ns, place, data, sent, reset, lost)


class PumpHandle:
    """A relay's pump, and what it has."""

    def __init__(self, outbox: RecorderClient, counters: Counters) -> None:
        self.loop = asyncio.get_running_loop()
        self._outbox = outbox
        self._counters = counters
        self._pumped: dict[int, tuple[PumpedResponse, int | None]] = {}  # with the stream's number, by token
        # Reads of a stream that were lost to a bug of ours, until its response comes back from the pump.
        self._missing: Counter[int] = Counter()
        self._seen = counters.seen_apart()
        self.pump = Pump(self._room, BATCH_BYTES, round(HOLD_S * 1e9), self._seen)
        self.loop.add_reader(self.pump.fileno(), self.collect)
        outbox.before_flush = self._gather

    def lend(
        self, loan: PumpedResponse, place: BodyPosition, upstream: int, client: int, stream: int | None
    ) -> int | None:
        """Gives the pump two sockets; a token for them. None, and they are returned, if it does not take them."""
        try:
            token = self.pump.lend(upstream, client, stream is not None, stream or 0, *place)
        except (OSError, MemoryError, ValueError):
            loan.returned(0, place, None, 0, False, 0)
            return None
        self._pumped[token] = loan, stream
        self._outbox.expect()
        return token

    def collect(self, *, due: bool = False, all_of_it: bool = False) -> None:
        """Hands over what was captured, then the responses that are returned: their exchanges tell the outbox of later reads.

        `due`: also what has been held for long enough. `all_of_it`: in this turn; else the rest comes with the next ones.
        Raises MemoryError, and then the next call does it.
        """
        batches, lost, returns = self.pump.collect(self._room, due, sys.maxsize if all_of_it else _TURN_BYTES)
        try:
            if lost:
                self._counters.dropped(DropReason.RECORDER_BEHIND, lost)
            for batch in batches:
                self._hand_over(Encoded(*batch))
        finally:  # capture fails open: the responses go on in any case
            for returned in returns:
                self._give_back(*returned)

    def _give_back(
        self, token: int, at_ns: int, phase: int, left: int, data: bytes | None, sent: int, reset: bool, dropped: int
    ) -> None:
        try:
            loan, stream = self._pumped.pop(token)
            missing = dropped if stream is None else dropped + self._missing.pop(stream, 0)
            loan.returned(at_ns, BodyPosition(phase, left), data, sent, reset, missing)
        except Exception as error:  # noqa: BLE001 - the others are returned as well
            self._counters.happened(Incident.CAPTURE_FAULT)
            report_fault("the return of a response from the pump", error)

    def _hand_over(self, batch: Encoded) -> None:
        try:
            self._outbox.put(batch, len(batch.encoded))
        except Exception as error:  # noqa: BLE001 - capture fails open: streams go on, and their records say that reads are missing
            report_fault("the pump's outbox", error)
            self._counters.happened(Incident.CAPTURE_FAULT)
            self._counters.dropped(DropReason.CAPTURE_FAULT, batch.reads)
            self._note_missing(batch)

    def _note_missing(self, batch: Encoded) -> None:
        """Keeps how many reads of each stream are missing, for its record."""
        try:
            messages = batch.decoded()
        except Exception as error:  # noqa: BLE001 - it may be of any stream that is lent: the records of all say that a read is missing
            report_fault("the decoding of the pump's batch", error)
            self._missing.update(stream for _, stream in self._pumped.values() if stream is not None)
            return
        for message in messages:
            if isinstance(message, ResponseReads | ReadsDropped):
                self._missing[message.stream] += (
                    message.reads if isinstance(message, ReadsDropped) else len(message.reads)
                )

    def hurry(self) -> None:
        """From now on nothing is held: what is there goes with the next flush. From any thread."""
        self.pump.hurry()

    def close(self) -> None:
        """Ends the pump. Called when nothing is lent any more."""
        try:
            self.collect(all_of_it=True)
        finally:
            self._outbox.before_flush = None
            self.loop.remove_reader(self.pump.fileno())
            self.pump.close()
            self._seen.release()

    @property
    def _room(self) -> int:
        return min(self._outbox.room // 2, _HELD_BYTES)  # half: what the relay itself puts meanwhile needs room too

    def _gather(self) -> None:
        try:
            self.collect(due=True)
        finally:  # what memory was short for is collected with the next flush
            if self._pumped:
                self._outbox.expect()
