"""What the log and the metrics show while the disk refuses writes."""

from pathlib import Path

from streamgauge.recorder.write_refusals import REPORT_EVERY_S, WriteRefusals
from streamgauge.spool.read_counters import Counters, read_writes_refused


def test_f10_the_first_refusal_and_the_end_are_reported_once(tmp_path: Path) -> None:
    lines: list[str] = []
    now = [100.0]
    with Counters(tmp_path / "counters", "recorder") as counters:
        refusals = WriteRefusals(str(tmp_path), counters, lines.append, lambda: now[0])
        refusals.written()
        assert lines == []
        for _ in range(3):
            refusals.refused("database or disk is full")
        assert read_writes_refused(tmp_path / "counters")
        now[0] += 2.5
        for _ in range(3):
            refusals.written()
        assert not read_writes_refused(tmp_path / "counters")
    begun, ended = lines
    assert str(tmp_path) in begun
    assert "(database or disk is full)" in begun
    assert "wait in memory" in begun
    assert "free space there" in begun
    assert ended == f"the spool in {tmp_path} can be written again, after 2.5 s"


def test_a_disk_that_refuses_repeatedly_is_reported_once_a_minute(tmp_path: Path) -> None:
    lines: list[str] = []
    now = [100.0]
    with Counters(tmp_path / "counters", "recorder") as counters:
        refusals = WriteRefusals(str(tmp_path), counters, lines.append, lambda: now[0])
        for _ in range(round(REPORT_EVERY_S)):
            refusals.refused("full")
            assert read_writes_refused(tmp_path / "counters")
            refusals.written()
            assert not read_writes_refused(tmp_path / "counters")
            now[0] += 1
        assert len(lines) == 2
        refusals.refused("full")
        assert len(lines) == 3


def test_a_recorder_that_was_killed_on_a_full_disk_leaves_no_refusal_to_the_next(tmp_path: Path) -> None:
    with Counters(tmp_path / "counters", "recorder") as counters:
        WriteRefusals(str(tmp_path), counters, print, lambda: 0.0).refused("full")
        assert read_writes_refused(tmp_path / "counters")
        WriteRefusals(str(tmp_path), counters, print, lambda: 0.0)
        assert not read_writes_refused(tmp_path / "counters")
