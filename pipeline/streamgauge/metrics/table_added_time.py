"""The rows of the table about the time that the relay itself adds to responses."""

from streamgauge.metrics.declarations import DEFAULT_PAGE_BYTES, Kind, Metric, MetricSource


def _counter(name: str, unit: str, help: str) -> Metric:
    return Metric(f"streamgauge_{name}_total", Kind.COUNTER, help, unit, (), (), DEFAULT_PAGE_BYTES, MetricSource.TAP)


TAP_HEADS = _counter("tap_response_heads", "1", "Heads of responses that the relay passed on to clients.")
TAP_HEADS_SECONDS = _counter(
    "tap_response_heads_seconds",
    "seconds",
    "Time from reading the head of a response to having written it to the client's socket: what the relay adds to the time "
    "to the first byte of the response. Excludes the time that data waits in the kernel.",
)
