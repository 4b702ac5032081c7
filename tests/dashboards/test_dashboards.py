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
from dashboards.source.panel import DATASOURCE, Column, Query, Table, TimeSeries
from dashboards.source.queries import INPUT, OUTPUT

from streamgauge.core.token_kinds import token_kinds
from streamgauge.metrics import table
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.rule_files import PAGE, alerts, prometheus_rules, rule_groups
from streamgauge.metrics.rules import Alert, Links
from streamgauge.metrics.rules_slo import BROKEN, FAST_ENOUGH, MAY_BE_SLOW, MAY_BREAK
from tests.dashboards.test_panels import panels_of
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
    assert [one.title for one in DASHBOARDS] == ["Overview", "One upstream or model", "Usage and cost", "Pipeline"]


def test_the_overview_fits_one_screen() -> None:
    """1920x1080 has room for 26 units of Grafana's grid, at 38 pixels each, below its own bars."""
    panels = _panels("overview")
    assert len(panels) == 12
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) <= 26


def test_the_pipeline_shows_four_numbers_and_the_rest_on_a_click() -> None:
    panels = _panels("pipeline")
    assert [panel["type"] for panel in panels] == ["stat"] * 4 + ["row"] * 4
    rows = [panel for panel in panels if panel["type"] == "row"]
    assert all(row["collapsed"] and len(row["panels"]) > 2 for row in rows)
    assert [row["gridPos"]["y"] for row in rows] == [5, 6, 7, 8]


def test_a_graph_of_names_draws_at_most_five_lines_of_them() -> None:
    """More cannot be told apart. Which ones is chosen over the whole time range, so that a line does not come and go."""
    for one in DASHBOARDS[:3]:  # those that operate the pipeline look for one instance among all
        for panel in one.panels:
            if not isinstance(panel, TimeSeries):
                continue
            for query in panel.queries:
                if re.search(r"{{(upstream|model|tenant|error_type)}}", query.legend):
                    assert re.search(r"(top|bottom)k\(5, ", query.expression), panel.title
                    assert "@ end()" in query.expression or "bottomk" in query.expression, panel.title
            assert not panel.stacked or not re.search("model|upstream|tenant", panel.queries[0].legend), panel.title


def test_a_name_has_the_same_colour_on_each_dashboard() -> None:
    """A stream that its client left is no error, and each way to break is a kind of red or orange."""
    seen: dict[str, set[str]] = {}
    for one in DASHBOARDS:
        for panel in panels_of(json.loads(one.json())):
            for override in panel["fieldConfig"]["overrides"]:
                for option in override["properties"]:
                    if option["id"] == "color":
                        seen.setdefault(override["matcher"]["options"], set()).add(option["value"]["fixedColor"])
    assert {name: colours for name, colours in seen.items() if len(colours) > 1} == {}
    assert set(table.OUTCOMES) <= set(seen)
    colours = {name: colour for name, (colour,) in ((name, tuple(some)) for name, some in seen.items())}
    assert (colours["completed"], colours["client_abort"], colours["http_error"]) == ("green", "yellow", "purple")
    assert all(re.search("red|orange", colours[name]) for name in BROKEN.split("|"))


def test_lines_have_no_fill_and_stacks_have() -> None:
    for one in DASHBOARDS:
        for panel in panels_of(json.loads(one.json())):
            if panel["type"] == "timeseries":
                custom = panel["fieldConfig"]["defaults"]["custom"]
                assert (custom["fillOpacity"] == 0) == (custom["stacking"]["mode"] == "none"), panel["title"]


def test_the_objectives_are_those_of_the_rules() -> None:
    """A dashboard judged by 5 s while the rules paged at 2 s."""
    rules = yaml.safe_load(prometheus_rules(Objectives(ttft=2.0, ttft_share=0.9, unbroken=0.995)))
    recorded = {
        rule["record"]: rule["expr"] for group in rules["groups"] for rule in group["rules"] if "record" in rule
    }
    assert recorded[FAST_ENOUGH] == 'label_replace(vector(2), "le", "2.0", "", "")'
    assert (recorded[MAY_BE_SLOW], recorded[MAY_BREAK]) == ("vector(0.1)", "vector(0.005)")
    queries_of_overview = "".join(query.expression for panel in DASHBOARDS[0].panels for query in panel.queries)
    assert all(name in queries_of_overview for name in (FAST_ENOUGH, MAY_BE_SLOW, MAY_BREAK))
    assert 'le="' not in queries_of_overview


