"""The benchmark sends bytes while it collects held reads; the speed itself is not tested."""

import os
import time
from pathlib import Path

import pytest

from streamgauge.taps.proxy import pump_handle

if not pump_handle.BUILT:
    pytest.skip("the pump is not built: it needs Linux and a C compiler", allow_module_level=True)

from bench.pump_lock import HELD_MIB, Moment, main, moments, rows, times_blocked

from tests.bench.sections import written_section


def test_f2_at_each_moment_bytes_pass_and_held_reads_are_collected() -> None:
    measured = moments(rounds=2)
    assert list(measured) == list(HELD_MIB)
    for of_size in measured.values():
        assert len(of_size) == 2
        assert all(moment.longest > 0 and moment.bytes > 0 and moment.collecting > 0 for moment in of_size)
        assert all(moment.waited < moment.bytes and moment.longest_wait <= moment.longest for moment in of_size)


def test_a_figure_is_the_median_of_the_moments_and_a_multiple_of_that_without_held_reads() -> None:
    measured = {
        0: [Moment(9, 0.1e-3, 0, 0, 1e-5), Moment(9, 0.2e-3, 0, 0, 1e-5), Moment(9, 1e-3, 0, 0, 1e-5)],
        16: [Moment(9, 4e-3, 0, 0, 2e-3), Moment(9, 0.3e-3, 2, 0.25e-3, 4e-3), Moment(9, 0.4e-3, 1, 0.1e-3, 3e-3)],
    }
    assert rows(measured)[1:] == [
        ["0", "0.01", "0.20", "1.0", "0 of 27", "-", "-", "1.00"],
        ["16", "3.00", "0.40", "2.0", "3 of 27", "0.25", "0.25", "4.00"],
    ]


def test_f2_each_time_that_a_thread_blocks_is_counted() -> None:
    status = os.open("/proc/thread-self/status", os.O_RDONLY)
    try:
        blocked = times_blocked(status)
        for _ in range(3):
            time.sleep(1e-3)
        assert times_blocked(status) >= blocked + 3
    finally:
        os.close(status)


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("pump-lock", main, ["--rounds=1"], tmp_path)
    assert section.startswith("| held, MiB ")
    assert "of nothing held" in capsys.readouterr().out
