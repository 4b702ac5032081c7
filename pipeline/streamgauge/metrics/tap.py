"""A tap's counters as a source of metrics: its reads, responses, incidents and refusals, and its own time."""

from collections.abc import Iterable
from pathlib import Path

from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Sample, Source
from streamgauge.spool.read_counters import (
    read_arrivals,
    read_balance,
    read_clients,
    read_heads_passed_on,
    read_incidents,
    read_refusals,
    read_writes_refused,
)
from streamgauge.spool.response_counters import read_responses


def tap_reads(counters: Path) -> Source:
    """A source that reads a tap's counters file at each scrape: all counts of reads are one snapshot over all processes."""

    def read() -> Iterable[Sample]:
        balance = read_balance(counters)
        yield Sample(table.READS_SEEN.name, balance.seen, {})
        yield Sample(table.READS_DELIVERED.name, balance.delivered, {})
        yield Sample(table.READS_WAITING.name, balance.waiting, {})
        for reason, reads in balance.dropped.items():
            yield Sample(table.READS_DROPPED.name, reads, {"reason": reason})
        heads, took_ns = read_heads_passed_on(counters)
        yield Sample(table.TAP_HEADS.name, heads, {})
        yield Sample(table.TAP_HEADS_SECONDS.name, took_ns / 1e9, {})
        envoy_heads, delay_ns = read_arrivals(counters)
        yield Sample(table.ENVOY_HEADS.name, envoy_heads, {})
        yield Sample(table.ENVOY_DELAY_SECONDS.name, delay_ns / 1e9, {})
        clients, most = read_clients(counters)
        yield Sample(table.CLIENT_CONNECTIONS.name, clients, {})
        yield Sample(table.CLIENT_CONNECTIONS_LIMIT.name, most, {})
        yield Sample(table.SPOOL_WRITES_REFUSED.name, int(read_writes_refused(counters)), {})
        for kind, times in read_incidents(counters).items():
            yield Sample(table.TAP_INCIDENTS.name, times, {"kind": kind})
        for refusal, times in read_refusals(counters).items():
            yield Sample(table.TAP_REFUSED.name, times, {"reason": refusal.value})
        for upstream, responses in read_responses(counters).items():
            yield Sample(table.RESPONSES_SEEN.name, responses.seen, {"upstream": upstream})
            for reason, count in responses.not_captured.items():
                yield Sample(table.NOT_CAPTURED.name, count, {"upstream": upstream, "reason": reason.value})

    return read
