"""axe-core, which finds faults of accessibility in a page. Its file is downloaded once, as uPlot is, and is not committed."""

from pathlib import Path
from typing import TYPE_CHECKING

from scripts.fetch_uplot import Package, fetch

if TYPE_CHECKING:
    from playwright.sync_api import Page

PLACE = Path(__file__).parents[2] / ".axe-core"
AXE = Package(
    "axe-core",
    "4.10.3",
    "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg==",
    {"axe.min.js": "package/axe.min.js", "LICENSE": "package/LICENSE"},
)
# The rules of WCAG 2.2 at the level AA, and axe's own advice.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def missing() -> str | None:
    """Downloads axe-core, unless it is there. Returns why it cannot be used, or None."""
    return fetch(PLACE, AXE)


def findings(page: "Page") -> list[str]:
    """The faults in the page as it is now: the rule, and the element."""
    page.evaluate((PLACE / "axe.min.js").read_text())
    result = page.evaluate("tags => axe.run({runOnly: tags})", _TAGS)
    return [f"{rule['id']}: {node['html'][:160]}" for rule in result["violations"] for node in rule["nodes"]]
