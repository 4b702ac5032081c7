"""Where in a response's body a read has ended: what the relay and its pump tell each other."""

from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """Of a chunked body: before a size, in its digits, behind its CR, in data, at the CR and at the LF behind it. Of a body
    with a length. Of one that ends with its connection. `_pump.c` has the same numbers.
    """

    SIZE_BEGIN = 0
    SIZE = 1
    SIZE_LF = 2
    DATA = 3
    DATA_CR = 4
    DATA_LF = 5
    LENGTH = 6
    UNTIL_EOF = 7


class BodyPosition(NamedTuple):
    """`left`: bytes of the chunk or the body that are still to come; in SIZE what the digits say so far."""

    phase: int
    left: int


def bytes_leading_to(place: BodyPosition) -> bytes:
    """What brings a parser that stands at a chunked body's beginning to this place in a chunk."""
    match place.phase:
        case Phase.SIZE:
            return b"%x" % place.left
        case Phase.SIZE_LF:
            return b"%x\r" % place.left
        case Phase.DATA:
            return b"%x\r\n" % place.left
        case Phase.DATA_CR:
            return b"1\r\n-"
        case Phase.DATA_LF:
            return b"1\r\n-\r"
        case _:
            return b""
