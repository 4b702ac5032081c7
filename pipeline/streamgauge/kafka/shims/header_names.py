"""Read messages whose header names are not UTF-8. Brokers accept them, but aiokafka fails to decode them.

Written for aiokafka 0.13 to 0.14. No public report.

aiokafka fails during the fetch, and again at each retry. One such message would end every worker that gets its partition,
and no setting skips it. So if aiokafka's decoder fails on a batch, this module reads the batch again with aiokafka's own
decoder in Python, changed to replace the bytes that are not UTF-8.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher  # type: ignore[import-untyped]
from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record.default_records import _DefaultRecordBatchPy  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

# A batch begins with its first offset, the length of the rest, the leader's epoch, and the format (magic).
_HEAD = struct.Struct(">qiib")
_LENGTH_FROM = 12  # the position in the batch from which the length counts (bytes)
_FORMAT_WITH_HEADERS = 2


def tolerate_header_names() -> None:
    """Patch aiokafka so that all its consumers in this process, Faust's included, read such messages. Idempotent."""
    fetcher.MemoryRecords = TolerantRecords


class TolerantRecords:
    """The batches of one fetch response, with the interface of aiokafka's own `MemoryRecords`."""

    def __init__(self, answer: bytes) -> None:
        self._answer = memoryview(answer)
        self._records = MemoryRecords(answer)
        self._next = 0

    def has_next(self) -> bool:
        """Whether `next_batch` will return a batch."""
        return bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        """The size of the whole answer (bytes), as aiokafka counts it."""
        return int(self._records.size_in_bytes())

    def next_batch(self) -> Any:
        """The next batch, with headers that aiokafka can decode; None after the last one."""
        batch = self._records.next_batch()
        if batch is None:
            return None
        _, length, _, magic = _HEAD.unpack_from(self._answer, self._next)
        start, self._next = self._next, self._next + _LENGTH_FROM + length
        return batch if magic < _FORMAT_WITH_HEADERS else _Batch(batch, self._answer[start : self._next])


class _Batch:
    """One batch. Uses aiokafka's batch for everything, and `_tolerant` for the messages that its decoder fails on."""

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
        yield from islice(_tolerant(self._content), read, None)


def _tolerant(content: memoryview) -> Iterator[Any]:
    batch = _DefaultRecordBatchPy(content)
    batch._maybe_uncompress()
    batch._buffer = _Text(batch._buffer)
    yield from batch


class _Text(bytearray):
    """Bytes whose slices always decode: bytes that are not UTF-8 become replacement characters."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        return _Text(value) if isinstance(key, slice) else value

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
