"""What a response's head tells: facts by an allowlist of headers, and whether its content is an event stream."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from streamgauge.core.capture.segments import Head
from streamgauge.core.http1.content_type import says_event_stream
from streamgauge.core.http1.head import MAX_FIELDS, ResponseHead
from streamgauge.core.safe_values import safe_id

# The first present of these is the provider's own id of the request.
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_ORGANIZATIONS = ("openai-organization", "anthropic-organization-id")
_PROJECTS = ("openai-project",)

# RFC 9110, 10.2.3: whole seconds, or a date; some servers send fractions.
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

# From these statuses on a body is an error's or a redirect's, whatever its content type says.
_FIRST_ERROR_STATUS = 300


class Expected(Enum):
    """What a head promises of the content; its first bytes decide."""

    EVENTS = auto()  # an event stream, or a recording of one: unless it begins as JSON or HTML do
    EVENTS_OF_ERROR = auto()  # an error that says to be an event stream: only if it begins as one
    OTHER = auto()  # another content type, or none: an event stream only if its first lines are one's
    NO_EVENTS = auto()  # an error


# What stands for the status of a head that tells none; no server can send it (RFC 9110, 15).
_NO_STATUS = 0
_STATUSES = range(100, 1000)

# How much of the content is looked at: blank lines may come first, and do not tell (bytes).
MAX_SNIFF_BYTES = 1024

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_USUAL_FIELDS = (b"data:", b"event:")
_FIELDS = (*_USUAL_FIELDS, b"id:", b"retry:", b":")
# Blank lines, comments, ids and retries, each with its line end.
_LEADING_LINES = re.compile(rb"(?:(?:(?::|id:|retry:)[^\r\n]*|[ \t]*)(?:\r\n|\n|\r))*")


def told_head(status: int | None, headers: list[tuple[str, str]]) -> ResponseHead:
    """A head that was told, not read: without what it says of framing, which is undone. What is no status reads as none."""
    # Blanks around a value are none of it (RFC 9110, 5.5), and a library may hand them on.
    kept = [(name, value.strip(" \t")) for name, value in headers[:MAX_FIELDS] if name != "transfer-encoding"]
    return ResponseHead(_NO_STATUS if status is None or status not in _STATUSES else status, 1, kept)


def expected_of(head: ResponseHead) -> Expected:
    """What the head promises."""
    events, error = says_event_stream(head.all("content-type")), head.status >= _FIRST_ERROR_STATUS
    if error:
        return Expected.EVENTS_OF_ERROR if events else Expected.NO_EVENTS
    return Expected.EVENTS if events else Expected.OTHER


def is_event_stream(expected: Expected, first: bytes, *, over: bool) -> bool | None:
    """Whether the content is an event stream, by its first bytes; None: more are needed. `over`: there are no more."""
    first = first[:MAX_SNIFF_BYTES]
    over = over or len(first) == MAX_SNIFF_BYTES
    if expected is Expected.NO_EVENTS:
        return False
    if len(first) < len(_BOM) and _BOM.startswith(first) and not over:
        return None
    first = first.removeprefix(_BOM)
    if expected is Expected.EVENTS:
        first = first.lstrip(_BLANKS)
        return first[:1] not in (b"{", b"[", b"<") if first or over else None
    if expected is Expected.EVENTS_OF_ERROR:
        return _begins_with(_FIELDS, first.lstrip(_BLANKS), over=over)
    return _has_usual_field(first, over=over)


def _has_usual_field(first: bytes, *, over: bool) -> bool | None:
    """Whether one of the usual fields comes after lines that an event stream may begin with.

    MAX_SNIFF_BYTES of such lines alone are an event stream as well: one that keeps its connection alive for long.
    """
    found = _LEADING_LINES.match(first)
    rest = first[found.end() :] if found else first
    if rest.startswith(_USUAL_FIELDS):
        return True
    may_go_on = not rest.strip(_BLANKS) or _begins_with(_FIELDS, rest, over=False) is not False
    if len(first) == MAX_SNIFF_BYTES:
        return may_go_on and bool(first.strip(_BLANKS))
    return None if may_go_on and not over else False


def _begins_with(fields: tuple[bytes, ...], first: bytes, *, over: bool) -> bool | None:
    if first.startswith(fields):
        return True
    return None if not over and any(field.startswith(first) for field in fields) else False


def head_facts(head: ResponseHead, stamp_ns: int | None, *, event_stream: bool) -> Head:
    """What is kept of a head. `stamp_ns`: of the read that completed it."""
    first = head.firsts()
    return Head(
        status=head.status or None,
        stamp_ns=stamp_ns,
        event_stream=event_stream,
        content_encoding=safe_id(", ".join(head.all("content-encoding")).lower()),
        retry_after_s=_retry_after(first),
        provider_request_id=_first(first, _REQUEST_IDS),
        organization=_first(first, _ORGANIZATIONS),
        project=_first(first, _PROJECTS),
    )


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((known for name in names if (known := safe_id(headers.get(name))) is not None), None)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds; of a date its distance from the response's own Date. Never negative, null for anything else."""
    value = headers.get("retry-after")
    if not value:
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        then, now = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("date", ""))
        return max((then - now).total_seconds(), 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):  # no date, or one with a zone and one without
        return None
