"""How soon the built-in page is painted, and what that costs its process, with a million records in the ledger and with none.

Chromium opens pages of real `up` processes by turns: a runbook (text and one style sheet: the floor), the page with an empty
ledger, and the page with a full one. Of each it takes the browser's own `first-paint`, the moments at which the first tile
has a value and at which the answers from the ledger are shown, and the CPU time of the process until then.

    python -m bench.page [--ledger URL] [--streams N] [--turns N] [--document FILE]

`--ledger`: a ledger that `tests.live.filled` has filled; an hour of streams is added. Without it, one of --streams streams is
made (minutes). Prints a table. Exits with 1 if the full ledger takes more than LIMIT times as long as the empty one.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.live.browsing import started_browser
from tests.live.filled import fill
from tests.running import Running, start, wait_until_ready

from bench.document import replace_section, table, when_and_where
from bench.measure import cpu_seconds, tree

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The highest ratio of the full ledger's first paint to the empty one's: they need the same bytes.
LIMIT = 1.5
TURNS = 15
STREAMS = 1_000_000
DAYS = 30.0
# Notes when the first tile has a value, and when the answers from the ledger are shown (ms since the page was asked for).
_WATCH = """
new MutationObserver(() => {
  window.tilesAt ??= document.querySelector("#tiles dd") ? performance.now() : undefined;
  window.wholeAt ??= document.querySelector("#main[data-read]") ? performance.now() : undefined;
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
_PAINT = "performance.getEntriesByName('first-paint')[0]?.startTime ?? null"


class Opened(NamedTuple):
    """Times in ms; None: the page has no such moment. `cpu_ms`: of the process, until the page was whole."""

    paint: float
    tiles: float | None
    whole: float | None
    cpu_ms: float


def opened(browser: "Browser", process: Running, path: str) -> Opened:
    """Opens a page in a new window, without anything that an earlier one has left."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.add_init_script(_WATCH)
        before = _cpu_s(process)
        page.goto(f"{process.admin}{path}")
        whole = path == "/"
        if whole:
            page.wait_for_selector("#main[data-read]")
        spent = _cpu_s(process) - before
        while (paint := page.evaluate(_PAINT)) is None:
            page.wait_for_timeout(20)
        tiles, read = (page.evaluate(f"window.{name}") if whole else None for name in ("tilesAt", "wholeAt"))
        return Opened(paint, tiles, read, 1_000 * spent)


def _cpu_s(process: Running) -> float:
    return sum(cpu_seconds(pid) for pid in tree(process.process.pid))


def measure(url: str, turns: int) -> dict[str, list[Opened]]:
    """What was measured of each page. `url`: of the full ledger."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        browser = stack.enter_context(started_browser())
        processes = {}
        for name, ledger in (("empty", f"sqlite:///{folder / 'empty.sqlite'}"), ("full", url)):
            flags = ["--upstream", "openai=https://api.openai.com", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
            flags += ["--data-dir", f"{folder / name}", "--ledger", ledger]
            processes[name] = stack.enter_context(start("up", flags, folder / name))
            wait_until_ready(processes[name])
        pages = {
            "a runbook (the floor)": (processes["empty"], "/runbooks/"),
            "empty ledger": (processes["empty"], "/"),
            "full ledger": (processes["full"], "/"),
        }
        found: dict[str, list[Opened]] = {name: [] for name in pages}
        for turn in range(turns + 1):
            for name, (process, path) in pages.items():
                one = opened(browser, process, path)
                if turn:  # the first warms caches up
                    found[name].append(one)
        return found


def rows_of(found: dict[str, list[Opened]]) -> list[list[str]]:
    """The table: medians, with the ratio of each paint to the floor's."""
    floor = _median(found["a runbook (the floor)"], "paint")
    rows = [["page", "first paint", "to the floor's", "first tile", "whole", "CPU of the process"]]
    for name, each in found.items():
        paint = _median(each, "paint")
        times = [f"{_median(each, part):.0f} ms" if each[0].whole is not None else "-" for part in ("tiles", "whole")]
        slowest = max(one.paint for one in each)
        rows.append(
            [
                name,
                f"{paint:.0f} ms (slowest {slowest:.0f})",
                f"{paint / floor:.2f}",
                *times,
                f"{_median(each, 'cpu_ms'):.0f} ms",
            ]
        )
    return rows


def _median(each: Sequence[Opened], part: str) -> float:
    return statistics.median(getattr(one, part) for one in each)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ledger")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--document", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        url = given.ledger or f"sqlite:///{folder}/full.sqlite"
        if given.ledger is None:
            fill(url, given.streams, DAYS, time.time())
        fill(url, round(given.streams / DAYS / 24), 1 / 24, time.time())
        found = measure(url, given.turns)
    text = f"{table(rows_of(found))}\n\n{when_and_where()}"
    print(text)
    if given.document is not None:
        replace_section(given.document, "page", text)
    ratio = _median(found["full ledger"], "paint") / _median(found["empty ledger"], "paint")
    print(f"full to empty: {ratio:.2f}, at most {LIMIT}")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
