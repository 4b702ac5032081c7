"""What must hold for the parsers with any bytes: nothing raises, splits change nothing, and a second reader agrees."""

import json
import sys
import zlib
from collections.abc import Callable

import msgspec

from streamgauge.core.allowlist import argument_chars
from streamgauge.core.formats.aws_event_stream import AwsEventReader, MessageDecoder
from streamgauge.core.formats.json_array import JsonArrayReader
from streamgauge.core.formats.json_lines import JsonLinesReader
from streamgauge.core.formats.json_text import MAX_DIGITS, UNPARSED, parse
from streamgauge.core.formats.json_validator import MAX_DEPTH, JsonState, feed, is_valid
from streamgauge.core.formats.reader import EventReader
from streamgauge.core.formats.sse import Event, SseDecoder, read_events, write_event, write_tail
from streamgauge.core.formats.websocket import WebSocketReader
from streamgauge.core.http1.body import RATIO_FREE_BYTES, BodyDecoder, DecodeFault
from streamgauge.core.http1.framing import Chunked, Plain
from streamgauge.core.http1.head import MAX_HEAD_BYTES, HeadFault, ResponseHead
from streamgauge.core.safe_values import MAX_SAFE_INTEGER
from streamgauge.recorder.rate_limit import RATE_LIMIT_HEADERS
from streamgauge.recorder.response_head import head_facts
from tests.core.formats import aws_messages, websocket_frames
from tests.core.formats.sse_streams import without_cut
from tests.core.http1.reading import read_response
from tests.fuzz.drawn import Drawn
from tests.fuzz.streams import STACK_FRAMES, deeper, in_pieces
from tests.vectors.drive import encoded

# Caps of an event (bytes): tiny ones, so that a short input reaches them, and one that no input here reaches.
EVENT_CAPS = (8, 40, 300, 1 << 20)
TRANSFERS = ("identity", "chunked")
CODINGS = (None, "gzip", "deflate", "br", "zstd", "gzip, br", "gzip-members", "nope")
METHODS = ("POST", "HEAD", "CONNECT")
# Decoded bytes that a fuzzed body may have: a bomb ends here (bytes).
MAX_DECODED = 1024 * 1024
# Nesting that json.loads reads at any depth of the stack.
SAFE_DEPTH = 100
# The largest share of the state's bytes that a level of nesting takes: `JsonState.levels` has a character each.
MAX_CHECK_BYTES = MAX_DEPTH + 32


def _seed(data: bytes) -> int:
    return zlib.crc32(data)


def check_sse(data: bytes) -> None:
    """An event stream: any split gives the same events, and events written are the events read, except for `cut`."""
    drawn = Drawn(data)
    cap, body = drawn.one_of(EVENT_CAPS), drawn.rest()
    whole = _events([body], cap)
    assert _events(in_pieces(body, _seed(data)), cap) == whole
    events, last = whole
    content = b"".join(write_event(event) for event in events)
    assert read_events(content) == list(map(without_cut, events))
    assert b"\r" not in content
    for event in events:
        assert event.oversized or len(event.data or b"") + len(event.bare or b"") + len(event.error or b"") <= cap
        assert event.oversized or event.cut is None
    if last is not None:
        assert _events([write_tail(last)], EVENT_CAPS[-1]) == ([], without_cut(last))


def _events(pieces: list[bytes], cap: int) -> tuple[list[Event], Event | None]:
    decoder = SseDecoder(cap)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events, decoder.finish()


def _from_client(cap: int) -> EventReader:
    return WebSocketReader(from_client=True, max_event_bytes=cap)


def _from_server(cap: int) -> EventReader:
    return WebSocketReader(from_client=False, max_event_bytes=cap)


READERS: tuple[Callable[[int], EventReader], ...] = (
    JsonLinesReader,
    JsonArrayReader,
    AwsEventReader,
    _from_client,
    _from_server,
)


def check_reader(data: bytes) -> None:
    """A framing of events: any split gives the same events, and what is held of an event is bounded."""
    drawn = Drawn(data)
    make, cap, body = drawn.one_of(READERS), drawn.one_of(EVENT_CAPS), drawn.rest()
    whole = _framed([body], make(cap))
    assert _framed(in_pieces(body, _seed(data)), make(cap)) == whole
    events, last, _ = whole
    content = b"".join(map(write_event, events))
    assert read_events(content) == list(map(without_cut, events))
    assert all(event.oversized or len(event.data or b"") <= 3 * cap for event in events)  # U+FFFD has three bytes
    assert last is None or last.oversized or len(last.data or b"") <= 3 * cap


def _framed(pieces: list[bytes], reader: EventReader) -> tuple[list[Event], Event | None, bool]:
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events, reader.finish(), reader.fault


