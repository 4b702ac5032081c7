"""HTTP Archives -> exchanges, by http://www.softwareishard.com/blog/har-12-spec and the deviations of browsers and proxies.

Bodies are stored decoded, even if a header names a coding. `_error` and similar members hold the client's own reason why
the exchange ended.

Times are milliseconds by phase, and in some archives the arrival of pieces. Only measured times are used.
startedDateTime + blocked + dns + connect + send + wait: the head has arrived; + receive: the end. -1 means "does not
apply". Without a positive `wait` nothing was measured: tools that do not measure write -1 or zeros.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.taps.replay.contract import BrokenExchange, BrokenRecording, Header, RecordedExchange, Tally, Times
from streamgauge.taps.replay.members import (
    decoded,
    from_base64,
    headers,
    host_and_target,
    items,
    mapping,
    members,
    number,
    since,
    size_of,
    status_of,
    text,
    to_bytes,
    wall,
)

# Returns the content of a named file in the archive's directory, None if there is none.
ReadSibling = Callable[[str], bytes | None]

# Reasons of broken exchanges, as written by Chromium (net/base/net_error_list.h), Firefox (NetUtil's error names) and
# WebKit.
_ABORTED = re.compile(r"ERR_ABORTED|NS_BINDING_ABORTED|cancell?ed|client disconnected", re.IGNORECASE)
_TIMED_OUT = re.compile(r"TIMED_OUT|NS_ERROR_NET_TIMEOUT")
# The members with the reason: of Chromium and mitmproxy, of Playwright.
_REASONS = ("_error", "_failureText")

# Error names of Chromium (net/base/net_error_list.h) and Firefox (xpcom/base/ErrorList.py); the first match counts.
_FAULTS = {
    re.compile(words): fault
    for words, fault in {
        "ERR_NAME_|NS_ERROR_UNKNOWN_HOST": TransportFault.DNS,
        "ERR_CONNECTION_REFUSED|NS_ERROR_CONNECTION_REFUSED": TransportFault.REFUSED,
        "ERR_CONNECTION_TIMED_OUT": TransportFault.CONNECT_TIMEOUT,
        "ERR_CERT_": TransportFault.TLS_CERTIFICATE,
        "ERR_SSL_": TransportFault.TLS,
        "ERR_CONNECTION_RESET|NS_ERROR_NET_RESET": TransportFault.RESET,
        "ERR_CONNECTION_CLOSED|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED|NS_ERROR_NET_PARTIAL": TransportFault.CLOSED,
        "ERR_INVALID_HTTP_RESPONSE": TransportFault.NOT_HTTP,
        "ERR_ADDRESS_|ERR_INTERNET_|ERR_NETWORK_": TransportFault.UNREACHABLE,
    }.items()
}

# When a page began, in seconds since 1970.
Page = float

# Phases before the request's last byte, in order; ssl is a part of connect.
_BEFORE_SENT = ("blocked", "dns", "connect", "send")
# Tools whose `send` ends with the client's last byte, and whose `connect` may lie anywhere:
# mitmproxy/addons/savehar.py.
_RELAYS = ("mitmproxy",)


def exchanges(document: memoryview, beside: ReadSibling, tally: Tally) -> Iterator[RecordedExchange]:
    """The exchanges of an archive in order; `tally` counts those that cannot be read. Raises BrokenRecording."""
    log = members(members(document).get("log"))
    entries = items(log.get("entries"))
    if entries is None:
        raise BrokenRecording("it is not a HAR file: it has no list log.entries")
    creator = text(mapping(decoded(log.get("creator"))).get("name")) or ""
    pages = pages_of([decoded(page) for page in items(log.get("pages")) or ()])
    for index, entry in enumerate(entries):
        try:
            yield _exchange(mapping(decoded(entry)), creator, pages, beside)
        except BrokenExchange as error:
            tally.count_broken(f"log.entries[{index}]", error)


def _exchange(
    entry: Mapping[object, object], creator: str, pages: Mapping[str, Page], beside: ReadSibling
) -> RecordedExchange:
    request, response = mapping(entry.get("request")), mapping(entry.get("response"))
    host, target = host_and_target(request.get("url"))
    request_body, size = _request_body(request, beside)
    status, body = status_of(response.get("status")), _response_body(response, beside)
    return RecordedExchange(
        method=(text(request.get("method")) or "").upper(),
        target=target,
        host=host,
        request_headers=_headers(request),
        request_body=request_body,
        request_bytes=size,
        status=status,
        headers=_headers(response),
        body=body,
        stamps=stamps_of(entry, pages, len(body or b"")),
        times=times_of(entry, creator),
        ending=_ending(status, entry, response),
        fault=next((fault for words, fault in _FAULTS.items() if words.search(_reason(response))), None),
    )


def _headers(message: Mapping[object, object]) -> list[Header]:
    fields = message.get("headers")
    pairs = [mapping(field) for field in fields] if isinstance(fields, list) else []
    return headers([(pair.get("name"), pair.get("value")) for pair in pairs])


def _request_body(request: Mapping[object, object], beside: ReadSibling) -> tuple[bytes | None, int | None]:
    """The body and its size. Without postData there was none, or it was not recorded: bodySize decides."""
    size, data = size_of(request.get("bodySize")), mapping(request.get("postData"))
    body = _stored(data, beside)
    if body is None and (size == 0 or (size is None and request.get("method") == "GET")):
        body = b""
    return body, size


def _response_body(response: Mapping[object, object], beside: ReadSibling) -> bytes | None:
    """The response's body, None if it was not recorded. One size of 0 does not prove an empty body: some tools write 0 for
    a body that they leave out.
    """
    content = mapping(response.get("content"))
    body = _stored(content, beside)
    if body is None and size_of(content.get("size")) == 0 and size_of(response.get("bodySize")) == 0:
        return b""
    return body


def _stored(content: Mapping[object, object], beside: ReadSibling) -> bytes | None:
    """A body that is text, base64, or (Playwright, `content: attach`) a file beside the archive."""
    stored = content.get("text")
    if isinstance(stored, str):
        return from_base64(stored) if content.get("encoding") == "base64" else to_bytes(stored)
    name = text(content.get("_file"))
    return beside(name) if name else None


def _reason(response: Mapping[object, object]) -> str:
    return next((reason for name in _REASONS if (reason := text(response.get(name)))), "")


def _ending(status: int | None, entry: Mapping[object, object], response: Mapping[object, object]) -> Ending:
    reason = _reason(response)
    if entry.get("_wasAborted") is True or _ABORTED.search(reason):
        return Ending.CLIENT
    if reason:
        return Ending.TIMEOUT if _TIMED_OUT.search(reason) else Ending.RESET
    # Without a head and without a reason the end is unknown.
    return Ending.CUT if status is None else Ending.COMPLETE


def times_of(entry: Mapping[object, object], creator: str) -> Times:
    """The times of one entry, in the meaning of the tool named `creator`."""
    started = wall(_moment(entry.get("startedDateTime")))
    timings = mapping(entry.get("timings"))
    wait = number(timings.get("wait"))
    if wait is None or wait <= 0:
        return Times(started)
    phases = [max(number(timings.get(name)) or 0.0, 0.0) for name in _BEFORE_SENT]
    is_relay = creator.startswith(_RELAYS)
    if is_relay:
        phases = phases[-1:]
    *_, connected, sent = (0.0, *accumulate(phases))
    receive = number(timings.get("receive"))
    return Times(
        started_ns=started,
        connected_ns=None if is_relay or not (number(timings.get("connect")) or 0) > 0 else _ns(connected),
        sent_ns=None if is_relay else _ns(sent),
        head_ns=_ns(sent + wait),
        end_ns=None if receive is None or receive < 0 else _ns(sent + wait + receive),
    )


def pages_of(pages: Sequence[object]) -> dict[str, Page]:
    """When each page began, by its id."""
    known = ((text(page.get("id")), _moment(page.get("startedDateTime"))) for page in map(mapping, pages))
    return {name: began for name, began in known if name is not None and began is not None}


def stamps_of(entry: Mapping[object, object], pages: Mapping[str, Page], body_bytes: int) -> list[tuple[int, int]]:
    """Sizes of the body's pieces, and when they arrived (nanoseconds since the request began). Empty if unknown.

    `_chunks` of chrome-har and WebPageTest: milliseconds since the page began, and bytes. They are used only if they are in
    order and add up to this body: for a compressed one they count the bytes on the wire.
    """
    chunks, page = entry.get("_chunks"), pages.get(text(entry.get("pageref")) or "")
    began = _moment(entry.get("startedDateTime"))
    if not isinstance(chunks, list) or page is None or began is None or not body_bytes:
        return []
    sizes = [number(mapping(chunk).get("bytes")) for chunk in chunks]
    times = [number(mapping(chunk).get("ts")) for chunk in chunks]
    stamps = [None if at is None else since(page + at / 1000, began) for at in times]
    pieces = [
        (int(size), stamp) for size, stamp in zip(sizes, stamps, strict=True) if size is not None and stamp is not None
    ]
    in_order = all(
        size > 0 and before[1] <= stamp for before, (size, stamp) in zip([(0, 0), *pieces], pieces, strict=False)
    )
    whole = len(pieces) == len(chunks) and sum(size for size, _ in pieces) == body_bytes
    return pieces if in_order and whole else []


def _moment(value: object) -> float | None:
    """ISO 8601 with a zone, as seconds since 1970; None without a zone, since the time is then unknown."""
    try:
        moment = datetime.fromisoformat(text(value) or "")
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _ns(milliseconds: float) -> int | None:
    return since(milliseconds / 1000, 0.0)
