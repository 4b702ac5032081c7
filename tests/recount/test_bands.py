"""Bands hold for the streams that they were made of, and say how many these were."""

import pytest

from streamgauge.recount import bands
from streamgauge.recount.band_table import OFFSETS, RATIOS
from streamgauge.recount.bands import ALL, Range, by_characters, with_offsets


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "OFFSETS", {ALL: (9, -1, 4, 0, 12), "known-1": (5, 0, 2, 3, 8)})
    monkeypatch.setattr(bands, "RATIOS", {ALL: (90, 100, 600, 4, 9, 60), "known-1": (7, 200, 301, 2, 5, 40)})


@pytest.mark.usefixtures("tables")
def test_offsets_are_added_for_the_answer_and_each_tool_call() -> None:
    assert with_offsets("known-1", 100, 0) == ("known-1", 5, Range(100, 102))
    assert with_offsets("known-1", 100, 2) == ("known-1", 5, Range(106, 118))


@pytest.mark.usefixtures("tables")
def test_another_version_has_the_band_of_all() -> None:
    assert with_offsets("known-2", 100, 1) == (ALL, 9, Range(99, 116))
    assert by_characters("known-2", 1000, 0) == (ALL, 90, Range(96, 609))


@pytest.mark.usefixtures("tables")
def test_characters_give_a_range_that_is_rounded_outwards() -> None:
    assert by_characters("known-1", 1001, 1) == ("known-1", 7, Range(198, 302 + 5 + 40))
    assert by_characters("known-1", 0, 0) == ("known-1", 7, Range(0, 5))


@pytest.mark.usefixtures("tables")
def test_no_range_is_below_zero() -> None:
    assert with_offsets("known-2", 0, 0).tokens.low == 0
    assert by_characters("known-1", 3, 0).tokens.low == 0


@pytest.mark.parametrize("table", [OFFSETS, RATIOS], ids=["offsets", "ratios"])
def test_the_table_is_in_order(table: dict[str, tuple[int, ...]]) -> None:
    streams, of_versions = table[ALL][0], [band[0] for version, band in table.items() if version != ALL]
    assert streams >= sum(of_versions) > 0
    assert min(of_versions) >= 3
    for _streams, low, high, *_ in table.values():
        assert low <= high
