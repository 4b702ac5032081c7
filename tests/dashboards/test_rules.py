"""Alert rules, with the real promtool: they are valid, and each fires and stays silent as expected."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.promql import check

PROMETHEUS = Path(__file__).parents[2] / "dashboards" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
TESTS = sorted((PROMETHEUS / "tests").glob("*_test.yml"))


def alerts() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def cases(alert: str) -> list[bool]:
    """For each case of an alert in the promtool tests: whether it is to fire."""
    return [
        bool(case["exp_alerts"])
        for path in TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert
    ]


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_test_file_for_each_rule_file() -> None:
    assert [path.stem for path in TESTS] == [f"{path.stem}_test" for path in RULES]
    assert len(RULES) >= 3


@pytest.mark.parametrize("alert", [rule["alert"] for rule in alerts()])
def test_every_alert_has_a_firing_and_a_silent_case(alert: str) -> None:
    assert set(cases(alert)) == {True, False}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_uses_existing_metrics_and_says_what_to_do(rule: dict[str, Any]) -> None:
    check(rule["expr"])
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description"}


def test_promtool_accepts_the_rules(prometheus_tools: None) -> None:
    promtool("check", "rules", *RULES)


def test_promtool_accepts_the_configuration(prometheus_tools: None) -> None:
    promtool("check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_fire_and_stay_silent(path: Path, prometheus_tools: None) -> None:
    promtool("test", "rules", path)


def test_a_rule_that_never_fires_is_found(tmp_path: Path, prometheus_tools: None) -> None:
    """The promtool tests can fail: with every threshold out of reach, each of them does."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "tests").mkdir()
    for path in RULES:
        content = yaml.safe_load(path.read_text())
        for group in content["groups"]:
            for rule in group["rules"]:
                rule["expr"] = f"({rule['expr']}) and vector(1) > 2"
        (tmp_path / "rules" / path.name).write_text(yaml.safe_dump(content))
    for path in TESTS:
        copy = tmp_path / "tests" / path.name
        copy.write_text(path.read_text())
        with pytest.raises(AssertionError, match="FAILED"):
            promtool("test", "rules", copy)
