"""Times of a HAR: what was measured, and nothing else."""

from typing import Any

import pytest

from streamgauge.taps.replay.contract import Times
from streamgauge.taps.replay.har import pages_of, stamps_of, times_of

STARTED = 1_700_000_000_250_000_000
MS = 1_000_000


def entry(started: object = "2023-11-14T22:13:20.250Z", **timings: Any) -> dict[object, object]:
    return {"startedDateTime": started, "timings": timings, "pageref": "page_1"}


BROWSER = {"blocked": 2.5, "dns": 1, "connect": 30, "ssl": 20, "send": 0.5, "wait": 400, "receive": 1_600.25}


def test_phases_follow_one_another_and_ssl_is_part_of_connect() -> None:
    assert times_of(entry(**BROWSER), "WebInspector") == Times(
        started_ns=STARTED, connected_ns=33_500_000, sent_ns=34 * MS, head_ns=434 * MS, end_ns=2_034_250_000
    )


def test_what_does_not_apply_takes_no_time() -> None:
    reused = {**BROWSER, "blocked": -1, "dns": -1, "connect": -1, "ssl": -1}
    assert times_of(entry(**reused), "x") == Times(
        started_ns=STARTED, sent_ns=MS // 2, head_ns=400 * MS + MS // 2, end_ns=2_000_750_000
    )


@pytest.mark.parametrize("wait", [-1, 0, None, "fast", float("nan"), float("inf"), True])
def test_without_a_wait_there_are_no_times(wait: object) -> None:
    times = times_of(entry(**{**BROWSER, "wait": wait}), "x")
    assert (times.started_ns, times.head_ns, times.end_ns) == (STARTED, None, None)


def test_a_response_may_come_at_once_or_have_no_known_end() -> None:
    assert times_of(entry(wait=1, receive=0), "x").end_ns == MS
    assert times_of(entry(wait=1, receive=-1), "x").end_ns is None
    assert times_of(entry(wait=1), "x").end_ns is None


def test_a_proxys_send_is_its_clients_and_its_connect_may_be_at_any_time() -> None:
    times = times_of(entry(**BROWSER), "mitmproxy")
    assert times == Times(started_ns=STARTED, head_ns=400_500_000, end_ns=2_000_750_000)


@pytest.mark.parametrize(
    ("started", "known"),
    [
        ("2023-11-14T23:13:20.25+01:00", True),
        ("2023-11-14T22:13:20.250000+00:00", True),
        ("2023-11-14T22:13:20.250", False),  # without a time zone
        ("yesterday", False),
        ("", False),
        (None, False),
        (1_700_000_000, False),
        ("0001-01-01T00:00:00Z", False),
        ("9999-12-31T23:59:59Z", False),
    ],
)
def test_the_start(started: object, known: bool) -> None:
    assert times_of(entry(started), "x").started_ns == (STARTED if known else None)


PAGES = pages_of([{"id": "page_1", "startedDateTime": "2023-11-14T22:13:20Z"}, {"id": "page_2"}, None])


def stamps(*chunks: object, size: int = 30, started: object = "2023-11-14T22:13:20.250Z") -> list[tuple[int, int]]:
    return stamps_of({**entry(started), "_chunks": list(chunks)}, PAGES, size)


def chunk(ts: object, size: object) -> dict[str, object]:
    return {"ts": ts, "bytes": size}


def test_chunks_are_stamped_from_when_the_page_began() -> None:
    assert stamps(chunk(260, 10), chunk(260, 15), chunk(1_000.5, 5)) == [
        (10, 10 * MS),
        (15, 10 * MS),
        (5, 750_500_000),
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(260, 10)],  # of a compressed body: bytes on the wire
        [chunk(260, 31)],
        [chunk(300, 10), chunk(299, 20)],
        [chunk(249, 30)],  # before the request
        [chunk(260, 0), chunk(260, 30)],
        [chunk(260, -1), chunk(260, 31)],
        [chunk(None, 30)],
        [chunk(260, "x")],
        [None, chunk(260, 30)],
        [],
    ],
)
def test_chunks_that_do_not_match_the_body_give_no_times(chunks: list[object]) -> None:
    assert stamps(*chunks) == []


def test_without_a_page_or_a_start_chunks_give_no_times() -> None:
    assert stamps(chunk(260, 30), started=None) == []
    assert stamps_of({**entry(), "_chunks": [chunk(260, 30)], "pageref": "page_2"}, PAGES, 30) == []
    assert stamps_of({**entry(), "_chunks": {"a": 1}}, PAGES, 30) == []
    assert stamps(size=0) == []
