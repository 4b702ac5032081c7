"""The interface of every ledger, and its errors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Literal, NamedTuple, Protocol, Self

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.ledger.cost import Cost, Unpriced, usd
from streamgauge.ledger.row import LedgerRow

# The keys by which totals are grouped and records are chosen, besides the names of attributes. `day` and `month`: of
# started_at in the filter's time zone; `model`: the model that answered, else the requested model.
# `request_digest,attempt` groups the retries of one request. `tap` separates the records of one call that two taps captured.
KEYS: tuple[str, ...] = (
    "day",
    "model",
    "month",
    "request_model",
    "response_model",
    "tap",
    "upstream",
    "dialect",
    "endpoint",
    "outcome",
    "finish_reason",
    "tenant",
    "credential_id",
    "service_tier",
    "usage_source",
    "request_digest",
    "attempt",
    "response_id",
    "resumed_from",
    "trace_id",
    "upstream_host",
    "cost_unknown",
    "stream_id",
)
# The keys whose values are whole numbers; all others are text.
NUMBER_KEYS = frozenset({"attempt"})
# Numbers of a record by which records are chosen, not grouped. `ttft`: the time to the first token, `duration`: that to the
# end (seconds, floats); `cost`: in 10**-12 USD, and `status`: the HTTP status (whole numbers).
MEASURES: tuple[str, ...] = ("ttft", "duration", "cost", "status")

Sign = Literal["=", "!=", "<", "<=", ">", ">="]


class LedgerUnavailableError(Unavailable):
    """The ledger cannot be opened, read or written now; its text is one sentence for an operator."""


class UnsupportedLedgerError(UsageFault):
    """The ledger's URL has an unknown scheme or a wrong form."""


class UnknownKeyError(UsageFault):
    """A key for totals or for a filter is neither one of KEYS nor an attribute of a record in the ledger."""


class Comparison(NamedTuple):
    """A condition on a record: `key` is one of MEASURES, or with the sign `!=` any key of totals. None is null: it equals
    itself, differs from every value, and is neither above nor below one.
    """

    key: str
    sign: Sign
    value: str | float | None


