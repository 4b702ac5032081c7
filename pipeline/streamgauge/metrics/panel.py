"""What a panel and a row of a dashboard hold."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One panel: (PromQL, legend) pairs. `unit`: Grafana's name of it."""

    title: str
    help: str
    unit: str
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]
