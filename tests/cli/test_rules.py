"""`streamgauge rules generate`: what it prints, for which objectives."""

from pathlib import Path

import pytest
import yaml

from streamgauge.cli.main import main
from streamgauge.errors import DONE, USAGE

PROMETHEUS = Path(__file__).parents[2] / "dashboards" / "prometheus"


def test_the_default_is_the_committed_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "generate"]) == DONE
    assert capsys.readouterr().out == (PROMETHEUS / "rules" / "streamgauge.yml").read_text()
    assert main(["rules", "generate", "--output", "sloth"]) == DONE
    assert capsys.readouterr().out == (PROMETHEUS / "slo" / "sloth.yml").read_text()


def test_objectives_change_thresholds_and_texts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--objective", "unbroken=0.995", "--objective", "ttft=2", "--objective", "usage=0"]
    assert main(["rules", "generate", *words, "--runbooks", "https://example.org"]) == DONE
    text = capsys.readouterr().out
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "alert" in rule]
    by_name = {rule["alert"]: rule for rule in rules}
    assert "> 3 * 0.005" in by_name["StreamsBreakMidway"]["expr"]
    assert "longer than 2 s" in by_name["TimeToFirstTokenHigh"]["annotations"]["summary"]
    assert 'le="2.0"' in text
    assert 'le="5.0"' not in text
    assert "UsageMissing" not in by_name
    assert by_name["TapDown"]["annotations"]["runbook_url"] == "https://example.org/TapDown.md"


def test_a_threshold_between_two_buckets_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "generate", "--objective", "ttft=2.5"]) == USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("streamgauge rules: --objective: ttft=2.5 is no bound of the buckets")
    assert output.err.endswith("give 2 or 3\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--page", "gauge.example.org:9464"],
            "--page: give a URL, as in https://host:port; gauge.example.org:9464 is none",
        ),
        (["--dashboards", "https://"], "--dashboards: give a URL"),
        (
            ["--ledger", "postgresql://gauge:secret@db/gauge"],
            "--ledger: the receivers of an alert would read the password",
        ),
    ],
)
def test_addresses_that_no_notification_can_have_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "generate", *words]) == USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert reason in output.err
    assert "secret" not in output.err
