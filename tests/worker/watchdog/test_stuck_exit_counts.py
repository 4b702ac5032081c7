"""The successor of a stuck worker exports the count of its exit."""

from pathlib import Path

import pytest

from streamgauge.metrics.declarations import MetricSource
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.watchdog.rules import Cause
from streamgauge.worker.watchdog.watchdog import StuckExitCounts


def exported(path: Path) -> dict[str, float]:
    metrics = Metrics((MetricSource.WORKER,))
    StuckExitCounts(path, "m-0", metrics)
    return said(metrics)


def said(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("streamgauge_worker_stuck_")]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_counts_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "0.exits"
    assert set(exported(path).values()) == {0.0}
    metrics = Metrics((MetricSource.WORKER,))
    StuckExitCounts(path, "m-0", metrics).count(Cause.LOOP)
    assert said(metrics)["loop"] == 1
    StuckExitCounts(path, "m-0", Metrics((MetricSource.WORKER,))).count(Cause.LOOP)
    StuckExitCounts(path, "m-0", Metrics((MetricSource.WORKER,))).count(Cause.COMMIT)
    assert exported(path) == {"loop": 2, "commit": 1, "group": 0, "stop": 0}


def test_a_link_in_the_new_file_s_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "0.new").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_text("precious")
    StuckExitCounts(tmp_path / "0.exits", "m-0", Metrics((MetricSource.WORKER,))).count(Cause.LOOP)
    assert (tmp_path / "victim").read_text() == "precious"
    assert exported(tmp_path / "0.exits")["loop"] == 1


@pytest.mark.parametrize("junk", [b"", b"{", b'{"loop":"x"}', b"[1]", b'{"unheard-of":1}', b"\xff" * 10_000])
def test_file_that_holds_no_counts_is_ignored(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "0.exits"
    path.write_bytes(junk)
    assert set(exported(path).values()) == {0.0}


def test_failed_write_does_not_stop_the_exit(tmp_path: Path) -> None:
    metrics = Metrics((MetricSource.WORKER,))
    StuckExitCounts(tmp_path / "not there" / "0.exits", "m-0", metrics).count(Cause.STOP)
    assert said(metrics)["stop"] == 1


def test_counts_are_those_of_the_member(tmp_path: Path) -> None:
    """A restarted worker may get another slot: the count must not look like one of its own."""
    metrics = Metrics((MetricSource.WORKER,))
    StuckExitCounts(tmp_path / "0.exits", f"{'a' * 32}-0", metrics).count(Cause.LOOP)
    assert (
        f'streamgauge_worker_stuck_exits_total{{cause="loop",member="{"a" * 32}-0"}} 1.0' in metrics.render().decode()
    )
