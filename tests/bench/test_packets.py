"""The benchmark runs and measures what it claims; the speed itself is not tested."""

from pathlib import Path

import pytest
from bench.packets import SHAPES, Shape, Sizes, capture, floor, follow, main, record, rows, seconds_of

from tests.bench.sections import written_section

TINY = Sizes(packets=60, deltas=6, rounds=1)


@pytest.mark.parametrize("shape", [Shape("one", 1), Shape("three", 3), Shape("swapped", 2, swapped=True)])
def test_all_see_the_same_streams(shape: Shape) -> None:
    file, packets, streams = capture(shape, TINY)
    assert packets > 10 * streams
    assert 0 < follow(file) < floor(file)
    assert record(file) == streams
    with pytest.raises(SystemExit):
        seconds_of(record, file[: len(file) // 2], streams)


def test_it_measures_each_shape() -> None:
    head, *measured = rows(TINY)
    assert len(measured) == len(SHAPES)
    assert all(len(row) == len(head) for row in measured)
    assert all(float(cell) > 0 for row in measured for cell in row[2:])


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("packets", main, ["--packets=60", "--deltas=6", "--rounds=1"], tmp_path)
    assert section.startswith("| packets come ")
    assert "500 connections" in capsys.readouterr().out
