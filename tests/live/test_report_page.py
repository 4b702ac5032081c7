"""The report of totals in a browser: it fits a phone and a sheet of A4."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamgauge.cli.totals_report import Report, report_page
from streamgauge.ledger import Total
from tests.live.test_audit_page import A4, TOO_WIDE

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCREENSHOTS = os.environ.get("STREAMGAUGE_SCREENSHOTS")


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (720, "screen"), (1400, "screen"), (A4, "print")])
def test_it_fits(browser: "Browser", tmp_path: Path, width: int, media: str) -> None:
    keys = "a-tenant-with-a-name-of-some-length", "meta-llama/Llama-3.3-70B-Instruct-Turbo"
    large = Total(keys, 10**6, 10**6, 10**12, 10**10, 10**12, 10**11, 10**9, without_usage=10**4, cost=10**18 + 1,
                  without_price=10**4, longest_wait_us=10**8)  # fmt: skip
    file = tmp_path / "report.html"
    file.write_text(report_page(Report(["tenant", "model"], [large] * 3, 3, (None, None), ["All records."], 0)))
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.emulate_media(media=media)  # type: ignore[arg-type]
    page.goto(file.as_uri())
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"report-{media}-{width}.png", full_page=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    page.close()
