"""mitmproxy's flow files -> exchanges, of any version since 0.14.

A file is a sequence of typed netstrings (https://tnetstrings.info): SIZE:DATA and one byte for the type, which may be
mitmproxy's text (`;`).

mitmproxy/io/compat.py lists the members of each version. Of the members used here two changes matter: a message's `body`
became `content`, and keys became text. Times are real: of a message's head and of its last byte, in seconds since 1970
(mitmproxy/http.py). Content has no transfer framing; it is None if mitmproxy streamed it without keeping it.
"""

import re
from collections.abc import Iterator, Mapping

from streamgauge.core.capture.segments import Ending
from streamgauge.taps.replay.contract import (
    BrokenExchange,
    BrokenRecording,
    Header,
    Readable,
    RecordedExchange,
    Tally,
    Times,
)
from streamgauge.taps.replay.members import headers, mapping, number, since, status_of, text, to_bytes, wall

# Limit of one value of a file (bytes): a request of 100 MB and the largest response that is decoded fit several times.
MAX_VALUE_BYTES = 512 * 1024 * 1024
# Limit of nesting levels; a flow has six.
MAX_DEPTH = 32
# Limit of the digits of a size: that of mitmproxy.
_MAX_DIGITS = 12
# Limit of the digits of a number: real ones are shorter, and parsing more takes quadratic time.
_MAX_NUMBER = 40

# A value: None, bool, int, float, bytes, str, and lists and mappings of these. Keys of mappings are text.
Value = object

# The text of a flow's error if the client disconnected: mitmproxy/proxy/layers/http.
_CLIENT_LEFT = re.compile(r"client disconnected|by client", re.IGNORECASE)

_Members = Mapping[object, object]


def exchanges(file: Readable, tally: Tally) -> Iterator[RecordedExchange]:
    """The exchanges of a flow file in order; `tally` counts those that cannot be read. Raises BrokenRecording.

    Flows other than HTTP (TCP, UDP, DNS) are skipped.
    """
    for count, value in enumerate(values(file), 1):
        flow = mapping(value)
        if text(flow.get("type")) not in ("http", None):
            continue
        try:
            yield _exchange(flow)
        except BrokenExchange as error:
            tally.count_broken(f"flow {count}", error)


def _exchange(flow: _Members) -> RecordedExchange:
    request, response = mapping(flow.get("request")), mapping(flow.get("response"))
    target = text(request.get("path"))
    if not target:
        raise BrokenExchange("it contains no request")
    status = status_of(response.get("status_code", response.get("code")))
    return RecordedExchange(
        method=(text(request.get("method")) or "").upper(),
        target=target,
        host=text(request.get("host")),
        request_headers=_headers(request),
        request_body=_content(request),
        status=status,
        headers=_headers(response),
        body=_content(response),
        times=_times(request, response, mapping(flow.get("server_conn")), mapping(flow.get("error"))),
        ending=_ending(status, response, mapping(flow.get("error"))),
    )


def _headers(message: _Members) -> list[Header]:
    fields = message.get("headers")
    pairs = fields if isinstance(fields, list) else []
    return headers([(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2])


def _content(message: _Members) -> bytes | None:
    return to_bytes(message.get("content", message.get("body")))


def _times(request: _Members, response: _Members, server: _Members, error: _Members) -> Times:
    """The times of a flow. When the request was sent upstream is unknown: its `timestamp_end` is the client's last byte."""
    start = number(request.get("timestamp_start"))
    head = number(response.get("timestamp_start"))
    end = number(response.get("timestamp_end")) or number(error.get("timestamp"))
    connected = number(server.get("timestamp_tls_setup", server.get("timestamp_ssl_setup")))
    connected = connected or number(server.get("timestamp_tcp_setup"))
    if connected is not None and head is not None and connected > head:
        connected = None  # of a later reconnect
    return Times(
        started_ns=wall(start),
        connected_ns=since(connected, start),
        head_ns=since(head, start),
        end_ns=since(end, start),
    )


def _ending(status: int | None, response: _Members, error: _Members) -> Ending:
    message = text(error.get("msg"))
    if message is not None:
        return Ending.CLIENT if _CLIENT_LEFT.search(message) else Ending.RESET
    if status is None or response.get("timestamp_end") is None:
        return Ending.CUT  # saved before the exchange ended
    return Ending.COMPLETE


class _BadValue(ValueError):
    """The bytes are not a value. The text is the reason."""


def values(file: Readable) -> Iterator[Value]:
    """The values of a file, one by one. Raises BrokenRecording at damage, after the values before it."""
    at, count = 0, 1
    while (first := file.read(1)) != b"":
        try:
            size, digits = _size(file, first)
            data, kind = file.read(size), file.read(1)
            if not kind:
                raise _BadValue("the file ends inside it")
            value = _value(kind, memoryview(data), 0)
        except _BadValue as error:
            raise BrokenRecording(f"flow {count}, at byte {at}, cannot be read ({error})") from None
        yield value
        at, count = at + digits + 1 + size + 1, count + 1


def _size(file: Readable, first: bytes) -> tuple[int, int]:
    """The size before a value, and how many digits it has."""
    digits = first
    while (char := file.read(1)) != b":":
        digits += char
        if not char or len(digits) > _MAX_DIGITS:
            break
    if char != b":" or not digits.isdigit():
        raise _BadValue("it does not start with its size")
    if int(digits) > MAX_VALUE_BYTES:
        raise _BadValue(f"it has {int(digits)} bytes, but the limit is {MAX_VALUE_BYTES}")
    return int(digits), len(digits)


def _value(kind: bytes, data: memoryview, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise _BadValue(f"it is nested deeper than {MAX_DEPTH} levels")
    match kind:
        case b",":
            return bytes(data)
        case b";":
            return str(data, "utf-8", "replace")
        case b"#":
            return _number(data, int)
        case b"^":
            return _number(data, float)
        case b"!":
            return bytes(data) == b"true"
        case b"~":
            return None
        case b"]":
            return list(_parts(data, depth))
        case b"}":
            return _mapping(list(_parts(data, depth)))
    raise _BadValue("it has an unknown type")


def _number(data: memoryview, read: type[int] | type[float]) -> int | float:
    try:
        if len(data) <= _MAX_NUMBER:
            return read(bytes(data))
    except ValueError:
        pass
    raise _BadValue("a number in it is not valid")


def _parts(data: memoryview, depth: int) -> Iterator[Value]:
    """The consecutive values inside another value."""
    while data:
        size, colon, _ = bytes(data[: _MAX_DIGITS + 1]).partition(b":")
        if not colon or not size.isdigit():
            raise _BadValue("a part of it does not start with its size")
        start, end = len(size) + 1, len(size) + 1 + int(size)
        if end >= len(data):
            raise _BadValue("a part of it is longer than the whole")
        yield _value(bytes(data[end : end + 1]), data[start:end], depth + 1)
        data = data[end + 1 :]


def _mapping(parts: list[Value]) -> dict[str, Value]:
    if len(parts) % 2:
        raise _BadValue("a mapping in it has a key without a value")
    keys, entries = parts[::2], parts[1::2]
    return {_key(key): entry for key, entry in zip(keys, entries, strict=True)}


def _key(key: Value) -> str:
    if isinstance(key, bytes):
        return key.decode("latin-1")
    if not isinstance(key, str):
        raise _BadValue("a key in it is not text")
    return key
