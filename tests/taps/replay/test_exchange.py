"""Exchanges reported to a recorder as a tap reports them, with exactly the facts of the recording."""

from typing import Any

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Segment
from streamgauge.core.record import Record, Request
from streamgauge.recorder.protocol import MAX_REQUEST_BODY
from streamgauge.settings.attributes import Attribute
from streamgauge.taps.replay.contract import RecordedExchange, Tally, Times
from streamgauge.taps.replay.exchange import TAP, is_captured, segments_of, without_decoded_coding
from tests.taps import talk
from tests.taps.talk import BODY, EVENTS, gzipped

SSE = ("content-type", "text/event-stream")
MS = 1_000_000


def exchange(**more: object) -> RecordedExchange:
    whole: dict[str, object] = {
        "method": "POST", "target": "/v1/chat/completions", "host": "api.example.com", "request_body": b'{"model":"m"}',
        "status": 200, "headers": [SSE], "body": BODY,
    }  # fmt: skip
    return RecordedExchange(**{**whole, **more})  # type: ignore[arg-type]


def segments(*exchanges: RecordedExchange, tally: Tally | None = None, **settings: object) -> list[Segment]:
    return list(segments_of(exchanges, talk.settings(**settings), tally or Tally()))  # type: ignore[arg-type]


def record(one: RecordedExchange, **settings: Any) -> Record:
    [made] = Assembler().apply(0, 0, Bundle(b"i" * 16, 0, 0, 0, segments(one, **settings)))
    return made


def test_known_facts_are_reported_and_the_rest_is_null() -> None:
    made = record(exchange())
    assert (made.tap, made.upstream, made.endpoint, made.status_code) == (
        TAP,
        "api.example.com",
        "/chat/completions",
        200,
    )
    assert (made.outcome, made.request_model, made.started_at) == ("completed", "m", None)
    assert made.timing.headers_s is made.timing.end_s is made.timing.first_token_s is None
    assert (made.counts.bytes, made.counts.client_bytes) == (len(BODY), None)


def test_times_without_arrivals_are_those_of_head_and_end() -> None:
    times = Times(1_700_000_000_000_000_000, connected_ns=10 * MS, sent_ns=20 * MS, head_ns=300 * MS, end_ns=2_000 * MS)
    made = record(exchange(times=times))
    timing = made.timing
    assert made.started_at == "2023-11-14T22:13:20.000000Z"
    assert (timing.upstream_connect_s, timing.request_sent_s, timing.headers_s, timing.end_s) == (0.01, 0.02, 0.3, 2.0)
    assert timing.first_byte_s is timing.first_token_s is timing.gaps.p50_s is timing.burst is None
    assert timing.gaps.count == 1


def test_stamps_of_chunks_give_all_times() -> None:
    stamps = [(len(event), 100 * MS * number) for number, event in enumerate(EVENTS, 1)]
    timing = record(exchange(stamps=stamps)).timing
    assert (timing.first_byte_s, timing.first_token_s, timing.last_token_s) == (0.1, 0.2, 0.4)
    assert timing.gaps.p50_s == 0.2


def test_a_body_that_was_not_recorded_is_missing_and_not_empty() -> None:
    tally = Tally()
    one = exchange(body=None)
    [made] = Assembler().apply(0, 0, Bundle(b"i" * 16, 0, 0, 0, segments(one, tally=tally)))
    assert (made.integrity.complete, made.integrity.reasons) == (False, ["dropped_reads"])
    assert tally.without_body == 1
    empty = record(exchange(body=b""))
    assert empty.integrity.complete


def test_without_a_response_the_end_has_the_known_facts() -> None:
    tally = Tally()
    for ending, outcome in (
        (Ending.RESET, "upstream_reset"),
        (Ending.CLIENT, "client_abort"),
        (Ending.CUT, "abandoned"),
    ):
        one = exchange(status=None, headers=[], body=None, ending=ending)
        [made] = Assembler().apply(0, 0, Bundle(b"i" * 16, 0, 0, 0, segments(one, tally=tally)))
        assert (made.outcome, made.status_code) == (outcome, None)
    assert tally.without_body == 0


