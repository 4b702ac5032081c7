"""Panels as data: what each kind shows, and its build() with Grafana's Foundation SDK.

Widths and heights are units of Grafana's grid, which has 24 columns. A unit is Grafana's name of it (`s`, `percentunit`).
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import common as build
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as model
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, Threshold
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode
from grafana_foundation_sdk.models.table import Options as TableOptions

from dashboards.source.queries import INPUT, OUTPUT, metrics_of, recorded_of, variables_of
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.table import BY_NAME, OUTCOMES

COLUMNS = 24
DATASOURCE = DataSourceRef("prometheus", "${datasource}")
NO_TRAFFIC = "no traffic"
# The legend of the second value of a tile, which is drawn without a colour.
AGO = "a week ago"
# The legend of a line with the 95th percentile of then.
P95_AGO = f"p95 {AGO}"
# The legend of a line that an objective of the rules draws.
OBJECTIVE = "objective"
# The colours of what has the same name on every dashboard, as on the built-in page: a stream that its client left is no
# error, and an error status is none of a stream that broke.
COLOURS = {
    "completed": "green",
    "client_abort": "yellow",
    "http_error": "purple",
    "stream_error": "red",
    "upstream_reset": "dark-red",
    "truncated": "light-red",
    "timeout": "semi-dark-orange",
    "abandoned": "super-light-red",
    "p50": "super-light-blue",
    "p95": "light-blue",
    "p99": "blue",
    AGO: "text",
    P95_AGO: "text",
    OBJECTIVE: "red",
    "input_uncached": "blue",
    "input_cached": "light-blue",
    "input_cache_write": "dark-blue",
    "input_audio": "super-light-blue",
    "output_text": "orange",
    "reasoning": "dark-orange",
    "output_audio": "light-orange",
    "input": "blue",
    "output": "orange",
}
# The labels whose values have colours of their own, with these values.
_COLOURED = {"outcome": OUTCOMES, "kind": (*INPUT.split("|"), *OUTPUT.split("|"))}
# Prometheus' own metrics of pending and firing alerts: their states, and since when (seconds since 1970).
ALERTS = ("ALERTS", "ALERTS_FOR_STATE")

# Thresholds of tiles and columns. From its value on, each gives its colour; the first one begins at None.
GREEN, YELLOW, RED = "green", "yellow", "red"
Thresholds = tuple[Threshold, ...]
# More than nothing: counters grow by whole numbers.
_ANY = 0.001
NONE_AT_ALL: Thresholds = (Threshold(None, GREEN), Threshold(_ANY, RED))
SOME: Thresholds = (Threshold(None, RED), Threshold(_ANY, GREEN))
UNJUDGED: Thresholds = (Threshold(None, "blue"),)


def at_least(good: float) -> Thresholds:
    """For a share that should be at least `good`: yellow once half of what may be bad is used up."""
    return (Threshold(None, RED), Threshold(good, YELLOW), Threshold(round((1 + good) / 2, 6), GREEN))


def at_most(bad: float) -> Thresholds:
    """For a number that should be below `bad`: yellow from half of it on."""
    return (Threshold(None, GREEN), Threshold(round(bad / 2, 6), YELLOW), Threshold(round(bad, 6), RED))


def _absolute(thresholds: Thresholds) -> ThresholdsConfig:
    return ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(list(thresholds))


_SdkPanel = TypeVar("_SdkPanel", timeseries.Panel, stat.Panel, table.Panel, heatmap.Panel)


@dataclass(frozen=True)
class Query:
    """A query and how its series are named: `{{label}}` stands for a label's value.

    `exemplars`: also ask for exemplars, which lead to single streams.
    """

    expression: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel(Builder[dashboard.Panel]):
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

    @property
    def description(self) -> str:
        """What the panel shows, its alerts, what a variable does not filter, and last the names of its metrics."""
        expressions = [query.expression for query in self.queries]
        names = metrics_of(expressions)
        texts = [self.help]
        if self.alerts:
            texts.append(f"Alert{'s' if len(self.alerts) > 1 else ''}: {', '.join(self.alerts)}.")
        of_streams = [name for name in names if BY_NAME[name].part is MetricSource.STREAM]
        for label in ("upstream", "model"):
            if lacking := [name for name in of_streams if label not in variables_of(BY_NAME[name])]:
                texts.append(f"Not filtered by {label}{'' if lacking == of_streams else ': ' + ', '.join(lacking)}.")
        names = (*(name for name in ALERTS if any(f"{name}{{" in expression for expression in expressions)), *names)
        names = (*names, *recorded_of(expressions))
        texts.append(f"Metrics: {', '.join(names) or 'none'}")
        return " ".join(texts)

    def _queried(self, panel: _SdkPanel, form: PromQueryFormat, *, instant: bool = False) -> _SdkPanel:
        """The SDK's panel with what every kind has that shows queries."""
        panel.title(self.title).description(self.description).span(self.width).height(self.height)
        panel.datasource(DATASOURCE).unit(self.unit).no_value(self.no_value).overrides([])
        for ref, query in zip(string.ascii_uppercase, self.queries, strict=False):
            target = prometheus.Dataquery().ref_id(ref).expr(query.expression).legend_format(query.legend)
            target.datasource(DATASOURCE).format(form).exemplar(query.exemplars).editor_mode(QueryEditorMode.CODE)
            panel.with_target(target.instant() if instant else target.range())
        return panel


