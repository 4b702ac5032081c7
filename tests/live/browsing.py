"""Debian's Chromium, driven by Playwright."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]


class NoBrowserError(Exception):
    """There is no browser, and none can be installed; the message says why."""


@contextmanager
def started_browser() -> "Iterator[Browser]":
    """Chromium, installed by the project's own script if it is missing and can be installed. Raises NoBrowserError."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowserError("Playwright is not installed: run make") from None
    if shutil.which("chromium") is None:
        command = [str(ROOT / "scripts" / "install_packages"), "chromium fonts-dejavu-core", "chromium"]
        script = subprocess.run(command, capture_output=True, text=True, check=False)
        if script.returncode != 0:
            raise NoBrowserError(script.stderr.strip().splitlines()[-1])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        try:
            yield browser
        finally:
            browser.close()
