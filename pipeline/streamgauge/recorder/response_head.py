"""The facts of a response's head, by an allowlist of headers, and whether its content is an event stream."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from streamgauge.core.capture.segments import Head
from streamgauge.core.formats.sse import BOM
from streamgauge.core.http1.head import MAX_FIELDS, ResponseHead, names_event_stream
from streamgauge.core.outcome import FIRST_ERROR_STATUS
from streamgauge.core.reported_cost import LITELLM
from streamgauge.core.safe_values import decimal_text, safe_id
from streamgauge.recorder.rate_limit import rate_limit_of

# The first present of these is the provider's own id of the request.
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id", "x-amzn-requestid")
_ORGANIZATIONS = ("openai-organization", "anthropic-organization-id")
_PROJECTS = ("openai-project",)
# LiteLLM sends the first two with every response, and the cost with those whose cost it knows before their body
# (docs.litellm.ai, proxy: response headers).
_OF_LITELLM = ("x-litellm-call-id", "x-litellm-version", "x-litellm-response-cost")
_COST = _OF_LITELLM[-1]

# RFC 9110, 10.2.3: whole seconds, or a date; some servers send fractions.
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Expected(Enum):
    """The kind of content that the head announces; the content's first bytes decide."""

    EVENTS = auto()  # an event stream, or a recording of one, unless it begins like JSON or HTML
    EVENTS_OF_ERROR = auto()  # an error with an event stream's content type: an event stream only if it begins like one
    OTHER = auto()  # another content type, or none: an event stream only if it begins like one
    NO_EVENTS = auto()  # an error


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Stands for a missing status; no server can send it (RFC 9110, 15).
_NO_STATUS = 0
_STATUSES = range(100, 1000)

# How much of the content is inspected (bytes): it may begin with blank lines, which do not show its kind.
MAX_SNIFF_BYTES = 1024

_BLANKS = b" \t\r\n"
_USUAL_FIELDS = (b"data:", b"event:")
_FIELDS = (*_USUAL_FIELDS, b"id:", b"retry:", b":")
# Blank lines, comments, ids and retries, each with its line end. The LF of CR LF counts as a blank line: as an end of two
# characters it could be read in two ways, and each line would double the number of ways to match.
_LEADING_LINES = re.compile(rb"(?:(?:(?::|id:|retry:)[^\r\n]*|[ \t]*)[\r\n])*")


def reported_head(status: int | None, headers: list[tuple[str, str]]) -> ResponseHead:
    """The head that a tap reports if it does not read the wire. An invalid status counts as none.

    `transfer-encoding` is left out: the tap has decoded the framing.
    """
    # Blanks around a value are not part of it (RFC 9110, 5.5), and a library may leave them there.
    kept = [(name, value.strip(" \t")) for name, value in headers[:MAX_FIELDS] if name != "transfer-encoding"]
    return ResponseHead(_NO_STATUS if status is None or status not in _STATUSES else status, 1, kept)


def expected_of(head: ResponseHead) -> Expected:
    """The kind of content that the head announces."""
    events, error = names_event_stream(head.all("content-type")), head.status >= FIRST_ERROR_STATUS
    if error:
        return Expected.EVENTS_OF_ERROR if events else Expected.NO_EVENTS
    return Expected.EVENTS if events else Expected.OTHER


def is_event_stream(expected: Expected, first: bytes, *, over: bool) -> bool | None:
    """Whether the content is an event stream, by its first bytes; None: more bytes are needed. `over`: there are no more."""
    first = first[:MAX_SNIFF_BYTES]
    over = over or len(first) == MAX_SNIFF_BYTES
    if expected is Expected.NO_EVENTS:
        return False
    if len(first) < len(BOM) and BOM.startswith(first) and not over:
        return None
    first = first.removeprefix(BOM)
    if expected is Expected.EVENTS:
        first = first.lstrip(_BLANKS)
        return first[:1] not in (b"{", b"[", b"<") if first or over else None
    if expected is Expected.EVENTS_OF_ERROR:
        return _begins_with(_FIELDS, first.lstrip(_BLANKS), over=over)
    return _has_usual_field(first, over=over)


def _has_usual_field(first: bytes, *, over: bool) -> bool | None:
    """Whether one of the usual fields follows lines with which an event stream may begin.

    MAX_SNIFF_BYTES of such lines alone also count as an event stream, which may send only comments for a long time.
    """
    leading = _LEADING_LINES.match(first)
    rest = first[leading.end() :] if leading else first
    if rest.startswith(_USUAL_FIELDS):
        return True
    may_continue = not rest.strip(_BLANKS) or _begins_with(_FIELDS, rest, over=False) is not False
    if len(first) == MAX_SNIFF_BYTES:
        return may_continue and bool(first.strip(_BLANKS))
    return None if may_continue and not over else False


def _begins_with(fields: tuple[bytes, ...], first: bytes, *, over: bool) -> bool | None:
    if first.startswith(fields):
        return True
    return None if not over and any(field.startswith(first) for field in fields) else False


def head_facts(
    head: ResponseHead, stamp_ns: int | None, *, event_stream: bool, began_wall_ns: int | None = None
) -> Head:
    """The facts that are kept of a head.

    `stamp_ns`: the stamp of the read that completed it, in nanoseconds since the request began; `began_wall_ns`: UTC at that
    beginning.
    """
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
        rate_limit=rate_limit_of(first, lambda: _response_time(first, stamp_ns, began_wall_ns)),
        gateway=LITELLM if any(first.get(name) for name in _OF_LITELLM) else None,
        cost=decimal_text(first.get(_COST)),
    )


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((known for name in names if (known := safe_id(headers.get(name))) is not None), None)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of retry-after; a date counts from the response's own Date. Never negative; None for any other value."""
    value = headers.get("retry-after")
    if not value:
        return None
    if _SECONDS.fullmatch(value):
        return float(value)
    retry_at, now = _date(value), _date(headers.get("date", ""))
    try:
        return None if retry_at is None or now is None else max((retry_at - now).total_seconds(), 0.0)
    except (TypeError, OverflowError):  # one has a zone and the other has none
        return None


def _date(value: str) -> datetime | None:
    try:
        return parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _response_time(headers: Mapping[str, str], stamp_ns: int | None, began_wall_ns: int | None) -> datetime | None:
    """The time of a response: its Date header (same clock as the reset times), else the arrival time of the head."""
    own = _date(headers.get("date", ""))
    if own is not None:
        return own.replace(tzinfo=own.tzinfo or UTC)
    if stamp_ns is None or began_wall_ns is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=(began_wall_ns + stamp_ns) // 1000)
    except OverflowError:  # a recording may claim any time
        return None
