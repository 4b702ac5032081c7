"""Reports recorded exchanges to a recorder as a tap does: exactly those that a live tap would capture."""

from collections.abc import Iterable, Iterator, Sequence

from streamgauge.core.capture.segments import Segment
from streamgauge.core.dialects import endpoint_of
from streamgauge.core.http1.body import BodyDecoder
from streamgauge.core.http1.head import names_stream
from streamgauge.core.safe_values import safe_id
from streamgauge.recorder.client import DirectClient
from streamgauge.recorder.exchange_capture import ExchangeCapture, attributes_in
from streamgauge.recorder.protocol import REQUEST_HEADERS
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.settings.attributes import Attribute
from streamgauge.taps.replay.body import rechunked
from streamgauge.taps.replay.contract import Header, RecordedExchange, Tally

# A raw body has the tap "replay" and always gets a record. An exchange is treated as live: an event stream that is not
# of an LLM gets none. So the recorder sees "exchange"; cli/replay.py then writes "replay" into the record.
TAP = "exchange"

# How much of a body is decoded to find out whether it is still encoded (bytes).
_TRIED_BYTES = 64 * 1024
# How a decoded body begins: as events, JSON or HTML do.
_PLAIN = (b"data:", b"event:", b"id:", b"retry:", b":", b"{", b"[", b"<")
_BLANKS = b" \t\r\n"


def segments_of(
    exchanges: Iterable[RecordedExchange],
    settings: CaptureSettings,
    tally: Tally,
    dialect: str | None = None,
    attributes: Sequence[Attribute] = (),
) -> Iterator[Segment]:
    """The segments of those exchanges that a live tap would capture, one stream after another; `tally` counts the others."""
    recorder = Recorder(settings)
    client = DirectClient(recorder.handle)
    wanted = REQUEST_HEADERS | {(settings.tenant_header or "").lower()}
    tally.exchanges = 0
    for exchange in exchanges:
        tally.exchanges += 1
        if not is_captured(exchange):
            tally.not_llm += 1
            continue
        tally.without_body += exchange.body is None and exchange.status is not None
        capture = ExchangeCapture(client)
        _report_request(exchange, capture, wanted, dialect, attributes)
        for _ in _report_response(exchange, capture):
            yield from recorder.segments()
        capture.end(exchange.times.end_ns, exchange.ending, exchange.fault)
        yield from recorder.segments()


def is_captured(exchange: RecordedExchange) -> bool:
    """Whether a live tap would capture it: by its path, or by an event stream as its response."""
    content_types = [value for name, value in exchange.headers if name == "content-type"]
    return endpoint_of(exchange.method, exchange.target) is not None or names_stream(content_types)


def _report_request(
    exchange: RecordedExchange,
    capture: ExchangeCapture,
    wanted: frozenset[str],
    dialect: str | None,
    attributes: Sequence[Attribute],
) -> None:
    body, size, times = exchange.request_body, exchange.request_bytes, exchange.times
    headers = [header for header in without_decoded_coding(exchange.request_headers, body) if header[0] in wanted]
    host = safe_id(exchange.host)
    values = attributes_in(exchange.request_headers, attributes)
    capture.start(
        0,
        times.started_ns,
        host,
        exchange.method,
        exchange.target,
        headers,
        tap=TAP,
        dialect=dialect,
        attributes=values,
        host=host,
    )
    if body is None:
        capture.lose_request_body()
    else:
        size = len(body)
        capture.request_body(body)
    if size is not None:
        capture.request_sent(times.sent_ns, times.connected_ns, size)


def _report_response(exchange: RecordedExchange, capture: ExchangeCapture) -> Iterator[None]:
    """Reports the response; yields after each read."""
    if exchange.status is None:
        return
    capture.response_head(
        exchange.times.head_ns, exchange.status, without_decoded_coding(exchange.headers, exchange.body)
    )
    if exchange.body is None:
        capture.reads_dropped(1)
    elif exchange.stamps:
        at = 0
        for size, stamp in exchange.stamps:
            capture.read(stamp, exchange.body[at : at + size])
            at += size
            yield
    else:
        for piece in rechunked((exchange.body,)):
            capture.read(None, piece)
            yield


def without_decoded_coding(headers: list[Header], body: bytes | None) -> list[Header]:
    """A message's headers, without a content coding that the recording tool has already decoded."""
    coding = ", ".join(value for name, value in headers if name == "content-encoding")
    if not coding or not body or not _is_plain(body, coding):
        return headers
    return [header for header in headers if header[0] != "content-encoding"]


def _is_plain(body: bytes, coding: str) -> bool:
    """Whether the body begins as plain text and its coding cannot decode it. Both are needed: encoded bytes may begin with
    a brace, too.
    """
    if not body.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANKS).startswith(_PLAIN):
        return False
    decoder = BodyDecoder(coding=coding)
    decoder.feed(body[:_TRIED_BYTES])
    return decoder.fault is not None or (len(body) <= _TRIED_BYTES and not decoder.finish())