def test_every_dashboard_links_to_the_page_that_the_rules_name() -> None:
    for one in DASHBOARDS:
        content = json.loads(one.json())
        links = {link["title"]: link["url"] for link in content["links"]}
        assert links["The streams now"] == "${page}/"
        assert links["Runbooks"] == "${page}/runbooks/"
        (page,) = [variable for variable in variables_of(one) if variable["name"] == "page"]
        assert page["query"]["query"] == f"label_values({PAGE}, page)"
    rules = yaml.safe_load(prometheus_rules(links=Links(page="https://gauge.example.org/")))
    (rule,) = [rule for group in rules["groups"] for rule in group["rules"] if rule.get("record") == PAGE]
    assert '"https://gauge.example.org"' in rule["expr"]


def test_an_alert_links_to_a_dashboard_that_has_its_panel() -> None:
    names = {one.name: {name for panel in one.panels for name in panel.alerts} for one in DASHBOARDS}
    every = set[str]().union(*names.values())
    for group in rule_groups():
        ours = {rule.name for rule in group.rules if isinstance(rule, Alert)} & every
        assert ours <= names[group.dashboard], group.name


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
    by_name = {one["name"]: one for one in variables_of(dashboard)}
    assert list(by_name) == [*dashboards.VARIABLES, dashboards.PAGE]
    assert by_name[dashboards.PAGE]["hide"] == 2
    for name in dashboards.VARIABLES[1:]:
        used = any(f"${name}" in query.expression for panel in dashboard.panels for query in panel.queries)
        assert (by_name[name]["hide"] == 0) == used, name


def variables_of(dashboard: Dashboard) -> list[Any]:
    content: Any = json.loads(dashboard.json())
    return list(content["templating"]["list"])


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
    by_title = {panel["title"]: panel for panel in _panels("upstream")}
    assert "Not filtered by model. Metrics: " in by_title["Stalls and bursts"]["description"]
    assert "Not filtered" not in by_title["Time to first token, reasoning included"]["description"]


def _panels(name: str) -> list[Any]:
    (dashboard,) = [one for one in DASHBOARDS if one.name == name]
    content: Any = json.loads(dashboard.json())
    return list(content["panels"])


def test_a_click_on_a_model_filters_and_keeps_the_scope() -> None:
    (models,) = [panel for panel in _panels("overview") if panel["title"] == "Models"]
    (override,) = [one for one in models["fieldConfig"]["overrides"] if one["matcher"]["options"] == "model"]
    (links,) = [one["value"] for one in override["properties"] if one["id"] == "links"]
    assert links[0]["url"].startswith("/d/streamgauge-upstream?${__url_time_range}&")
    assert "&var-model=${__data.fields.model:percentencode}" in links[0]["url"]
    uids = {one.uid for one in DASHBOARDS}
    assert {re.findall(r"^/d/([\w-]+)\?", link["url"])[0] for link in links} <= uids


def test_a_tile_of_the_overview_has_the_same_time_a_week_ago() -> None:
    tiles = [panel for panel in _panels("overview") if panel["type"] == "stat" and panel["title"] != "Lost data"]
    assert len(tiles) == 5
    for tile in tiles:
        now, ago = (target["expr"] for target in tile["targets"][-2:])
        assert ago.replace(" offset 1w", "") == now


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
    """Prometheus stores them, and the data source links their stream id to the page."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert "--enable-feature=exemplar-storage" in compose["prometheus"]["command"]
    path = GRAFANA / "provisioning" / "datasources" / "prometheus.yml"
    (source,) = yaml.safe_load(path.read_text())["datasources"]
    (destination,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert destination["name"] == "stream_id"
    address = destination["url"].replace("$$", "$")  # as Grafana reads these files
    assert "$" not in destination["url"].replace("$$", "")
    assert address == f"{Links().page}/#${{__value.raw}}"


def test_the_kinds_of_tokens_are_those_that_are_exported() -> None:
    every = dict.fromkeys(("input", "cached", "cache_write", "audio_input", "output", "reasoning", "audio_output"), 1)
    kinds = token_kinds(every)
    assert set(INPUT.split("|")) == set(kinds.input)
    assert set(OUTPUT.split("|")) == set(kinds.output)
