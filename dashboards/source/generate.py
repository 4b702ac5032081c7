"""Generates files from the table of metrics: METRICS.md and the dashboards for Grafana.

`python -m dashboards.source.generate [FOLDER]` writes them, by default into dashboards/.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from dashboards.source.dashboard import Dashboard
from dashboards.source.overview import OVERVIEW
from dashboards.source.pipeline import PIPELINE
from dashboards.source.upstream import UPSTREAM
from dashboards.source.usage import USAGE
from streamgauge.metrics import table
from streamgauge.metrics.declarations import (
    ATTRIBUTE,
    FEW_MODELS,
    IDLE_S,
    LABELS,
    MODEL_SERIES,
    OTHER,
    PAGE_SERIES,
    RESERVED_SERIES,
    SERIES_OF_A_PAIR,
    UNKNOWN,
    Metric,
    MetricSource,
)
from streamgauge.metrics.otel_names import OTEL_TABLE
from streamgauge.metrics.table import ATTRIBUTED

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, UPSTREAM, USAGE, PIPELINE)

_PARTS: Mapping[MetricSource, str] = {
    MetricSource.STREAM: "Streams (`worker`, `up`)",
    MetricSource.TAP: "Taps (`tap`, `up`)",
    MetricSource.WORKER: "Workers (`worker`, `up`)",
    MetricSource.SELF: "The exporter itself",
    MetricSource.PROCESS: "Processes (`worker`, `tap`, `up`), on Linux",
}


def metrics_md() -> str:
    """The table as Markdown."""
    return "\n".join([*_head(), *(line for part in MetricSource for line in _part(part)), *_otel(), *_labels()])


def files() -> Mapping[str, str]:
    """The generated files: path below dashboards/ -> text."""
    return {
        "METRICS.md": metrics_md(),
        **{f"grafana/{dashboard.name}.json": dashboard.json() for dashboard in DASHBOARDS},
    }


def write(folder: Path) -> None:
    """Writes every generated file below `folder`. Raises OSError."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _head() -> Iterable[str]:
    yield "# Metrics"
    yield ""
    yield "Generated from `streamgauge/metrics/table.py` by `python -m dashboards.source.generate`: do not edit."
    yield ""
    yield "- Durations are in seconds. An unknown value adds nothing: null never becomes 0."
    pairs, reserved = MODEL_SERIES // SERIES_OF_A_PAIR, RESERVED_SERIES // SERIES_OF_A_PAIR
    yield f"- A page has at most {PAGE_SERIES:,} series (a histogram has one for each bucket). {pairs} pairs of upstream and"
    yield f"  model have series of their own in each metric with these labels; further models become `{OTHER}`, and their"
    yield f"  upstream stays. The last {reserved} pairs are for upstreams with fewer than {FEW_MODELS} served models."
    yield "  Other labels have a limit of values."
    yield f"- Where a new name needs room, names that were not used for {IDLE_S:,.0f} s give theirs back: their series leave"
    yield "  the page."
    yield f"- An unknown label value is `{UNKNOWN}`."
    yield "- A counter without labels starts at 0. So do the counters marked *, for each upstream that the settings of `up`"
    yield "  or the newest records of the ledger name when the process starts, and for any other one with its first finished"
    yield "  stream. Any other series appears with its first value."
    yield "- Formats: Prometheus' text, OpenMetrics (with exemplars: stream_id and trace_id), and protobuf (with native"
    yield "  histograms), as the scraper asks."
    named = ", ".join(f"`{name}`" for name in ATTRIBUTED)
    yield f"- `--metric-attribute NAME` adds the label NAME (an attribute, or `tenant`), with at most {ATTRIBUTE.budget}"
    yield f"  values, to {named}."
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
    starts = "" if metric.starts is None else " *"
    return f"| `{metric.name}` | {metric.kind}{starts} | {metric.unit} | {labels} | {metric.help} |"


def _bounds(metric: Metric) -> str:
    return f"- Buckets of `{metric.name}`, {metric.unit}: {', '.join(f'{bound:g}' for bound in metric.bounds)}"


def _otel() -> Iterable[str]:
    yield "## OpenTelemetry's names (`--otel-names v1.41` or `latest`)"
    yield ""
    yield "The same streams under the names of OpenTelemetry's conventions for generative AI, where streams are assembled"
    yield "(`worker`, `up`). Scrapers that read names with dots (`escaping=allow-utf-8`) get them as below, others get"
    yield "underscores. `gen_ai.provider.name` names the API format's provider, not the server. Usage that is not"
    yield "reported adds nothing. A page with these names has series of their own for about half as many models."
    yield ""
    yield "| v1.41 | latest | kind | labels | meaning |"
    yield "|---|---|---|---|---|"
    for row in OTEL_TABLE:
        v1_41, latest = (
            _code(metric.name if metric else None) for metric in (row.metric("v1.41"), row.metric("latest"))
        )
        labels = ", ".join(map(_code, row.labels))
        ours = f" As {_code(row.ours)}." if row.ours else ""
        yield f"| {v1_41} | {latest} | {row.kind} | {labels} | {row.help}{ours} |"
    yield ""


def _code(name: str | None) -> str:
    return f"`{name}`" if name else ""


def _labels() -> Iterable[str]:
    yield "## Labels"
    yield ""
    yield "| label | meaning | limit of values |"
    yield "|---|---|---|"
    yield from (f"| `{name}` | {label.help} | {label.budget} |" for name, label in sorted(LABELS.items()))
    yield ""


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("dashboards"))
