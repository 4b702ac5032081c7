"""The rules of the two objectives of streams: streams that break after they began, and the time to the first token.

Multi-window, multi-burn-rate (Google's SRE workbook, chapter 5). The *budget* is the share that may be bad in 30 days. It
burns at rate 1 if all of it is used up in these 30 days. An alert needs a high burn rate in a long window, so that it
matters, and in a short one, so that it ends soon after its cause:

    page     burn rate 14.4 in 1 h and 5 min (2 % of the budget in an hour), or 6 in 6 h and 30 min (5 % in 6 h)
    ticket   burn rate 3 in 1 day and 2 h (10 % in a day), or 1 in 3 days and 6 h (10 % in 3 days)

With little traffic one bad stream is a high rate. So an alert also needs MIN_BAD bad streams in its long window.
"""

from dataclasses import dataclass
from typing import NamedTuple

from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rules import QUERY, Alert, DashboardName, Durations, Recording, RuleGroup, Severity

# The fewest bad streams of an alert: fewer are an accident, whatever their share.
MIN_BAD = 5
# The highest threshold of a bad share.
MAX_SHARE = 0.9
# How often the rules are evaluated (minutes): they read an hour and more.
_EVERY = 1
# How long the condition has to hold (minutes): the windows already wait for it.
_FOR = 2
# Why no connection to the upstream came about (`TransportFault`). Such a stream never began.
UNREACHABLE = "dns|refused|unreachable|connect_timeout|tls|tls_certificate|not_http"
# The dashboard of these alerts.
DASHBOARD: DashboardName = "upstream"
BROKEN = "stream_error|upstream_reset|timeout|truncated"


class Burn(NamedTuple):
    """A pair of windows (minutes), and the burn rate that both have to exceed."""

    long: int
    short: int
    rate: float


_HOUR, _DAY = 60, 24 * 60
BURNS: dict[Severity, tuple[Burn, Burn]] = {
    "page": (Burn(_HOUR, 5, 14.4), Burn(6 * _HOUR, 30, 6)),
    "ticket": (Burn(_DAY, 2 * _HOUR, 3), Burn(3 * _DAY, 6 * _HOUR, 1)),
}
WINDOWS = sorted({window for pair in BURNS.values() for burn in pair for window in (burn.long, burn.short)})
# The windows in which bad streams are counted for MIN_BAD (minutes). Counting over days would read each sample of days.
_COUNTED = (_HOUR, 6 * _HOUR)


def window_name(minutes: int) -> str:
    """A window in the name of a recording rule: it stays the same if durations are shortened."""
    return Durations()(minutes)


@dataclass(frozen=True)
class Objective:
    """One objective of streams. `by`: the labels of its series; `share`: the good share that is promised.

    `bad`, `all`: PromQL of the bad streams and of all that count, summed by `by`; `{f}` is the function (`rate` or
    `increase`), `{w}` its window.
    """

    name: str
    by: str
    share: float
    bad: str
    all: str
    alert: str
    summary: str
    description: str
    command: str

    @property
    def prefix(self) -> str:
        """The level of its recording rules."""
        return self.by.replace(", ", "_")

    def recorded(self, quantity: str, window: int) -> str:
        """The name of a recording rule. `quantity`: bad and all (streams a second), ratio of the two, count (bad streams)."""
        metric, operation = {
            "bad": (f"streamgauge_{self.name}", "rate"),
            "all": (f"streamgauge_{self.name}_of", "rate"),
            "ratio": (f"streamgauge_{self.name}", "ratio_rate"),
            "count": (f"streamgauge_{self.name}", "increase"),
        }[quantity]
        return f"{self.prefix}:{metric}:{operation}{window_name(window)}"


