"""What every ledger can do, and how its faults are called."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from streamgauge.errors import Unavailable, UsageFault
from streamgauge.ledger.row import LedgerRow

# What totals may be asked by. `day` is the UTC day of started_at; `model` the one that answered, else the one asked for.
# `request_digest,attempt` brings the retries of one request together.
KEYS: tuple[str, ...] = (
    "day",
    "model",
    "request_model",
    "response_model",
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


class LedgerUnavailableError(Unavailable):
    """The ledger cannot be opened, read or written now; its text is one sentence for an operator."""


class UnsupportedLedgerError(UsageFault):
    """A ledger's URL that names no place that is known here."""


class UnknownKeyError(UsageFault):
    """Totals were asked by something that is not one of KEYS."""


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
    keys of the stream (its `usage_source` is then that of what is counted); `core/legs.py` has the rules.
    """

    keys: tuple[str | int | None, ...]
    streams: int
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None


class Ledger(Protocol):
    """A place for records. Safe to use from several threads; several processes may share one ledger."""

    def insert(self, rows: Sequence[LedgerRow]) -> Inserted:
        """Store rows under their stream ids, in one transaction. Raises LedgerUnavailableError, then nothing is stored."""

    def query(self, limit: int | None = None) -> Iterator[bytes]:
        """Records as JSON, oldest first by started_at, those without it last; equal times by stream id.

        Reads on while others write, without holding them up. Raises LedgerUnavailableError.
        """

    def totals(self, by: Sequence[str]) -> list[Total]:
        """Streams and tokens by `by`, in the order of the keys' values, None last. Raises UnknownKeyError."""

    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
