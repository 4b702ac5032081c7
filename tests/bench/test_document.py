"""A section of a document is replaced, and the text around it stays."""

import os
import re
from pathlib import Path

import pytest
from bench.document import replace_section, table, when_and_where


def test_a_table_has_a_head_and_even_columns() -> None:
    assert table([["a", "bb"], ["ccc", ""]]) == "| a   | bb |\n|-----|----|\n| ccc |    |"


def test_the_day_and_the_machine_are_said() -> None:
    assert re.fullmatch(rf"Measured on \d\d? [A-Z][a-z]+ \d{{4}}, on {os.cpu_count()} cores \(.+\)\.", when_and_where())


def test_only_its_own_section_changes(tmp_path: Path) -> None:
    path = tmp_path / "file.md"
    path.write_text("x\n<!-- a: begin --><!-- a: end -->\n<!-- b: begin -->\nkept\n<!-- b: end -->\n")
    replace_section(path, "a", "new")
    expected = "x\n<!-- a: begin -->\nnew\n<!-- a: end -->\n<!-- b: begin -->\nkept\n<!-- b: end -->\n"
    assert path.read_text() == expected
    replace_section(path, "a", "new")
    assert path.read_text() == expected


@pytest.mark.parametrize("text", ["", "<!-- a: begin -->", "<!-- a: end --><!-- a: begin -->", "<!-- a: end -->"])
def test_a_document_without_the_section_is_not_changed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="no single section"):
        replace_section(path, "a", "new")
    assert path.read_text() == text
