"""docs/reliability.md names every test of a fault, and no test that does not exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "docs" / "reliability.md"
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
_OF_A_FAULT = re.compile(r"test_[a-z][0-9]+_")


def test_the_document_and_the_tests_agree() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text()))
    everywhere = {name for path in ROOT.glob("tests/**/test_*.py") for name in _TEST.findall(path.read_text())}
    here = {name for path in Path(__file__).parent.glob("test_*.py") for name in _TEST.findall(path.read_text())}
    assert named - everywhere == set(), "the document names tests that do not exist"
    assert {name for name in here if _OF_A_FAULT.match(name)} - named == set(), "the document does not name these tests"
