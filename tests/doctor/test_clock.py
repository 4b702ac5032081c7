"""The clock, compared with the Date header of a server that is ahead or behind."""

import time
from pathlib import Path

import pytest

from streamgauge.doctor import clock
from tests.doctor.examined import FAIL, OK, WARN, installation, only
from tests.doctor.test_upstreams import answer, plain
from tests.taps.proxy.rig import RawUpstream


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the servers of a test for those of other hosts."""
    monkeypatch.setattr(clock, "is_loopback", lambda _: False)


@pytest.mark.usefixtures("elsewhere")
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


@pytest.mark.usefixtures("elsewhere")
def test_one_wrong_server_of_two_is_no_wrong_clock(tmp_path: Path) -> None:
    with RawUpstream(plain(answer(1e9))) as wrong, RawUpstream(plain(answer())) as right:
        urls = [f"wrong={wrong.url}", f"right={right.url}"]
        assert only("clock", installation("up", tmp_path, upstream=urls)).level is OK


@pytest.mark.usefixtures("elsewhere")
def test_the_difference_to_prometheus(tmp_path: Path) -> None:
    with RawUpstream(plain(answer(time.time() + 60))) as prometheus:
        seen = only("clock", installation("worker", tmp_path, prometheus=prometheus.url))
    assert (seen.level, "s behind that of Prometheus" in seen.says) == (WARN, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_clock_of_this_host_is_not_compared_with_itself(host: str, tmp_path: Path) -> None:
    with RawUpstream(plain(answer())) as upstream, RawUpstream(plain(answer())) as prometheus:
        urls = [one.url.replace("127.0.0.1", host) for one in (upstream, prometheus)]
        seen = only("clock", installation("up", tmp_path, upstream=f"a={urls[0]}", prometheus=urls[1]))
    assert (seen.level, "no other host" in seen.says) == (WARN, True)


def test_an_address_that_is_none_is_left_to_the_other_checks(tmp_path: Path) -> None:
    for url in ("http://prometheus:port", "http://[::1"):
        assert only("clock", installation("up", tmp_path, prometheus=url)).level is WARN


@pytest.mark.usefixtures("elsewhere")
def test_without_a_server_the_clock_is_not_compared(tmp_path: Path) -> None:
    with RawUpstream(plain(b"HTTP/1.1 200 OK\r\nDate: never\r\n\r\n")) as upstream:
        seen = only("clock", installation("up", tmp_path, upstream=f"a={upstream.url}"))
    assert (seen.level, "no other host" in seen.says) == (WARN, True)
