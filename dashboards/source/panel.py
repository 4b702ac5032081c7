"""What a dashboard consists of, as data. `panel_json.py` and `dashboard_json.py` write it as Grafana's JSON.

Widths and heights are units of Grafana's grid, which has 24 columns. A unit is Grafana's name of it (`s`, `percentunit`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_TRAFFIC = "no traffic"
# Prometheus' own metrics of pending and firing alerts: their states, and since when (seconds since 1970).
ALERTS = ("ALERTS", "ALERTS_FOR_STATE")
COLUMNS = 24


@dataclass(frozen=True)
class Query:
    """A query and how its series are named: `{{label}}` stands for a label's value.

    `exemplars`: also ask for exemplars, which lead to single streams.
    """

    expression: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True)
class Threshold:
    """From this value on, this colour. The first threshold of several begins at None: all values below the second."""

    value: float | None
    colour: str


# Of tiles and columns.
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


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. `help`: what it shows, in sentences; `no_value`: what it says if there are no series.

    `alerts`: the alerts that fire on what it shows.
    """

    title: str
    help: str
    queries: tuple[Query, ...] = ()
    unit: str = "none"
    width: int = 8
    height: int = 8
    no_value: str = NO_TRAFFIC
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimeSeries(Panel):
    """Lines over time. `stacked`: their sum means something. `right`: a legend whose line has its own axis on the right.

    `maximum`: the end of the axis, if it is fixed.
    """

    stacked: bool = False
    right: str | None = None
    maximum: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tile(Panel):
    """The value of each query over the dashboard's time range, coloured by thresholds."""

    thresholds: tuple[Threshold, ...]
    decimals: int | None = None
    width: int = 6
    height: int = 5


@dataclass(frozen=True)
class Column:
    """A column of a table: the value of a query, or a label. `name`: its heading.

    `links`: where a click on a cell leads; `thresholds`: the colours of its text; `width`: in pixels.
    """

    name: str
    unit: str = "none"
    thresholds: tuple[Threshold, ...] = ()
    links: "tuple[Link, ...]" = ()
    decimals: int | None = None
    width: int | None = None


@dataclass(frozen=True)
class Link:
    """A link with its text. The address may contain Grafana's variables."""

    title: str
    url: str


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """The values of queries at the end of the time range, one row for each combination of labels.

    `labels`: the columns of labels, by label; `values`: a column for each query, in their order. The first value sorts the
    rows: the highest first, or the lowest with `ascending`. Raises ValueError if a query has no column.
    """

    labels: Mapping[str, Column]
    values: tuple[Column, ...]
    width: int = COLUMNS
    ascending: bool = False

    def __post_init__(self) -> None:
        if len(self.values) != len(self.queries):
            raise ValueError(f"{self.title}: {len(self.queries)} queries have {len(self.values)} columns")


@dataclass(frozen=True, kw_only=True)
class Heatmap(Panel):
    """The buckets of a histogram over time. `unit`: that of the bounds."""

    width: int = 12
    height: int = 9


@dataclass(frozen=True, kw_only=True)
class Text(Panel):
    """A text in Markdown."""

    content: str
    width: int = COLUMNS
    height: int = 5


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A variable of one dashboard, besides those that all have. With `query` it offers values, else a field of text."""

    name: str
    label: str
    help: str
    query: str | None = None


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard. `name`: of its file and its address; `hours`: how far it looks back."""

    name: str
    title: str
    help: str
    rows: tuple[Row, ...]
    hours: int = 3
    variables: tuple[Variable, ...] = field(default=())

    @property
    def uid(self) -> str:
        """What its address ends with."""
        return f"streamgauge-{self.name}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)
