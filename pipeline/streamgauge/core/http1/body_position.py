"""The position in a response's body at the end of a read. The relay passes it to the pump, and the pump returns it."""

from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """In a chunked body: before a size, in its digits, after its CR, in data, at the CR and at the LF after the data.
    LENGTH: in a body with a length. UNTIL_EOF: in a body that ends with its connection. `_pump.c` has the same numbers.
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
    """`phase`: a Phase. `left`: bytes of the chunk or the body that are still to come; in SIZE the value of the digits so
    far.
    """

    phase: int
    left: int
