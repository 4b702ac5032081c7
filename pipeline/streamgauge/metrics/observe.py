"""What one record adds to the metrics, by these rules:

no token event        counted separately, no histogram of token latency
a resumed stream      counted, but no histogram, burst or stall, since its first part is in its origin; of its usage only
                      what its origin and the origin's other resumed streams have not added (resumed_usage.py)
incomplete capture    counted with its reasons, no histogram: missing data would distort it
a burst               no gaps and no time per token: those would be the buffering proxy's, not the model's
null                  adds nothing; it never becomes 0
"""

from collections.abc import Mapping

from streamgauge.core.record import Gaps, Record, Timing
from streamgauge.metrics import table
from streamgauge.metrics.declarations import UNKNOWN, Metric
from streamgauge.metrics.resumed_usage import Continued
from streamgauge.metrics.series import Family

# Fields of the record's usage -> values of the label `kind`.
USAGE_KINDS: Mapping[str, str] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "input_cached_tokens": "cached",
    "input_cache_write_tokens": "cache_write",
    "input_cache_write_1h_tokens": "cache_write_1h",
    "reasoning_tokens": "reasoning",
    "audio_input_tokens": "audio_input",
    "audio_output_tokens": "audio_output",
}


class Observation:
    """Adds one record to the families. Used under the exporter's lock.

    Label values are given in the order of the metric's labels.
    """

    def __init__(self, families: Mapping[str, Family], record: Record) -> None:
        self._families = families
        # A model name that only a client sent, and no upstream served, must not use up the budget of models.
        proven = record.response_model is not None or record.counts.token_events > 0
        budgets = families[table.STREAMS.name].budgets
        self.upstream = budgets.take("upstream", record.upstream)
        self.model = budgets.take("model", record.request_model or record.response_model, proven=proven)

    def count(self, metric: Metric, value: float, *labels: object) -> None:
        """Adds to a counter; 0 creates no series."""
        if value:
            family = self._families[metric.name]
            family.add(family.place_values(labels), value)

    def time(self, metric: Metric, seconds: float | None, *labels: object) -> None:
        """Observes a duration (seconds), unless it is None."""
        if seconds is not None:
            family = self._families[metric.name]
            family.observe(family.place_values(labels), seconds)

    def gaps(self, metric: Metric, gaps: Gaps, total_s: float | None, *labels: object) -> None:
        """Observes all gaps of a stream at once."""
        if gaps.buckets and gaps.buckets[-1][1] and total_s is not None:
            family = self._families[metric.name]
            family.observe_all(family.place_values(labels), gaps.buckets, total_s)


def observe(families: Mapping[str, Family], continued: Continued, record: Record) -> None:
    """Adds one record to the families of the table. `continued` remembers which usage was counted."""
    seen = Observation(families, record)
    _ending(seen, record)
    _reading(seen, record)
    _usage(seen, continued, record)
    _integrity(seen, record)
    if record.integrity.complete and record.resumed_from is None:
        _latencies(seen, record)


def _ending(seen: Observation, record: Record) -> None:
    seen.count(table.STREAMS, 1, seen.upstream, record.dialect, seen.model, record.outcome)
    if record.finish_reason is not None:
        seen.count(table.FINISH_REASONS, 1, seen.upstream, seen.model, record.finish_reason)
    if record.error is not None:
        error = record.error
        seen.count(table.ERRORS, 1, seen.upstream, error.phase, error.type or error.code or error.status)
    if record.counts.token_events == 0:
        streaming = UNKNOWN if record.streaming is None else str(record.streaming).lower()
        seen.count(table.WITHOUT_TOKEN, 1, seen.upstream, record.outcome, streaming)
    if record.resumed_from is not None:
        seen.count(table.RESUMED, 1, seen.upstream)


def _reading(seen: Observation, record: Record) -> None:
    seen.count(table.TOKEN_EVENTS, record.counts.token_events, seen.upstream)
    seen.count(table.BODY_BYTES, record.counts.bytes or 0, seen.upstream)
    seen.count(table.UNREAD_EVENTS, record.counts.unparsed_events, seen.upstream, "unparsed")
    seen.count(table.UNREAD_EVENTS, record.counts.unterminated_events, seen.upstream, "unterminated")
    seen.count(table.UNREAD_EVENTS, record.integrity.oversized_events, seen.upstream, "oversized")


def _usage(seen: Observation, continued: Continued, record: Record) -> None:
    usage = record.usage
    seen.count(table.USAGE_SOURCES, 1, seen.upstream, usage.source)
    told = {kind: tokens for name, kind in USAGE_KINDS.items() if (tokens := getattr(usage, name)) is not None}
    share = continued.share_of(record, seen.model, told)
    for kind, tokens in share.tokens.items():
        seen.count(table.USAGE_TOKENS, tokens, seen.upstream, share.model, kind)
    seen.count(table.USAGE_ANOMALIES, usage.bad_values, seen.upstream, "bad_value")
    seen.count(table.USAGE_ANOMALIES, int(usage.identity_failed is not None), seen.upstream, "identity")


def _integrity(seen: Observation, record: Record) -> None:
    if not record.integrity.complete:
        seen.count(table.INCOMPLETE, 1, seen.upstream)
    for reason in record.integrity.reasons:
        seen.count(table.INCOMPLETE_REASONS, 1, reason)


def _latencies(seen: Observation, record: Record) -> None:
    timing = record.timing
    if record.outcome != "http_error":  # an error page is sent at once and would make a failing upstream look fast
        seen.time(table.FIRST_BYTE, timing.first_byte_s, seen.upstream)
    seen.time(table.FIRST_TOKEN, timing.first_token_s, seen.upstream, seen.model)
    seen.time(table.DURATION, timing.end_s, seen.upstream, record.outcome)
    if timing.burst:
        seen.count(table.BURSTS, 1, seen.upstream)
        return
    seen.count(table.STALLS, timing.gaps.stalls or 0, seen.upstream)
    seen.gaps(table.INTER_CHUNK, timing.gaps, _sum_of_gaps(timing), seen.upstream, seen.model)
    if record.usage.source == "final":
        seen.time(table.INTER_TOKEN, timing.inter_token_latency_s, seen.upstream, seen.model)


def _sum_of_gaps(timing: Timing) -> float | None:
    """The gaps cover the time from the first to the last token event, so their sum is that time (seconds)."""
    if timing.first_token_s is None or timing.last_token_s is None:
        return None
    return timing.last_token_s - timing.first_token_s
