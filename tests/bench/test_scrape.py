"""The benchmark of a scrape runs, with pages of the size that it names; the speed itself is not tested."""

from pathlib import Path

import pytest
from bench.scrape import FORMATS, filled, lines_of, main, measured

from streamgauge.metrics.declarations import MODEL_SERIES, PAGE_SERIES
from tests.bench.sections import written_section


def test_a_page_of_5_000_series_is_measured_in_every_format() -> None:
    metrics = filled(5_000)
    assert 5_000 <= len(lines_of(metrics)) < 6_500
    times = measured(metrics, rounds=1)
    assert min(times[name] for name in FORMATS) > 0


def test_a_full_page_is_full() -> None:
    metrics = filled(0)
    assert 0.8 * MODEL_SERIES < len(lines_of(metrics)) < PAGE_SERIES
    with pytest.raises(ValueError, match="a full page has"):
        filled(PAGE_SERIES)


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("scrape", main, ["--rounds=1"], tmp_path)
    assert section.startswith("| series ")
    assert "OpenMetrics" in capsys.readouterr().out
