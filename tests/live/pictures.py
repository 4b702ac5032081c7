"""Makes pictures of what a person sees, of real processes. Look at them before they are committed.

    python -m tests.live.pictures docs [FOLDER]                the pictures of the documents (two minutes)
    python -m tests.live.pictures all FOLDER [--ledger URL]    all states of the page and of `top` (five minutes)

`all`: the page with nothing (`empty`), with live streams and a broken one, and `top` (`live`), with an hour of streams
(`hour`), and with the ledger that `--ledger` names (`large`; `tests/live/filled.py` makes one): each at 1400x900 and
400x800, light and dark, `top` at 80x24 and 200x60. In place of `all` the name of a scene makes it alone.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.live.browsing import started_browser
from tests.live.filled import fill
from tests.running import Running, start, wait_until_ready
from tests.top.drawn import Shown, svg_of
from tests.top.screens import Screen, on_screen

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCENES = ("empty", "live", "hour", "large")
FOLDER = Path("docs/images")
# The demo has played each of its scenarios once by then, and begins again (seconds).
PLAYED_S = 45
SIZE = (1280, 860)
SIZES = ((1400, 900), (400, 800))
# The port that `top` asks if it is not told another one.
ADMIN = "127.0.0.1:9464"
TERMINALS = ((80, 24), (200, 60))
# The moving picture: its terminal, and the time between two screens, in seconds.
COLUMNS, LINES, STEP_S = 100, 26, 1.0
# Its screens of `top`, and the keys that are pressed before some of them: a filter, then the first stream.
STEPS = 13
PRESSED = {7: "/broken", 9: "\r", 11: "\r"}
HOURS = 26  # of the ledger with an hour of history: with the same hour of yesterday
STREAMS_AN_HOUR = 600


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[Running]:
    """The demo, when it has played its scenarios."""
    flags = ["--serve", "--data-dir", "demo", *options]
    with start("demo", flags, folder / "demo", around=["env", "-C", str(folder)]) as process:
        wait_until_ready(process)
        time.sleep(PLAYED_S)
        yield process


@contextmanager
def up(folder: Path, name: str, ledger: str | None = None) -> Iterator[Running]:
    """An `up` without traffic. `ledger`: the URL of its ledger; None: an empty one of its own."""
    flags = ["--upstream", "openai=https://api.openai.com", "--upstream", "anthropic=https://api.anthropic.com"]
    flags += ["--admin", "127.0.0.1:0", "--data-dir", f"{folder / name}", *(["--ledger", ledger] if ledger else [])]
    with start("up", flags, folder / name) as process:
        wait_until_ready(process)
        yield process


def documents(folder: Path) -> None:
    """Writes page.png, of all streams, stream.png, of one with a long gap, and top.svg, which moves."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        started_browser() as browser,
        demo(Path(place), "--admin", ADMIN) as process,
    ):
        _picture(browser, process.admin, "light", SIZE, folder / "page.png")
        _picture(browser, f"{process.admin}/#{_with_long_gap(process)}", "dark", SIZE, folder / "stream.png")
        (folder / "top.svg").write_text(_moving(process))


