"""Facts of a response's head, and how its content is classified."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Head
from streamgauge.core.http1.head import MAX_FIELDS, ResponseHead
from streamgauge.recorder.protocol import RESPONSE_HEADERS
from streamgauge.recorder.response_head import (
    MAX_SNIFF_BYTES,
    Expected,
    expected_of,
    head_facts,
    is_event_stream,
    reported_head,
)
from tests.each import each


def head(*headers: tuple[str, str], status: int = 200) -> ResponseHead:
    return ResponseHead(status, 1, list(headers))


DATE = ("date", "Tue, 15 Nov 1994 08:12:31 GMT")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([("retry-after", "30")], 30.0),
        ([("retry-after", "0")], 0.0),
        ([("retry-after", "0.5")], 0.5),
        ([("retry-after", "Tue, 15 Nov 1994 08:14:01 GMT"), DATE], 90.0),
        ([("retry-after", "Tue, 15 Nov 1994 08:10:01 GMT"), DATE], 0.0),
        ([("retry-after", "Tue, 15 Nov 1994 08:14:01 GMT")], None),
        ([("retry-after", "Tue, 15 Nov 1994 08:14:01"), DATE], None),
        ([("retry-after", "Tue, 99 Nov 99999999999 08:14:01 GMT"), DATE], None),
        ([("retry-after", "soon")], None),
        ([("retry-after", "-5")], None),
        ([("retry-after", "1e9")], None),
        ([("retry-after", "9" * 400)], None),
        ([("retry-after", "")], None),
        ([], None),
    ],
)
def test_retry_after(headers: list[tuple[str, str]], seconds: float | None) -> None:
    assert head_facts(head(*headers, status=429), 5, event_stream=False).retry_after_s == seconds


@given(st.text(), st.text())
def test_no_header_value_raises(one: str, two: str) -> None:
    names = ("retry-after", "date", "content-type", "content-encoding", "x-request-id", "openai-organization", RESET[0])
    for name in names:
        given_head = head((name, one), ("date", two))
        assert head_facts(given_head, None, event_stream=False).status == 200
        assert expected_of(given_head) in Expected


RESET = ("anthropic-ratelimit-tokens-reset", "1994-11-15T08:13:31Z")


def test_a_reset_counts_from_the_date_of_the_response_else_from_when_its_head_came() -> None:
    began = 784_887_150 * 10**9  # 08:12:30
    for headers, stamp_ns, began_ns, seconds in (
        ([RESET, DATE], None, None, 60.0),
        ([RESET, DATE], 0, began, 60.0),
        ([RESET, ("date", "Tue, 15 Nov 1994 08:12:31 -0000")], 0, began, 60.0),
        ([RESET], 500_000_000, began, 60.5),
        ([RESET, ("date", "today")], 500_000_000, began, 60.5),
        ([RESET], None, began, None),
        ([RESET], 5, None, None),
        ([RESET], 5, 10**21, None),
    ):
        facts = head_facts(head(*headers), stamp_ns, event_stream=True, began_wall_ns=began_ns)
        found = None if facts.rate_limit is None else facts.rate_limit.tokens_reset_ns
        assert found == (None if seconds is None else round(seconds * 1e9)), headers


def test_facts_by_allowlist() -> None:
    facts = head_facts(
        head(
            ("apim-request-id", "azure-1"),
            ("request-id", "req_2"),
            ("anthropic-organization-id", "org-3"),
            ("openai-project", "proj_4"),
            ("content-encoding", "GZIP"),
            ("content-encoding", "br"),
            ("set-cookie", "secret"),
        ),
        77,
        event_stream=True,
    )
    assert facts == Head(200, 77, True, "gzip, br", None, "req_2", "org-3", "proj_4")
    assert head_facts(head(("x-request-id", "ü"), ("request-id", "r")), None, event_stream=True) == Head(
        200, None, True, provider_request_id="masked"
    )


@pytest.mark.parametrize(
    ("headers", "gateway", "cost"),
    [
        ([("x-litellm-response-cost", "2.85e-05")], "litellm", "0.0000285"),
        ([("x-litellm-version", "1.80.0"), ("x-litellm-response-cost", "secret")], "litellm", None),
        ([("x-litellm-call-id", "b980db26-9512-45cc-b1da-c511a363b83f")], "litellm", None),
        ([("x-litellm-response-cost", "")], None, None),
        ([("x-response-cost", "0.5")], None, None),
    ],
)
def test_litellm_and_its_cost(headers: list[tuple[str, str]], gateway: str | None, cost: str | None) -> None:
    facts = head_facts(head(*headers), None, event_stream=True)
    assert (facts.gateway, facts.cost) == (gateway, cost)


@pytest.mark.parametrize(
    ("reported", "kept"), [(200, 200), (599, 599), (None, None), (0, None), (-1, None), (10**30, None)]
)
def test_a_head_that_is_reported(reported: int | None, kept: int | None) -> None:
    facts = reported_head(reported, [("transfer-encoding", "chunked"), *[("x-request-id", "r")] * (MAX_FIELDS + 5)])
    assert len(facts.headers) == MAX_FIELDS - 1
    assert head_facts(facts, 5, event_stream=True) == Head(kept, 5, True, provider_request_id="r")


def test_every_header_that_is_read_may_be_reported() -> None:
    """A tap that reports heads leaves out other headers, so each header that is read must be among the reported ones."""
    looked_at: set[str] = set()

    class Firsts(dict[str, str]):
        def get(self, name: str, default: object = None) -> Any:
            looked_at.add(name)
            return "Tue, 15 Nov 1994 08:12:31 GMT" if name == "retry-after" else default

    class Watched(ResponseHead, frozen=True):
        def all(self, name: str) -> list[str]:
            looked_at.add(name)
            return []

        def first(self, name: str) -> str | None:
            looked_at.add(name)
            return None

        def firsts(self) -> Mapping[str, str]:
            return Firsts()

    expected_of(Watched(200, 1, []))
    head_facts(Watched(200, 1, []), None, event_stream=True)
    assert looked_at == RESPONSE_HEADERS


@pytest.mark.parametrize(
    ("headers", "status", "expected"),
    [
        ([("content-type", "text/event-stream")], 200, Expected.EVENTS),
        ([("content-type", "Text/Event-Stream; charset=utf-8")], 200, Expected.EVENTS),
        ([("content-type", "text/event-stream;charset=UTF-8")], 503, Expected.EVENTS_OF_ERROR),
        ([("content-type", "application/json")], 200, Expected.OTHER),
        ([], 200, Expected.OTHER),
        ([("content-type", "text/event-streams")], 200, Expected.OTHER),
        ([("content-type", "text/event-stream, text/event-stream")], 200, Expected.EVENTS),
        ([("content-type", "text/event-stream;charset=utf-8,text/event-stream")], 200, Expected.EVENTS),
        ([("content-type", "application/json"), ("content-type", "text/event-stream")], 200, Expected.EVENTS),
        ([("content-type", "text/plain, text/event-stream; charset=utf-8")], 429, Expected.EVENTS_OF_ERROR),
        ([("content-type", "application/json")], 302, Expected.NO_EVENTS),
        ([], 500, Expected.NO_EVENTS),
    ],
)
def test_the_content_expected_by_a_head(headers: list[tuple[str, str]], status: int, expected: Expected) -> None:
    assert expected_of(head(*headers, status=status)) is expected


CONTENTS = [
    # the content, and whether an event stream is expected: as events, events of an error, other
    (b"data: x", True, True, True),
    (b"event: x", True, True, True),
    (b"data:x", True, True, True),
    (b"id: 1\n", True, True, False),
    (b"retry: 1", True, True, False),
    (b": comment", True, True, False),
    (b"\xef\xbb\xbfdata: x", True, True, True),
    (b"\xef\xbb\xbf: x", True, True, False),
    (b"\n\r\n data: x", True, True, False),
    (b'{"error": 1}', False, False, False),
    (b' \n [{"candidates"', False, False, False),
    (b"<!doctype html>", False, False, False),
    (b"\xef\xbb\xbf<html>", False, False, False),
    (b"upstream connect error", True, False, False),
    (b"dat", True, False, False),
    (b"\xef\xbb", True, False, False),
    (b"", True, False, False),
    (b": ping\n\ndata: x", True, True, True),
    (b"id: 7\r\nretry: 3\r\n: c\r\nevent: x", True, True, True),
    (b"\n \n\r\rdata: x", True, True, True),
    (b"\xef\xbb\xbf:\nid:\ndata:", True, True, True),
    (b": ping\nname: x\ndata: x", True, True, False),
    (b"id: 7\nname: x", True, True, False),
    (b": ping\n\n" * 300, True, True, True),
    (b":" + b"p" * 2000, True, True, True),
    (b"\n" * 2000, True, False, False),
    (b" " * 2000 + b"{", True, False, False),
]


@each(CONTENTS)
def test_how_the_content_is_classified(case: tuple[bytes, bool, bool, bool]) -> None:
    """Byte by byte: undecided at first, then decided for good."""
    content, events, error, other = case
    for expected, right in (
        (Expected.EVENTS, events),
        (Expected.EVENTS_OF_ERROR, error),
        (Expected.OTHER, other),
        (Expected.NO_EVENTS, False),
    ):
        steps = [is_event_stream(expected, content[:upto], over=False) for upto in range(len(content) + 1)]
        decided = [step for step in steps if step is not None] + [is_event_stream(expected, content, over=True)]
        assert set(decided) == {right}, expected
        assert None not in steps[steps.index(decided[0]) :] if decided[0] in steps else True


def test_only_a_limited_beginning_is_read() -> None:
    assert is_event_stream(Expected.EVENTS, b"\n" * (MAX_SNIFF_BYTES - 1), over=False) is None
    assert is_event_stream(Expected.EVENTS, b"\n" * MAX_SNIFF_BYTES, over=False) is True
