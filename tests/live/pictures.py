"""Makes the README's pictures of the page, of the demo's streams: `python -m tests.live.pictures [FOLDER]` (a minute).

Look at them before they are committed.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.live.browsing import started_browser
from tests.running import Running, start, wait_until_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path("docs/images")
# The demo has played each of its scenarios once by then, and begins again (seconds).
PLAYED_S = 45
SIZE = {"width": 1280, "height": 860}


def make(folder: Path) -> None:
    """Writes page.png, of all streams, and stream.png, of one with a long gap."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data_dir, started_browser() as browser:
        flags = ["--serve", "--data-dir", f"{data_dir}/data", "--admin", "127.0.0.1:0"]
        with start("demo", flags, Path(data_dir) / "data") as demo:
            wait_until_ready(demo)
            time.sleep(PLAYED_S)
            _picture(browser, demo.admin, "light", folder / "page.png")
            _picture(browser, f"{demo.admin}/#{_with_long_gap(demo)}", "dark", folder / "stream.png")


def _with_long_gap(demo: Running) -> str:
    """Of the streams with the longest gaps the first one with many token events, if there is one."""
    worst: list[dict[str, Any]] = json.loads(demo.get("/streams")[1])["worst"]["gap"]
    return str(max(worst, key=lambda row: (row["token_events"] > 15, row["longest_gap_s"]))["id"])


def _picture(browser: "Browser", url: str, scheme: Any, path: Path) -> None:
    with browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=1) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("#tiles dd, #facts dd")
        page.wait_for_timeout(3_000)
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=path)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
