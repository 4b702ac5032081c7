"""Ledger rows for tests, made from whole records."""

from typing import Any
from uuid import UUID

from streamgauge.ledger import LedgerRow, row_of
from tests.metrics.records import make_record


def stream_id(number: int) -> str:
    return str(UUID(int=(7 << 76) | (2 << 62) | number))


def make_row(number: int, **changes: Any) -> LedgerRow:
    """The row of stream `number`, started `number` seconds into a day unless `changes` say otherwise."""
    started = f"2026-03-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000000Z"
    return row_of(make_record(**{"stream_id": stream_id(number), "started_at": started, **changes}))