@dataclass(frozen=True, kw_only=True)
class TimeSeries(Panel):
    """Lines over time. `stacked`: their sum means something. `right`: a legend whose line has its own axis on the right.

    `maximum`: the end of the axis, if it is fixed.
    """

    stacked: bool = False
    right: str | None = None
    maximum: float | None = None

    def build(self) -> dashboard.Panel:
        """The panel of the SDK. Gaps in a line stay open: missing is not zero."""
        many = len(self.queries) > 1 or "{{" in self.queries[0].legend
        stacking = model.StackingMode.NORMAL if self.stacked else model.StackingMode.NONE
        legend = build.VizLegendOptions().show_legend(many).calcs([])
        legend.display_mode(model.LegendDisplayMode.LIST).placement(model.LegendPlacement.BOTTOM)
        panel = (
            self._queried(timeseries.Panel(), PromQueryFormat.TIME_SERIES)
            .min(0)
            .span_nulls(False)
            .show_points(model.VisibilityMode.AUTO)
            .line_width(1)
            .fill_opacity(40 if self.stacked else 0)
            .stacking(build.StackingConfig().mode(stacking).group("A"))
            .legend(legend)
            .tooltip(build.VizTooltipOptions().mode(model.TooltipDisplayMode.MULTI).sort(model.SortOrder.DESCENDING))
        )
        if self.unit == "percentunit":
            panel.axis_soft_max(0.01)  # a line of zeros gets an axis up to 1 %, not up to 10,000 %
        if self.maximum is not None:
            panel.max(self.maximum)
        if self.right is not None:
            axis = {"custom.axisPlacement": "right", "custom.axisLabel": self.right}
            panel.override_by_name(self.right, [DynamicConfigValue(name, value) for name, value in axis.items()])
        for name in self._coloured():
            look: dict[str, object] = {"color": _fixed(COLOURS[name])}
            if name in (P95_AGO, OBJECTIVE):
                look["custom.lineStyle"] = {"fill": "dash", "dash": [8, 6]}
            panel.override_by_name(name, [DynamicConfigValue(option, value) for option, value in look.items()])
        return panel.build()

    def _coloured(self) -> list[str]:
        """The names of lines that have a colour of their own."""
        labels = [query.legend[2:-2] for query in self.queries if query.legend.startswith("{{")]
        names = [query.legend for query in self.queries if query.legend in COLOURS]
        return [*names, *(name for label in labels for name in _COLOURED.get(label, ()))]


def _fixed(colour: str) -> object:
    return FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(colour).build()


