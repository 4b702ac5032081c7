"""The log lines about a worker that is not ready: one after some time, and one when it is ready again."""

import logging

import pytest

from streamgauge.worker.readiness import LOGGED_AFTER_S, Readiness


def test_long_unreadiness_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    readiness = Readiness()
    readiness.update(None, 99.0, 8)
    for at in range(40):
        readiness.update("no worker has t/0", 100.0 + at)
    for at in range(5):
        readiness.update(None, 140.0 + at, 8)
    assert caplog.messages == [
        f"the worker has not been ready for {LOGGED_AFTER_S:.0f} s: no worker has t/0",
        "the worker is ready again, after 40 s",
    ]


def test_short_rebalance_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    readiness = Readiness()
    for at in range(100):
        readiness.update("its consumer group is rebalancing" if at % 8 else None, float(at))
    assert caplog.messages == []


def test_the_first_time_it_is_ready_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamgauge.worker")
    readiness = Readiness()
    readiness.update("it has no assignment yet", 1.0)
    readiness.update(None, 2.0)  # the broker does not answer
    for at in range(3, 6):
        readiness.update(None, float(at), 8)
    assert caplog.messages == ["the worker is ready, with 8 partitions"]


def test_an_unreachable_broker_does_not_make_a_worker_ready_again(caplog: pytest.LogCaptureFixture) -> None:
    readiness = Readiness()
    readiness.update(None, 0.0, 8)
    for at in range(1, 20):
        readiness.update("no worker has t/0", float(at))
    for at in range(20, 40):
        readiness.update(None, float(at))
    readiness.update("no worker has t/0", 40.0)
    readiness.update(None, 41.0, 8)
    assert caplog.messages == [
        f"the worker has not been ready for {LOGGED_AFTER_S:.0f} s: no worker has t/0",
        "the worker is ready again, after 40 s",
    ]


def test_a_worker_that_was_never_ready_is_not_ready_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamgauge.worker")
    readiness = Readiness()
    for at in range(12):
        readiness.update("it has no assignment yet", float(at))
    readiness.update(None, 12.0, 8)
    assert caplog.messages == [
        f"the worker has not been ready for {LOGGED_AFTER_S:.0f} s: it has no assignment yet",
        "the worker is ready, with 8 partitions",
    ]
