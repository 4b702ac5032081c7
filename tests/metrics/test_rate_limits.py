"""The gauges of rate limits show the newest response of each upstream and API key, and go when it is too old."""

import tracemalloc
from typing import Any

import pytest

from streamgauge.core.record import RateLimit, Record
from streamgauge.metrics.declarations import LABELS, OTHER, PAGE_SERIES
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.rate_limits import KEEP_S, MAX_KEEP_S
from tests.metrics.pages import lines_of, read_page
from tests.metrics.records import make_record

LIMIT = RateLimit(500, 499, 0.12, 30_000, 29_000, 2.0)
KEY = {"upstream": "nimbus", "credential_id": "c" * 32}
REMAINING = "streamgauge_rate_limit_remaining"


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def limited(limit: RateLimit | None, **changes: Any) -> Record:
    return make_record(rate_limit=limit, **{"credential_id": "c" * 32, **changes})


def test_all_numbers_of_a_response() -> None:
    metrics = Metrics()
    metrics.observe(limited(LIMIT))
    page = read_page(metrics.render())
    for kind, most, remaining, reset_s in (("requests", 500, 499, 0.12), ("tokens", 30_000, 29_000, 2.0)):
        assert page.value("streamgauge_rate_limit_limit", **KEY, kind=kind) == most
        assert page.value(REMAINING, **KEY, kind=kind) == remaining
        assert page.value("streamgauge_rate_limit_reset_seconds", **KEY, kind=kind) == reset_s


def test_a_response_without_limits_changes_nothing() -> None:
    metrics = Metrics()
    metrics.observe(limited(None))
    assert read_page(metrics.render()).label_values("credential_id") == set()
    metrics.observe(limited(LIMIT))
    metrics.observe(limited(None, started_at="2026-03-01T12:09:00.000000Z"))
    assert read_page(metrics.render()).value(REMAINING, **KEY, kind="tokens") == 29_000


def test_the_newest_response_counts_and_not_the_last_record() -> None:
    """The stream that began first ended last. Its head came later than it began."""
    metrics = Metrics()
    metrics.observe(limited(RateLimit(9, 3, None, None, None, None), started_at="2026-03-01T12:00:05.000000Z"))
    metrics.observe(limited(RateLimit(9, 4, None, None, None, None), started_at="2026-03-01T12:00:04.000000Z"))
    assert read_page(metrics.render()).value(REMAINING, **KEY, kind="requests") == 3
    late = make_record().timing
    late.headers_s = 6.0
    metrics.observe(
        limited(RateLimit(9, 1, None, None, None, None), started_at="2026-03-01T12:00:00.000000Z", timing=late)
    )
    assert read_page(metrics.render()).value(REMAINING, **KEY, kind="requests") == 1


def test_a_number_that_the_newest_response_lacks_is_not_that_of_an_older_one() -> None:
    metrics = Metrics()
    metrics.observe(limited(LIMIT))
    metrics.observe(limited(RateLimit(500, 490, None, None, None, None), started_at="2026-03-01T12:00:09.000000Z"))
    page = read_page(metrics.render())
    assert page.value(REMAINING, **KEY, kind="requests") == 490
    assert (REMAINING, frozenset({**KEY, "kind": "tokens"}.items())) not in page.samples
    assert page.total("streamgauge_rate_limit_reset_seconds") == 0


def test_a_value_goes_after_its_reset_and_not_before_some_scrapes() -> None:
    time = Time()
    metrics = Metrics(clock=time)
    metrics.observe(limited(RateLimit(500, 0, 0.1, 10, 0, 3_600.0)))
    for moment, kinds in (
        (KEEP_S - 1, {"requests", "tokens"}),
        (KEEP_S, {"tokens"}),
        (3_599, {"tokens"}),
        (3_600, set()),
    ):
        time.now = 1_000.0 + moment
        shown = {kind for (name, _), kind in kinds_of(metrics) if name == REMAINING}
        assert shown == kinds, moment
    metrics.observe(limited(RateLimit(500, 0, 1e9, None, None, None)))
    time.now += MAX_KEEP_S
    assert kinds_of(metrics) == []


def kinds_of(metrics: Metrics) -> list[tuple[tuple[str, frozenset[tuple[str, str]]], str]]:
    samples = read_page(metrics.render()).samples
    return [(series, dict(series[1])["kind"]) for series in samples if series[0].startswith("streamgauge_rate_limit")]


def test_an_unknown_key_and_an_unknown_start() -> None:
    metrics = Metrics()
    metrics.observe(limited(LIMIT, credential_id=None, started_at=None))
    assert read_page(metrics.render()).value(REMAINING, upstream="nimbus", credential_id="unknown", kind="tokens") > 0


@pytest.mark.slow
def test_20_000_keys_stay_within_the_budget_and_the_page() -> None:
    metrics = Metrics()
    for number in range(20_000):
        metrics.observe(limited(LIMIT, credential_id=f"{number:032x}"))
        if number == 10_000:
            tracemalloc.start()
        if number == 14_000:
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert held < 4_000 * 32 / 2, "keys are kept"
    body = metrics.render()
    page = read_page(body)
    assert lines_of(body) < PAGE_SERIES
    assert len(page.label_values("credential_id")) <= LABELS["credential_id"].budget
    assert page.value(REMAINING, upstream="nimbus", credential_id=OTHER, kind="tokens") == 29_000
