"""Panels as Grafana's JSON."""

import string
from collections.abc import Sequence

from dashboards.source.panel import (
    ALERTS,
    Column,
    Heatmap,
    Panel,
    Query,
    Table,
    Text,
    Threshold,
    Tile,
    TimeSeries,
)
from dashboards.source.queries import metrics_of, variables_of
from dashboards.source.variables import DATASOURCE, Json
from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.table import BY_NAME

# The legend of the second value of a tile, which is drawn without a colour.
AGO = "a week ago"
_PLAIN = "text"
# What a row shows whose series lacks a label. That is not a missing value.
_NO_LABEL: Json = {"id": "noValue", "value": "-"}


def panel_json(panel: Panel, number: int, x: int, y: int) -> Json:
    """A panel at a index of the grid. `number`: its id on the dashboard."""
    return {
        "id": number,
        "title": panel.title,
        "description": described(panel),
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        **({"datasource": DATASOURCE} if panel.queries else {}),
        **_body(panel),
    }


def described(panel: Panel) -> str:
    """The description: what it shows, its alerts, what a variable does not filter, and last the names of its metrics."""
    expressions = [query.expression for query in panel.queries]
    names = metrics_of(expressions)
    texts = [panel.help]
    if panel.alerts:
        texts.append(f"Alert{'s' if len(panel.alerts) > 1 else ''}: {', '.join(panel.alerts)}.")
    of_streams = [name for name in names if BY_NAME[name].part is MetricSource.STREAM]
    for label in ("upstream", "model"):
        if lacking := [name for name in of_streams if label not in variables_of(BY_NAME[name])]:
            texts.append(f"Not filtered by {label}{'' if lacking == of_streams else ': ' + ', '.join(lacking)}.")
    names = (*(name for name in ALERTS if any(f"{name}{{" in expression for expression in expressions)), *names)
    texts.append(f"Metrics: {', '.join(names) or 'none'}")
    return " ".join(texts)


def _body(panel: Panel) -> Json:
    match panel:
        case TimeSeries():
            return _time_series(panel)
        case Tile():
            return _tile(panel)
        case Table():
            return _table(panel)
        case Heatmap():
            return _heatmap(panel)
        case Text():
            return {"type": "text", "options": {"mode": "markdown", "content": panel.content}}
    raise TypeError(f"no such panel: {type(panel).__name__}")


def _time_series(panel: TimeSeries) -> Json:
    custom: Json = {
        # Gaps in a line stay open: missing is not zero.
        "spanNulls": False,
        "showPoints": "auto",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 8,
        # A line of zeros gets an axis up to 1 %, not up to 10,000 %.
        **({"axisSoftMax": 0.01} if panel.unit == "percentunit" else {}),
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
    }
    ends: Json = {"min": 0} if panel.maximum is None else {"min": 0, "max": panel.maximum}
    right: list[Json] = []
    if panel.right is not None:
        axis: list[Json] = [
            {"id": "custom.axisPlacement", "value": "right"},
            {"id": "custom.axisLabel", "value": panel.right},
        ]
        right = [_override(panel.right, axis)]
    many = len(panel.queries) > 1 or "{{" in panel.queries[0].legend
    return {
        "type": "timeseries",
        "fieldConfig": _fields(panel, {**ends, "custom": custom}, right),
        "options": {
            "legend": {"showLegend": many, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [_target(index, query, "time_series") for index, query in enumerate(panel.queries)],
    }


def _tile(panel: Tile) -> Json:
    decimals: Json = {} if panel.decimals is None else {"decimals": panel.decimals}
    plain = _override(AGO, [{"id": "color", "value": {"mode": "fixed", "fixedColor": _PLAIN}}])
    return {
        "type": "stat",
        "fieldConfig": _fields(
            panel, {**decimals, "color": {"mode": "thresholds"}, "thresholds": _thresholds(panel.thresholds)}, [plain]
        ),
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "vertical",
            "textMode": "value_and_name",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        },
        "targets": [_target(index, query, "time_series", instant=True) for index, query in enumerate(panel.queries)],
    }


def _table(panel: Table) -> Json:
    fields = {
        **{label: column.name for label, column in panel.labels.items()},
        **{f"Value #{_ref(index)}": column.name for index, column in enumerate(panel.values)},
    }
    if len(panel.values) == 1:
        fields = {field if field in panel.labels else "Value": name for field, name in fields.items()}
    return {
        "type": "table",
        "fieldConfig": _fields(
            panel,
            {"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}},
            [
                *(_override(column.name, [*_column(column), _NO_LABEL]) for column in panel.labels.values()),
                *(_override(column.name, _column(column)) for column in panel.values),
            ],
        ),
        "options": {
            "showHeader": True,
            "cellHeight": "sm",
            "frameIndex": 0,
            "sortBy": [{"displayName": panel.values[0].name, "desc": not panel.ascending}],
        },
        "targets": [_target(index, query, "table", instant=True) for index, query in enumerate(panel.queries)],
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": {field: index for index, field in enumerate(fields)},
                    "renameByName": fields,
                },
            },
        ],
    }


def _column(column: Column) -> list[Json]:
    properties: list[Json] = [{"id": "unit", "value": column.unit}]
    if column.decimals is not None:
        properties.append({"id": "decimals", "value": column.decimals})
    if column.width is not None:
        properties.append({"id": "custom.width", "value": column.width})
    if column.thresholds:
        properties += [
            {"id": "thresholds", "value": _thresholds(column.thresholds)},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    if column.links:
        links = [{"title": link.title, "url": link.url, "targetBlank": False} for link in column.links]
        properties.append({"id": "links", "value": links})
    return properties


def _heatmap(panel: Heatmap) -> Json:
    return {
        "type": "heatmap",
        "fieldConfig": _fields(panel, {"custom": {"scaleDistribution": {"type": "linear"}}}, []),
        "options": {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "fill": "dark-orange",
                "exponent": 0.5,
                "reverse": False,
                "steps": 64,
            },
            "exemplars": {"color": "rgba(31,120,193,0.8)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "unit": panel.unit, "reverse": False},
            "cellValues": {"unit": "short"},
        },
        "targets": [_target(index, query, "heatmap") for index, query in enumerate(panel.queries)],
    }


def _fields(panel: Panel, defaults: Json, overrides: Sequence[Json]) -> Json:
    return {"defaults": {"unit": panel.unit, "noValue": panel.no_value, **defaults}, "overrides": list(overrides)}


def _override(name: str, properties: Sequence[Json]) -> Json:
    return {"matcher": {"id": "byName", "options": name}, "properties": list(properties)}


def _thresholds(steps: Sequence[Threshold]) -> Json:
    return {"mode": "absolute", "steps": [{"color": step.colour, "value": step.value} for step in steps]}


def _ref(index: int) -> str:
    return string.ascii_uppercase[index]


def _target(index: int, query: Query, form: str, *, instant: bool = False) -> Json:
    return {
        "refId": _ref(index),
        "expr": query.expression,
        "legendFormat": query.legend,
        "datasource": DATASOURCE,
        "format": form,
        "instant": instant,
        "range": not instant,
        "exemplar": query.exemplars,
        "editorMode": "code",
    }
