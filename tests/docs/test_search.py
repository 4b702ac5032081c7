"""The search of the site in a browser, from a folder without a server."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripts.build_site import Site, documents

from tests.live.browsing import NoBrowserError, started_browser

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Page]":
    folder: Path = tmp_path_factory.mktemp("site")
    Site(documents()).build(folder)
    try:
        with started_browser() as browser:
            opened = browser.new_page()
            opened.goto((folder / "docs" / "tutorial.html").as_uri())
            yield opened
    except NoBrowserError as why:
        pytest.skip(f"no browser: {why}")


def test_a_search_finds_sections_and_leads_there(page: Any) -> None:
    page.fill("#search", "stall seconds")
    page.wait_for_selector("#found a")
    first = page.locator("#found a").first
    assert "stall" in page.locator("#found").inner_text().lower()
    first.click()
    page.wait_for_load_state()
    assert page.url.startswith("file://")
    assert page.locator("main h1").count() == 1


def test_a_word_of_no_page_is_said(page: Any) -> None:
    page.fill("#search", "zxqv")
    page.wait_for_function("document.getElementById('found').textContent.includes('No page has')")


def test_an_empty_search_shows_nothing(page: Any) -> None:
    page.fill("#search", "record")
    page.wait_for_selector("#found a")
    page.fill("#search", "")
    assert page.locator("#found").is_hidden()
