"""The table of faults in docs/reliability.md: every id has a row, and every row names tests that exist."""

import re
from pathlib import Path

from tests.faults.rows import DOCUMENT, IDS, PENDING, ROWS, document

ROOT = Path(__file__).parent.parent.parent
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
_OF_A_FAULT = re.compile(r"test_[a-z][0-9]+_")


def functions_in(path: Path) -> set[str]:
    return set(_TEST.findall(path.read_text(encoding="utf-8")))


def exists(test: str) -> bool:
    """Whether a row's test is there: a path, or a function of a test module."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and (not name or name in functions_in(ROOT / path))


def test_the_document_has_the_table_as_it_is_generated() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run: make generated"


def test_every_id_has_a_row() -> None:
    assert set(IDS) - ROWS.keys() == PENDING
    assert ROWS.keys() - set(IDS) == set(), "an id that is not in IDS"
    assert all(row.case and row.promise and row.tests for row in ROWS.values())


def test_every_test_of_a_row_exists() -> None:
    assert [test for row in ROWS.values() for test in row.tests if not exists(test)] == []
    assert not exists("tests/faults/test_broker_faults.py::test_k1")


def test_the_document_names_every_test_of_a_fault_and_none_that_does_not_exist() -> None:
    """Also in its other tables."""
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text(encoding="utf-8")))
    everywhere = {name for path in ROOT.glob("tests/**/test_*.py") for name in functions_in(path)}
    of_faults = {name for path in ROOT.glob("tests/faults/test_*.py") for name in functions_in(path)}
    assert named - everywhere == set()
    assert {name for name in of_faults if _OF_A_FAULT.match(name)} - named == set()
