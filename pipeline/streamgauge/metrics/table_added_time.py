"""The rows of the table about the time that the relay itself adds to responses. `table.py` joins them."""

from streamgauge.metrics.declarations import Metric, MetricSource, counter

TAP_HEADS = counter(MetricSource.TAP, "tap_response_heads", "Heads of responses that the relay passed on to clients.")
TAP_HEADS_SECONDS = counter(
    MetricSource.TAP,
    "tap_response_heads_seconds",
    "Time from reading the head of a response to having written it to the client's socket: what the relay adds to the time "
    "to the first byte of the response. Excludes the time that data waits in the kernel.",
    unit="seconds",
)

ADDED_TIME_METRICS: tuple[Metric, ...] = (TAP_HEADS, TAP_HEADS_SECONDS)