def reader_seeds() -> list[bytes]:
    lines = b'{"a":1}\n{"b":"\\""}\r\n\n{'
    array, sent = b'[{"a":1},\n[],7,"]"]', aws_messages.event("metadata", b"{}") + aws_messages.chunk(b'{"a":1}')
    asked = websocket_frames.from_client(b'{"a":1}', b"{}") + websocket_frames.close(1001, mask=websocket_frames.MASK)
    answered = websocket_frames.frame(b'{"a"', final=False) + websocket_frames.frame(b":1}", 0)
    return [bytes((place, 3)) + body for place, body in enumerate((lines, array, sent, asked, answered))]


def check_aws_messages(data: bytes) -> None:
    """Messages of AWS's event stream, some damaged: those that botocore reads, in any pieces, and a fault where it raises.

    botocore passes over headers that are damaged in ways that ours refuses.
    """
    drawn = Drawn(data)
    sent = bytearray()
    for _ in range(drawn.number(4)):
        kind, text = drawn.one_of(_AWS_KINDS), bytes(drawn.byte() for _ in range(drawn.number(40)))
        sent += kind(text)
    for _ in range(drawn.number(3) if sent else 0):
        sent[drawn.number(65_535) % len(sent)] ^= 1 + drawn.number(254)
    body = bytes(sent) + (drawn.rest() if drawn.number(1) else b"")
    theirs, raises = aws_messages.botocores(body)
    whole, pieces = MessageDecoder(), MessageDecoder()
    found = [(dict(one.headers), one.content.data) for one in whole.feed(body)]
    again = [one for piece in in_pieces(body, _seed(data)) for one in pieces.feed(piece)]
    assert [(dict(one.headers), one.content.data) for one in again] == found
    assert pieces.fault == whole.fault
    read = [
        ({name: value for name, value in headers.items() if isinstance(value, str)}, aws_messages.alike(payload))
        for headers, payload in theirs
    ]
    assert found == read[: len(found)]
    assert whole.fault or (not raises and len(found) == len(read))


_AWS_KINDS: tuple[Callable[[bytes], bytes], ...] = (
    lambda text: aws_messages.event("contentBlockDelta", text),
    aws_messages.chunk,
    lambda text: aws_messages.exception("throttlingException", {"message": text.decode("latin-1")}),
    lambda text: aws_messages.message(b"{}", text),
    lambda text: aws_messages.message(text, {":message-type": "error", "a": text.decode("latin-1")}),
    lambda text: aws_messages.message(text)[: len(text)],
)


def aws_seeds() -> list[bytes]:
    """Decisions of `check_aws_messages`: each kind of message, alone and before another, whole and with a flipped byte."""
    kinds = range(len(_AWS_KINDS))
    one = [bytes((1, kind, 5, *b'{"a":', 0)) for kind in kinds]
    two = [bytes((2, kind, 2, *b"{}", 0, 3, *b"abc", flips, 0, 40, 7)) for kind in kinds for flips in (0, 1)]
    return one + two


def check_framing(data: bytes) -> None:
    """Chunks: any split gives the same body and the same end."""
    whole, pieces = Chunked(), Chunked()
    body, rest = whole.feed(data)
    parts = [pieces.feed(piece) for piece in in_pieces(data, _seed(data))]
    assert b"".join(part for part, _ in parts) == body
    assert (pieces.complete, pieces.broken) == (whole.complete, whole.broken)
    if not whole.broken:
        assert b"".join(left for _, left in parts) == rest
    assert len(body) + len(rest) <= len(data)


def check_body(data: bytes) -> None:
    """A body in any transfer and content coding: any split gives the same bytes, and no bomb goes off."""
    drawn = Drawn(data)
    transfer, coding, encode = drawn.one_of(TRANSFERS), drawn.one_of(CODINGS), drawn.number(1)
    flips, body = [drawn.number(65_535) for _ in range(drawn.number(3))], drawn.rest()
    if encode and coding in ("gzip", "deflate", "br", "zstd", "gzip-members"):
        body = _damaged(encoded(body, coding), flips)
    name = coding.removesuffix("-members") if coding else None
    whole = _decoded([body], transfer, name)
    assert _decoded(in_pieces(body, _seed(data)), transfer, name) == whole
    assert len(whole[0]) <= max(MAX_DECODED, len(body))
    if coding is None and transfer == "identity":
        assert whole == (body, len(body), None, True)


def _damaged(body: bytes, flips: list[int]) -> bytes:
    out = bytearray(body)
    for place in flips if out else ():
        out[place % len(out)] ^= 1 << place % 8
    return bytes(out)


def _decoded(pieces: list[bytes], transfer: str, coding: str | None) -> tuple[bytes, int, DecodeFault | None, bool]:
    decoder = BodyDecoder(Chunked() if transfer == "chunked" else Plain(None), coding, max_decoded=MAX_DECODED)
    out, size = [], 0
    for piece in pieces:
        given = decoder.feed(piece)
        assert len(given.decoded) <= RATIO_FREE_BYTES
        out.append(given.decoded)
        size += given.body_bytes
    whole = decoder.finish()
    return b"".join(out), size, decoder.fault, whole


