"""The benchmark measures what it claims, with all reads sent; the speed itself is not tested."""

from pathlib import Path

import pytest
import uvloop
from bench.capture import Spent, main, rows, spent
from bench.inprocess import discarding_recorder

from streamgauge.spool.read_counters import read_balance
from tests.bench.sections import written_section


def test_every_read_is_sent_and_none_is_dropped(tmp_path: Path) -> None:
    with discarding_recorder(tmp_path / "recorder.sock"):
        costs = uvloop.run(spent(tmp_path, events=1_600, rounds=2))
    assert all(0 < cost.handed_over < cost.whole and cost.yardstick > 0 for cost in costs)
    balance = read_balance(tmp_path / "counters")
    assert balance.seen == 2 * 1_600
    assert not any(balance.dropped.values())


def test_a_figure_is_the_median_of_the_rounds() -> None:
    costs = [Spent(0.4e-6, 0.8e-6, 0.24e-6), Spent(0.2e-6, 1.6e-6, 0.24e-6), Spent(9e-6, 1e-6, 9e-6)]
    assert [row[1:] for row in rows(costs)[1:]] == [["0.40", "0.60"], ["1.00", "2.00"]]


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("capture", main, ["--events=800", "--rounds=1"], tmp_path)
    assert section.startswith("| capture in the relay ")
    assert "handed over" in capsys.readouterr().out
