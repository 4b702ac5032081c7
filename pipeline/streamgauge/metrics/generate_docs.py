"""Generates files from the table: METRICS.md and the Grafana dashboard.

`python -m streamgauge.metrics.generate_docs [FOLDER]` writes them, by default into dashboards/.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from streamgauge.metrics import table
from streamgauge.metrics.attribute_labels import ATTRIBUTED
from streamgauge.metrics.declarations import ATTRIBUTE, LABELS, OTHER, PAGE_BYTES, UNKNOWN, Metric, MetricSource
from streamgauge.metrics.grafana import dashboard_json

_PARTS: Mapping[MetricSource, str] = {
    MetricSource.STREAM: "Streams (`worker`, `up`)",
    MetricSource.TAP: "Taps (`tap`, `up`)",
    MetricSource.WORKER: "Workers (`worker`, `up`)",
    MetricSource.SELF: "The exporter itself",
}


def metrics_md() -> str:
    """The table as Markdown."""
    return "\n".join([*_head(), *(line for part in MetricSource for line in _part(part)), *_labels()])


def files() -> Mapping[str, str]:
    """The generated files: path below dashboards/ -> text."""
    return {"METRICS.md": metrics_md(), "grafana/overview.json": dashboard_json()}


def write(folder: Path) -> None:
    """Writes every generated file below `folder`. Raises OSError."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _head() -> Iterable[str]:
    yield "# Metrics"
    yield ""
    yield "Generated from `streamgauge/metrics/table.py` by `python -m streamgauge.metrics.generate_docs`: do not edit."
    yield ""
    yield "- Durations are in seconds. An unknown value adds nothing: null never becomes 0."
    yield f"- A page has less than {PAGE_BYTES:,} bytes. A label has a limit of values: further ones become `{OTHER}`."
    yield f"- An unknown label value is `{UNKNOWN}`."
    yield "- A counter without labels starts at 0. Any other series appears with its first value."
    named = ", ".join(f"`{name}`" for name in ATTRIBUTED)
    yield f"- `--metric-attribute NAME` adds the label NAME, with at most {ATTRIBUTE.budget} values, to {named}."
    yield ""


def _part(part: MetricSource) -> Iterable[str]:
    yield f"## {_PARTS[part]}"
    yield ""
    yield "| metric | kind | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    yield from (_line(metric) for metric in table.TABLE if metric.part is part)
    yield ""
    yield from (_bounds(metric) for metric in table.TABLE if metric.part is part and metric.bounds)
    if any(metric.bounds for metric in table.TABLE if metric.part is part):
        yield ""


def _line(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.help} |"


def _bounds(metric: Metric) -> str:
    return f"- Buckets of `{metric.name}`, seconds: {', '.join(f'{bound:g}' for bound in metric.bounds)}"


def _labels() -> Iterable[str]:
    yield "## Labels"
    yield ""
    yield "| label | meaning | limit of values |"
    yield "|---|---|---|"
    yield from (f"| `{name}` | {label.help} | {label.budget} |" for name, label in sorted(LABELS.items()))
    yield ""


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("dashboards"))