def check_response(data: bytes) -> None:
    """A whole response: any split gives the same head, body and end."""
    drawn = Drawn(data)
    method, raw = drawn.one_of(METHODS), drawn.rest()
    whole = _response([raw], method)
    assert _response(in_pieces(raw, _seed(data)), method) == whole
    head, body, rest, *_ = whole
    assert len(body) + len(rest) <= len(raw)
    if head is not None:
        assert 100 <= head.status <= 999
        assert all(name and name == name.lower() for name, _ in head.headers)


def _response(pieces: list[bytes], method: str) -> tuple[ResponseHead | None, bytes, bytes, HeadFault | None, object]:
    reader, head, body, rest = read_response(pieces, method)
    assert sum(map(len, pieces)) <= MAX_HEAD_BYTES or head is not None or reader.fault is not None
    assert (head is None) == (reader.framing is None) and (head is None or reader.fault is None)
    broken = reader.framing is not None and reader.framing.broken
    facts = (reader.complete, broken, reader.ambiguous, reader.persistent, reader.coding)
    return None if head is None else head.parsed(), body, b"" if broken else rest, reader.fault, facts


def check_json_check(data: bytes) -> None:
    """Tool arguments in pieces: any split gives the same verdict, and it is that of Python's own reader."""
    text = data.decode("utf-8", "replace")
    whole, pieces = JsonState(), JsonState()
    feed(whole, text)
    for piece in in_pieces(data, _seed(data)):
        feed(pieces, piece.decode("latin-1")) if data.isascii() else None
    if data.isascii():
        assert pieces == whole
    assert len(msgspec.msgpack.encode(whole)) <= MAX_CHECK_BYTES
    if max(text.count("["), text.count("{")) < SAFE_DEPTH:
        assert is_valid(whole) == _is_json(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True


def _refuse(name: str) -> object:
    raise ValueError(name)


def check_json_text(data: bytes) -> None:
    """JSON as providers send it: parsed where Python's own reader parses it, into the same value, on any stack."""
    value = parse(data)
    assert (deeper(STACK_FRAMES, lambda: parse(data)) is UNPARSED) == (value is UNPARSED), (
        "the result depends on the stack"
    )
    if value is not UNPARSED:
        deeper(STACK_FRAMES, lambda: argument_chars(value))
    text = data.decode("utf-8", "replace")
    if max(text.count("["), text.count("{")) >= SAFE_DEPTH:
        return
    # One reader accepts long integers up to Python's limit, the other up to MAX_DIGITS: both are right.
    expected = [_read(text, digits) for digits in (sys.get_int_max_str_digits(), MAX_DIGITS)]
    assert repr(value) in map(repr, expected)


def _read(text: str, most_digits: int) -> object:
    def whole(digits: str) -> int | float:
        return int(digits) if len(digits.removeprefix("-")) <= most_digits else float(digits)

    try:
        return json.loads(text, parse_constant=float, parse_int=whole)
    except ValueError:
        return UNPARSED


def check_rate_limit(data: bytes) -> None:
    """Values of rate limits, a line each: nothing raises, each number is in its bounds, and none depends on another value
    (but a reset's time on that of the response).
    """
    date, *values = data.decode("latin-1").split("\n")
    names = sorted(RATE_LIMIT_HEADERS)
    headers = [("date", date), *zip(names, values, strict=False)]
    found = _rate_limits(headers)
    assert all(type(number) is int and 0 <= number <= MAX_SAFE_INTEGER for number in found.values())
    alone = [_rate_limits([headers[0], header]) for header in headers[1:]]
    assert found.keys() == {field for one in alone for field in one}
    assert all(number in [one.get(field) for one in alone] for field, number in found.items())


def _rate_limits(headers: list[tuple[str, str]]) -> dict[str, int]:
    head = head_facts(ResponseHead(200, 1, headers), 5, event_stream=True, began_wall_ns=1_795_687_200_000_000_000)
    limits = {} if head.rate_limit is None else msgspec.structs.asdict(head.rate_limit)
    assert head.rate_limit is None or any(value is not None for value in limits.values())
    return {field: value for field, value in limits.items() if value is not None}


def rate_limit_seeds() -> list[bytes]:
    date = b"Fri, 27 Nov 2026 10:00:00 GMT"
    resets = (b"6m0s", b"12ms", b"1h2m3.5s", b"2026-11-27T10:01:30Z", b"2026-11-27 11:01:30.25+01:00", b"60", b"1.5")
    return [b"\n".join((one, *[b"500", reset, b"499"] * 4)) for one in (date, b"") for reset in resets]
