"""What a span says of a record: names, times, parents, outcomes; and that no record makes the mapping fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from streamgauge.core.record import Choice, Error, Request, encode_record
from streamgauge.ledger import row_of
from streamgauge.metrics.table import OUTCOMES
from streamgauge.spans.span import NoSpanError, span_of
from tests.metrics.records import make_integrity, make_record, make_timing, make_usage

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
START_NS = 1_772_366_400_000_000_000  # of make_record
RECORDS = Path(__file__).parents[1] / "contracts" / "v1" / "records.jsonl"


def made(**changes: Any) -> ReadableSpan:
    return span_of(encode_record(make_record(**changes)))


def attributes(**changes: Any) -> dict[str, Any]:
    return dict(made(**changes).attributes or {})


def test_a_completed_stream() -> None:
    span = made(
        trace_id=TRACE,
        parent_span_id=PARENT,
        request=Request(stream=True, n=2, max_tokens=100),
        response_id="chat-1",
        usage=make_usage(10, 5, input_cached_tokens=4, input_cache_write_tokens=2, reasoning_tokens=3),
        choices=[Choice(0, "stop", "end_turn", 0.2, 3, []), Choice(1, "length", None, 0.2, 2, [])],
        attributes={"agent": "planner"},
        tenant="team-river",
        attempt=2,
    )
    assert (span.name, span.kind, span.status.status_code) == ("chat gpt-4o", SpanKind.CLIENT, StatusCode.UNSET)
    assert (span.start_time, span.end_time) == (START_NS, START_NS + 350_000_000)
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("streamgauge.first_token", START_NS + 200_000_000)
    ]
    assert span.resource.attributes["service.name"] == "streamgauge"
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": "chat-1",
        "gen_ai.response.finish_reasons": ("end_turn", "length"),
        "gen_ai.response.time_to_first_chunk": 0.15,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
        "http.response.status_code": 200,
        "streamgauge.stream_id": "0190b4a0-0000-7000-8000-000000000001",
        "streamgauge.outcome": "completed",
        "streamgauge.upstream": "nimbus",
        "streamgauge.dialect": "openai-chat",
        "streamgauge.endpoint": "/chat/completions",
        "streamgauge.tap": "proxy",
        "streamgauge.tenant": "team-river",
        "streamgauge.attempt": 2,
        "streamgauge.finish_reason": "stop",
        "streamgauge.time_to_first_token": 0.2,
        "streamgauge.stalls": 0,
        "streamgauge.token_events": 5,
        "streamgauge.complete": True,
        "streamgauge.attribute.agent": "planner",
    }


ERRORS = {
    "http_error": Error("before_stream", type="rate_limit_error", code="slow_down", status=429),
    "stream_error": Error("in_stream", code="overloaded", status=529),
    "upstream_reset": Error("transport", status=502),
    "timeout": Error("transport"),
}
# What `error.type` says: the error's type, else its code, else its status, else the outcome.
TYPES = {"http_error": "rate_limit_error", "stream_error": "overloaded", "upstream_reset": "502"}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_has_its_status_and_error(outcome: str) -> None:
    error = ERRORS.get(outcome)
    span = made(outcome=outcome, error=error)
    known = dict(span.attributes or {})
    if outcome == "completed":
        assert (span.status.status_code, span.status.description) == (StatusCode.UNSET, None)
        assert "error.type" not in known
    else:
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, outcome)
        assert known["error.type"] == TYPES.get(outcome, outcome)
    found = [event for event in span.events if event.name == "streamgauge.error"]
    assert len(found) == (error is not None)
    for event in found:
        assert error is not None
        assert event.timestamp == span.end_time
        said: dict[str, Any] = {"streamgauge.error.phase": error.phase, "streamgauge.error.code": error.code}
        said |= {"error.type": TYPES.get(outcome, outcome), "streamgauge.error.status": error.status}
        assert dict(event.attributes or {}) == {name: value for name, value in said.items() if value is not None}


def test_the_caller_s_span_is_the_parent() -> None:
    span = made(trace_id=TRACE, parent_span_id=PARENT)
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id, span.parent.is_remote) == (int(TRACE, 16), int(PARENT, 16), True)
    assert span.context is not None
    assert span.context.trace_id == int(TRACE, 16)


@pytest.mark.parametrize(
    ("trace", "parent"), [(None, None), (None, PARENT), ("0" * 32, PARENT), (TRACE.upper(), PARENT), ("x", PARENT)]
)
def test_without_a_trace_the_stream_is_one(trace: str | None, parent: str | None) -> None:
    span = made(trace_id=trace, parent_span_id=parent)
    assert span.parent is None
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == "0190b4a0000070008000000000000001"


@pytest.mark.parametrize("parent", [None, "0" * 16, "x"])
def test_a_record_without_the_caller_s_span_is_in_the_trace(parent: str | None) -> None:
    span = made(trace_id=TRACE, parent_span_id=parent)
    assert span.parent is None
    assert span.context is not None
    assert span.context.trace_id == int(TRACE, 16)


def test_the_same_stream_is_the_same_span() -> None:
    """Also with its cost, as the ledger has it; another stream has another id."""
    record = make_record(trace_id=TRACE, parent_span_id=PARENT)
    assert span_of(row_of(record).record).to_json() == span_of(encode_record(record)).to_json()
    ids = [made(stream_id=f"0190b4a0-0000-7000-8000-{number:012d}").context for number in range(100)]
    assert len({one.span_id for one in ids if one}) == 100


def test_what_is_not_known_is_no_attribute() -> None:
    known = attributes(
        request=None, request_model=None, response_model=None, dialect=None, upstream=None, usage=make_usage(None, None),
        timing=make_timing(first_event_s=None, first_token_s=None), status_code=None, finish_reason=None, streaming=None,
    )  # fmt: skip
    assert not any(name.startswith(("gen_ai.request", "gen_ai.response", "gen_ai.usage", "server.")) for name in known)
    assert (known["gen_ai.operation.name"], known["gen_ai.provider.name"]) == ("unknown", "unknown")
    assert None not in known.values()
    assert made(request_model=None, response_model=None).name == "chat"
    assert made(request_model=None).name == "chat gpt-4o-2024-08-06"


def test_an_end_that_is_not_known_is_the_last_known_time() -> None:
    span = made(timing=make_timing(end_s=None), outcome="abandoned", integrity=make_integrity("missing"))
    assert span.end_time == START_NS + 300_000_000
    known = dict(span.attributes or {})
    assert (known["streamgauge.end_unknown"], known["streamgauge.complete"]) == (True, False)
    none = make_timing(**dict.fromkeys(("headers_s", "first_event_s", "first_token_s", "last_token_s", "end_s")))
    assert made(timing=none).end_time == START_NS


def test_the_address_of_an_upstream() -> None:
    def address(upstream: str) -> tuple[Any, Any]:
        record = encode_record(make_record(upstream=upstream))
        known = span_of(record, {"nimbus": ("api.nimbus.example", 443)}).attributes or {}
        return known.get("server.address"), known.get("server.port")

    assert address("nimbus") == ("api.nimbus.example", 443)
    assert address("10.0.0.7:8000") == ("10.0.0.7", 8000)
    assert address("another") == (None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"started_at": None}, {"started_at": "soon"}, {"started_at": "2026-03-01T12:00:00"}, {"stream_id": "x"},
        {"started_at": "1901-01-01T00:00:00Z"}, {"started_at": "9999-12-31T23:59:59Z"}, {"status_code": 2**70},
        {"tenant": "x" * 5_000}, {"timing": make_timing(end_s=1e300)}, {"timing": make_timing(first_token_s=-1.0)},
    ],
)  # fmt: skip
def test_no_span_can_be_made_of_these(changes: dict[str, Any]) -> None:
    with pytest.raises(NoSpanError):
        made(**changes)


def test_a_record_of_an_earlier_version_is_a_span() -> None:
    records = RECORDS.read_bytes().splitlines()
    assert len(records) > 40
    spans = [span_of(record) for record in records]
    assert sum(len(scope.spans) for one in encode_spans(spans).resource_spans for scope in one.scope_spans) == len(
        spans
    )


def check_any(record: bytes) -> None:
    """A record is a span that can be encoded, or NoSpanError is raised."""
    try:
        span = span_of(record)
    except NoSpanError:
        return
    assert encode_spans([span]).SerializeToString()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_any_changed_record_is_a_span_or_refused(data: st.DataObject) -> None:
    whole = json.loads(encode_record(make_record(error=ERRORS["http_error"], trace_id=TRACE, parent_span_id=PARENT)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = whole
        name = data.draw(st.sampled_from(sorted(place)))
        if isinstance(place[name], dict) and place[name] and data.draw(st.booleans()):
            place = place[name]
            name = data.draw(st.sampled_from(sorted(place)))
        place[name] = data.draw(JSON)
    check_any(json.dumps(whole).encode())


@given(st.binary())
def test_any_bytes_are_a_span_or_refused(record: bytes) -> None:
    check_any(record)
