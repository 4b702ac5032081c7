"""The page of an audit in a browser: it fits a phone and a sheet of A4, and asks for nothing."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamgauge.audit.page import Kept, page
from tests.audit.sample_lines import company_result

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

SCREENSHOTS = os.environ.get("STREAMGAUGE_SCREENSHOTS")
# The width of A4 portrait without the margins of the page (CSS pixels: 186 mm).
A4 = 703
# Elements whose content is wider than they are, or that end to the right of the window.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((one) => {
  const box = one.getBoundingClientRect();
  const ends = box.width > 0 && box.right > document.documentElement.clientWidth + 1;
  return ends || (one.tagName === "TD" && one.scrollWidth > one.clientWidth + 1);
}).map((one) => `${one.tagName} ${one.textContent.slice(0, 40)}`)"""


@pytest.fixture
def shown(browser: "Browser", tmp_path: Path) -> "Page":
    """The page of a month with long names and large amounts."""
    file = tmp_path / "audit.html"
    file.write_text(page(company_result(), Kept(3, "2026-12-04T08:00:00Z", False)))
    opened = browser.new_page()
    opened.goto(file.as_uri())
    return opened


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (720, "screen"), (1400, "screen"), (A4, "print")])
def test_it_fits(shown: "Page", width: int, media: str) -> None:
    shown.set_viewport_size({"width": width, "height": 800})
    shown.emulate_media(media=media)  # type: ignore[arg-type]
    if SCREENSHOTS:
        shown.screenshot(path=Path(SCREENSHOTS) / f"audit-{media}-{width}.png", full_page=True)
    assert shown.evaluate("() => document.documentElement.scrollWidth") <= width
    assert shown.evaluate(TOO_WIDE) == []


def test_a_phone_shows_the_name_of_each_amount_beside_it(shown: "Page") -> None:
    shown.set_viewport_size({"width": 400, "height": 800})
    label = "(cell) => getComputedStyle(cell, '::before').content"
    assert shown.locator("td[data-label='in dispute']").first.evaluate(label) == '"in dispute: "'
    shown.set_viewport_size({"width": 1400, "height": 800})
    assert shown.locator("td[data-label='in dispute']").first.evaluate(label) == "none"


def test_it_asks_for_nothing(shown: "Page") -> None:
    requests: list[str] = []

    def asked(request: "Request") -> None:
        requests.append(request.url)

    shown.on("request", asked)
    shown.reload()
    assert requests == [shown.url]
