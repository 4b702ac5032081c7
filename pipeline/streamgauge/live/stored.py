"""What the page asks about finished streams: the interface of what reads them from a ledger, and the filters of a request."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from streamgauge.live.answers import Finished, Row, Summary, Timeline
from streamgauge.metrics.table import OUTCOMES

# Outcomes that are no fault of the stream.
FINE = frozenset(("completed", "client_abort"))
# A filter of outcomes that stands for all others.
BROKEN = "broken"
BROKEN_OUTCOMES = tuple(outcome for outcome in OUTCOMES if outcome not in FINE)

# The keys of a choice.
KEYS = ("upstream", "model", "tenant")
# `worst`: broken streams, the newest first, then those with the slowest first tokens. `newest`: by their start.
# `slowest`: by the time to the first token, or to the end of a stream without one.
SORTS = ("worst", "newest", "slowest")
# Rows of one answer, if the request names no number; and the most that it may request.
ROWS = 50
MAX_ROWS = 500
# Times that a request may name (seconds since 1970): years 1970 to 9999.
MAX_TIME_S = 253_402_300_000

# Pairs of one of KEYS and a value; None: of streams without a value.
Choice = tuple[tuple[str, str | None], ...]


class Wanted(NamedTuple):
    """A list of finished streams. `outcomes`: one of these; empty: any. `part`: of the stream id, in lower case.
    Those that started in [since_s, until_s), seconds since 1970, and at most `age_s` ago.
    """

    choice: Choice = ()
    outcomes: tuple[str, ...] = ()
    part: str = ""
    since_s: float | None = None
    until_s: float | None = None
    age_s: float | None = None
    sort: str = SORTS[0]
    limit: int = ROWS


# The list that the page shows when it is opened: the worst of the last hour.
FIRST_LIST = Wanted(age_s=3_600)


def without_age(wanted: Wanted, now_s: float) -> Wanted:
    """The same list by times alone. `now_s`: seconds since 1970."""
    if wanted.age_s is None:
        return wanted
    since_s = now_s - wanted.age_s
    return wanted._replace(since_s=since_s if wanted.since_s is None else max(since_s, wanted.since_s), age_s=None)


class StoredStreams(Protocol):
    """Reads finished streams. The methods may be called on any thread, and raise NoAnswerError."""

    def summary(self, choice: Choice) -> Summary:
        """The numbers of the chosen streams of the last hour."""

    def finished(self, wanted: Wanted) -> Finished:
        """The wanted streams."""

    def stream(self, stream: UUID) -> Timeline | None:
        """A finished stream, without its reads."""

    def recent(self) -> tuple[Summary, Finished] | None:
        """The last answers for all streams and FIRST_LIST, if both are at most a minute old. Reads no ledger."""


def choice_of(query: Mapping[str, str]) -> Choice:
    """The choice in a query. An empty value stands for streams without a value."""
    return tuple((key, query[key] or None) for key in KEYS if key in query)


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """The list that a query asks for. Raises ValueError with a sentence."""
    outcome = query.get("outcome", "")
    if outcome not in ("", BROKEN, *OUTCOMES):
        raise ValueError(f"outcome is one of {', '.join((BROKEN, *OUTCOMES))}")
    sort = query.get("sort", SORTS[0])
    if sort not in SORTS:
        raise ValueError(f"sort is one of {', '.join(SORTS)}")
    part = query.get("id", "").strip().lstrip("\u2026").lower()
    if len(part) > 36 or not set(part) <= set("0123456789abcdef-"):
        raise ValueError("id is a stream id, its beginning or its end: hexadecimal digits and hyphens")
    limit = _number(query, "limit", MAX_ROWS)
    return Wanted(
        choice_of(query),
        BROKEN_OUTCOMES if outcome == BROKEN else (outcome,) if outcome else (),
        part,
        _number(query, "since", MAX_TIME_S),
        _number(query, "until", MAX_TIME_S),
        _number(query, "age", MAX_TIME_S),
        sort,
        ROWS if limit is None else limit,
    )


def _number(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= most):
        raise ValueError(f"{name} is a whole number from 0 to {most}")
    return int(text)


def matches(row: Row, wanted: Wanted, started_s: float | None) -> bool:
    """Whether a finished stream, of which this is the row, is wanted, whatever its age.

    `started_s`: seconds since 1970; None if that is not known.
    """
    if any(getattr(row, key) != value for key, value in wanted.choice):
        return False
    if wanted.outcomes and row.outcome not in wanted.outcomes:
        return False
    if not (row.id.startswith(wanted.part) or row.id.endswith(wanted.part)):
        return False
    if wanted.since_s is None and wanted.until_s is None:
        return True
    return (
        started_s is not None
        and (wanted.since_s is None or started_s >= wanted.since_s)
        and (wanted.until_s is None or started_s < wanted.until_s)
    )


def sorted_rows(rows: Sequence[Row], sort: str) -> list[Row]:
    """Rows of finished streams in one of SORTS."""
    newest = sorted(rows, key=lambda row: row.started_at or "", reverse=True)
    if sort == "newest":
        return newest
    slowest = sorted(newest, key=_wait_s, reverse=True)
    if sort == "slowest":
        return slowest
    return [row for row in newest if row.outcome not in FINE] + [row for row in slowest if row.outcome in FINE]


def _wait_s(row: Row) -> float:
    return (row.end_s if row.first_token_s is None else row.first_token_s) or 0.0
