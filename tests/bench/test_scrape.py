"""The benchmark of a scrape runs; a page of 5,000 series takes less than 50 ms."""

from pathlib import Path

import pytest
from bench.scrape import FORMATS, filled, lines_of, main, measured

from streamgauge.metrics.declarations import PAGE_BYTES
from tests.bench.sections import written_section


def test_a_page_of_5_000_series_takes_less_than_50_ms_in_every_format() -> None:
    metrics = filled(5_000)
    assert 5_000 <= len(lines_of(metrics)) < 6_500
    times = measured(metrics, rounds=9)
    assert max(times[name] for name in FORMATS) < 0.05


def test_a_full_page_is_full() -> None:
    metrics = filled(0)
    assert 0.5 * PAGE_BYTES < len(metrics.render()) < PAGE_BYTES
    with pytest.raises(ValueError, match="a full page has"):
        filled(10_000)


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("scrape", main, ["--rounds=1"], tmp_path)
    assert section.startswith("| series ")
    assert "OpenMetrics" in capsys.readouterr().out
