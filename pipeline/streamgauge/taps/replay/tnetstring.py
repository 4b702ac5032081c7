"""Typed netstrings (https://tnetstrings.info), with mitmproxy's text type (`;`): SIZE:DATA and one byte for the type."""

from collections.abc import Iterator
from typing import Protocol

from streamgauge.taps.replay.contract import BrokenRecording

# Limit of one value of a file (bytes): a request of 100 MB and the largest response that is decoded fit several times.
MAX_VALUE_BYTES = 512 * 1024 * 1024
# Limit of nesting levels; a flow has six.
MAX_DEPTH = 32
# Limit of the digits of a size: that of mitmproxy.
_MAX_DIGITS = 12
# Limit of the digits of a number: real ones are shorter, and parsing more takes quadratic time.
_MAX_NUMBER = 40

# None, bool, int, float, bytes, str, and lists and mappings of these. Keys of mappings are text.
Value = object


class Readable(Protocol):
    """A file: only `read` is needed."""

    def read(self, size: int, /) -> bytes:
        """`size` bytes; fewer only at the end of the file."""


class _BadValue(ValueError):
    """The bytes are not a value. The text is the reason."""


def values(file: Readable) -> Iterator[Value]:
    """The values of a file, one by one. Raises BrokenRecording at damage, after the values before it."""
    at, number = 0, 1
    while (first := file.read(1)) != b"":
        try:
            size, digits = _size(file, first)
            data, kind = file.read(size), file.read(1)
            if not kind:
                raise _BadValue("the file ends inside it")
            value = _value(kind, memoryview(data), 0)
        except _BadValue as error:
            raise BrokenRecording(f"flow {number}, at byte {at}, cannot be read ({error})") from None
        yield value
        at, number = at + digits + 1 + size + 1, number + 1


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
