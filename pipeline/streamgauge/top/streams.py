"""One stream as a line of the list, and which streams the list has, in which order.

Colours are those of the page: a completed stream is good, one that its client left is no error, one that broke is bad.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streamgauge.live.stored import BROKEN, FINE
from streamgauge.top.columns import Column
from streamgauge.top.words import UNKNOWN, age, count, parts, seconds, ticks

Json = Mapping[str, Any]

# Styles, as rich names them.
GOOD, WARN, BAD, OTHER, FAINT, PLAIN = "green", "yellow", "bold red", "magenta", "dim", ""
# Of an outcome; the others are faults of the stream. The page has the same table (`charts.js`).
_STYLES = {"completed": GOOD, "client_abort": WARN, "http_error": OTHER}


class Cell(NamedTuple):
    """A text with its style."""

    text: str
    style: str = PLAIN


def style_of(outcome: str) -> str:
    """The style of an outcome."""
    return _STYLES.get(outcome, BAD)


def state_of(row: Json) -> str:
    """The outcome of a finished stream; `open` or `silent` of an open one."""
    return str(row["outcome"] or ("silent" if row["is_silent"] else "open"))


def error_text(error: Json | None) -> str:
    """An error's phase, type, code and status."""
    parts_of_error = () if error is None else (error[name] for name in ("phase", "type", "code", "status"))
    return " ".join(str(part) for part in parts_of_error if part is not None) or UNKNOWN


def _state(row: Json) -> Cell:
    state = state_of(row)
    if state == "silent":
        return Cell("silent", BAD)
    return Cell(state, PLAIN if state == "open" else style_of(state))


def _silent(row: Json) -> Cell:
    return Cell(seconds(row["silent_s"]), BAD if row["is_silent"] else PLAIN)


def _when(row: Json) -> Cell:
    if row["outcome"] is None:
        return Cell(f"open {age(row['open_s'])}" if row["open_s"] is not None else "open")
    return Cell(f"{age(row['ended_s_ago'])} ago", FAINT)


# Characters of a stream's id in the list: its last ones, as in `ledger query`. `ledger show` finds a stream by these.
SHORT_ID = 8

# Each column with its cell. Titles are those of the page. Numbers are never cut: their columns have one width.
COLUMNS: Sequence[tuple[Column, Callable[[Json], Cell]]] = (
    (Column("stream", 1, SHORT_ID, SHORT_ID), lambda row: Cell(str(row["id"])[-SHORT_ID:])),
    (Column("upstream", 6, 8, 20), lambda row: Cell(row["upstream"] or UNKNOWN)),
    (Column("model", 4, 10, 40), lambda row: Cell(row["model"] or UNKNOWN)),
    (Column("outcome", 2, 14, 14), _state),
    (Column("first token", 3, 11, 11, right=True), lambda row: Cell(seconds(row["first_token_s"]))),
    (Column("silent for", 5, 11, 11, right=True), _silent),
    (Column("longest gap", 8, 11, 11, right=True), lambda row: Cell(seconds(row["longest_gap_s"]))),
    (Column("when", 9, 11, 11, right=True), _when),
    (Column("token events", 10, 12, 12, right=True), lambda row: Cell(count(row["token_events"]))),
    (Column("error", 11, 12, 40), lambda row: Cell(error_text(row["error"]) if row["error"] else "", BAD)),
    (Column("tenant", 13, 6, 20), lambda row: Cell(row["tenant"] or UNKNOWN)),
    (Column("status", 14, 6, 6, right=True), lambda row: Cell(str(row["status_code"] or UNKNOWN))),
    (Column("tokens out", 15, 10, 10, right=True), lambda row: Cell(count(row["output_tokens"]))),
)
_LAST_MINUTE = Column("last minute", 12, 20, 20)
_AT = Column("at", 7, 4, 21)
_TITLES = [column.title for column, _ in COLUMNS]


def table_of(rows: Sequence[Json], labels: Sequence[str]) -> list[tuple[Column, list[Cell]]]:
    """The columns of a list of streams, each with the cells of its rows. `labels`: of the processes; one alone has no column.

    A column of text is at most as wide as its longest cell.
    """
    table = [(column, [cell(row) for row in rows]) for column, cell in COLUMNS]
    longest = max([1, *(part for row in rows for part in parts(row["ticks"] or []))])
    table.insert(10, (_LAST_MINUTE, [Cell(ticks(row["ticks"], longest) if row["ticks"] else "") for row in rows]))
    if len(labels) > 1:
        table.insert(4, (_AT, [Cell(labels[row["at"]]) for row in rows]))
    return [(_narrowed(column, cells), cells) for column, cells in table]


def _narrowed(column: Column, cells: Sequence[Cell]) -> Column:
    if column.least == column.most:
        return column
    content = max([len(column.title), *(len(cell.text) for cell in cells)])
    most = min(column.most, content)
    return Column(column.title, column.rank, min(column.least, max(most, len(column.title))), most, column.right)


# --- filter and sort ------------------------------------------------------------------------------------------------

# What a filter looks in, by the name that may stand before `=`. As on the page, `broken` is any outcome that is a fault.
FIELDS: Mapping[str, Callable[[Json], str]] = {
    "id": lambda row: str(row["id"]),
    "upstream": lambda row: str(row["upstream"] or ""),
    "model": lambda row: str(row["model"] or ""),
    "outcome": lambda row: f"{state_of(row)} {BROKEN}" if _is_broken(row) else state_of(row),
    "tenant": lambda row: str(row["tenant"] or ""),
}


def matches(row: Json, text: str) -> bool:
    """Whether a stream has each word of the filter: `WORD` in one of FIELDS, or `FIELD=WORD` in that one. Case is ignored."""
    return all(_has(row, word) for word in text.casefold().split())


def _has(row: Json, word: str) -> bool:
    name, equals, wanted = word.partition("=")
    if equals and name in FIELDS:
        return wanted in FIELDS[name](row).casefold()
    return any(word in field(row).casefold() for field in FIELDS.values())


def _is_broken(row: Json) -> bool:
    return row["outcome"] is not None and row["outcome"] not in FINE


def _number(row: Json, name: str) -> float:
    value = row[name]
    return -1.0 if value is None else float(value)


def _worst(row: Json) -> tuple[int, float]:
    """Silent streams, those silent longest first; broken ones, the newest first; open ones; the others, the newest first."""
    if row["outcome"] is None:
        return (3 if row["is_silent"] else 1), _number(row, "silent_s")
    return (2 if _is_broken(row) else 0), -_number(row, "ended_s_ago")


# By name: the order of the list (the largest first), and the one of /streams that chooses which open streams are listed.
SORTS: Mapping[str, tuple[Callable[[Json], Any], str]] = {
    "worst": (_worst, "silent"),
    "newest": (lambda row: str(row["started_at"] or ""), "silent"),
    "oldest": (lambda row: _number(row, "open_s"), "age"),
    "first-token": (lambda row: _number(row, "first_token_s"), "silent"),
    "gap": (lambda row: _number(row, "longest_gap_s"), "silent"),
    "tokens": (lambda row: _number(row, "token_events"), "tokens"),
}


def chosen(rows: Sequence[Json], text: str, sort: str) -> list[Json]:
    """The streams that match a filter, in the order of a name in SORTS."""
    return sorted((row for row in rows if matches(row, text)), key=SORTS[sort][0], reverse=True)
