"""A tap's counters as a source of metrics: the balance of its reads, its incidents and its refusals."""

from collections.abc import Iterable
from pathlib import Path

from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Sample, Source
from streamgauge.spool.read_counters import read_balance, read_incidents, read_refusals, read_writes_refused


def tap_reads(counters: Path) -> Source:
    """A source that reads a tap's counters file at each scrape: all counts of reads are one snapshot over all processes."""

    def read() -> Iterable[Sample]:
        balance = read_balance(counters)
        yield Sample(table.READS_SEEN.name, balance.seen, {})
        yield Sample(table.READS_DELIVERED.name, balance.delivered, {})
        yield Sample(table.READS_WAITING.name, balance.waiting, {})
        for reason, reads in balance.dropped.items():
            yield Sample(table.READS_DROPPED.name, reads, {"reason": reason})
        yield Sample(table.SPOOL_WRITES_REFUSED.name, int(read_writes_refused(counters)), {})
        for kind, times in read_incidents(counters).items():
            yield Sample(table.TAP_INCIDENTS.name, times, {"kind": kind})
        for refusal, times in read_refusals(counters).items():
            yield Sample(table.TAP_REFUSED.name, times, {"reason": refusal.value})

    return read
