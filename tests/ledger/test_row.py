"""A record's JSON as a row: what it takes, and what it refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.record import encode_record
from streamgauge.ledger import LedgerRow, UnreadableRecordError, row_of
from tests.each import each
from tests.metrics.records import ABSENT, make_record, make_usage

RECORD = encode_record(make_record())


def changed(**changes: Any) -> bytes:
    return json.dumps({**json.loads(RECORD), **changes}).encode()


def without(name: str) -> bytes:
    """The record without a member."""
    return json.dumps({key: value for key, value in json.loads(RECORD).items() if key != name}).encode()


def test_the_stored_json_is_the_records_own_bytes_with_cost_as_last_member() -> None:
    row = LedgerRow.of_json(RECORD)
    assert row.record == RECORD[:-1] + b',"cost":null}'
    assert json.loads(row.record) == {**json.loads(RECORD), "cost": None}
    assert list(json.loads(row.record))[-1] == "cost"


def test_a_row_has_the_values_of_its_record() -> None:
    row = row_of(make_record(tenant="acme", usage=make_usage(7, 3, input_cached_tokens=2, reasoning_tokens=1)))
    assert (row.outcome, row.upstream, row.dialect, row.tenant) == ("completed", "nimbus", "openai-chat", "acme")
    assert (row.input_tokens, row.output_tokens, row.total_tokens, row.usage_source) == (7, 3, 10, "final")
    assert (row.tap, row.input_cached_tokens, row.reasoning_tokens) == ("proxy", 2, 1)
    assert (row.day, row.started_us) == ("2026-03-01", 1_772_366_400_000_000)


def test_the_model_is_that_of_the_response_or_else_of_the_request() -> None:
    assert row_of(make_record()).model == "gpt-4o-2024-08-06"
    assert row_of(make_record(response_model=None)).model == "gpt-4o"
    assert row_of(make_record(response_model=None, request_model=None)).model is None


def test_columns_that_link_resumed_streams_and_retries() -> None:
    known = {"request_digest": "d" * 32, "response_id": "r", "last_event_id": "17", "resumed_from": "9", "attempt": 2}
    row = LedgerRow.of_json(changed(**known))
    assert {name: getattr(row, name) for name in known} == known
    assert vars(row_of(make_record(**known))) | {"record": b""} == vars(row) | {"record": b""}


def test_what_was_not_seen_stays_null() -> None:
    row = row_of(make_record(usage=ABSENT, started_at=None, finish_reason=None))
    assert (row.input_tokens, row.started_us, row.day, row.finish_reason) == (None, None, None, None)


def test_a_day_is_utc() -> None:
    assert LedgerRow.of_json(changed(started_at="2026-03-01T23:30:00-01:00")).day == "2026-03-02"


def test_members_that_a_later_version_adds_are_kept() -> None:
    row = LedgerRow.of_json(changed(something_new={"a": 1}))
    assert json.loads(row.record)["something_new"] == {"a": 1}


@each(
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"\x80\x04\x95",  # a pickle's beginning
        RECORD[:-1],
        RECORD + b" ",
        RECORD + RECORD,
        b"[" * 100_000,
        changed(schema_version=2),
        changed(stream_id="not an id"),
        changed(stream_id="0190B4A0-0000-7000-8000-000000000001"),
        changed(stream_id=None),
        changed(outcome=None),
        changed(started_at="yesterday"),
        changed(started_at="2026-03-01T12:00:00"),
        changed(cost={"usd": "0.00"}),
        changed(cost=None),
        changed(usage={**json.loads(RECORD)["usage"], "input_tokens": -1}),
        changed(usage={**json.loads(RECORD)["usage"], "input_tokens": 2**63}),
        changed(usage={**json.loads(RECORD)["usage"], "input_cached_tokens": 2**63}),
        changed(usage={**json.loads(RECORD)["usage"], "reasoning_tokens": "8"}),
        changed(tap=5),
        changed(usage=None),
        changed(response_id=5),
        changed(attempt="2"),
        changed(attempt=-1),
        changed(attempt=2**31),
        # What tables and the audit need of a record.
        *(without(name) for name in ("timing", "counts")),
        changed(timing=None),
        changed(timing={}),
        changed(timing={**json.loads(RECORD)["timing"], "end_s": "1"}),
        changed(timing={**json.loads(RECORD)["timing"], "gaps": None}),
        changed(counts={**json.loads(RECORD)["counts"], "text_chars": None}),
        changed(counts={**json.loads(RECORD)["counts"], "events": "1"}),
        changed(usage={**json.loads(RECORD)["usage"], "identity_failed": 1}),
        changed(usage={**json.loads(RECORD)["usage"], "bad_values": None}),
        changed(request={"max_tokens": "many"}),
        changed(status_code="200"),
    ]
)
def test_an_invalid_record_is_refused_by_its_own_error(bad: bytes) -> None:
    with pytest.raises(UnreadableRecordError):
        LedgerRow.of_json(bad)


@given(st.binary(max_size=200), st.integers(0, len(RECORD) - 1))
def test_damage_never_raises_anything_else(noise: bytes, place: int) -> None:
    try:
        row = LedgerRow.of_json(RECORD[:place] + noise + RECORD[place + 1 :])
    except UnreadableRecordError:
        return
    assert json.loads(row.record)["cost"] is None


def test_a_record_of_an_earlier_version_has_no_attributes() -> None:
    earlier = json.loads(RECORD)
    del earlier["attributes"], earlier["rate_limit"]
    row = LedgerRow.of_json(json.dumps(earlier).encode())
    assert row.attributes is None
    assert "attributes" not in json.loads(row.record)


def test_a_stored_record_that_would_now_be_refused_is_read() -> None:
    forged = without("timing")[:-1] + b',"cost":null}'
    assert LedgerRow.of_stored(forged).stream_id == json.loads(RECORD)["stream_id"]
    with pytest.raises(UnreadableRecordError):
        LedgerRow.of_line(forged)


@pytest.mark.parametrize(("attributes", "column"), [({}, None), ({"agent": "a", "b": '"'}, '{"agent":"a","b":"\\""}')])
def test_attributes_are_one_column(attributes: dict[str, str], column: str | None) -> None:
    assert row_of(make_record(attributes=attributes)).attributes == column
    assert LedgerRow.of_json(changed(attributes=attributes)).attributes == column


@pytest.mark.parametrize("attributes", [None, 5, [], {"agent": None}, {"agent": {"a": 1}}])
def test_attributes_of_another_type_are_refused(attributes: Any) -> None:
    with pytest.raises(UnreadableRecordError):
        LedgerRow.of_json(changed(attributes=attributes))