@dataclass(frozen=True, kw_only=True)
class Tile(Panel):
    """The value of each query over the dashboard's time range, coloured by thresholds.

    `plain`: legends without a colour; `units`: those of single legends, where they differ.
    """

    thresholds: Thresholds
    plain: tuple[str, ...] = ()
    units: Mapping[str, str] | None = None
    decimals: int | None = None
    width: int = 6
    height: int = 5

    def build(self) -> dashboard.Panel:
        """The panel of the SDK."""
        plain = _fixed("text")
        panel = (
            self._queried(stat.Panel(), PromQueryFormat.TIME_SERIES, instant=True)
            .color_scheme(FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
            .thresholds(_absolute(self.thresholds))
            .reduce_options(build.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
            .color_mode(model.BigValueColorMode.VALUE)
            .graph_mode(model.BigValueGraphMode.NONE)
            .justify_mode(model.BigValueJustifyMode.AUTO)
            .orientation(model.VizOrientation.VERTICAL)
            .text_mode(model.BigValueTextMode.VALUE_AND_NAME)
            .wide_layout(False)
            .show_percent_change(False)
            .percent_change_color_mode(model.PercentChangeColorMode.STANDARD)
        )
        for name in (AGO, *self.plain):
            panel.override_by_name(name, [DynamicConfigValue("color", plain)])
        for name, unit in (self.units or {}).items():
            panel.override_by_name(name, [DynamicConfigValue("unit", unit)])
        if self.decimals is not None:
            panel.decimals(self.decimals)
        return panel.build()


@dataclass(frozen=True)
class Column:
    """A column of a table: the value of a query, or a label. `name`: its heading.

    `links`: where a click on a cell leads, by the link's text; an address may contain Grafana's variables. `thresholds`: the
    colours of its text; `width`: in pixels; `empty`: what a cell without a value shows.
    """

    name: str
    unit: str = "none"
    thresholds: Thresholds = ()
    links: Mapping[str, str] | None = None
    decimals: int | None = None
    width: int | None = None
    empty: str = "-"

    def options(self) -> list[DynamicConfigValue]:
        """The options of the column's field."""
        options: dict[str, object] = {"unit": self.unit, "noValue": self.empty}
        if self.decimals is not None:
            options["decimals"] = self.decimals
        if self.width is not None:
            options["custom.width"] = self.width
        if self.thresholds:
            options["thresholds"] = _absolute(self.thresholds).build()
            options["custom.cellOptions"] = model.TableColorTextCellOptions()
        if self.links:
            links = [{"title": title, "url": url, "targetBlank": False} for title, url in self.links.items()]
            options["links"] = links
        return [DynamicConfigValue(name, value) for name, value in options.items()]


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """The values of queries at the end of the time range, one row for each combination of labels.

    `labels`: the columns of labels, by label; `values`: a column for each query, in their order. The first value sorts the
    rows: the highest first, or the lowest with `ascending`. Raises ValueError if a query has no column.
    """

    labels: Mapping[str, Column]
    values: Sequence[Column]
    width: int = COLUMNS
    ascending: bool = False

    def __post_init__(self) -> None:
        if len(self.values) != len(self.queries):
            raise ValueError(f"{self.title}: {len(self.queries)} queries have {len(self.values)} columns")

    def build(self) -> dashboard.Panel:
        """The panel of the SDK."""
        refs = ["Value"] if len(self.values) == 1 else [f"Value #{ref}" for ref in string.ascii_uppercase]
        columns = {**self.labels, **dict(zip(refs, self.values, strict=False))}
        order = {
            "excludeByName": {"Time": True},
            "indexByName": {field: index for index, field in enumerate(columns)},
            "renameByName": {field: column.name for field, column in columns.items()},
        }
        panel = (
            self._queried(table.Panel(), PromQueryFormat.TABLE, instant=True)
            .align(model.FieldTextAlignment.AUTO)
            .cell_options(model.TableAutoCellOptions())
            .inspect(False)
            .show_header(True)
            .cell_height(model.TableCellHeight.SM)
            .frame_index(0)
            .sort_by([build.TableSortByFieldState().display_name(self.values[0].name).desc(not self.ascending)])
            .with_transformation(dashboard.DataTransformerConfig("merge", options={}))
            .with_transformation(dashboard.DataTransformerConfig("organize", options=order))
        )
        for column in columns.values():
            panel.override_by_name(column.name, column.options())
        built = panel.build()
        assert isinstance(built.options, TableOptions)
        built.options.footer = None  # a default that Grafana 13 does not know any more
        return built


@dataclass(frozen=True, kw_only=True)
class Heatmap(Panel):
    """The buckets of a histogram over time. `unit`: that of the bounds."""

    width: int = 12
    height: int = 9

    def build(self) -> dashboard.Panel:
        """The panel of the SDK."""
        colour = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").fill("dark-orange")
        return (
            self._queried(heatmap.Panel(), PromQueryFormat.HEATMAP)
            .scale_distribution(build.ScaleDistributionConfig().type(model.ScaleDistribution.LINEAR))
            .calculate(False)
            .cell_gap(1)
            .color(colour.exponent(0.5).reverse(False).steps(64))
            .exemplars_color("rgba(31,120,193,0.8)")
            .filter_values(heatmap.FilterValueRange().le(1e-9))
            .show_legend()
            .rows_frame(heatmap.RowsHeatmapOptions().layout(model.HeatmapCellLayout.AUTO))
            .show_value(model.VisibilityMode.NEVER)
            .tooltip(heatmap.HeatmapTooltip().mode(model.TooltipDisplayMode.SINGLE).y_histogram(True))
            .y_axis(heatmap.YAxisConfig().axis_placement(model.AxisPlacement.LEFT).unit(self.unit).reverse(False))
            .cell_values(heatmap.CellValues().unit("short"))
            .build()
        )
