"""Reads the rows of a Parquet file, some at a time, with values as the readers of CSV and JSON take them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, BinaryIO

from streamgauge.audit.invoices.contract import BadTextError
from streamgauge.errors import MissingExtra

# Rows that are made at a time.
_BATCH = 1_000


class ParquetRows:
    """The rows of a Parquet file. `header`: the names of its columns. Raises BadTextError, also while it is iterated, and
    MissingExtra.

    A row has its number, from 1, and its values by column: text, whole numbers, Decimal, lists, and records and maps as
    mappings. A double becomes the shortest decimal number that it is (0.1, not 0.1000...0055), as CSV has it. A time without
    a zone is UTC, which FOCUS and the clouds' exports say of theirs.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            import pyarrow.parquet  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise MissingExtra("an invoice in Parquet", "parquet") from None
        self._errors = (pyarrow.ArrowException, OSError, ValueError, OverflowError)
        with self._reading():
            self._file = pyarrow.parquet.ParquetFile(file)
            self.header: list[str] = [str(name) for name in self._file.schema_arrow.names]

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        number = 0
        batches = self._file.iter_batches(_BATCH)
        while True:
            with self._reading():
                batch = next(batches, None)
                rows: list[dict[str, Any]] = [] if batch is None else batch.to_pylist()
            if batch is None:
                return
            for row in rows:
                number += 1
                yield number, {name: _plain(value) for name, value in row.items()}

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise BadTextError(f"the Parquet file is damaged, or of a kind that is not known: {error}") from None


def _plain(value: object) -> object:
    if isinstance(value, float):
        return Decimal(repr(value)) if isfinite(value) else str(value)
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) and len(one) == 2 for one in value):  # a map
            return {str(name): _plain(member) for name, member in value}
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value
