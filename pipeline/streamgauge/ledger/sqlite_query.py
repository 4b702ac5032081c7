"""Reads the records that a filter chooses from a ledger's file, in order of their start, page by page.

No statement is open between two pages, so a slow reader does not keep SQLite from folding its log back into the file.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from streamgauge.core.safe_values import is_attribute_name
from streamgauge.ledger.contract import KEYS, Filter
from streamgauge.ledger.sqlite_schema import COLUMNS, NO_START, PAGE_ROWS, Database

# The expression of the index records_by_start: SQLite uses an index on an expression only for the same expression.
START = f"ifnull(started_us, {NO_START})"
_EARLIEST = -NO_START
# Sorts after every stream id (they are hexadecimal), as an empty text sorts before every one.
_AFTER_ALL_IDS = "\U0010ffff"


class _Span(NamedTuple):
    """Records between two positions of the index, both excluded. A position is a start and a stream id."""

    after: tuple[int, str]
    before: tuple[int, str]


def records_of(database: Database, chosen: Filter, limit: int | None, newest_first: bool) -> Iterator[bytes]:
    """The JSON of the chosen records, at most `limit`. The caller has checked the keys of `chosen`."""
    left = limit
    for span in _spans(chosen):
        for record in _records_in(database, span, chosen, left, newest_first):
            yield record
            left = None if left is None else left - 1


def _spans(chosen: Filter) -> Iterator[_Span]:
    """The span of records with a start, then that of records without: these are last in both orders, and in no range."""
    since = _EARLIEST if chosen.since_us is None else chosen.since_us
    until = NO_START if chosen.until_us is None else chosen.until_us
    yield _Span((since, ""), (until, ""))
    if chosen.since_us is None and chosen.until_us is None:
        yield _Span((NO_START, ""), (NO_START, _AFTER_ALL_IDS))


def _records_in(
    database: Database, span: _Span, chosen: Filter, limit: int | None, newest_first: bool
) -> Iterator[bytes]:
    condition, values = condition_of(chosen, expression_of)
    order = "DESC" if newest_first else "ASC"
    # BETWEEN lets SQLite search the index. With comparisons of pairs alone SQLite scans the index from its beginning
    # for each page, so that the time of a query would grow with the square of the number of pages.
    page_of = f"""
        SELECT {START}, stream_id, record FROM records
        WHERE {START} BETWEEN ? AND ? AND ({START}, stream_id) > (?, ?) AND ({START}, stream_id) < (?, ?) AND {condition}
        ORDER BY {START} {order}, stream_id {order} LIMIT ?
    """
    left = limit
    while left is None or left > 0:
        size = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        bounds = (span.after[0], span.before[0], *span.after, *span.before)
        page = database.execute(page_of, (*bounds, *values, size)).fetchall()
        yield from (record for _, _, record in page)
        if len(page) < size:
            return
        last = page[-1][:2]
        span = span._replace(before=last) if newest_first else span._replace(after=last)
        left = None if left is None else left - size


def expression_of(key: str) -> str:
    """The SQL of a key on the table `records`: its column, else the attribute of this name. The caller has checked it."""
    return f"records.{key}" if key in KEYS else f"json_extract(records.attributes, '$.{key}')"


def has_attribute(database: Database, name: str) -> bool:
    """Whether a record has this attribute. False for any text that cannot be the name of one."""
    if name in COLUMNS or not is_attribute_name(name):
        return False
    return database.execute(f"SELECT 1 FROM records WHERE {expression_of(name)} NOTNULL LIMIT 1").fetchone() is not None


def condition_of(chosen: Filter, column: Callable[[str], str]) -> tuple[str, list[str | int | None]]:
    """The SQL condition of a filter's `where`, and its parameters. `column`: gives the SQL of a key."""
    by_key: dict[str, list[str | int | None]] = {}
    for key, value in chosen.where:
        by_key.setdefault(key, []).append(value)
    # IS compares like =, and holds for null and null.
    parts = [f"({' OR '.join(f'{column(key)} IS ?' for _ in values)})" for key, values in by_key.items()]
    return " AND ".join(parts) or "TRUE", [value for values in by_key.values() for value in values]


def range_of(chosen: Filter) -> tuple[str, list[int]]:
    """The SQL condition of a filter's time range on the table `records`, and its parameters."""
    if chosen.since_us is None and chosen.until_us is None:
        return "TRUE", []
    (since, _), (until, _) = next(_spans(chosen))
    return f"{START} >= ? AND {START} < ?", [since, until]
