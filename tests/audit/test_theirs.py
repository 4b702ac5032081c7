"""What invoices bill, by day: rows of several days."""

from pathlib import Path
from typing import Any

from streamgauge.audit.invoices import open_invoice
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.period import Period
from streamgauge.audit.theirs import Theirs
from tests.audit.invoices.samples import BY_NAME, table

PERIOD = Period.of("2026-11-01", "2026-12-01", "UTC")
SAMPLE = BY_NAME["FOCUS"].rows[0]


def row(first: str, end: str, **changes: Any) -> dict[str, Any]:
    span = {"ChargePeriodStart": f"{first}T00:00:00Z", "ChargePeriodEnd": f"{end}T00:00:00Z"}
    return {**SAMPLE, **span, **changes}


def theirs_of(folder: Path, rows: list[dict[str, Any]]) -> Theirs:
    (folder / "bill.csv").write_text(table(rows))
    theirs = Theirs([open_invoice(folder / "bill.csv", {})], PERIOD, Mapping())
    theirs.read()
    return theirs


def has_days(folder: Path, rows: list[dict[str, Any]]) -> bool:
    (shape,) = theirs_of(folder, rows).shapes.values()
    return shape.has_days


def test_only_usage_of_several_days_in_the_period_takes_the_days_away(tmp_path: Path) -> None:
    day = row("2026-11-03", "2026-11-04")
    assert has_days(tmp_path, [day])
    assert not has_days(tmp_path, [day, row("2026-11-01", "2026-12-01")])
    assert has_days(tmp_path, [day, row("2026-09-01", "2026-10-01")])
    assert has_days(tmp_path, [day, row("2026-10-30", "2026-11-01")])
    assert has_days(tmp_path, [day, row("2026-11-01", "2026-12-01", ChargeCategory="Tax")])


def test_usage_of_several_days_outside_of_the_period_is_not_read(tmp_path: Path) -> None:
    theirs = theirs_of(tmp_path, [row("2026-11-03", "2026-11-04"), row("2026-10-30", "2026-11-01")])
    assert [group.day for group in theirs.cells] == ["2026-11-03"]
