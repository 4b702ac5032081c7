"""A ledger in PostgreSQL with tens of millions of rows: filling it, writing to it, a month's query, retention, bytes.

The server makes most rows itself, since encoding 50 million records would take hours: their columns have values as those of
records, their JSON is short. So bytes of a whole row are measured by `bench.scale`, on real records.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from tests.postgres.server import PostgresServer

from bench.scale import BATCH, table_bytes
from bench.scale_streams import bundles_of, many, records_of
from streamgauge.core.record import Record
from streamgauge.ledger import Filter, Ledger, open_ledger, row_of

DAY_S = 86_400
_US = 1_000_000
# Where the server keeps its data (tests/postgres/server.py), and what a row takes there with its indexes and its log.
PLACE = Path("/tmp")
ROW_BYTES = 650
# What everything else takes: the server, the broker, logs (bytes).
REST_BYTES = 3 * 1024**3
# Rows of one transaction of the fill.
_FILL = 100_000

_INSERT = """
INSERT INTO records (stream_id, started_us, day, model, request_model, response_model, tap, upstream, dialect, endpoint,
    outcome, finish_reason, tenant, usage_source, input_tokens, output_tokens, total_tokens, wait_us, input_uncached,
    output_text, cost_input, cost_output, price_source, record)
SELECT left(ms, 8) || '-' || right(ms, 4) || '-7' || left(free, 3) || '-8' || substr(free, 4, 3) || '-' || right(free, 12),
    us, %(day)s, 'model-' || n %% 7, 'model-' || n %% 7, 'model-' || n %% 7, 'proxy', 'up', 'openai-chat',
    '/chat/completions',
    'completed', 'stop', 'team-' || n %% 50, 'final', 1000, 300, 1300, 200000 + n %% 100000, 1000, 300, 25000000, 30000000,
    'bench', convert_to('{"stream_id":"' || free || '"}', 'UTF8')
FROM (
    SELECT n, lpad(to_hex(us / 1000), 12, '0') AS ms, us, md5(n::text) AS free FROM (
        SELECT n, %(from_us)s + n * %(step_us)s AS us FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    ) AS numbered
) AS made
"""


@dataclass(frozen=True)
class Measured:
    """Seconds, unless said. `rows`, `days`: of the filled ledger. `empty_rows_s`, `full_rows_s`: rows a second that one
    writer stores. `month_rows`: those of the month. `resumed_s`: the month once there is one resumed stream.
    `dropped_s`: the longest drop of a day.
    """

    rows: int
    days: int
    fill_s: float
    size: int
    empty_rows_s: float
    full_rows_s: float
    month_rows: int
    month_s: float
    day_s: float
    resumed_s: float
    dropped: int
    dropped_s: float
    freed: int


def check_disk(rows: int, place: Path = PLACE) -> None:
    """Raises SystemExit with a sentence if the disk has too little free space for this many rows."""
    needed, free = rows * ROW_BYTES + REST_BYTES, shutil.disk_usage(place).free
    print(f"{place} has {free / 1e9:.0f} GB free; {rows:,} rows need {needed / 1e9:.0f} GB", flush=True)
    if free < needed:
        raise SystemExit(f"{place} has too little free space: free some, or give fewer rows with --rows")


def measure(server: PostgresServer, rows: int, days: int, written: int) -> Measured:
    """Fills a ledger with rows of `days` days up to yesterday, and measures. `written`: rows for the speed of a writer."""
    url = server.url
    midnight = int(time.time()) // DAY_S * DAY_S
    known = records_of(bundles_of(50, 300, "masked"))
    with open_ledger(url) as ledger:
        empty = _speed(ledger, known, written, midnight)
        began = time.perf_counter()
        for back in range(days, 0, -1):
            _fill_day(url, midnight - back * DAY_S, rows // days)
        fill_s = time.perf_counter() - began
        _run(url, "ANALYZE records")
        size = table_bytes(url)
        full = _speed(ledger, known, written, midnight + DAY_S // 2)
        until = midnight - (days // 4) * DAY_S
        since = until - min(30, days // 2) * DAY_S
        month = Filter(since_us=since * _US, until_us=until * _US)
        month_rows = sum(total.streams for total in ledger.totals(["tenant"], month))
        month_s = _seconds(lambda: ledger.totals(["tenant", "model"], month))
        day_s = _seconds(
            lambda: ledger.totals(["tenant"], Filter(since_us=since * _US, until_us=(since + DAY_S) * _US))
        )
        resumed = msgspec.structs.replace(known[0], resumed_from="msg-5", request_digest="d" * 32)
        ledger.insert([row_of(one) for one in many([resumed], 1, midnight * 10**9, 1)])
        resumed_s = _seconds(lambda: ledger.totals(["tenant", "model"], month))
        before, steps = table_bytes(url), list[float]()
        while True:
            began = time.perf_counter()
            if not ledger.expire((midnight - days // 2 * DAY_S) * _US, 1_000).days:
                break
            steps.append(time.perf_counter() - began)
        if len(steps) != days - days // 2:
            raise SystemExit(f"retention dropped {len(steps)} days of {days}")
        return Measured(
            rows // days * days,
            days,
            fill_s,
            size,
            empty,
            full,
            month_rows,
            month_s,
            day_s,
            resumed_s,
            len(steps),
            max(steps),
            before - table_bytes(url),
        )


def table_rows(found: Measured) -> list[list[str]]:
    """The lines of the table of limits."""
    return [
        [
            f"ledger of {found.rows:,} rows, {found.days} days",
            f"{found.size / 1e9:,.2f}",
            "GB (rows with short records)",
        ],
        ["the same: rows that the server made itself", f"{found.rows / found.fill_s:,.0f}", "rows a second"],
        ["one writer, empty ledger", f"{found.empty_rows_s:,.0f}", "rows a second"],
        ["one writer, full ledger", f"{found.full_rows_s:,.0f}", "rows a second"],
        [f"totals of a month by tenant and model, {found.month_rows:,} rows", f"{found.month_s:,.2f}", "s"],
        ["totals of a day by tenant", f"{found.day_s:,.2f}", "s"],
        ["totals of the month once a stream was resumed", f"{found.resumed_s:,.2f}", "s"],
        ["retention: the longest drop of a day", f"{found.dropped_s:,.2f}", "s"],
        [f"retention: {found.dropped} days freed", f"{found.freed / 1e9:,.2f}", "GB"],
    ]


def _speed(ledger: Ledger, known: Sequence[Record], count: int, began_s: int) -> float:
    """Rows a second that one writer stores, in batches as a worker's sink has them."""
    rows = [row_of(record) for record in many(known, count, began_s * 10**9, 3_600 * 10**9)]
    began = time.perf_counter()
    new = sum(ledger.insert(rows[at : at + BATCH]).new for at in range(0, count, BATCH))
    if new != count:
        raise SystemExit(f"{new} of {count} rows were stored")
    return count / (time.perf_counter() - began)


def _fill_day(url: str, begins_s: int, rows: int) -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime(begins_s))
    _run(url, "SELECT streamgauge_make_day(%(day)s::date)", {"day": day})
    for first in range(0, rows, _FILL):
        part = {
            "day": day,
            "from_us": begins_s * _US,
            "step_us": max(1, DAY_S * _US // rows),
            "first": first,
            "last": min(first + _FILL, rows) - 1,
        }
        _run(url, _INSERT, part)


def _run(url: str, statement: str, values: dict[str, Any] | None = None) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), values)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
