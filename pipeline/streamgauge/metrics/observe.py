"""The additions of one record to the metrics.

The rules:

no token event        counted separately, no histogram of token latency
a resumed stream      counted, but no histogram, burst or stall, since its first part is in its origin; of its usage only
                      what its origin and the origin's other resumed streams have not added (resumed_usage.py)
incomplete capture    counted with its reasons, no histogram: missing data would distort it
a burst               no gaps and no time per token: they would be the buffering proxy's, not the model's
null                  adds nothing; it never becomes 0
a reported 0          is a series of 0
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from streamgauge.core.record import Record
from streamgauge.core.resumption import is_resumed
from streamgauge.core.token_kinds import reported_tokens, token_kinds
from streamgauge.metrics import table
from streamgauge.metrics.budgets import PageBudgets
from streamgauge.metrics.declarations import UNKNOWN
from streamgauge.metrics.observation import Observation, sum_of_gaps
from streamgauge.metrics.otel_names import OtelNames, OtelObserver
from streamgauge.metrics.resumed_usage import Addition, ResumedUsage, added_by_kind
from streamgauge.metrics.series import Family


class StreamCost(NamedTuple):
    """Amounts in USD. `input`, `output`: None for a side that was not reported; `undivided`: a cost that the provider
    reported, which it does not divide into sides.

    `cache_saved`: what reading input from a prompt cache saved; `cache_added`: what writing it there cost above the price
    of input. `unknown`: why the cost is not known (`ledger/cost.Unpriced`); None if it is. All amounts are None then.
    """

    input: float | None = None
    output: float | None = None
    cache_saved: float | None = None
    cache_added: float | None = None
    undivided: float | None = None
    unknown: str | None = None

    @property
    def total(self) -> float:
        """All amounts together (USD)."""
        return (self.input or 0.0) + (self.output or 0.0) + (self.undivided or 0.0)


# The addition of a record to the cost, for the tokens that its stream and the streams that resume it reported without and
# with it (by the names of `core/token_kinds.REPORTED`); None if it reports neither tokens nor a cost.
CostOf = Callable[[Record, Mapping[str, int], Mapping[str, int]], StreamCost | None]


class Observer:
    """Adds records to the families. Not thread-safe: `prometheus.Metrics` holds the lock."""

    def __init__(
        self,
        families: Mapping[str, Family],
        budgets: PageBudgets,
        otel_names: OtelNames,
        cost_of: CostOf | None = None,
    ) -> None:
        self._families = families
        self._budgets = budgets
        self._otel = None if otel_names == "off" else OtelObserver(otel_names)
        self._cost_of = cost_of
        self._resumed_usage = ResumedUsage()

    def start_upstream(self, name: object) -> str:
        """Lets the counters of an upstream begin at 0, unless they have begun. Returns the label's value."""
        upstream = self._budgets.value_of("upstream", name)
        if upstream not in self._budgets.started:
            self._budgets.started.add(upstream)
            for family in self._families.values():
                family.start_upstream(upstream)
        return upstream

    def observe(self, record: Record) -> StreamCost | None:
        """Adds one record. Returns its addition to the cost; None without usage, or without prices."""
        observation = Observation(self._families, self._budgets, record, self.start_upstream(record.upstream))
        _outcome(observation, record)
        _reading(observation, record)
        reported = reported_tokens(record.usage)
        addition = self._resumed_usage.share_of(record, observation.model, reported)
        _usage(observation, record, reported, addition)
        cost = None if self._cost_of is None else _cost(observation, record, addition, self._cost_of)
        _integrity(observation, record)
        if measured := record.integrity.complete and not is_resumed(record):
            _latencies(observation, record)
        if self._otel is not None:
            self._otel.observe(observation, record, addition, measured=measured)
        return cost


def _outcome(observation: Observation, record: Record) -> None:
    upstream, model = observation.upstream, observation.model
    if observation.add(table.STREAMS, 1, upstream, record.dialect, model, record.outcome) and observation.served:
        for outcome in table.OUTCOMES:  # so that the first errors of a model that is served show as growth
            observation.start(table.STREAMS, upstream, record.dialect, model, outcome)
    observation.count(table.STREAM_OUTCOMES, 1, upstream, record.outcome)
    if record.finish_reason is not None or record.finish_reason_raw is not None:
        observation.count(table.FINISH_REASONS, 1, upstream, model, record.finish_reason)
    if record.error is not None:
        error = record.error
        observation.count(table.ERRORS, 1, upstream, error.phase, error.type or error.code or error.status)
        observation.count(table.FAILED_STREAMS, 1, upstream, error.phase)
        if error.phase == "transport":
            observation.count(table.TRANSPORT_ERRORS, 1, upstream, error.code)
    if record.counts.token_events == 0:
        streaming = UNKNOWN if record.streaming is None else str(record.streaming).lower()
        observation.count(table.WITHOUT_TOKEN, 1, upstream, record.outcome, streaming)
    if record.resumed_from is not None:
        observation.count(table.RESUMED, 1, upstream)
    if record.attempt is not None and record.attempt > 1:
        observation.count(table.RETRIED, 1, upstream)


