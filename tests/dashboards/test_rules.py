"""Alert rules, with the real promtool: each fires on its case and no other does, and each stays silent on a near miss."""

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from streamgauge.metrics import rules_presence
from streamgauge.metrics.declarations import Kind
from streamgauge.metrics.rule_files import (
    alerts,
    prometheus_rules,
    rule_groups,
    sloth_specification,
)
from streamgauge.metrics.rules import Alert, Durations, Links, Recording
from streamgauge.metrics.table import BY_NAME
from tests.dashboards.alert_cases import CASES, HEALTHY, HEALTHY_CASE, Case, Fired, values_of
from tests.dashboards.queries import metrics, unknown_names
from tests.deploy.commands import parsed
from tests.each import each

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "dashboards" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
GROUPS = rule_groups()
ALERTS = list(alerts(GROUPS))
DASHBOARDS = {rule.name: group.dashboard for group in GROUPS for rule in group.rules if isinstance(rule, Alert)}
NAMES = sorted({alert.name for alert in ALERTS})
RECORDINGS = [rule for group in GROUPS for rule in group.rules if isinstance(rule, Recording)]
RECORDED = frozenset(rule.name for rule in RECORDINGS)

# Metrics whose series appear with their first event: without it the alert has nothing to say.
FIRST_EVENT = {
    "streamgauge_silent_streams": "no stream has been open",
    "streamgauge_usage_tokens_total": "no stream has reported usage",
    "streamgauge_rate_limit_remaining": "no provider has named a limit",
    "streamgauge_rate_limit_limit": "no provider has named a limit",
    "streamgauge_upstream_cost_usd_total": "no stream has had a price",
    "streamgauge_unpriced_streams_total": "every stream has had a price",
    "streamgauge_budget_limit_usd": "there is no budget",
    "streamgauge_budget_spent_usd": "there is no budget",
    "streamgauge_budget_forecast_usd": "there is no budget, or it is the first day of the month",
    "streamgauge_audit_agrees": "no audit has been kept",
    "streamgauge_audit_coverage_ratio": "no audit has been kept",
    "streamgauge_audit_age_seconds": "no audit has been kept",
    "streamgauge_dead_letters_total": "every message could be read",
    "streamgauge_worker_stuck_exits_total": "no worker was stuck",
    "streamgauge_worker_lag_messages": "its absence has an alert of its own: LagNotExported",
    "streamgauge_worker_committed_offset": "it comes and goes with the lag, whose absence has an alert",
    "streamgauge_ledger_rows_total": "it is 0 from the start: LedgerStoresNothing fires then",
    "streamgauge_clock_skew_seconds": "no bundle was confirmed: BrokerAway fires then",
    "streamgauge_spans_total": "no --otlp is given",
    "streamgauge_admin_refused_total": "the admin port has refused no request",
    "streamgauge_ledger_bytes": "the ledger is in PostgreSQL",
    "streamgauge_ledger_limit_bytes": "the ledger is in PostgreSQL",
}


# Minutes. A case of this length or more is evaluated every 20 minutes, others every 5, or every minute if it is looked at
# between two such evaluations: promtool evaluates every rule each time, which took most of the time of these tests.
LONG_CASE_MINUTES = 1_000
LONG_STEP_MINUTES, STEP_MINUTES = 20, 5


