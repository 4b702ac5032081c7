"""Writes records as Parquet: the columns of an export, and `record`, the JSON."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import BinaryIO

import pyarrow  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]

from streamgauge.cli.export_columns import COLUMNS, NUMBERS, values_of

# Records of one row group: some 30 MB of JSON in memory.
_GROUP_ROWS = 10_000
_SCHEMA = pyarrow.schema(
    [
        *((name, pyarrow.int64() if name in NUMBERS else pyarrow.string()) for name in COLUMNS),
        ("record", pyarrow.string()),
    ]
)


def write_parquet(file: BinaryIO, records: Iterable[bytes], tenants: Mapping[str, str]) -> None:
    """Writes all records. Money stays text, so that no reader makes a float of it."""
    rest = iter(records)
    with pyarrow.parquet.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        while group := list(islice(rest, _GROUP_ROWS)):
            rows = [values_of(record, tenants) for record in group]
            columns = [list(column) for column in zip(*rows, strict=True)]
            arrays = [*columns, [record.decode() for record in group]]
            arrays = [pyarrow.array(values, field.type) for values, field in zip(arrays, _SCHEMA, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=_SCHEMA))
