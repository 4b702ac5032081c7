"""Envoy's messages, as far as the tap needs them: ProcessingRequest of the external processor, and the entries of
StreamAccessLogsMessage. Pure.

The field numbers are those of Envoy's API v3 (https://www.envoyproxy.io/docs/envoy/latest/api-v3/api):
envoy/service/ext_proc/v3/external_processor.proto, envoy/config/core/v3/base.proto,
envoy/service/accesslog/v3/als.proto and envoy/data/accesslog/v3/accesslog.proto. Numbers are never reused, so a field that
a later Envoy adds is skipped.
"""

from collections.abc import Iterator
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple

from streamgauge.taps.envoy.protobuf import ProtobufFault, Value, fields, signed

# Header fields of one head: Envoy's own limit is 100 (`max_headers_count`), which an operator may raise.
MAX_HEADERS = 1_000
# Attributes of one message. The tap uses two.
MAX_ATTRIBUTES = 64
# The attributes that the tap uses. `request.time` tells requests with one x-request-id apart.
REQUEST_TIME, CLUSTER = "request.time", "xds.cluster_name"

_S = 1_000_000_000


class Part(IntEnum):
    """What a ProcessingRequest reports: the numbers of its oneof."""

    REQUEST_HEAD = 2
    RESPONSE_HEAD = 3
    REQUEST_BODY = 4
    RESPONSE_BODY = 5
    REQUEST_TRAILERS = 6
    RESPONSE_TRAILERS = 7


_ATTRIBUTES, _OBSERVED = 9, 10
_BODIES = (Part.REQUEST_BODY, Part.RESPONSE_BODY)
_TRAILERS = (Part.REQUEST_TRAILERS, Part.RESPONSE_TRAILERS)
_PARTS = {int(part): part for part in Part}


class Processing(NamedTuple):
    """One ProcessingRequest. `headers`: of a head, with the pseudo-headers of HTTP/2 (`:path`); `body`: a piece of a body.

    `ends`: nothing follows in this direction. `observed`: Envoy waits for no answer. `attributes`: those that Envoy's
    configuration names in `request_attributes`, on the first message only.
    """

    part: Part
    headers: list[tuple[bytes, bytes]]
    body: bytes
    ends: bool
    observed: bool
    attributes: dict[str, str]


class LogEntry(NamedTuple):
    """One entry of the access log: a request that has ended.

    `started_ns`: UTC. The durations (ns) are since then: when the upstream's first and last byte came, and when the request
    ended; None: it did not happen. `flags`: the numbers of the fields of ResponseFlags that are set. `details`:
    `response_code_details`; `failure`: `upstream_transport_failure_reason`. `body_bytes`: of the response, as
    Envoy passed them on.
    """

    request_id: str
    started_ns: int
    first_rx_ns: int | None
    last_rx_ns: int | None
    duration_ns: int | None
    flags: frozenset[int]
    details: str
    failure: str
    body_bytes: int = 0


def processing_of(data: bytes) -> Processing | None:
    """Decodes a ProcessingRequest; None if it has no part that is known. Raises ProtobufFault."""
    part, content, observed = None, b"", False
    attributes: dict[str, str] = {}
    for number, value in fields(data):
        if isinstance(value, int):
            observed = bool(value) if number == _OBSERVED else observed
        elif number in _PARTS:
            part, content = _PARTS[number], value
        elif number == _ATTRIBUTES:
            attributes |= _attributes(value)
            if len(attributes) > MAX_ATTRIBUTES:
                raise ProtobufFault("too many attributes")
    if part is None:
        return None
    if part in _BODIES:
        body, ends = _body(content)
        return Processing(part, [], body, ends, observed, attributes)
    if part in _TRAILERS:
        return Processing(part, [], b"", True, observed, attributes)
    headers, ends = _head(content)
    return Processing(part, headers, b"", ends, observed, attributes)


def log_entries(data: bytes) -> Iterator[bytes]:
    """The encoded HTTPAccessLogEntry of each request in a StreamAccessLogsMessage. Raises ProtobufFault."""
    for number, logs in fields(data):
        if number == 2 and isinstance(logs, bytes):  # http_logs
            yield from (entry for of_logs, entry in fields(logs) if of_logs == 1 and isinstance(entry, bytes))


