"""The runbooks on the admin port in Debian's Chromium: they fit a phone, and lead to each other and to the page."""

from typing import TYPE_CHECKING

import pytest

from tests.live.serving import serving
from tests.live.shown import busy_process

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow


def test_a_runbook_is_read_on_a_phone(browser: "Browser") -> None:
    from playwright.sync_api import expect

    with serving(busy_process()) as served, browser.new_context(viewport={"width": 400, "height": 800}) as context:
        page = context.new_page()
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))  # a style that the policy forbids, for one
        for path in ("/runbooks/", "/runbooks/StreamsBreakMidway"):
            page.goto(served.url + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
            assert page.evaluate("getComputedStyle(document.body).maxWidth") == "768px", "without its style"
        page.get_by_role("link", name="StreamsTruncated").click()
        assert page.locator("h1").inner_text() == "StreamsTruncated"
        page.get_by_role("link", name="Streams", exact=True).click()
        expect(page).to_have_title("1 silent - Streamgauge")  # which the page's script sets
        assert [text for text in logged if "Content Security Policy" in text] == []
