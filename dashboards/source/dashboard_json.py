"""Dashboards as Grafana's JSON: dashboards/grafana/*.json. The same dashboards give the same bytes."""

import json
from collections.abc import Iterator, Mapping, Sequence

from dashboards.source.errors import ERRORS
from dashboards.source.latency import LATENCY
from dashboards.source.one_stream import ONE_STREAM
from dashboards.source.overview import OVERVIEW
from dashboards.source.panel import COLUMNS, Dashboard, Panel
from dashboards.source.panel_json import panel_json
from dashboards.source.pipeline import PIPELINE
from dashboards.source.usage import USAGE
from dashboards.source.variables import Json, variables

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, LATENCY, ERRORS, USAGE, PIPELINE, ONE_STREAM)

# The version of Grafana's own schema that this follows (Grafana 11 and later read it).
_SCHEMA_VERSION = 39
_TAG = "streamgauge"


def files() -> Mapping[str, str]:
    """The dashboards: path below dashboards/ -> text."""
    return {
        f"grafana/{dashboard.name}.json": json.dumps(dashboard_json(dashboard), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }


def dashboard_json(dashboard: Dashboard) -> Json:
    """A dashboard as Grafana's JSON model."""
    used = "\n".join(query.expression for panel in dashboard.panels for query in panel.queries)
    return {
        "uid": dashboard.uid,
        "title": f"Streamgauge: {dashboard.title}",
        "description": dashboard.help,
        "tags": [_TAG, "llm"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "",
        "time": {"from": f"now-{dashboard.hours}h", "to": "now"},
        "links": [_links()],
        "templating": {"list": variables(used, dashboard.variables)},
        "panels": list(_panels(dashboard)),
    }


def _links() -> Json:
    """Links to all dashboards. They keep the time range and the values of all variables."""
    return {
        "type": "dashboards",
        "tags": [_TAG],
        "title": "Streamgauge",
        "tooltip": "The other dashboards, with the same time range and variables",
        "icon": "external link",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "url": "",
    }


def _panels(dashboard: Dashboard) -> Iterator[Json]:
    top, number = 0, 0
    for row in dashboard.rows:
        number += 1
        position: Json = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": position, "panels": []}
        top += 1
        for line in _lines(row.panels):
            across = 0
            for panel in line:
                number += 1
                yield panel_json(panel, number, across, top)
                across += panel.width
            top += max(panel.height for panel in line)


def _lines(panels: Sequence[Panel]) -> Iterator[list[Panel]]:
    """As many panels side by side as the grid is wide."""
    line: list[Panel] = []
    for panel in panels:
        if line and sum(beside.width for beside in line) + panel.width > COLUMNS:
            yield line
            line = []
        line.append(panel)
    if line:
        yield line