def _reading(observation: Observation, record: Record) -> None:
    observation.count(table.TOKEN_EVENTS, record.counts.token_events, observation.upstream)
    observation.count(table.BODY_BYTES, record.counts.bytes or 0, observation.upstream)
    observation.count(table.UNREAD_EVENTS, record.counts.unparsed_events, observation.upstream, "unparsed")
    observation.count(table.UNREAD_EVENTS, record.counts.unterminated_events, observation.upstream, "unterminated")
    observation.count(table.UNREAD_EVENTS, record.integrity.oversized_events, observation.upstream, "oversized")


def _usage(observation: Observation, record: Record, reported: Mapping[str, int], addition: Addition) -> None:
    usage, upstream = record.usage, observation.upstream
    observation.count(table.USAGE_SOURCES, 1, upstream, usage.source)
    kinds = token_kinds(reported)
    for kind in (*kinds.input, *kinds.output):
        observation.count(table.USAGE_REPORTED, 1, upstream, observation.model, kind)
    for kind, tokens in added_by_kind(kinds, addition).items():
        observation.add(table.USAGE_TOKENS, tokens, upstream, addition.model, kind)
    anomalies = (usage.bad_values, int(usage.identity_failed is not None), kinds.above_whole, kinds.overlapping)
    for anomaly, times in zip(table.ANOMALIES, anomalies, strict=True):
        observation.count(table.USAGE_ANOMALIES, times, upstream, anomaly)


def _cost(observation: Observation, record: Record, addition: Addition, cost_of: CostOf) -> StreamCost | None:
    upstream, model = observation.upstream, addition.model
    cost = cost_of(record, addition.before, addition.after)
    if cost is None:
        return None
    if cost.unknown is not None:
        observation.count(table.UNPRICED, 1, upstream, model, cost.unknown)
        return cost
    for side, usd in zip(table.SIDES, (cost.input, cost.output, cost.undivided), strict=True):
        if usd is not None:
            observation.add(table.COST, usd, upstream, model, side)
            observation.count(table.UPSTREAM_COST, usd, upstream, side)
    observation.count(table.CACHE_SAVED, cost.cache_saved or 0, upstream, model)
    observation.count(table.CACHE_ADDED, cost.cache_added or 0, upstream, model)
    return cost


def _integrity(observation: Observation, record: Record) -> None:
    if not record.integrity.complete:
        observation.count(table.INCOMPLETE, 1, observation.upstream)
    for reason in record.integrity.reasons:
        observation.count(table.INCOMPLETE_REASONS, 1, reason)


def _latencies(observation: Observation, record: Record) -> None:
    timing, upstream, model = record.timing, observation.upstream, observation.model
    if record.outcome != "http_error":  # an error page is sent at once and would make a failing upstream look fast
        observation.time(table.FIRST_BYTE, timing.first_byte_s, upstream)
    observation.time(table.FIRST_TOKEN, timing.first_token_s, upstream, model)
    observation.time(table.FIRST_REASONING, timing.first_reasoning_s, upstream, model)
    observation.time(table.FIRST_CONTENT, timing.first_content_s, upstream, model)
    observation.time(table.FIRST_TOOL, timing.first_tool_s, upstream, model)
    observation.time(table.DURATION, timing.end_s, upstream, record.outcome)
    if timing.burst:
        observation.count(table.BURSTS, 1, upstream)
        return
    observation.count(table.STALLS, timing.gaps.stalls or 0, upstream)
    observation.gaps(table.INTER_CHUNK, timing.gaps, sum_of_gaps(timing), upstream, model)
    observation.time(table.LONGEST_GAP, timing.gaps.max_s, upstream)
    if record.usage.source == "final":
        pace = timing.inter_token_latency_s
        observation.time(table.INTER_TOKEN, pace, upstream, model)
        observation.time(table.TOKENS_PER_SECOND, 1 / pace if pace else None, upstream, model)