def promtool(*arguments: str | Path) -> None:
    # Its garbage collector takes a third of its time unless it may wait for more garbage.
    environment = {**os.environ, "GOGC": "400"}
    done = subprocess.run(["promtool", *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the files --------------------------------------------------------------------------------------------------------


def test_the_committed_files_are_those_of_the_default_objectives() -> None:
    rules, slo = PROMETHEUS / "rules" / "streamgauge.yml", PROMETHEUS / "slo" / "sloth.yml"
    assert rules.read_text() == prometheus_rules(), "run: streamgauge rules generate > the file"
    assert slo.read_text() == sloth_specification(), "run: streamgauge rules generate --output sloth > the file"


def test_promtool_accepts_the_rules(prometheus_tools: None) -> None:
    promtool("check", "rules", *sorted((PROMETHEUS / "rules").glob("*.yml")))


def test_promtool_accepts_the_configuration(prometheus_tools: None) -> None:
    promtool("check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml")


def test_amtool_accepts_the_example_for_alertmanager(alertmanager_tools: None) -> None:
    done = subprocess.run(
        ["amtool", "check-config", PROMETHEUS / "alertmanager.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_for_alertmanager_names_alerts_that_exist() -> None:
    rules = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())["inhibit_rules"]
    named_there = {
        name
        for rule in rules
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
        for name in re.findall(r'alertname=~?"([^"]*)"', matcher)
    }
    assert {one for name in named_there for one in name.split("|")} <= set(NAMES)


def test_promtool_accepts_the_queries_for_sloth(tmp_path: Path, prometheus_tools: None) -> None:
    """Sloth divides the first query by the second, in each of its windows."""
    slos = yaml.safe_load(sloth_specification())["slos"]
    assert {slo["alerting"]["name"] for slo in slos} == {"StreamsBreakMidway", "TimeToFirstTokenHigh"}
    assert [slo["objective"] for slo in slos] == [99, 95]
    rules = []
    for slo in slos:
        events = {name: query.replace("{{.window}}", "5m") for name, query in slo["sli"]["events"].items()}
        assert [text for query in events.values() for text in unknown_names(query)] == []
        ratio = f"({events['error_query']})\n/\n({events['total_query']})"
        rules.append({"record": f"slo:{slo['name'].replace('-', '_')}:ratio", "expr": ratio})
    path = tmp_path / "sloth.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "sloth", "rules": rules}]}))
    promtool("check", "rules", path)


# --- what they name ---------------------------------------------------------------------------------------------------


@each(ALERTS, lambda alert: f"{alert.name}-{alert.severity}")
def test_every_alert_uses_existing_metrics_and_recorded_series(alert: Alert) -> None:
    assert list(unknown_names(alert.expr, RECORDED)) == []
    assert alert.summary[-1] != "."
    assert alert.description[-1] == "."


@each(RECORDINGS, lambda rule: rule.name)
def test_every_recording_uses_existing_metrics_or_recorded_series(recording: Recording) -> None:
    assert list(unknown_names(recording.expr, RECORDED)) == []


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == set(NAMES)
    index = (RUNBOOKS / "README.md").read_text()
    for name in NAMES:
        assert f"[{name}]({name}.md)" in index
        page = (RUNBOOKS / f"{name}.md").read_text()
        assert re.findall(r"^#+ (.*)$", page, re.MULTILINE) == [
            name,
            "What it means",
            "What to look at",
            "What to do",
            "How to silence it",
        ]
        severities = ", ".join(alert.severity for alert in ALERTS if alert.name == name)
        assert f"Severity: {severities}." in page
        assert f"amtool silence add alertname={name} " in page


def test_links_lead_to_where_the_runbooks_are_published() -> None:
    published = annotations(prometheus_rules(links=Links(runbooks="https://example.org/runbooks/")))
    assert {of["runbook_url"] for of in published} == {f"https://example.org/runbooks/{name}.md" for name in NAMES}
    served = annotations(prometheus_rules(links=Links(page="https://gauge.example.org/")))
    assert {of["runbook_url"] for of in served} == {f"https://gauge.example.org/runbooks/{name}" for name in NAMES}


def test_every_alert_links_to_page_and_dashboard_and_its_command_reads_the_given_ledger() -> None:
    links = Links(
        "https://gauge.example.org/", "https://grafana.example.org/g/", None, "postgresql://g@db/s?sslmode=disable"
    )
    for of in annotations(prometheus_rules(links=links)):
        assert of["page_url"] == "https://gauge.example.org/"
        assert of["dashboard_url"].startswith("https://grafana.example.org/g/d/streamgauge-")
    commands = [of["command"] for of in annotations(prometheus_rules(links=links)) if "command" in of]
    assert {command.rpartition(" --ledger ")[2] for command in commands} == {"'postgresql://g@db/s?sslmode=disable'"}


@each(sorted({alert.command for alert in ALERTS if alert.command}))
def test_every_command_of_an_alert_is_one(command: str) -> None:
    words = shlex.split(command.replace("{{ $labels.upstream }}", "openai"))
    read = parsed([*words, "--ledger", "sqlite:///records.sqlite"], {}).settings  # which exits for a wrong command
    assert read.ledger_url == "sqlite:///records.sqlite"


def annotations(rules: str) -> list[dict[str, str]]:
    return [
        rule["annotations"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"] if "alert" in rule
    ]


def test_l4_every_metric_that_an_alert_needs_is_missed_if_it_is_not_there() -> None:
    """Each has an alert on its absence, or its absence has a reason."""
    by_process = {**rules_presence.OF_TAPS, **rules_presence.OF_WORKERS}
    missed = {metric.name for some in by_process.values() for metric in some}
    missed = missed.union(*(metrics(name) for names in rules_presence.OF_STREAMS.values() for name in names))
    # Without these a tap, a worker, or all is missing. Every page has a series of cuts for each open label.
    missed |= {"streamgauge_metric_labels_cut_total"}
    missed |= {"streamgauge_tap_reads_seen_total", "streamgauge_broker_connected"}
    missed |= {"streamgauge_worker_broker_connected", "streamgauge_build_info"}
    expressions = [alert.expr for alert in ALERTS if not alert.name.endswith("MetricMissing")]
    needed = set[str]().union(*map(metrics, expressions + [rule.expr for rule in RECORDINGS]))
    without_labels = {name for name in needed if BY_NAME[name].kind is Kind.COUNTER and not BY_NAME[name].labels}
    assert needed - missed - without_labels == set(FIRST_EVENT), "say why it may be absent, or alert on it"


# --- what fires -------------------------------------------------------------------------------------------------------


def expected(fired: Fired, alert: Alert) -> dict[str, Any]:
    """What promtool expects of a firing alert: its labels, and its texts with the labels and the value filled in."""

    def filled(text: str) -> str:
        for label, value in fired.labels.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", value)
        return re.sub(r"\{\{ \$value[^}]*\}\}", fired.value, text)

    variables = [
        (name, fired.labels[name]) for name in ("job", "instance", "upstream", "model") if name in fired.labels
    ]
    query = urlencode([("from", "now-3h"), ("to", "now"), *((f"var-{name}", value) for name, value in variables)])
    command = {"command": filled(f"streamgauge {alert.command} --data-dir DIR")} if alert.command else {}
    return {
        "exp_labels": {**fired.labels, "severity": alert.severity},
        "exp_annotations": {
            "summary": filled(alert.summary),
            "description": filled(alert.description),
            **command,
            "runbook_url": f"http://127.0.0.1:9464/runbooks/{alert.name}",
            "dashboard_url": f"http://127.0.0.1:3000/d/streamgauge-{DASHBOARDS[alert.name]}?{query}",
            "page_url": "http://127.0.0.1:9464/",
        },
    }


def unit_test(case: Case) -> dict[str, Any]:
    """A case as promtool reads it: every alert is looked at, so no other one may fire."""
    looks = []
    for name in NAMES:
        if name in case.also:
            continue
        fired = case.fired if name == case.alert else ()
        of_name = [alert for alert in ALERTS if alert.name == name]
        looks.append(
            {
                "eval_time": f"{case.at}m",
                "alertname": name,
                "exp_alerts": [
                    expected(one, alert) for one in fired for alert in of_name if one.severity in ("", alert.severity)
                ],
            }
        )
    return {
        "name": case.name,
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in values_of(case).items()],
        "alert_rule_test": looks,
    }


def write_tests(folder: Path, cases: Sequence[Case], rules: str | None = None) -> list[Path]:
    """A file for the cases of each step, beside that of the rules."""
    (folder / "rules.yml").write_text(prometheus_rules() if rules is None else rules)
    by_step: dict[int, list[Case]] = {}
    for case in cases:
        by_step.setdefault(step_minutes(case), []).append(case)
    paths = []
    for step, some in by_step.items():
        content = {
            "rule_files": ["rules.yml"],
            "evaluation_interval": f"{step}m",
            "tests": [unit_test(case) for case in some],
        }
        paths.append(folder / f"test-{step}.yml")
        paths[-1].write_text(yaml.safe_dump(content))
    return paths


def step_minutes(case: Case) -> int:
    """Minutes between two evaluations of the rules: a case is looked at when they have just been evaluated."""
    if case.minutes >= LONG_CASE_MINUTES:
        return LONG_STEP_MINUTES
    return 1 if case.at % STEP_MINUTES else STEP_MINUTES


@each(NAMES)
def test_every_alert_has_a_firing_case_and_a_near_miss(name: str) -> None:
    assert {bool(case.fired) for case in CASES if case.alert == name} == {True, False}


@each(ALERTS, lambda alert: f"{alert.name}-{alert.severity}")
def test_every_severity_of_an_alert_fires_in_a_case(alert: Alert) -> None:
    fired = [one.severity for case in CASES if case.alert == alert.name for one in case.fired]
    assert fired
    assert alert.severity in fired or not any(fired)


@pytest.mark.parametrize("name", ["", *NAMES])
def test_it_fires_on_its_cases_alone(name: str, tmp_path: Path, prometheus_tools: None) -> None:
    cases = [case for case in (*CASES, HEALTHY_CASE) if case.alert == name]
    promtool("test", "rules", *write_tests(tmp_path, cases))


def test_a_rule_that_never_fires_is_found(tmp_path: Path, prometheus_tools: None) -> None:
    """The cases can fail: with rules that give nothing, each of them does. Such rules are also cheap to evaluate."""
    content = yaml.safe_load(prometheus_rules())
    for group in content["groups"]:
        for rule in group["rules"]:
            rule["expr"] = "vector(1) > 2"
    firing = [case for case in CASES if case.fired and case.minutes < LONG_CASE_MINUTES]
    paths = write_tests(tmp_path, firing, yaml.safe_dump(content))
    done = subprocess.run(["promtool", "test", "rules", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(re.findall(r"alertname: ", done.stdout + done.stderr)) >= len(firing)


def test_a_case_that_changes_nothing_is_found() -> None:
    """A series that a case means to change has the name that it has in a healthy system."""
    taken_away = {series for case in CASES for series, values in case.changes.items() if values is None}
    assert taken_away <= set(HEALTHY)


# --- durations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "factor", "written"),
    [(5, 1, "5m"), (90, 1, "1h30m"), (3 * 24 * 60, 1, "3d"), (5, 0.05, "15s"), (0.1, 0.01, "1s"), (60, 0.1, "6m")],
)
def test_durations(minutes: float, factor: float, written: str) -> None:
    assert Durations(factor)(minutes) == written


def test_shorter_durations_change_nothing_else(tmp_path: Path, prometheus_tools: None) -> None:
    short = rule_groups(durations=Durations(0.05))
    assert [rule.name for group in short for rule in group.rules if isinstance(rule, Recording)] == [
        rule.name for rule in RECORDINGS
    ]
    without = replace(ALERTS[0], expr="", description="")
    assert next(replace(one, expr="", description="") for one in alerts(short)) == without
    path = tmp_path / "short.yml"
    path.write_text(prometheus_rules(durations=Durations(0.05)))
    promtool("check", "rules", path)
    assert "[15s]" in path.read_text()
