"""The benchmark sends bytes while it collects held reads; the speed itself is not tested."""

from pathlib import Path

import pytest

from streamgauge.taps.proxy import pump_handle

if not pump_handle.BUILT:
    pytest.skip("the pump is not built: it needs Linux and a C compiler", allow_module_level=True)

from bench.pump_lock import HELD_MIB, Moment, main, moments, rows

MARKED = "before\n<!-- pump-lock: begin -->\nold\n<!-- pump-lock: end -->\nafter\n"


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
    path = tmp_path / "performance.md"
    path.write_text(MARKED)
    main(["--rounds=1", f"--document={path}"])
    written = path.read_text()
    assert written.startswith("before\n<!-- pump-lock: begin -->\n| held, MiB ")
    assert written.endswith("<!-- pump-lock: end -->\nafter\n")
    assert "of nothing held" in capsys.readouterr().out
