"""Reads the records that a filter chooses, in order of their start, page by page.

No statement is open between two pages. So a slow reader does not keep SQLite from folding its log back into the file, and
holds no connection and no snapshot of PostgreSQL.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, literal, select, tuple_

from streamgauge.ledger.contract import Filter
from streamgauge.ledger.keys import Keys, condition_of, in_partitions
from streamgauge.ledger.schema import NO_START, NUMBER, TEXT, records, started

# Records of one page (rows): some MB of JSON.
PAGE_ROWS = 1_000
_EARLIEST = -NO_START
# Sorts after every stream id (they are hexadecimal), as an empty text sorts before every one.
_AFTER_ALL_IDS = "\U0010ffff"

Reading = Callable[[], AbstractContextManager[Connection]]


class _Span(NamedTuple):
    """Records between two positions of the index, both excluded. A position is a start and a stream id."""

    after: tuple[int, str]
    before: tuple[int, str]


def records_of(reading: Reading, chosen: Filter, limit: int | None, newest_first: bool) -> Iterator[bytes]:
    """The JSON of the chosen records, at most `limit`. The caller has checked the keys of `chosen`.

    `reading` opens a connection for one page.
    """
    with reading() as connection:
        condition = condition_of(chosen, Keys(connection, chosen).expression)
    left = limit
    for span in _spans(chosen):
        for record in _records_in(reading, span, condition, left, newest_first):
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
    reading: Reading, span: _Span, condition: ColumnElement[bool], limit: int | None, newest_first: bool
) -> Iterator[bytes]:
    order = (started.desc(), records.c.stream_id.desc()) if newest_first else (started, records.c.stream_id)
    left = limit
    while left is None or left > 0:
        size = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        page_of = (
            select(started, records.c.stream_id, records.c.record)
            .where(_between(span), condition)
            .order_by(*order)
            .limit(size)
        )
        with reading() as connection:
            page = connection.execute(page_of).all()
        yield from (bytes(record) for _, _, record in page)
        if len(page) < size:
            return
        last = (page[-1][0], page[-1][1])
        span = span._replace(before=last) if newest_first else span._replace(after=last)
        left = None if left is None else left - size


def _between(span: _Span) -> ColumnElement[bool]:
    # BETWEEN lets SQLite search the index. With comparisons of pairs alone SQLite scans the index from its beginning
    # for each page, so that the time of a query would grow with the square of the number of pages.
    position = tuple_(started, records.c.stream_id)
    return and_(
        in_partitions(span.after[0], span.before[0] + 1),
        started.between(span.after[0], span.before[0]),
        position > _position(span.after),
        position < _position(span.before),
    )


def _position(place: tuple[int, str]) -> ColumnElement[tuple[int, str]]:
    return tuple_(literal(place[0], NUMBER), literal(place[1], TEXT))
