"""Fills the page's last hour from the ledger, when a process starts that has one."""

import time
from datetime import datetime

import msgspec

from streamgauge.core.record import Record
from streamgauge.core.token_kinds import reported_tokens
from streamgauge.ledger import Filter, Reader
from streamgauge.live.view import LiveView
from streamgauge.metrics.observe import CostOf, StreamCost
from streamgauge.metrics.resumed_usage import ResumedUsage
from streamgauge.runtime.faults import report_fault

HOUR_S = 3_600.0
# A stream that ended in the last hour may have begun before it: in two hours more nearly all of them (seconds).
BEGAN_S = 2 * HOUR_S
# The newest streams that are read: it takes about a second. Of more, the page says since when it has them.
MAX_STREAMS = 5_000

_DECODER = msgspec.json.Decoder(Record)


def load_last_hour(view: LiveView, ledger: Reader, cost_of: CostOf) -> None:
    """Gives the view the streams that ended in the last hour. Call it before the view is used. Raises nothing: if the ledger
    cannot be read, the page begins now, and says so.
    """
    try:
        now_s = time.time()
        chosen = Filter(since_us=int((now_s - HOUR_S - BEGAN_S) * 1e6))
        records = [_DECODER.decode(raw) for raw in ledger.query(MAX_STREAMS, chosen, newest_first=True)]
        ended = sorted(((_ended_s(record), record) for record in records), key=lambda one: one[0])
        since_s = now_s - HOUR_S
        if len(records) == MAX_STREAMS:  # older ones are missing, which may have ended as late as the oldest one began
            since_s = max(since_s, min(_began_s(record) for record in records))
        known = ResumedUsage()
        view.load(
            [(record, _added(record, known, cost_of), at_s) for at_s, record in ended if at_s >= since_s],
            since_s,
        )
    except Exception as error:  # noqa: BLE001 - the page is no reason to stop
        report_fault("the page's last hour", error)


def _added(record: Record, known: ResumedUsage, cost_of: CostOf) -> StreamCost | None:
    """What a record adds to the cost of the records before it: a stream that is resumed, or read again, costs once."""
    addition = known.share_of(record, "", reported_tokens(record.usage))
    return cost_of(record, addition.before, addition.after)


def _began_s(record: Record) -> float:
    assert record.started_at is not None  # the ledger was asked for a time
    return datetime.fromisoformat(record.started_at).timestamp()


def _ended_s(record: Record) -> float:
    return _began_s(record) + (record.timing.end_s or 0.0)