@dataclass(frozen=True)
class Filter:
    """Chooses records. A record is read if every condition holds; the default reads all records.

    since_us, until_us: microseconds since 1970, UTC; started_at lies in [since_us, until_us). If one of them is given, a
    record without started_at is left out.
    where: pairs of a key (of KEYS, or the name of an attribute) and its value; None is null, and a value of a key of
    NUMBER_KEYS is an int. If a key has several values, one of them has to match.
    timezone: the IANA name of the zone whose days and months the keys `day` and `month` are.
    tenants: pairs of a credential_id and a tenant: the key `tenant` of records that have no tenant of their own.
    attributes: names that are keys although no record of this ledger may have them; their value is then null.
    compared: further conditions, which must all hold.

    Filtering by a key and grouping by it agree: in totals, `where` compares the values by which totals are grouped.
    """

    since_us: int | None = None
    until_us: int | None = None
    where: tuple[tuple[str, str | int | None], ...] = ()
    timezone: str = "UTC"
    tenants: tuple[tuple[str, str], ...] = ()
    attributes: frozenset[str] = frozenset()
    compared: tuple[Comparison, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all conditions, without MEASURES."""
        compared = (condition.key for condition in self.compared if condition.key not in MEASURES)
        return *(key for key, _ in self.where), *compared


ALL_RECORDS = Filter()


@dataclass(frozen=True)
class Inserted:
    """The results of one insert, as numbers of rows.

    new: stored. same: the ledger had the same bytes already. different: the ledger had other bytes, and keeps them.
    new_places: the indexes of the new rows among the given ones, for callers that count each record once.
    unpriced: new rows whose usage was reported and that have no price.
    """

    new: int = 0
    same: int = 0
    different: int = 0
    unpriced: int = field(default=0, compare=False)
    new_places: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Total:
    """One line of totals: its keys' values, and sums over the known numbers (None if no stream has the number).

    `streams` counts records; a resumed stream is a record of its own. Tokens count once for an origin and the resumed streams
    that continue it, under the keys of the origin; its `usage_source` is then the source of the counted numbers.
    `core/resumption.py` has the rules.

    `with_usage` counts the streams that add to at least one of the sums; an origin and its resumed streams count as one.
    `input_cached_tokens` are part of `input_tokens`, `reasoning_tokens` of `output_tokens`.

    `without_usage`: streams with none of these numbers; a resumed stream whose origin is known is no such stream.
    `kinds`: tokens by disjoint kind (`core/token_kinds.py`), for the kinds that a stream reported. `cost`: the price of the
    reported tokens in 10**-12 USD, else what providers reported, of `with_cost` streams; `without_cost` streams have none.
    `without_price`: the number of those that also count in `with_usage`.
    `longest_wait_us`: the longest time to a first token, or to the end of a stream without one, in microseconds.
    `first_us`, `last_us`: the first and the last start (microseconds since 1970, UTC).
    """

    keys: tuple[str | int | None, ...]
    streams: int
    with_usage: int
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    without_usage: int = field(default=0, compare=False)
    kinds: Mapping[str, int] = field(default_factory=dict, compare=False)
    cost: int | None = field(default=None, compare=False)
    without_price: int = field(default=0, compare=False)
    with_cost: int = field(default=0, compare=False)
    without_cost: int = field(default=0, compare=False)
    longest_wait_us: int | None = field(default=None, compare=False)
    last_us: int | None = field(default=None, compare=False)
    first_us: int | None = field(default=None, compare=False)

    @property
    def cost_usd(self) -> str | None:
        """The cost as a decimal string."""
        return None if self.cost is None else usd(self.cost)

    @property
    def unknown_share(self) -> str | None:
        """The part of the streams without usage, as a decimal string with 4 digits; None without streams."""
        return f"{Decimal(self.without_usage) / self.streams:.4f}" if self.streams else None


@dataclass(frozen=True)
class Expired:
    """The removals of one call of `expire`.

    records: how many were deleted one by one. days: the days (YYYY-MM-DD, UTC) whose records were dropped together.
    more: whether there may be more to remove.
    """

    records: int
    days: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class NewCost:
    """Another cost for a stored record. `stored`: the record's JSON with its cost, as it was read; `row`: the row of it."""

    stored: bytes
    row: LedgerRow
    cost: Cost


@dataclass(frozen=True)
class CostOfRecord:
    """A cost that a stored record has, or had until `replaced_us` (us since 1970, UTC).

    cost: None if it was not known; `unknown`: then the value of Unpriced, if that was stored. reason: why it was replaced, as
    the operator says.
    """

    cost: Cost | None
    unknown: str | None
    replaced_us: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Repricing:
    """A time (us since 1970, UTC) at which stored records got another cost, the reason, and how many they were."""

    replaced_us: int
    reason: str | None
    records: int


class Pricing(Protocol):
    """Computes the cost of a record."""

    def cost_of(self, row: LedgerRow) -> Cost | Unpriced | None:
        """The cost of a record, or the reason why it is not known; None if that is not known either. Raises nothing."""


class Reader(Protocol):
    """The reading side of a ledger, or of several together."""

    def query(
        self, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """The chosen records as JSON, at most `limit` of them, oldest first by started_at; equal times by stream id.

        `newest_first` reverses the order. Records without started_at are last in both orders.
        Other processes may write during the query; it does not block them. Raises UnknownKeyError, LedgerUnavailableError.
        """

    def totals(self, by: Sequence[str], chosen: Filter = ALL_RECORDS, *, newest_first: bool = False) -> list[Total]:
        """Streams and tokens of the chosen records, grouped by the keys `by`, in the order of the keys' values, None last.

        `newest_first`: the line with the latest started_at first. A resumed stream's usage counts with its origin, also if
        the resumed stream is not chosen. Raises UnknownKeyError, LedgerUnavailableError.
        """

    def minutes(self, chosen: Filter) -> list[tuple[int, str, int]]:
        """The chosen records that have a start, by minute of it: (seconds since 1970, outcome, number of records), sorted.

        Raises UnknownKeyError, LedgerUnavailableError.
        """

    def slowest(self, limit: int, chosen: Filter = ALL_RECORDS) -> list[bytes]:
        """The chosen records, as JSON, that waited longest for a first token, or for the end of a stream without one: at most
        `limit`, the longest wait first, equal ones by start and id. Raises UnknownKeyError, LedgerUnavailableError.
        """

    def with_id(self, part: str, limit: int) -> list[bytes]:
        """The records, as JSON in the order of their ids, whose stream id begins with `part`; if there is none, those whose
        id ends with it. At most `limit`. `part`: hexadecimal digits and hyphens in lower case. Raises LedgerUnavailableError.
        """

    def has_attribute(self, name: str) -> bool:
        """Whether a record has an attribute of this name, so that it is a key. Raises LedgerUnavailableError."""

    @property
    def parts(self) -> "Sequence[Part]":
        """The ledgers that this one consists of: several, or this one alone."""


class Usage(NamedTuple):
    """The sums of the records that have the same keys: `upstream` to `usage_source`, as the columns of the ledger.

    input, cached, written, output: tokens, as reported; input includes cached and written, and is their sum where it was not
    reported. cost: in 10**-12 USD, of the `priced` ones. unpriced: how many have tokens and no cost. highest: the highest
    cost. completed: how many completed. inconsistent: how many lack input or output, or have more cached input than input.
    nameless: how many have no response id. first_attempt, last_attempt: the lowest and the highest number of an attempt; None
    if none is numbered. starts: the sum of their starts, in microseconds after the beginning of the step.
    """

    upstream: str | None
    model: str | None
    tenant: str | None
    credential_id: str | None
    service_tier: str | None
    usage_source: str | None
    streams: int
    priced: int
    unpriced: int
    completed: int
    inconsistent: int
    nameless: int
    highest: int
    first_attempt: int | None
    last_attempt: int | None
    input: int
    cached: int
    written: int
    output: int
    reasoning: int
    cost: int
    starts: int

    @property
    def is_reported(self) -> bool:
        """Whether the provider reported their usage."""
        return self.usage_source in ("final", "partial")


class Attempt(NamedTuple):
    """An attempt of a request, as the columns of the ledger."""

    stream_id: str
    started_us: int
    upstream: str | None
    model: str | None
    request_digest: str
    attempt: int
    usage_source: str | None

    @property
    def is_reported(self) -> bool:
        """Whether the provider reported its usage."""
        return self.usage_source in ("final", "partial")


class SameId(NamedTuple):
    """A record that has the response id of others."""

    stream_id: str
    started_us: int
    upstream: str | None
    model: str | None


class Costly(NamedTuple):
    """A record and its cost in 10**-12 USD."""

    stream_id: str
    cost: int


class Selection(Enum):
    """What columns show of records."""

    MISSING = "missing"
    """They completed, and no usage was reported."""
    INCONSISTENT = "inconsistent"
    """They lack input or output, or have more cached input than input."""


class QuarterUsage(NamedTuple):
    """The reported tokens of an upstream in a quarter of an hour, which is numbered since 1970. As in Usage."""

    quarter: int
    upstream: str | None
    input: int
    cached: int
    written: int
    output: int


class Step(Protocol):
    """Records of a ledger that started in [since_us, until_us), read in one snapshot. All methods raise
    LedgerUnavailableError when the context of the step ends.
    """

    since_us: int
    until_us: int

    def sums(self) -> list[Usage]:
        """The sums of the records, in no order."""

    def unusual(self) -> Iterator[bytes]:
        """The records that reported usage with parts, or with faults in their counts, as JSON in order of their start."""

    def chosen(self, selection: Selection, usage: Usage, most: int) -> list[str]:
        """The ids of at most so many records that `usage` counts and the selection holds for, in order of their start."""

    def costing_more(self, cost: int, upstream: str | None, model: str | None) -> Iterator[Costly]:
        """The records of a model that reported usage and cost more than this (10**-12 USD), in order of their start."""

    def counts_of_equal_ids(self) -> dict[str, int]:
        """The response ids that several records have, and how many.

        Of each id at least one record is of this step; the others began at most a quarter of an hour before it. Resumed
        streams are left out, and ids that were masked.
        """

    def with_ids(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The records with these response ids, each with its id, as JSON: by id, then in order of their start. As for
        `counts_of_equal_ids`. At most 1,000 ids.
        """

    def named_with_ids(self, ids: Sequence[str]) -> Iterator[SameId]:
        """The same records without their JSON."""

    def without_ids(self) -> Iterator[bytes]:
        """The records without a response id whose model and counts are those of another one, as JSON in order of start.

        As for `counts_of_equal_ids`, the others may have begun before this step.
        """

    def attempts(self) -> list[Attempt]:
        """The attempts of requests of which several reported usage, in order of their start; as for `counts_of_equal_ids`."""

    def ids(self) -> set[str]:
        """The ids of all records of the step."""


class Part(Protocol):
    """One ledger, as an audit reads it: what it adds up by SQL, and the few records whose JSON has to be looked at.

    Times are in microseconds since 1970, UTC; a record without a start is in no time. All methods raise
    LedgerUnavailableError.
    """

    def usage_step(self, since_us: int, until_us: int) -> AbstractContextManager[Step | None]:
        """The records that started from `since_us` on, some 50,000 of them, at most up to `until_us`: in one snapshot, which
        the context keeps open. None if there is none.
        """

    def usage_by_quarter(self, since_us: int, until_us: int) -> list[QuarterUsage]:
        """The reported tokens by quarter of an hour, in no order."""

    def linked_records(self, since_us: int, until_us: int) -> Iterator[bytes]:
        """Resumed streams, and the records that they may continue, as JSON in no order."""

    def sample(self, since_us: int, until_us: int, digits: int) -> Iterator[bytes]:
        """The records that reported usage and whose ids end with so many zeros, as JSON in order of their start: of ids that
        are random, one of 16**digits. 0: all.
        """

    def stored_among(self, ids: Sequence[str]) -> Mapping[str, bytes]:
        """The records of these streams that the ledger has, as JSON by stream id."""


class Ledger(Reader, Protocol):
    """A store of records. Safe to use from several threads; several processes may share one ledger."""

    def insert(self, rows: Sequence[LedgerRow]) -> Inserted:
        """Store rows under their stream ids, in one transaction. Raises LedgerUnavailableError, then nothing is stored."""

    def expire(self, before_us: int, limit: int) -> Expired:
        """Remove records that started before a time (us since 1970, UTC): one step of it, the oldest first.

        Their earlier costs go with them. SQLite: at most `limit` records. Records without a start stay. PostgreSQL: one whole
        UTC day that ended before, by the time in the streams' ids; once there is no such day, at most `limit` records whose
        ids name no time, as in SQLite.
        Raises LedgerUnavailableError.
        """

    def reprice(self, costs: Sequence[NewCost], replaced_us: int, reason: str | None) -> int:
        """Give stored records another cost, and keep the earlier one, in one transaction. Returns how many changed.

        A record that was removed or changed after it was read stays as it is. `replaced_us`: the time (us since 1970, UTC),
        the same for all records of one command. Raises LedgerUnavailableError, then nothing has changed.
        """

    def costs_of(self, stream_id: str) -> list[CostOfRecord]:
        """The costs of a record, the present one last; none if there is no such record. Raises LedgerUnavailableError."""

    def repricings(self) -> list[Repricing]:
        """When records got another cost, oldest first, by time and reason. Raises LedgerUnavailableError."""

    def keep_audit(self, run: bytes) -> int:
        """Store the result of an audit, for good. Returns its number, from 1 on. Raises LedgerUnavailableError."""

    def audits(self, *, last: bool = False, number: int | None = None) -> list[tuple[int, bytes]]:
        """The stored audits with their numbers, oldest first. `last`: only the audit with the highest number. `number`: only
        this audit.

        Raises LedgerUnavailableError.
        """

    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def sort_totals(totals: Iterable[Total], *, newest_first: bool = False) -> list[Total]:
    """Totals in the order of their keys' values, None last; `newest_first`: the latest start first, without a start last."""
    by_keys = sorted(
        totals, key=lambda total: [(value is None, "" if value is None else value) for value in total.keys]
    )
    if not newest_first:
        return by_keys
    return sorted(by_keys, key=lambda total: (total.last_us is None, -(total.last_us or 0)))


def add_totals(ledgers: Sequence[Sequence[Total]], *, newest_first: bool = False) -> list[Total]:
    """The totals of several ledgers as one list. They must not hold the same streams: these would count twice."""
    by_keys: dict[tuple[str | int | None, ...], Total] = {}
    for totals in ledgers:
        for total in totals:
            known = by_keys.get(total.keys)
            by_keys[total.keys] = total if known is None else _sum_of(known, total)
    return sort_totals(by_keys.values(), newest_first=newest_first)


def sum_of(totals: Sequence[Total]) -> Total | None:
    """All totals of one ledger, or of one list, as one without keys; None if there are none."""
    return next(iter(add_totals([[replace(total, keys=()) for total in totals]])), None)


def _sum_of(total: Total, other: Total) -> Total:
    return Total(
        total.keys,
        total.streams + other.streams,
        total.with_usage + other.with_usage,
        _plus(total.input_tokens, other.input_tokens),
        _plus(total.output_tokens, other.output_tokens),
        _plus(total.total_tokens, other.total_tokens),
        _plus(total.input_cached_tokens, other.input_cached_tokens),
        _plus(total.reasoning_tokens, other.reasoning_tokens),
        without_usage=total.without_usage + other.without_usage,
        kinds={
            kind: total.kinds.get(kind, 0) + other.kinds.get(kind, 0)
            for kind in dict.fromkeys((*total.kinds, *other.kinds))
        },
        cost=_plus(total.cost, other.cost),
        without_price=total.without_price + other.without_price,
        with_cost=total.with_cost + other.with_cost,
        without_cost=total.without_cost + other.without_cost,
        longest_wait_us=max(_known_of(total.longest_wait_us, other.longest_wait_us), default=None),
        last_us=max(_known_of(total.last_us, other.last_us), default=None),
        first_us=min(_known_of(total.first_us, other.first_us), default=None),
    )


def _known_of(*numbers: int | None) -> list[int]:
    return [number for number in numbers if number is not None]


def _plus(first: int | None, other: int | None) -> int | None:
    return sum(known) if (known := _known_of(first, other)) else None