def log_entry_of(data: bytes) -> LogEntry | None:
    """Decodes a HTTPAccessLogEntry; None if it is not that of a request's end. Raises ProtobufFault."""
    common = request = response = b""
    for number, value in fields(data):
        if isinstance(value, bytes):
            match number:
                case 1:
                    common = value
                case 3:
                    request = value
                case 4:
                    response = value
    durations: dict[int, int] = {}
    started_ns, flags, failure = 0, frozenset[int](), ""
    for number, value in fields(common):
        match number, value:
            case 5, bytes():
                started_ns = _time(value)
            case ((9 | 10 | 23), bytes()):
                durations[number] = _time(value)
            case 16, bytes():
                flags = frozenset(of_flags for of_flags, is_set in fields(value) if is_set)
            case 18, bytes():
                failure = _text(value)
            case 27, int() if value:  # intermediate_log_entry
                return None
            case 33, int() if value not in _AT_THE_END:
                return None
    return LogEntry(
        _text(_last(request, 9)),
        started_ns,
        durations.get(9),
        durations.get(10),
        durations.get(23),
        flags,
        _text(_last(response, 6)),
        failure,
        next((value for number, value in fields(response) if number == 3 and isinstance(value, int)), 0),
    )


# `access_log_type` of an entry at the end of a request: NotSet (older Envoys), DownstreamEnd.
_AT_THE_END = (0, 6)


def time_of(attribute: str | None) -> int | None:
    """The UTC time (ns) of the attribute `request.time`; None if it is missing or no time.

    Envoy writes six decimals or fewer, since its clock has microseconds.
    """
    if attribute is None:
        return None
    try:
        at = datetime.fromisoformat(attribute)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    whole = at.replace(microsecond=0)
    try:
        return round(whole.timestamp()) * _S + at.microsecond * 1_000
    except (OverflowError, ValueError):
        return None


def _head(data: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The header fields of HttpHeaders, and whether the message ends with them."""
    headers, ends = list[tuple[bytes, bytes]](), False
    for number, value in fields(data):
        if number == 3 and isinstance(value, int):
            ends = bool(value)
        elif number == 1 and isinstance(value, bytes):
            for of_map, header in fields(value):
                if of_map == 1 and isinstance(header, bytes):
                    headers.append(_header(header))
                    if len(headers) > MAX_HEADERS:
                        raise ProtobufFault("too many header fields")
    return headers, ends


def _header(data: bytes) -> tuple[bytes, bytes]:
    """A HeaderValue: its name, and `raw_value`, or `value` of Envoys before 1.28."""
    name = text = raw = b""
    for number, value in fields(data):
        match number, value:
            case 1, bytes():
                name = value
            case 2, bytes():
                text = value
            case 3, bytes():
                raw = value
    return name, raw or text


def _body(data: bytes) -> tuple[bytes, bool]:
    """The bytes of HttpBody, and whether they are the last."""
    body, ends = b"", False
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            body = value
        elif number == 2 and isinstance(value, int):
            ends = bool(value)
    return body, ends


def _attributes(entry: bytes) -> dict[str, str]:
    """The texts of one entry of `attributes`: the name of a filter, and a Struct."""
    found: dict[str, str] = {}
    for number, member in fields(_last(entry, 2)):
        if number == 1 and isinstance(member, bytes):
            text = _last(_last(member, 2), 3)
            if text:
                found[_text(_last(member, 1))] = _text(text)
    return found


def _last(data: bytes, number: int) -> bytes:
    """The last field of this number that has bytes; empty if there is none."""
    found: Value = b""
    for of_message, value in fields(data):
        if of_message == number and isinstance(value, bytes):
            found = value
    assert isinstance(found, bytes)
    return found


def _time(data: bytes) -> int:
    """A Timestamp or a Duration (ns)."""
    seconds = nanoseconds = 0
    for number, value in fields(data):
        match number, value:
            case 1, int():
                seconds = signed(value)
            case 2, int():
                nanoseconds = signed(value)
    return seconds * _S + nanoseconds


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
