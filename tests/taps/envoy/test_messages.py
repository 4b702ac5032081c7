"""Envoy's messages: those that its own protobuf library writes, and any bytes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.envoy import messages
from streamgauge.taps.envoy.messages import Part, log_entries, log_entry_of, processing_of, time_of
from streamgauge.taps.envoy.protobuf import ProtobufFault
from tests.taps.envoy.schema import MESSAGES, body, entry, headers, log, processing
from tests.taps.envoy.test_protobuf import ANY

PAIRS = ((":method", "POST"), ("x-request-id", "id-1"))


def test_heads() -> None:
    data = processing(request_headers=headers(*PAIRS, ends=True), attributes={"request.time": "T", "other": "x"})
    read = processing_of(data)
    assert read is not None
    assert (read.part, read.ends, read.observed) == (Part.REQUEST_HEAD, True, True)
    assert read.headers == [(b":method", b"POST"), (b"x-request-id", b"id-1")]
    assert read.attributes == {"request.time": "T", "other": "x"}
    read = processing_of(processing(response_headers=headers((":status", "200")), observed=False))
    assert read is not None
    assert (read.part, read.ends, read.observed) == (Part.RESPONSE_HEAD, False, False)


def test_a_header_of_an_older_envoy_is_a_text() -> None:
    header = MESSAGES["HeaderValue"](key="a", value="b")
    of_head = MESSAGES["HttpHeaders"](headers=MESSAGES["HeaderMap"](headers=[header]))
    read = processing_of(processing(request_headers=of_head))
    assert read is not None
    assert read.headers == [(b"a", b"b")]


@pytest.mark.parametrize("part", [Part.REQUEST_BODY, Part.RESPONSE_BODY])
@given(data=st.binary(max_size=200), ends=st.booleans())
def test_bodies(part: Part, data: bytes, ends: bool) -> None:
    read = processing_of(processing(**{part.name.lower(): body(data, ends=ends)}))
    assert read is not None
    assert (read.part, read.body, read.ends) == (part, data, ends)


def test_trailers_end_a_message() -> None:
    read = processing_of(processing(response_trailers=MESSAGES["HttpTrailers"]()))
    assert read is not None
    assert (read.part, read.ends) == (Part.RESPONSE_TRAILERS, True)


def test_a_message_without_a_known_part_is_none() -> None:
    assert processing_of(processing()) is None


def test_the_number_of_header_fields_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_HEADERS", 1)
    with pytest.raises(ProtobufFault):
        processing_of(processing(request_headers=headers(*PAIRS)))


def test_the_number_of_attributes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_ATTRIBUTES", 1)
    with pytest.raises(ProtobufFault):
        processing_of(processing(request_headers=headers(), attributes={"a": "1", "b": "2"}))


def test_log_entries() -> None:
    one = entry(
        "id-1", 7_000_000_009, 15, 24, first_rx_ns=1, duration_ns=3_000_000_001, details="d", failure="f", body_bytes=77
    )
    read = [log_entry_of(data) for data in log_entries(log(one, entry("id-2")))]
    assert [found.request_id for found in read if found] == ["id-1", "id-2"]
    assert read[0] is not None
    assert read[0] == messages.LogEntry(
        "id-1", 7_000_000_009, 1, None, 3_000_000_001, frozenset((15, 24)), "d", "f", 77
    )


@pytest.mark.parametrize("more", [{"intermediate": True}, {"kind": 4}, {"kind": 5}, {"kind": 9}])
def test_an_entry_before_the_end_of_a_request_is_none(more: dict[str, Any]) -> None:
    assert log_entry_of(entry(**more).SerializeToString()) is None
    assert log_entry_of(entry(kind=0).SerializeToString()) is not None


@given(ANY)
def test_any_bytes_are_a_message_or_a_fault(data: bytes) -> None:
    for read in (processing_of, log_entry_of, lambda raw: list(log_entries(raw))):
        try:
            read(data)
        except ProtobufFault:
            continue


@given(ANY)
def test_any_bytes_within_a_message_are_a_message_or_a_fault(data: bytes) -> None:
    size = bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    for field in (*range(2, 8), 9):
        for read in (processing_of, log_entry_of):
            try:
                read(bytes([field << 3 | 2]) + size + data)
            except ProtobufFault:
                continue


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_has_its_microseconds(at: datetime) -> None:
    """As Envoy writes it: without the zeros at the end."""
    text = at.replace(tzinfo=None, microsecond=0).isoformat()
    fraction = f"{at.microsecond:06}".rstrip("0")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    expected = (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000
    assert time_of(f"{text}{'.' if fraction else ''}{fraction}+00:00") == expected


@pytest.mark.parametrize("text", [None, "", "now", "2026-12-01T11:52:40", "2026-13-01T00:00:00+00:00", "9" * 5_000])
def test_what_is_no_time_is_none(text: str | None) -> None:
    assert time_of(text) is None
