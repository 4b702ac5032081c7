"""The benchmark of recounts runs, measures every text, and writes its section; the speed itself is not tested."""

from pathlib import Path

import pytest
from bench.recount import TEXTS, main, rows, share

from bench import recount
from tests.recount.tokenizers import published, small


def test_it_measures_every_text() -> None:
    head, *measured = rows(small("o200k"), 400, 1)
    assert [row[0] for row in measured] == list(TEXTS)
    assert all(len(row) == len(head) and float(row[2]) >= 0 for row in measured)


def test_counts_that_differ_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recount.TokenCounter, "total", lambda _: -1)
    with pytest.raises(SystemExit, match="the counts differ"):
        share(small("o200k"), "some text", 1)


def test_it_writes_its_section(tmp_path: Path) -> None:
    published("o200k_base")
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- recount: begin -->\nold\n<!-- recount: end -->\nafter\n")
    main(["--chars", "300", "--rounds", "1", "--document", str(document)])
    assert "| prose " in document.read_text()
