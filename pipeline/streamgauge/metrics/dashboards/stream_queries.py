"""Queries about streams that several dashboards show."""

from streamgauge.metrics.dashboards.queries import RANGE, increase, ratio
from streamgauge.metrics.rules_slo import BROKEN, UNREACHABLE

# Kinds of output tokens and of input tokens. The kinds are disjoint.
OUTPUT = "output_text|reasoning|output_audio"
INPUT = "input_uncached|input_cached|input_cache_write|input_audio"


def within_ttft(by: str = "", window: str = RANGE, ago: str = "") -> str:
    """The share of first tokens within the variable `objective`."""
    return _within("time_to_first_token_seconds", "$objective", by, window, ago)


def within_tpot(by: str = "", window: str = RANGE, ago: str = "") -> str:
    """The share of streams whose time per output token is within the variable `tpot_objective`."""
    return _within("inter_token_latency_seconds", "$tpot_objective", by, window, ago)


def _within(histogram: str, objective: str, by: str, window: str, ago: str) -> str:
    return ratio(
        increase(f"{histogram}_bucket", f'le="{objective}"', by=by, window=window, ago=ago),
        increase(f"{histogram}_count", by=by, window=window, ago=ago),
    )


def broke(by: str = "", window: str = RANGE, ago: str = "") -> str:
    """The share of streams that broke after they had begun: the objective of the alert StreamsBreakMidway.

    Streams that got no connection are in neither number, nor are error statuses.
    """

    def counted(name: str, where: str) -> str:
        return increase(name, where, by=by, window=window, ago=ago)

    answered = counted("stream_outcomes_total", 'outcome!="http_error"')
    broken = counted("stream_outcomes_total", f'outcome=~"{BROKEN}"')
    refused = counted("transport_errors_total", f'cause=~"{UNREACHABLE}"')
    unreachable = f"({refused} or 0 * {answered})"
    return ratio(f"clamp_min({broken} - {unreachable}, 0)", f"({answered} - {unreachable})")
