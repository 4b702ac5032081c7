"""The benchmark sends bytes while it collects held reads; the speed itself is not tested."""

from pathlib import Path

import pytest

from streamgauge.taps.proxy import pump_handle

if not pump_handle.BUILT:
    pytest.skip("the pump is not built: it needs Linux and a C compiler", allow_module_level=True)

from bench.pump_lock import HELD_MIB, Moment, main, moments, rows

from tests.bench.sections import written_section


def test_f2_at_each_moment_bytes_pass_and_held_reads_are_collected() -> None:
    measured = moments(rounds=2)
    assert list(measured) == list(HELD_MIB)
    for of_size in measured.values():
        assert len(of_size) == 2
        assert all(moment.longest > 0 and moment.bytes > 0 and moment.collecting > 0 for moment in of_size)


def test_a_figure_is_the_median_of_the_moments_and_a_multiple_of_that_without_held_reads() -> None:
    measured = {
        0: [Moment(0.1e-3, 9, 1e-5), Moment(0.2e-3, 9, 1e-5), Moment(9e-3, 9, 1e-5)],
        16: [Moment(0.4e-3, 9, 2e-3), Moment(0.3e-3, 9, 4e-3), Moment(0.5e-3, 9, 3e-3)],
    }
    assert rows(measured)[1:] == [["0", "0.01", "0.20", "1.0", "9.00"], ["16", "3.00", "0.40", "2.0", "0.50"]]


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("pump-lock", main, ["--rounds=1"], tmp_path)
    assert section.startswith("| held, MiB ")
    assert "of nothing held" in capsys.readouterr().out