def states(folder: Path, scenes: Sequence[str], large: str | None) -> None:
    """Writes the pictures of some SCENES. `large`: the URL of a ledger."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, started_browser() as browser:
        place = Path(name)
        if "empty" in scenes:
            with up(place, "empty") as process:
                _pictures(browser, process.admin, folder, "empty")
        if "live" in scenes:
            with demo(place, "--admin", "127.0.0.1:0") as process:
                _terminals(browser, process, folder)
                _pictures(browser, process.admin, folder, "live")
                _pictures(browser, f"{process.admin}/#{_broken(process)}", folder, "broken")
        for scene, ledger in (("hour", f"sqlite:///{place / 'hour.sqlite'}"), ("large", large)):
            if scene in scenes and ledger is not None:
                hours = HOURS if scene == "hour" else 1
                fill(ledger, STREAMS_AN_HOUR * hours, hours / 24, time.time())
                with up(place, scene, ledger) as process:
                    _pictures(browser, process.admin, folder, scene)
                    _pictures(browser, f"{process.admin}/?sort=slowest&time=2592000", folder, f"{scene}-slowest")


def _with_long_gap(process: Running) -> str:
    """Of the streams with the longest gaps the first one with many token events, if there is one."""
    worst = _worst(process, "gap")
    return str(max(worst, key=lambda row: (row["token_events"] > 15, row["longest_gap_s"]))["id"])


def _broken(process: Running) -> str:
    """A stream that broke after it had generated."""
    return str(max(_worst(process, "broken"), key=lambda row: row["token_events"])["id"])


def _worst(process: Running, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(process.get("/streams")[1])["worst"][name]
    return rows


def _pictures(browser: "Browser", url: str, folder: Path, name: str) -> None:
    for size in SIZES:
        for scheme in ("light", "dark"):
            _picture(browser, url, scheme, size, folder / f"{name}-{size[0]}-{scheme}.png")


def _picture(browser: "Browser", url: str, scheme: Any, size: tuple[int, int], path: Path) -> None:
    window: Any = {"width": size[0], "height": size[1]}
    with browser.new_context(viewport=window, color_scheme=scheme, device_scale_factor=1) as context:
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("#main[data-read] #tiles dd, #facts dd")
        page.wait_for_timeout(3_000)
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=path)


# --- the terminal -----------------------------------------------------------------------------------------------------


def _terminals(browser: "Browser", process: Running, folder: Path) -> None:
    """Writes `top` at both sizes: its list, a broken stream, the totals, and the help."""
    for columns, lines in TERMINALS:
        with on_screen(_address(process), columns=columns, lines=lines) as screen:
            screen.wait_for(lambda text: "completed" in text, "finished stream")
            for name, keys in (("list", ""), ("stream", "\r"), ("totals", "\x1b\t"), ("help", "?")):
                for key in keys:
                    screen.press(key)
                    _read(screen, 1.0)
                _read(screen, 2.0)
                drawn = svg_of([Shown(0.0, tuple(screen.styled))], columns, lines, f"top, {name}", end_s=1.0)
                _as_png(browser, drawn, folder / f"top-{columns}x{lines}-{name}.png")


def _as_png(browser: "Browser", drawn: str, path: Path) -> None:
    with browser.new_context(device_scale_factor=1) as context:
        page = context.new_page()
        page.set_content(f"<body style='margin:0'>{drawn}</body>")
        page.locator("svg").screenshot(path=path)


def _address(process: Running) -> str:
    return process.admin.removeprefix("http://")


def _read(screen: Screen, seconds: float) -> None:
    """Reads what comes for so long."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        screen.read(min(0.1, left))


def _moving(process: Running) -> str:
    """The demo's first lines, then `top`: its list, and a stream that broke."""
    prompt = "\x1b[32m$\x1b[0m "
    said = process.log.partition(" streamgauge: ")[2].partition(", data in ")[0]
    above = [f"{prompt}.venv/bin/streamgauge demo --serve --admin {ADMIN}", said]
    shown = [
        Shown(0.0, (above[0],)),
        Shown(1.0, tuple(above)),
        Shown(3.0, (*above, "", f"{prompt}.venv/bin/streamgauge top")),
    ]
    began_s = 4.5
    with on_screen(_address(process), "--interval", "1", columns=COLUMNS, lines=LINES) as screen:
        screen.wait_for(lambda text: "completed" in text, "finished stream")
        for step in range(STEPS):
            screen.press(PRESSED.get(step, ""))
            _read(screen, STEP_S)
            shown.append(Shown(began_s + step * STEP_S, tuple(screen.styled)))
    title = "A terminal: the demo starts, then streamgauge top lists its streams and shows one that broke"
    return svg_of(shown, COLUMNS, LINES, title, end_s=began_s + (STEPS + 3) * STEP_S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("docs", "all", *SCENES))
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--ledger")
    given = parser.parse_args(arguments)
    if given.what == "docs":
        documents(given.folder)
    else:
        states(given.folder, SCENES if given.what == "all" else [given.what], given.ledger)
    return 0


if __name__ == "__main__":
    sys.exit(main())
