"""The panels as Grafana's JSON: dashboards/grafana/overview.json. The same panels give the same bytes."""

import json
from collections.abc import Iterator

from streamgauge.metrics.panel import Panel, Row
from streamgauge.metrics.panels import ROWS

Json = dict[str, object]

# Grafana's grid has 24 columns: three panels a row, each nine units high.
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 9

# The version of Grafana's own schema that this follows (Grafana 11 and later read it).
_SCHEMA_VERSION = 39

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> Json:
    """The on-call dashboard."""
    return {
        "uid": "streamgauge-overview",
        "title": "Streamgauge",
        "description": "LLM token streams: outcomes, latency, token usage, capture and workers.",
        "tags": ["streamgauge", "llm"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _choice("upstream"), _choice("model")]},
        "panels": list(_panels()),
    }


def dashboard_json() -> str:
    """The dashboard as the text of its file."""
    return json.dumps(dashboard(), indent=2) + "\n"


def _datasource() -> Json:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _choice(label: str) -> Json:
    query = f"label_values(streamgauge_streams_total, {label})"
    return {
        "name": label,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[Json]:
    top, number = 0, 0
    for row in ROWS:
        number += 1
        yield _heading(row, number, top)
        top += 1
        for place, panel in enumerate(row.panels):
            number += 1
            across, down = place % (_COLUMNS // _WIDTH), place // (_COLUMNS // _WIDTH)
            yield _panel(panel, number, x=across * _WIDTH, y=top + down * _HEIGHT)
        top += -(-len(row.panels) // (_COLUMNS // _WIDTH)) * _HEIGHT


def _heading(row: Row, number: int, top: int) -> Json:
    place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, *, x: int, y: int) -> Json:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _DATASOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": y},
        "fieldConfig": {
            # Gaps in a line stay open: missing is not zero.
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"spanNulls": False, "fillOpacity": 8}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": expression,
                "legendFormat": legend,
                "datasource": _DATASOURCE,
                "exemplar": "_bucket{" in expression,  # the streams that a histogram's exemplars name
            }
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }
