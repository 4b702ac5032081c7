"""Dashboards and METRICS.md follow the table, and every expression uses existing metrics and labels."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamgauge.metrics import generate_docs, table
from streamgauge.metrics.grafana import dashboard
from streamgauge.metrics.panels import ROWS
from tests.dashboards.promql import check, named

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
EXPRESSIONS = [expression for row in ROWS for panel in row.panels for expression, _ in panel.queries]


@pytest.mark.parametrize("name", sorted(generate_docs.files()))
def test_generated_files_are_current(name: str) -> None:
    written = (DASHBOARDS / name).read_text(encoding="utf-8")
    assert written == generate_docs.files()[name], "run: python -m streamgauge.metrics.generate_docs"


def test_the_generator_writes_the_committed_files(tmp_path: Path) -> None:
    generate_docs.write(tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(generate_docs.files())


def test_every_metric_is_in_metrics_md() -> None:
    text = generate_docs.metrics_md()
    assert all(text.count(f"| `{metric.name}` |") == 1 for metric in table.TABLE)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_use_existing_metrics_and_labels(expression: str) -> None:
    check(expression)


@pytest.mark.parametrize(
    "wrong",
    [
        "rate(streamgauge_streems_total[5m])",
        'sum(streamgauge_streams_total{colour="red"})',
        "sum by (model) (streamgauge_bursts_total)",
        "streamgauge_time_to_first_token_seconds",
        "streamgauge_streams_total_bucket",
    ],
)
def test_the_check_finds_errors(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(wrong)


def test_a_dashboard_shows_every_metric() -> None:
    shown = {selector.metric for expression in EXPRESSIONS for selector in named(expression)}
    assert shown == set(table.BY_NAME)


def test_panels_do_not_overlap_and_are_numbered() -> None:
    panels: Any = dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))


def test_legends_use_labels_that_their_expression_keeps() -> None:
    for row in ROWS:
        for panel in row.panels:
            for expression, legend in panel.queries:
                for label in (part.partition("}}")[0] for part in legend.split("{{")[1:]):
                    assert f"by ({label}" in expression or f", {label}" in expression, (panel.title, legend)


def test_every_expression_is_promql(tmp_path: Path, prometheus_tools: None) -> None:
    filled = [
        expression.replace("$__rate_interval", "5m").replace("$upstream", ".*").replace("$model", ".*")
        for expression in EXPRESSIONS
    ]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(filled)]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EXPRESSIONS)} rules found" in done.stdout


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    provisioning = DASHBOARDS / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "streamgauge.yml").read_text())["providers"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    mounts = [mount.split(":") for mount in compose["services"]["grafana"]["volumes"]]
    assert ["./dashboards/grafana/provisioning", "/etc/grafana/provisioning", "ro"] in mounts
    assert ["./dashboards/grafana/overview.json", f"{provider['options']['path']}/overview.json", "ro"] in mounts
    assert source["url"] == "http://prometheus:9090"
    assert (
        source["type"]
        == json.loads((DASHBOARDS / "grafana" / "overview.json").read_text())["panels"][1]["datasource"]["type"]
    )
