"""The clock, compared with the Date header of a server that is ahead or behind."""

import time
from pathlib import Path

import pytest

from tests.doctor.examined import FAIL, OK, WARN, installation, only
from tests.doctor.test_upstreams import answer, plain
from tests.taps.proxy.rig import RawUpstream


@pytest.mark.parametrize(
    ("ahead_s", "level", "says"),
    [
        (0, OK, "differs from that of 127.0.0.1 by less than 5 s"),
        (-60, WARN, "s ahead of that of 127.0.0.1"),
        (60, WARN, "s behind that of 127.0.0.1"),
        (-4000, FAIL, "s ahead of that of 127.0.0.1"),
    ],
)
def test_the_difference_to_a_server(ahead_s: float, level: str, says: str, tmp_path: Path) -> None:
    with RawUpstream(plain(answer(time.time() + ahead_s))) as upstream:
        seen = only("clock", installation("up", tmp_path, upstream=f"a={upstream.url}"))
    assert (seen.level, says in seen.says) == (level, True), seen


def test_one_wrong_server_of_two_is_no_wrong_clock(tmp_path: Path) -> None:
    with RawUpstream(plain(answer(1e9))) as wrong, RawUpstream(plain(answer())) as right:
        urls = [f"wrong={wrong.url}", f"right={right.url}"]
        assert only("clock", installation("up", tmp_path, upstream=urls)).level is OK


def test_the_difference_to_prometheus(tmp_path: Path) -> None:
    with RawUpstream(plain(answer(time.time() + 60))) as prometheus:
        seen = only("clock", installation("worker", tmp_path, prometheus=prometheus.url))
    assert (seen.level, "s behind that of Prometheus" in seen.says) == (WARN, True)


def test_without_a_server_the_clock_is_not_compared(tmp_path: Path) -> None:
    with RawUpstream(plain(b"HTTP/1.1 200 OK\r\nDate: never\r\n\r\n")) as upstream:
        seen = only("clock", installation("up", tmp_path, upstream=f"a={upstream.url}"))
    assert (seen.level, "no other host" in seen.says) == (WARN, True)