def objectives_of_streams(objectives: Objectives) -> tuple[Objective, Objective]:
    """The objectives: unbroken streams by upstream, first tokens by upstream and model."""
    unreachable = f'sum by (upstream) ({{f}}(streamgauge_transport_errors_total{{{{cause=~"{UNREACHABLE}"}}}}[{{w}}]))'
    broken = f'sum by (upstream) ({{f}}(streamgauge_stream_outcomes_total{{{{outcome=~"{BROKEN}"}}}}[{{w}}]))'
    answered = 'sum by (upstream) ({f}(streamgauge_stream_outcomes_total{{outcome!="http_error"}}[{w}]))'
    first = "streamgauge_time_to_first_token_seconds"
    count = f"sum by (upstream, model) ({{f}}({first}_count[{{w}}]))"
    fast = f'sum by (upstream, model) ({{f}}({first}_bucket{{{{le="{objectives.ttft}"}}}}[{{w}}]))'
    return (
        Objective(
            "broken_streams",
            "upstream",
            objectives.unbroken,
            f"clamp_min(\n  {broken}\n  - ({unreachable} or 0 * {answered}),\n  0\n)\nor 0 * {answered}",
            f"{answered}\n- ({unreachable} or 0 * {answered})",
            "StreamsBreakMidway",
            "Streams of {{ $labels.upstream }} break after they began, "
            f"too many for the objective of {objectives.unbroken:.5g}",
            "Errors after status 200, resets, timeouts and truncations.",
            f"{QUERY} --newest --limit 20 {' '.join(f'--where outcome={outcome}' for outcome in BROKEN.split('|'))}",
        ),
        Objective(
            "slow_first_tokens",
            "upstream, model",
            objectives.ttft_share,
            f"{count}\n- {fast}",
            count,
            "TimeToFirstTokenHigh",
            "First tokens, reasoning included, of {{ $labels.model }} at {{ $labels.upstream }} take longer than "
            f"{objectives.ttft:g} s, too often for the objective of {objectives.ttft_share:.5g}",
            "Compare the gaps between chunks (streamgauge_inter_chunk_latency_seconds). If they are normal, requests wait in "
            "a queue of the upstream.",
            f"{QUERY} --slowest 20",
        ),
    )


# What the objectives are, as series for dashboards: the time to the first token that is fast enough (seconds; `le` is the
# bucket that counts it), and the shares that may be slow, and that may break.
FAST_ENOUGH = "streamgauge:first_token_seconds:objective"
MAY_BE_SLOW = "streamgauge:slow_first_tokens:objective"
MAY_BREAK = "streamgauge:broken_streams:objective"


def objective_group(objectives: Objectives) -> RuleGroup:
    """The numbers of the objectives, so that a dashboard judges by the same ones as the alerts."""
    fast = f'label_replace(vector({objectives.ttft:g}), "le", "{objectives.ttft}", "", "")'
    return RuleGroup(
        "streamgauge-objectives",
        (
            Recording(FAST_ENOUGH, fast),
            Recording(MAY_BE_SLOW, f"vector({1 - objectives.ttft_share:.5g})"),
            Recording(MAY_BREAK, f"vector({1 - objectives.unbroken:.5g})"),
        ),
        "overview",
    )


def groups(objectives: Objectives, durations: Durations) -> tuple[RuleGroup, ...]:
    """For each objective a group of recording rules with its alerts."""
    return tuple(
        RuleGroup(
            f"streamgauge-slo-{objective.name.replace('_', '-')}",
            (*_recordings(objective, durations), *(_alert(objective, severity, durations) for severity in BURNS)),
            DASHBOARD,
            _EVERY,
        )
        for objective in objectives_of_streams(objectives)
    )


def _recordings(objective: Objective, durations: Durations) -> tuple[Recording, ...]:
    """Rates of the shortest window come from the metrics, and rates of longer windows from these: days are read cheaply."""
    shortest = WINDOWS[0]
    rules = [
        Recording(objective.recorded(quantity, shortest), query.format(f="rate", w=durations(shortest)))
        for quantity, query in (("bad", objective.bad), ("all", objective.all))
    ]
    rules += [
        Recording(
            objective.recorded(quantity, window),
            f"avg_over_time({objective.recorded(quantity, shortest)}[{durations(window)}])",
        )
        for window in WINDOWS[1:]
        for quantity in ("bad", "all")
    ]
    rules += [
        Recording(
            objective.recorded("ratio", window),
            f"{objective.recorded('bad', window)} / ({objective.recorded('all', window)} > 0)",
        )
        for window in WINDOWS
    ]
    rules += [
        Recording(objective.recorded("count", window), objective.bad.format(f="increase", w=durations(window)))
        for window in _COUNTED
    ]
    return tuple(rules)


def _alert(objective: Objective, severity: Severity, durations: Durations) -> Alert:
    pairs = [
        f"(\n  {objective.recorded('ratio', burn.long)} > {_threshold(burn, objective)}\n"
        f"  and {objective.recorded('ratio', burn.short)} > {_threshold(burn, objective)}\n"
        f"  and {objective.recorded('count', min(burn.long, _COUNTED[-1]))} >= {MIN_BAD}\n)"
        for burn in BURNS[severity]
    ]
    long = " or ".join(Durations()(burn.long) for burn in BURNS[severity])
    described = f"{{{{ $value | humanizePercentage }}}} in the last {long}. {objective.description}"
    return Alert(objective.alert, "\nor\n".join(pairs), _FOR, severity, objective.summary, described, objective.command)


def _threshold(burn: Burn, objective: Objective) -> str:
    """The bad share that is this burn rate. A modest objective cannot burn so fast: then MAX_SHARE has to be bad."""
    budget = 1 - objective.share
    return f"{burn.rate:g} * {budget:.5g}" if burn.rate * budget < MAX_SHARE else f"{MAX_SHARE:g}"
