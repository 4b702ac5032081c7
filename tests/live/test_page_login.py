"""The page behind the admin token and TLS, in Debian's Chromium: it asks for a login, and its own requests carry it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamgauge.metrics.admin_access import Access, Token
from streamgauge.runtime.certificates import ServerCertificate
from tests.live.serving import Served, serving
from tests.live.shown import busy_process
from tests.live.test_page import Seen, shown
from tests.taps.proxy.pki import make_pki

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, HttpCredentials, Page

TOKEN = "0123456789abcdef-secret"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(busy_process(), Access(Token(TOKEN), ServerCertificate(make_pki(tmp_path).server, None))) as one:
        yield one


def test_with_the_token_as_password_the_page_shows_its_streams(browser: "Browser", served: Served) -> None:
    login: HttpCredentials = {"username": "anybody", "password": TOKEN}
    with browser.new_context(http_credentials=login, ignore_https_errors=True) as context:
        page = context.new_page()
        with shown(page, served.url) as seen:
            _check_shown(page, seen)


def _check_shown(page: "Page", seen: Seen) -> None:
    assert "3" in page.locator("#tiles").inner_text()
    assert page.context.cookies() == []
    # It asks without a login first; uPlot may be missing.
    allowed = re.compile("status of (401|404)|/static/uplot/")
    assert [error for error in seen.errors if not allowed.search(error)] == []
    assert not any(TOKEN in url for url in seen.requests)


def test_without_it_a_browser_is_asked_for_a_login_and_shows_nothing(browser: "Browser", served: Served) -> None:
    from playwright.sync_api import Error

    with browser.new_context(ignore_https_errors=True) as context:
        page = context.new_page()
        with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):  # the dialog for a login was closed
            page.goto(served.url)
        assert page.locator("#tiles").count() == 0
