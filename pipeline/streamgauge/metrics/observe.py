"""What one record adds to the metrics.

The rules:

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
from streamgauge.metrics.resumed_usage import ResumedUsage
from streamgauge.metrics.series import Family, Key

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
        streams = families[table.STREAMS.name]
        budgets = streams.budgets
        self.upstream = budgets.value_of("upstream", record.upstream)
        self.model = budgets.value_of("model", record.request_model or record.response_model, proven=proven)
        names = streams.metric.labels[len(streams.metric.labels) - streams.attributes :]
        self._attributes = tuple([record.attributes.get(name) for name in names])

    def count(self, metric: Metric, value: float, *labels: object) -> None:
        """Adds to a counter; 0 creates no series."""
        if value:
            family = self._families[metric.name]
            family.add(self._place(family, labels), value)

    def time(self, metric: Metric, seconds: float | None, *labels: object) -> None:
        """Observes a duration (seconds), unless it is None."""
        if seconds is not None:
            family = self._families[metric.name]
            family.observe(self._place(family, labels), seconds)

    def gaps(self, metric: Metric, gaps: Gaps, total_s: float | None, *labels: object) -> None:
        """Observes all gaps of a stream at once."""
        if gaps.buckets and gaps.buckets[-1][1] and total_s is not None:
            family = self._families[metric.name]
            family.observe_all(self._place(family, labels), gaps.buckets, total_s)

    def _place(self, family: Family, labels: tuple[object, ...]) -> Key:
        return family.place_values((*labels, *self._attributes) if family.attributes else labels)


def observe(families: Mapping[str, Family], resumed_usage: ResumedUsage, record: Record) -> None:
    """Adds one record to the families of the table. `resumed_usage` remembers which usage was counted."""
    observation = Observation(families, record)
    _ending(observation, record)
    _reading(observation, record)
    _usage(observation, resumed_usage, record)
    _integrity(observation, record)
    if record.integrity.complete and record.resumed_from is None:
        _latencies(observation, record)


def _ending(observation: Observation, record: Record) -> None:
    observation.count(table.STREAMS, 1, observation.upstream, record.dialect, observation.model, record.outcome)
    if record.finish_reason is not None:
        observation.count(table.FINISH_REASONS, 1, observation.upstream, observation.model, record.finish_reason)
    if record.error is not None:
        error = record.error
        observation.count(table.ERRORS, 1, observation.upstream, error.phase, error.type or error.code or error.status)
    if record.counts.token_events == 0:
        streaming = UNKNOWN if record.streaming is None else str(record.streaming).lower()
        observation.count(table.WITHOUT_TOKEN, 1, observation.upstream, record.outcome, streaming)
    if record.resumed_from is not None:
        observation.count(table.RESUMED, 1, observation.upstream)


def _reading(observation: Observation, record: Record) -> None:
    observation.count(table.TOKEN_EVENTS, record.counts.token_events, observation.upstream)
    observation.count(table.BODY_BYTES, record.counts.bytes or 0, observation.upstream)
    observation.count(table.UNREAD_EVENTS, record.counts.unparsed_events, observation.upstream, "unparsed")
    observation.count(table.UNREAD_EVENTS, record.counts.unterminated_events, observation.upstream, "unterminated")
    observation.count(table.UNREAD_EVENTS, record.integrity.oversized_events, observation.upstream, "oversized")


def _usage(observation: Observation, resumed_usage: ResumedUsage, record: Record) -> None:
    usage = record.usage
    observation.count(table.USAGE_SOURCES, 1, observation.upstream, usage.source)
    reported = {kind: tokens for name, kind in USAGE_KINDS.items() if (tokens := getattr(usage, name)) is not None}
    share = resumed_usage.share_of(record, observation.model, reported)
    for kind, tokens in share.tokens.items():
        observation.count(table.USAGE_TOKENS, tokens, observation.upstream, share.model, kind)
    observation.count(table.USAGE_ANOMALIES, usage.bad_values, observation.upstream, "bad_value")
    observation.count(table.USAGE_ANOMALIES, int(usage.identity_failed is not None), observation.upstream, "identity")


def _integrity(observation: Observation, record: Record) -> None:
    if not record.integrity.complete:
        observation.count(table.INCOMPLETE, 1, observation.upstream)
    for reason in record.integrity.reasons:
        observation.count(table.INCOMPLETE_REASONS, 1, reason)


def _latencies(observation: Observation, record: Record) -> None:
    timing = record.timing
    if record.outcome != "http_error":  # an error page is sent at once and would make a failing upstream look fast
        observation.time(table.FIRST_BYTE, timing.first_byte_s, observation.upstream)
    observation.time(table.FIRST_TOKEN, timing.first_token_s, observation.upstream, observation.model)
    observation.time(table.DURATION, timing.end_s, observation.upstream, record.outcome)
    if timing.burst:
        observation.count(table.BURSTS, 1, observation.upstream)
        return
    observation.count(table.STALLS, timing.gaps.stalls or 0, observation.upstream)
    observation.gaps(table.INTER_CHUNK, timing.gaps, _sum_of_gaps(timing), observation.upstream, observation.model)
    if record.usage.source == "final":
        observation.time(table.INTER_TOKEN, timing.inter_token_latency_s, observation.upstream, observation.model)


def _sum_of_gaps(timing: Timing) -> float | None:
    """The gaps cover the time from the first to the last token event, so their sum is that time (seconds)."""
    if timing.first_token_s is None or timing.last_token_s is None:
        return None
    return timing.last_token_s - timing.first_token_s
