"""What is held of the streams of cells that differ."""

from pathlib import Path

import pytest

from streamgauge.audit.explain import ModelSearch
from tests.audit.test_given_twice import export, reconciled, row


def test_streams_that_are_held_share_the_group_of_their_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of its own for each of the 100,000 streams that are held would take some 35 MB."""
    shared: list[bool] = []
    explain = ModelSearch.explain_exactly

    def look(search: ModelSearch) -> object:
        shared.extend(stream.group is group for group, cell in search.cells.items() for stream in cell.streams)
        return explain(search)

    monkeypatch.setattr(ModelSearch, "explain_exactly", look)
    reconciled(tmp_path, export({day: [row(1)] for day in range(1, 11)}), streams=[1, 2, 5])
    assert shared
    assert all(shared)
