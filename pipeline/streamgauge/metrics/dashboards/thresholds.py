"""Thresholds of tiles and columns."""

from streamgauge.metrics.dashboards.panel import Threshold

GREEN, YELLOW, RED = "green", "yellow", "red"
# More than nothing: counters grow by whole numbers.
_ANY = 0.001

NONE_AT_ALL = (Threshold(None, GREEN), Threshold(_ANY, RED))
SOME = (Threshold(None, RED), Threshold(_ANY, GREEN))


def at_least(good: float) -> tuple[Threshold, ...]:
    """For a share that should be at least `good`: yellow once half of what may be bad is used up."""
    return (Threshold(None, RED), Threshold(good, YELLOW), Threshold(round((1 + good) / 2, 6), GREEN))


def at_most(bad: float) -> tuple[Threshold, ...]:
    """For a number that should be below `bad`: yellow from half of it on."""
    return (Threshold(None, GREEN), Threshold(round(bad / 2, 6), YELLOW), Threshold(round(bad, 6), RED))
