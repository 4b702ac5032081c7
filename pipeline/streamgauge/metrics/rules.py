"""The parts of alert and recording rules for Prometheus. `rule_files.py` collects and writes them.

An alert has a page docs/runbooks/<name>.md, and a firing and a silent case in tests/dashboards/alert_cases.py.
"""

from dataclasses import dataclass
from typing import Literal

# page: it needs an action now. ticket: it needs an action in the next days.
Severity = Literal["page", "ticket"]


@dataclass(frozen=True)
class Alert:
    """An alert. `expr`: PromQL; `minutes`: how long it has to hold; the texts are Prometheus' templates."""

    name: str
    expr: str
    minutes: float
    severity: Severity
    summary: str
    description: str


@dataclass(frozen=True)
class Recording:
    """A recording rule. `name`: LABELS:METRIC:OPERATION, as Prometheus' documentation advises."""

    name: str
    expr: str


@dataclass(frozen=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other. `minutes`: how often; None for its default interval."""

    name: str
    rules: tuple[Alert | Recording, ...]
    minutes: float | None = None


class Durations:
    """Writes durations as PromQL does. `factor` multiplies each: a test against a real Prometheus shortens them."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor

    def __call__(self, minutes: float) -> str:
        """A duration of so many minutes, such as `5m` or `1h30m`, at least a second."""
        seconds = max(1, round(minutes * 60 * self._factor))
        parts = []
        for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
            if count := seconds // size:
                parts.append(f"{count}{unit}")
                seconds -= count * size
        return "".join(parts)
