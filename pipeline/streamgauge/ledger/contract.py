"""What every ledger can do, and how its faults are called."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.ledger.row import LedgerRow

# What totals may be asked by, and what records may be chosen by. `day` is the UTC day of started_at; `model` the one that
# answered, else the one asked for. `request_digest,attempt` brings the retries of one request together. `tap` tells apart
# the records of one call that two taps captured.
KEYS: tuple[str, ...] = (
    "day",
    "model",
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
)
# The keys whose values are whole numbers; all others are text.
NUMBER_KEYS = frozenset({"attempt"})


class LedgerUnavailableError(Unavailable):
    """The ledger cannot be opened, read or written now; its text is one sentence for an operator."""


class UnsupportedLedgerError(UsageFault):
    """A ledger's URL that names no place that is known here."""


class UnknownKeyError(UsageFault):
    """Totals were asked by, or records chosen by, something that is not one of KEYS."""


@dataclass(frozen=True)
class Filter:
    """Which records are read. A record is read if every condition holds; the default reads all records.

    since_us, until_us: microseconds since 1970, UTC; started_at lies in [since_us, until_us). If one of them is given, a
    record without started_at is left out.
    where: pairs of a key of KEYS and its value; None is null, and a value of a key of NUMBER_KEYS is an int. Of several
    values of one key any one is enough.

    Totals compare the values that they would be grouped by. So the line of a value in totals by a key is the same as in
    totals of the records that this value chooses.
    """

    since_us: int | None = None
    until_us: int | None = None
    where: tuple[tuple[str, str | int | None], ...] = ()


ALL_RECORDS = Filter()


@dataclass(frozen=True)
class Inserted:
    """What became of the rows of one insert.

    new: stored. same: known already, with the same bytes. different: known already with other bytes, and the first kept.
    new_places: where the new ones stand among the rows that were given, for whoever counts each record once.
    """

    new: int = 0
    same: int = 0
    different: int = 0
    new_places: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Total:
    """One line of totals: its keys' values, and sums over what is known (None where no stream has the number).

    `streams` counts records, a leg that continues a stream included. Tokens count once for a stream and its legs, under the
    keys of the stream (its `usage_source` is then that of what is counted); `core/assembly/resumption.py` has the rules.

    `with_usage` counts the streams that add to at least one of the sums; a stream and its legs are one. `input_cached_tokens`
    are part of `input_tokens`, `reasoning_tokens` of `output_tokens`.
    """

    keys: tuple[str | int | None, ...]
    streams: int
    with_usage: int
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Ledger(Protocol):
    """A place for records. Safe to use from several threads; several processes may share one ledger."""

    def insert(self, rows: Sequence[LedgerRow]) -> Inserted:
        """Store rows under their stream ids, in one transaction. Raises LedgerUnavailableError, then nothing is stored."""

    def query(
        self, limit: int | None = None, chosen: Filter = ALL_RECORDS, *, newest_first: bool = False
    ) -> Iterator[bytes]:
        """The chosen records as JSON, at most `limit` of them, oldest first by started_at; equal times by stream id.

        `newest_first` reverses the order. Records without started_at are last in both orders.
        Reads on while others write, without holding them up. Raises UnknownKeyError, LedgerUnavailableError.
        """

    def totals(self, by: Sequence[str], chosen: Filter = ALL_RECORDS, *, newest_first: bool = False) -> list[Total]:
        """Streams and tokens of the chosen records by `by`, in the order of the keys' values, None last.

        `newest_first`: the line with the latest started_at first. A leg's usage counts with the stream that it continues,
        also if the leg itself is not chosen. Raises UnknownKeyError, LedgerUnavailableError.
        """

    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
