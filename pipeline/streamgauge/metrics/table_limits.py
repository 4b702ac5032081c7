"""The rows of the table about providers' rate limits, set by `rate_limits.py`."""

from streamgauge.metrics.declarations import Kind, Metric, MetricSource

_LABELS = ("upstream", "credential_id", "kind")
_GOES = "Absent from 5 minutes after that response, or from its reset if that is later."


def _row(name: str, unit: str, help: str) -> Metric:
    return Metric(f"streamgauge_rate_limit_{name}", Kind.GAUGE, help, unit, _LABELS, (), 14_000, MetricSource.STREAM)


RATE_LIMIT_LIMIT = _row("limit", "1", f"The provider's rate limit, by the newest response for an API key. {_GOES}")
RATE_LIMIT_REMAINING = _row(
    "remaining", "1", f"What was left of the provider's rate limit, by the newest response for an API key. {_GOES}"
)
RATE_LIMIT_RESET = _row(
    "reset_seconds",
    "seconds",
    f"Time from the newest response for an API key until the provider's rate limit is whole again. {_GOES}",
)
