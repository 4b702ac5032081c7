"""Decisions derived from bytes, so that a byte-based fuzzer can make them. After the last byte come zeros."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Drawn:
    """Reads decisions, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        """Whether any byte is left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        value = self._data[self._at] if self.more else 0
        self._at += 1
        return value

    def number(self, most: int) -> int:
        """0 to `most`, which is below 65,536."""
        value = self.byte() if most < 256 else self.byte() << 8 | self.byte()
        return value % (most + 1)

    def one_of(self, given: Sequence[T]) -> T:
        return given[self.number(len(given) - 1)]

    def rest(self) -> bytes:
        """All remaining bytes."""
        rest, self._at = self._data[self._at :], len(self._data)
        return rest
