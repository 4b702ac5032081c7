"""The dashboards follow the table of metrics, and Grafana finds them. `test_panels.py` has the rules of each panel."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboards.source import dashboard as dashboards
from dashboards.source import generate, queries
from dashboards.source.dashboard import Dashboard
from dashboards.source.generate import DASHBOARDS
from dashboards.source.panel import DATASOURCE, Column, Query, Table
from dashboards.source.queries import INPUT, OUTPUT

from streamgauge.core.token_kinds import token_kinds
from streamgauge.metrics import table
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rule_files import alerts, rule_groups
from tests.each import each

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
GRAFANA = FOLDER / "grafana"
of_each_dashboard = each(DASHBOARDS, lambda one: one.name)


@pytest.mark.parametrize("name", sorted(generate.files()))
def test_generated_files_are_current(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == generate.files()[name], "run: make generated"


def test_the_generator_writes_the_committed_files(tmp_path: Path) -> None:
    generate.write(tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(generate.files())
    assert {f"grafana/{path.name}" for path in GRAFANA.glob("*.json")} <= found, "a file that no module generates"


def test_every_metric_is_in_metrics_md() -> None:
    text = generate.metrics_md()
    assert all(text.count(f"| `{metric.name}` |") == 1 for metric in table.TABLE)


def test_a_dashboard_shows_every_metric() -> None:
    expressions = [query.expression for one in DASHBOARDS for panel in one.panels for query in panel.queries]
    assert set(queries.metrics_of(expressions)) == set(table.BY_NAME)


def test_the_dashboards_that_were_asked_for_are_there() -> None:
    assert [one.title for one in DASHBOARDS] == [
        "Overview",
        "Latency",
        "Errors",
        "Usage and cost",
        "Pipeline",
        "One stream",
    ]


def test_grafana_can_import_them_beside_others() -> None:
    """Addresses of their own, no number of another Grafana, and no data source but the variable."""
    contents = [json.loads(one.json()) for one in DASHBOARDS]
    assert len({content["uid"] for content in contents}) == len(DASHBOARDS)
    assert all("id" not in content for content in contents)
    assert all(content["uid"] == f"streamgauge-{one.name}" for content, one in zip(contents, DASHBOARDS, strict=True))


@of_each_dashboard
def test_titles_are_unique_on_a_dashboard(dashboard: Dashboard) -> None:
    titles = [panel.title for panel in dashboard.panels]
    assert len(titles) == len(set(titles))


@of_each_dashboard
def test_panels_name_alerts_that_exist(dashboard: Dashboard) -> None:
    ours = {alert.name for alert in alerts(rule_groups())}
    assert {name for panel in dashboard.panels for name in panel.alerts} <= ours


def test_most_alerts_have_a_panel() -> None:
    """The others report what no panel can show: that something is absent."""
    named = {name for one in DASHBOARDS for panel in one.panels for name in panel.alerts}
    absent = {alert.name for alert in alerts(rule_groups())} - named
    assert absent == {
        "NoTap", "NoWorker", "StreamMetricMissing", "StreamgaugeAbsent", "TapDown", "TapMetricMissing", "WorkerDown",
        "WorkerMetricMissing",
    }  # fmt: skip


def test_runbooks_name_panels_that_exist() -> None:
    titles = {panel.title for one in DASHBOARDS for panel in one.panels} | {"Targets"}  # Prometheus' own page
    pages = (ROOT / "docs" / "runbooks").glob("*.md")
    named = {
        (page.name, " ".join(title.split())) for page in pages for title in re.findall(r"\*([^*]+)\*", page.read_text())
    }
    assert {(name, title) for name, title in named if title not in titles} == set()
    assert len(named) > 10


def test_runbooks_name_the_ledger_that_a_command_reads() -> None:
    """Without it the command reads the ledger of the user who runs it, which may not exist."""
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "runbooks").glob("[A-Z]*[a-z].md"))
    commands = re.findall(r"`(streamgauge ledger [^`]+)`", pages)
    assert [command for command in commands if "--data-dir DIR" not in command] == []
    assert len(commands) > 10


@of_each_dashboard
def test_a_dashboard_offers_the_variables_that_it_uses(dashboard: Dashboard) -> None:
    """It has the others as well, but hidden, so that links carry their values along."""
    text = json.dumps(json.loads(dashboard.json())["panels"])
    by_name = {one["name"]: one for one in variables_of(dashboard)}
    assert list(by_name)[: len(dashboards.VARIABLES)] == list(dashboards.VARIABLES)
    for name in dashboards.VARIABLES[1:]:
        used = any(f"${name}" in query.expression for panel in dashboard.panels for query in panel.queries)
        assert (by_name[name]["hide"] == 0) == used, name
    assert all(f"${one.build().name}" in text or f"${{{one.build().name}" in text for one in dashboard.variables)


def variables_of(dashboard: Dashboard) -> list[Any]:
    content: Any = json.loads(dashboard.json())
    return list(content["templating"]["list"])


def test_objectives_are_those_of_the_alerts() -> None:
    by_name = {one["name"]: one for one in variables_of(DASHBOARDS[0])}
    assert by_name["objective"]["current"]["value"] == str(Objectives().ttft)
    assert float(by_name["tpot_objective"]["current"]["value"]) == dashboards.TPOT_OBJECTIVE


def test_an_objective_that_is_no_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dashboards._OBJECTIVES, "objective", ("TTFT objective", table.FIRST_TOKEN, 4.0, ""))
    with pytest.raises(ValueError, match=r"4 is no bound of the buckets of streamgauge_time_to_first_token_seconds"):
        json.loads(DASHBOARDS[0].json())


@pytest.mark.parametrize("wrong", ["streams_totel", "time_to_first_token_seconds", "streams_total_bucket"])
def test_a_query_of_no_series_is_refused(wrong: str) -> None:
    with pytest.raises(KeyError):
        queries.series(wrong)


def test_a_selector_follows_the_variables_whose_labels_it_has() -> None:
    scope = 'job=~"$job",instance=~"$instance"'
    assert queries.series("tap_reads_seen_total") == f"streamgauge_tap_reads_seen_total{{{scope}}}"
    assert queries.series("stalls_total") == f'streamgauge_stalls_total{{{scope},upstream=~"$upstream"}}'
    assert queries.series("streams_total", 'outcome="timeout"') == (
        f'streamgauge_streams_total{{{scope},upstream=~"$upstream",model=~"$model",tenant=~"$tenant",outcome="timeout"}}'
    )


def test_a_panel_says_which_variable_does_not_apply() -> None:
    by_title = {panel["title"]: panel for panel in _panels("latency")}
    assert "Not filtered by model. Metrics: " in by_title["Stalls and bursts"]["description"]
    assert "Not filtered" not in by_title["First token by model"]["description"]


def _panels(name: str) -> list[Any]:
    (dashboard,) = [one for one in DASHBOARDS if one.name == name]
    content: Any = json.loads(dashboard.json())
    return list(content["panels"])


def test_a_click_on_a_model_filters_and_keeps_the_scope() -> None:
    (models,) = [panel for panel in _panels("overview") if panel["title"] == "Models"]
    (override,) = [one for one in models["fieldConfig"]["overrides"] if one["matcher"]["options"] == "model"]
    (links,) = [one["value"] for one in override["properties"] if one["id"] == "links"]
    assert links[0]["url"].startswith("/d/streamgauge-overview?${__url_time_range}&")
    assert "&var-model=${__data.fields.model:percentencode}" in links[0]["url"]
    uids = {one.uid for one in DASHBOARDS}
    assert {re.findall(r"^/d/([\w-]+)\?", link["url"])[0] for link in links} <= uids


def test_tiles_have_thresholds_and_the_same_time_a_week_ago() -> None:
    tiles = [panel for panel in _panels("overview") if panel["type"] == "stat"]
    assert len(tiles) == 9
    for tile in tiles:
        now, ago = (target["expr"] for target in tile["targets"])
        assert ago.replace(" offset 1w", "") == now
        assert len(tile["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1


def test_a_table_needs_a_column_for_each_query() -> None:
    with pytest.raises(ValueError, match="Models: 1 queries have 2 columns"):
        Table(title="Models", help="", queries=(Query("up", ""),), labels={}, values=(Column("a"), Column("b")))


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    provisioning = GRAFANA / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "streamgauge.yml").read_text())["providers"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = [mount.split(":") for mount in compose["grafana"]["volumes"]]
    assert ["./dashboards/grafana/provisioning", "/etc/grafana/provisioning", "ro"] in mounts
    assert ["./dashboards/grafana", provider["options"]["path"], "ro"] in mounts
    home = Path(compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == Path(provider["options"]["path"])
    assert (GRAFANA / home.name).exists()
    assert source["url"] == "http://prometheus:9090"
    assert source["type"] == DATASOURCE.type_val


def test_an_exemplar_leads_to_its_stream() -> None:
    """Prometheus stores them, the data source links their stream id, and the dashboard has a variable for it."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert "--enable-feature=exemplar-storage" in compose["prometheus"]["command"]
    path = GRAFANA / "provisioning" / "datasources" / "prometheus.yml"
    (source,) = yaml.safe_load(path.read_text())["datasources"]
    (destination,) = source["jsonData"]["exemplarTraceIdDestinations"]
    (one_stream,) = [one for one in DASHBOARDS if one.title == "One stream"]
    assert destination["name"] == "stream_id"
    address = destination["url"].replace("$$", "$")  # as Grafana reads these files
    assert "$" not in destination["url"].replace("$$", "")
    assert address == f"/d/{one_stream.uid}?var-stream=${{__value.raw}}&{dashboards.link_variables()}"
    assert "stream" in {one.build().name for one in one_stream.variables}


def test_the_kinds_of_tokens_are_those_that_are_exported() -> None:
    every = dict.fromkeys(("input", "cached", "cache_write", "audio_input", "output", "reasoning", "audio_output"), 1)
    kinds = token_kinds(every)
    assert set(INPUT.split("|")) == set(kinds.input)
    assert set(OUTPUT.split("|")) == set(kinds.output)


def test_the_tile_of_missing_usage_counts_what_its_alert_counts() -> None:
    """It counted streams that failed, too, and was red where the alert was rightly silent."""
    (tile,) = [panel for one in DASHBOARDS for panel in one.panels if panel.title == "Usage missing"]
    (alert,) = [one for one in alerts(rule_groups()) if one.name == "UsageMissing"]
    shown = re.sub(r'\w+=~"\$\w+",?', "", tile.queries[0].expression).replace("{}", "").replace("$__range", "30m")
    counted = alert.expr[: alert.expr.index(", 0)") + 4]
    assert counted in shown
