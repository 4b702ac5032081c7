"""A process with streams of every kind that the page tells apart, for tests of what shows it."""

from uuid import UUID

import msgspec

from streamgauge.core.capture.segments import Ending, Head, RateLimit, Segment, StreamEnding
from streamgauge.live.answers import BudgetRow, LastAudit, Money
from streamgauge.metrics.observe import StreamCost
from tests.live.streams import SECOND, Process, read_of, segment, token
from tests.streams import FINISH, MS, stream_id

# Open streams: one is silent, one had an error. Finished: one stalled.
BUSY, SILENT, FAILED, STALLED = 1, 2, 3, 4


def id_of(number: int) -> str:
    return str(UUID(bytes=stream_id(number)))


def unpriced_process() -> Process:
    """A process that knows prices, but not that of the one stream that ended with usage."""
    process = Process()
    process.take([segment(BUSY, 0, [token(100 * MS), token(200 * MS)])], SECOND)
    process.take([ended(BUSY, 2 * SECOND)], 2 * SECOND)
    process.clock.now += 1
    return process


THREE_CENTS = StreamCost(0.01, 0.02)


def partly_priced_process(cost: StreamCost = THREE_CENTS) -> Process:
    """A process in which two streams ended: one has a cost, by default of 3 cents, the other came from an own server."""
    process = Process()
    for stream, one in ((BUSY, cost), (SILENT, StreamCost(unknown="no_seller"))):
        process.cost = one
        process.take([segment(stream, 0, [token(100 * MS), token(200 * MS)])], SECOND)
        process.take([ended(stream, 2 * SECOND)], 2 * SECOND)
    process.clock.now += 1
    return process


def busy_process() -> Process:
    """A process with streams of every kind that the page tells apart."""
    process = Process()
    process.cost = StreamCost(0.01, 0.02, 0.0, 0.0)
    river = BudgetRow("tenant", "river", limit_usd=500.0, spent_usd=450.5, forecast_usd=620.0, unknown_streams=3)
    lake = BudgetRow("feature", "lake", limit_usd=2.0, spent_usd=2.5, forecast_usd=None, unknown_streams=0)
    audit = LastAudit(
        "2026-11-02T08:00:00Z", "2026-10-01", "2026-11-01", agrees=False, preliminary=True, unexplained_tokens=1_200,
        unexplained_usd="-0.25", coverage={"nimbus": "0.9712", "sansa": None},
    )  # fmt: skip
    process.view.money = lambda: Money([river, lake], audit)
    limits = RateLimit(100, 4, 30 * SECOND, 1_000, 800, SECOND)
    head = Head(200, 5 * MS, True, rate_limit=limits)
    for number in range(10, 50):
        whole = msgspec.structs.replace(
            segment(number, 0, [token(number * 7 * MS + place * number * MS) for place in range(9)]), head=head
        )
        process.take([whole], 2 * SECOND)
        process.clock.now += 45
        process.take([ended(number, 3 * SECOND, Ending.RESET if number % 9 == 0 else Ending.COMPLETE)], 3 * SECOND)
    process.take([segment(STALLED, 0, [token(200 * MS), token(260 * MS)])], SECOND)
    process.take([segment(STALLED, 1, [token(7 * SECOND), token(7_100 * MS)])], 8 * SECOND)
    process.take([msgspec.structs.replace(ended(STALLED, 8 * SECOND), number=2)], 9 * SECOND)
    error = read_of(b'data: {"error":{"type":"overloaded_error","message":"A SECRET"}}\n\n', 3 * SECOND)
    process.take([segment(SILENT, 0, [token(100 * MS), token(180 * MS)])], 180 * MS)
    process.take([segment(FAILED, 0, [token(900 * MS), error])], 3_100 * MS)
    process.take([segment(BUSY, 0, [token(place * 150 * MS) for place in range(1, 260)])], 39 * SECOND)
    process.clock.now += 1
    process.take([], 40 * SECOND)
    return process


def ended(number: int, at_ns: int, ending: Ending = Ending.COMPLETE) -> Segment:
    reads = [read_of(FINISH, at_ns)] if ending is Ending.COMPLETE else []
    fault = "reset" if ending is Ending.RESET else None
    return Segment(
        stream_id(number), 1, reads=reads, end=StreamEnding(ending, stamp_ns=at_ns, client_bytes=1, fault=fault)
    )
