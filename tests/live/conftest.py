"""The browser for the tests of the page. Without one they are skipped."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.live.browsing import NoBrowserError, started_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium. Of one module: while Playwright runs, no other test of the process could run an event loop."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(started_browser())
        except NoBrowserError as error:
            pytest.skip(str(error))
        yield started
