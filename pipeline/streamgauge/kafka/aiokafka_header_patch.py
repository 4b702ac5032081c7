"""Messages whose headers have names that are no UTF-8: brokers take them, and aiokafka (0.13 to 0.14) fails over them.

It fails in the middle of fetching, again at each try: one such message would end every worker that gets its partition, and
nobody could skip it. So a batch over which its decoder fails is read once more, by aiokafka's own decoder in Python, which
here replaces what is no UTF-8.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher  # type: ignore[import-untyped]
from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record.default_records import _DefaultRecordBatchPy  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

# A batch: its first offset, the length of all that follows, the leader's epoch, the format (magic).
_HEAD = struct.Struct(">qiib")
_LENGTH_FROM = 12  # the length counts from here (bytes)
_FORMAT_WITH_HEADERS = 2


def forgive_header_names() -> None:
    """Let aiokafka's consumers in this process read such messages, Faust's among them. Again does nothing."""
    fetcher.MemoryRecords = ForgivingRecords


class ForgivingRecords:
    """The batches of one answer, as aiokafka's own `MemoryRecords`."""

    def __init__(self, answer: bytes) -> None:
        self._answer = memoryview(answer)
        self._records = MemoryRecords(answer)
        self._next = 0

    def has_next(self) -> bool:
        return bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        return int(self._records.size_in_bytes())

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if batch is None:
            return None
        _, length, _, magic = _HEAD.unpack_from(self._answer, self._next)
        start, self._next = self._next, self._next + _LENGTH_FROM + length
        return batch if magic < _FORMAT_WITH_HEADERS else _Batch(batch, self._answer[start : self._next])


class _Batch:
    """One batch: everything is aiokafka's, but what its decoder fails over."""

    def __init__(self, batch: Any, content: memoryview) -> None:
        self._batch = batch
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                read += 1
                yield record
        except (UnicodeDecodeError, CorruptRecordException) as error:
            if not isinstance(error.__cause__ or error, UnicodeDecodeError):
                raise
        else:
            return
        yield from islice(_forgiving(self._content), read, None)


def _forgiving(content: memoryview) -> Iterator[Any]:
    batch = _DefaultRecordBatchPy(content)
    batch._maybe_uncompress()
    batch._buffer = _Text(batch._buffer)
    yield from batch


class _Text(bytearray):
    """Bytes whose parts decode, whatever they are."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return _Text(found) if isinstance(place, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
