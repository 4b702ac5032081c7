"""docs/security.md names only tests that exist, and SECURITY.md says what the page does not."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def test_each_claim_names_a_test_that_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    existing = {name for path in ROOT.glob("tests/**/test_*.py") for name in _TEST.findall(path.read_text())}
    assert len(named) > 40
    assert named - existing == set()


def test_each_position_of_an_attacker_names_what_stops_him() -> None:
    table = PAGE.partition("## What an attacker gets")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \*\*.*$", table, re.MULTILINE)]
    assert len(rows) >= 12
    assert all(len(row) == 3 and all(row) for row in rows)


def test_the_security_policy_says_how_to_report_and_what_is_supported() -> None:
    policy = (ROOT / "SECURITY.md").read_text()
    assert "## How to report" in policy
    assert "## What is supported" in policy
    assert "docs/security.md" in policy
