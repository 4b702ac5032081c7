"""Budgets and the last audit as metrics, from a real ledger."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.audit.result import Amount, Days, Result, TokenCounts, Tolerance, Verdict, Verdicts, encode
from streamgauge.audit.runs import Run, Runs
from streamgauge.cli.ledger_watch import watched_ledger
from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.errors import UsageFault
from streamgauge.ledger import Cost, Ledger, LedgerRow, LedgerUnavailableError, SqliteLedger
from streamgauge.metrics.prometheus import Metrics
from streamgauge.settings.sources import load
from tests.audit.sample_lines import amount, line
from tests.ledger.rows import make_row
from tests.metrics.pages import ReadPage, read_page
from tests.metrics.records import ABSENT
from tests.running import wait_for

BUDGETS = '[[budget]]\ntenant = "search"\nmonth_usd = 4\n[[budget]]\nfeature = "chat"\nmonth_usd = "0.5"\n'
SPENT, LIMIT = "streamgauge_budget_spent_usd", "streamgauge_budget_limit_usd"
FAILURES = "streamgauge_ledger_read_failures_total"


class OneDollar:
    """Each record with usage costs one USD."""

    def cost_of(self, row: LedgerRow) -> Cost | None:
        return None if row.input_tokens is None else Cost(10**12, 0, "test", None)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=OneDollar()) as opened:
        yield opened


def settings_of(folder: Path, **more: Any) -> Any:
    (folder / "budgets.toml").write_text(BUDGETS)
    return load({"data_dir": str(folder), "budgets": str(folder / "budgets.toml"), **more})


def now(days_ago: float = 0) -> str:
    return (datetime.now(UTC) - timedelta(days=days_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def page_of(metrics: Metrics) -> ReadPage:
    return read_page(metrics.render())


def an_audit(
    saved_at: str, *, agrees: bool, usd: str | None = "-0.25", tokens: int | None = 12, compared: bool = True
) -> Run:
    """A run of an earlier version, without verdicts. `compared`: whether its lines have both sides."""
    counted = None if tokens is None else TokenCounts(tokens, 0, 0, 0, tokens)
    coverage = {"nimbus": "0.97", "sansa": None}
    days = Days("2026-10-01", "2026-11-01", "UTC")
    result = Result(days, agrees, Tolerance(0, "0.01"), coverage, [], [], Amount(counted, usd), [])
    result.lines = [line(ours=amount(7, "1") if compared else amount(0, "0"), rest=amount(0, "0"))]
    return Run(saved_at, days.from_, days.to, days.timezone, agrees, False, "", [], msgspec.Raw(encode(result)))


def test_budgets_are_shown_with_what_is_spent_this_month(tmp_path: Path, ledger: Ledger) -> None:
    ledger.insert(
        [
            make_row(1, tenant="search", started_at=now()),
            make_row(2, tenant="search", started_at=now(), usage=ABSENT),
            make_row(3, credential_id="key", started_at=now()),
            make_row(4, tenant="search", started_at=now(days_ago=40)),
        ]
    )
    (tmp_path / "tenants.toml").write_text('key = "search"\n')
    metrics = Metrics()
    with watched_ledger(
        SettingsFiles(settings_of(tmp_path, tenants=str(tmp_path / "tenants.toml"))), ledger, metrics, every_s=0.05
    ):
        wait_for(lambda: page_of(metrics).total(LIMIT) > 0, "budgets on the page")
        page = page_of(metrics)
        assert page.value(SPENT, budget_key="tenant", budget_value="search") == 2
        assert page.value(LIMIT, budget_key="tenant", budget_value="search") == 4
        assert page.value("streamgauge_budget_unknown_streams", budget_key="tenant", budget_value="search") == 1
        assert (
            page.value(SPENT, budget_key="feature", budget_value="chat"),
            page.value(LIMIT, budget_key="feature", budget_value="chat"),
        ) == (
            0,
            0.5,
        )
        ledger.insert([make_row(5, tenant="search", started_at=now())])
        wait_for(
            lambda: page_of(metrics).value(SPENT, budget_key="tenant", budget_value="search") == 3, "the new record"
        )
        assert page_of(metrics).value(FAILURES) == 0


def test_the_audit_that_was_kept_last_is_shown(tmp_path: Path, ledger: Ledger) -> None:
    metrics = Metrics()
    with watched_ledger(SettingsFiles(load({"data_dir": str(tmp_path)})), ledger, metrics, every_s=0.05):
        assert page_of(metrics).total("streamgauge_audit_agrees") == 0
        assert "streamgauge_audit_agrees" not in page_of(metrics).names_with_samples()
        Runs(ledger).add(an_audit("2026-01-01T00:00:00Z", agrees=True))
        Runs(ledger).add(
            an_audit((datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"), agrees=False)
        )
        wait_for(lambda: 0 < page_of(metrics).total("streamgauge_audit_age_seconds") < 7_200, "the later audit")
        page = page_of(metrics)
        assert page.value("streamgauge_audit_agrees") == 0
        assert 3_600 <= page.value("streamgauge_audit_age_seconds") < 3_700
        assert page.value("streamgauge_audit_unexplained_usd") == -0.25
        assert page.value("streamgauge_audit_unexplained_tokens") == 12
        assert page.value("streamgauge_audit_coverage_ratio", provider="nimbus") == 0.97
        assert "sansa" not in page_of(metrics).label_values("provider")
        Runs(ledger).add(an_audit(now(), agrees=True, usd=None, tokens=None))
        wait_for(lambda: page_of(metrics).value("streamgauge_audit_agrees") == 1, "the new audit")
        unknown = {"streamgauge_audit_unexplained_usd", "streamgauge_audit_unexplained_tokens"}
        assert unknown & page_of(metrics).names_with_samples() == set()


def test_a_run_in_which_nothing_was_compared_hides_no_run_before_it(tmp_path: Path, ledger: Ledger) -> None:
    runs = Runs(ledger)
    assert runs.last_compared() is None
    runs.add(an_audit("2026-01-01T00:00:00Z", agrees=True, compared=False))
    assert runs.last_compared() is None
    runs.add(an_audit("2026-02-01T00:00:00Z", agrees=False))
    newer = an_audit("2026-03-01T00:00:00Z", agrees=True)
    unlike = msgspec.json.decode(newer.result, type=Result)
    unlike.verdicts = Verdicts(Verdict("not_compared", "no invoice has tokens"), Verdict("not_compared", "no row"))
    runs.add(msgspec.structs.replace(newer, result=msgspec.Raw(encode(unlike))))
    runs.add(an_audit("2026-04-01T00:00:00Z", agrees=True, compared=False))
    found = runs.last_compared()
    assert found is not None
    assert (found[0].number, found[0].saved_at, found[1].agrees) == (2, "2026-02-01T00:00:00Z", False)
    metrics = Metrics()
    with watched_ledger(SettingsFiles(load({"data_dir": str(tmp_path)})), ledger, metrics, every_s=0.05):
        wait_for(lambda: "streamgauge_audit_agrees" in page_of(metrics).names_with_samples(), "the audit")
        assert page_of(metrics).value("streamgauge_audit_agrees") == 0
    unlike.verdicts = Verdicts(Verdict("agrees", None), Verdict("not_compared", "no invoice has money"))
    runs.add(msgspec.structs.replace(newer, result=msgspec.Raw(encode(unlike))))
    assert (runs.last_compared() or found)[0].number == 5


def test_a_ledger_that_fails_takes_the_gauges_away_and_is_counted(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()

    def fail(*_: object, **__: object) -> Any:
        raise LedgerUnavailableError("the database is away")

    with (
        caplog.at_level(logging.WARNING),
        watched_ledger(SettingsFiles(settings_of(tmp_path)), ledger, metrics, every_s=0.05),
        monkeypatch.context() as broken,
    ):
        wait_for(lambda: page_of(metrics).total(LIMIT) > 0, "budgets on the page")
        broken.setattr(SqliteLedger, "totals", fail)
        wait_for(lambda: page_of(metrics).value(FAILURES) >= 2, "two failures")
        assert LIMIT not in page_of(metrics).names_with_samples()
        broken.undo()
        wait_for(lambda: page_of(metrics).total(LIMIT) > 0, "budgets on the page again")
    assert caplog.text.count("budgets and audits cannot be read now") == 1
    assert "the database is away" in caplog.text


def test_a_wrong_file_of_budgets_ends_the_start(tmp_path: Path, ledger: Ledger) -> None:
    settings = settings_of(tmp_path)
    (tmp_path / "budgets.toml").write_text("budget = 5")
    with pytest.raises(UsageFault, match="hold"), watched_ledger(SettingsFiles(settings), ledger, Metrics()):
        pass
