"""The rows of the table about providers' rate limits, set by `rate_limits.py`. `table.py` joins them."""

from streamgauge.metrics.declarations import Metric, MetricSource, gauge

_LABELS = ("upstream", "credential_id", "kind")
_GOES = "Absent from 5 minutes after that response, or from its reset if that is later."


def _row(name: str, unit: str, help: str) -> Metric:
    return gauge(MetricSource.STREAM, f"rate_limit_{name}", help, unit, *_LABELS)


RATE_LIMIT_LIMIT = _row("limit", "1", f"The provider's rate limit, by the newest response for an API key. {_GOES}")
RATE_LIMIT_REMAINING = _row(
    "remaining", "1", f"What was left of the provider's rate limit, by the newest response for an API key. {_GOES}"
)
RATE_LIMIT_RESET = _row(
    "reset_seconds",
    "seconds",
    f"Time from the newest response for an API key until the provider's rate limit is whole again. {_GOES}",
)

LIMIT_METRICS: tuple[Metric, ...] = (RATE_LIMIT_LIMIT, RATE_LIMIT_REMAINING, RATE_LIMIT_RESET)
