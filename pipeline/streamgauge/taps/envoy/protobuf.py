"""Reads the wire format of protocol buffers: the fields of one message, without a schema. Pure.

https://protobuf.dev/programming-guides/encoding/ is the source. Groups, which no message of Envoy has, are skipped.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
# A varint has at most ten bytes, a tag five (32 bits); larger field numbers do not exist.
_MAX_VARINT_BYTES = 10
_MAX_TAG = 2**32 - 1
# Nested groups beyond this depth are a fault, as in the reference implementations.
_MAX_DEPTH = 100
_U64 = 2**64 - 1

Value = int | bytes


class ProtobufFault(ValueError):
    """The bytes are no message of protocol buffers."""


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yields number and value of each field, in order. A value is an int (varint, fixed32, fixed64: unsigned) or bytes.

    Raises ProtobufFault at the first byte that cannot be read. No length in the data is believed before it is compared with
    the size of the data.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number or tag > _MAX_TAG:
            raise ProtobufFault("a field number out of range")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif kind == _START_GROUP:
            at = _after_group(data, at, number)
        else:
            start, at = _extent(data, at, kind)
            piece = data[start:at]
            yield number, piece if kind == _BYTES else int.from_bytes(piece, "little")


def signed(value: int) -> int:
    """The value of an int32 or int64, of which the wire has the 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint at a position, and the position after it."""
    value = shift = 0
    for byte in data[at : at + _MAX_VARINT_BYTES]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, at
        shift += 7
    raise ProtobufFault("a varint without an end")


def _extent(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where the content of a field of fixed or given length begins and ends."""
    if kind == _BYTES:
        size, at = _varint(data, at)
    elif kind == _FIXED64:
        size = 8
    elif kind == _FIXED32:
        size = 4
    else:
        raise ProtobufFault("an unknown wire type")
    if size > len(data) - at:
        raise ProtobufFault("a field longer than its message")
    return at, at + size


def _after_group(data: bytes, at: int, number: int) -> int:
    """The position after a group that has begun."""
    open_groups = [number]
    while open_groups:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number or tag > _MAX_TAG:
            raise ProtobufFault("a field number out of range")
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _START_GROUP:
            open_groups.append(number)
            if len(open_groups) > _MAX_DEPTH:
                raise ProtobufFault("groups nested too deeply")
        elif kind == _END_GROUP:
            if open_groups.pop() != number:
                raise ProtobufFault("a group with the end of another")
        else:
            _, at = _extent(data, at, kind)
    return at