@pytest.mark.parametrize(
    ("body", "size", "known"),
    [
        (b'{"model":"m"}', None, (13, "m", True)),
        (b"", None, (0, None, False)),
        (None, 99, (99, None, False)),
        (b"x" * (MAX_REQUEST_BODY + 1), None, (MAX_REQUEST_BODY + 1, None, False)),
    ],
)
def test_requests_with_the_known_facts(body: bytes | None, size: int | None, known: tuple[object, ...]) -> None:
    made = record(exchange(request_body=body, request_bytes=size))
    assert made.request is not None
    assert (made.request.body_bytes, made.request_model, made.request_digest is not None) == known


def test_an_unknown_request_has_no_facts_but_its_host() -> None:
    assert record(exchange(request_body=None)).request == Request(host="api.example.com")


def test_a_decoded_request_is_read_although_its_header_names_a_coding() -> None:
    coded = [("content-encoding", "gzip")]
    assert record(exchange(request_headers=coded)).request_model == "m"
    assert record(exchange(request_headers=coded, request_body=gzipped(b'{"model":"m"}'))).request_model == "m"


def test_headers_by_allowlist_and_the_tenant_header() -> None:
    headers = [
        ("x-team", "a-team"),
        ("x-other", "A SECRET"),
        ("traceparent", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"),
    ]
    made = record(exchange(request_headers=headers), tenant_header="X-Team")
    assert (made.tenant, made.trace_id, made.parent_span_id) == ("a-team", "1" * 32, "2" * 16)
    kept = segments(exchange(request_headers=headers, headers=[SSE, ("x-request-id", "r"), ("set-cookie", "A SECRET")]))
    assert "SECRET" not in repr(kept)


def test_attributes_of_a_recorded_request() -> None:
    named = exchange(request_headers=[("x-agent", "planner"), ("x-other", "A SECRET")])
    wanted = [Attribute("agent", "x-agent")]
    found = [one.opening for one in segments_of([named], talk.settings("masked"), Tally(), attributes=wanted)]
    assert [one.attributes for one in found if one is not None] == [(("agent", "planner"),)]


@pytest.mark.parametrize(
    ("method", "target", "headers", "captured"),
    [
        ("POST", "/v1/messages", [], True),
        ("GET", "/v1/responses/resp_1?stream=true", [], True),
        ("OPTIONS", "/v1/messages", [], False),
        ("GET", "/any", [("content-type", "Text/Event-Stream; charset=utf-8")], True),
        ("GET", "/any", [("content-type", "application/json")], False),
        ("", "", [], False),
    ],
)
def test_the_same_exchanges_are_captured_as_live(
    method: str, target: str, headers: list[tuple[str, str]], captured: bool
) -> None:
    assert is_captured(exchange(method=method, target=target, headers=headers)) is captured


@pytest.mark.parametrize(
    ("coding", "body", "kept"),
    [
        ("gzip", gzipped(BODY), True),
        ("gzip", gzipped(BODY)[:40], True),  # cut, and still encoded
        ("gzip", b"\x1f\x8bdamaged", True),
        ("gzip", BODY, False),
        ("gzip", b"\xef\xbb\xbf" + BODY, False),
        ("br", b"{}", False),
        ("gzip, br", BODY, False),
        ("unheard-of", BODY, False),
        ("unheard-of", b"\0\1", True),
        ("gzip", b"", True),
    ],
)
def test_a_coding_is_reported_while_the_body_has_it(coding: str, body: bytes, kept: bool) -> None:
    headers = [SSE, ("content-encoding", coding)]
    assert without_decoded_coding(headers, body) == (headers if kept else [SSE])
