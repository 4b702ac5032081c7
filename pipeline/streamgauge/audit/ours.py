"""Our side of an audit: the usage that providers reported in streams, read record by record.

Only final and partial numbers are ours; an estimate never is. Money is the cost that the ledger added to a record.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Protocol

import msgspec

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens
from streamgauge.audit.mapping import Mapping as ProviderMapping
from streamgauge.audit.period import DayOf, Period, microseconds
from streamgauge.core.safe_values import MASKED
from streamgauge.ledger import Filter

_REPORTED = frozenset({"final", "partial"})
_MICROSECONDS = 1_000_000
# From this status on a response refuses the request.
_REFUSED = 400
# A longer time is no time of a stream (seconds: 30 years).
_MAX_END_S = 1e9


class Records(Protocol):
    """The part of a ledger that an audit reads."""

    def query(self, limit: int | None = None, chosen: Filter = ..., *, newest_first: bool = False) -> Iterator[bytes]:
        """The chosen records as JSON, oldest first; equal times by stream id."""


class _Request(msgspec.Struct, gc=False):
    n: int | None = None
    max_tokens: int | None = None


class _Timing(msgspec.Struct, gc=False):
    first_token_s: float | None = None
    end_s: float | None = None


class _Counts(msgspec.Struct, gc=False):
    text_chars: int = 0
    reasoning_chars: int = 0
    refusal_chars: int = 0


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    source: str
    input_cached_tokens: int | None = None
    input_cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    identity_failed: str | None = None
    bad_values: int = 0


class _Cost(msgspec.Struct, gc=False):
    usd: str | None = None


class _Identity(msgspec.Struct, gc=False):
    stream_id: str
    started_at: str


class StoredRecord(msgspec.Struct, gc=False):
    """The members of a record that an audit reads."""

    stream_id: str
    started_at: str
    outcome: str
    timing: _Timing
    usage: _Usage
    counts: _Counts
    upstream: str | None = None
    request: _Request | None = None
    request_model: str | None = None
    response_model: str | None = None
    service_tier: str | None = None
    response_id: str | None = None
    tenant: str | None = None
    credential_id: str | None = None
    request_digest: str | None = None
    attempt: int | None = None
    resumed_from: str | None = None
    endpoint: str | None = None
    last_event_id: str | None = None
    status_code: int | None = None
    finish_reason: str | None = None
    cost: _Cost | None = None

    @property
    def is_reported(self) -> bool:
        """Whether the provider reported usage in this stream."""
        return self.usage.source in _REPORTED

    @property
    def known_response_id(self) -> str | None:
        """The response id; None also for one that was masked, since it stands for many."""
        return None if self.response_id == MASKED else self.response_id

    @property
    def tokens(self) -> Tokens:
        """What the provider reported, in kinds that exclude each other. What it did not report adds nothing."""
        return tokens_of_usage(self.usage) if self.is_reported else ZERO

    def usd_of(self, tokens: Tokens) -> Decimal | None:
        """Its cost in dollars; None if it has usage and no price is known. A stream without usage costs nothing here.

        `tokens`: its own, which the caller has made already.
        """
        if self.cost is not None and self.cost.usd is not None:
            return Decimal(self.cost.usd)
        return ZERO_USD if tokens == ZERO else None


class Reported(Protocol):
    """Reported counts, of a record or of several records that are one stream. Cached input is part of input."""

    @property
    def input_tokens(self) -> int | None:
        """All input."""

    @property
    def output_tokens(self) -> int | None:
        """All output."""

    @property
    def input_cached_tokens(self) -> int | None:
        """Input that was read from a cache."""

    @property
    def input_cache_write_tokens(self) -> int | None:
        """Input that was written to a cache."""


def tokens_of_usage(usage: Reported) -> Tokens:
    """Reported counts in kinds that exclude each other."""
    cached, written = usage.input_cached_tokens or 0, usage.input_cache_write_tokens or 0
    whole = cached + written if usage.input_tokens is None else usage.input_tokens
    return Tokens(whole - cached - written, cached, written, usage.output_tokens or 0)


class GroupKey(NamedTuple):
    """Grouping key at full granularity, of a stream or of an invoice's row."""

    day: str
    provider: str
    model: str | None
    key: str | None
    tier: str | None


class OurStream(NamedTuple):
    """A stream as the search for causes needs it. Times in microseconds since 1970, UTC.

    tokens: in the kinds that are compared. priced: in all kinds, as its cost was made. is_refused: the upstream answered with
    an error instead of a stream.
    """

    id: str
    group: GroupKey
    start_us: int
    end_us: int | None
    tokens: Tokens
    priced: Tokens
    usd: Decimal | None
    reasoning: int
    is_final: bool
    has_usage: bool
    has_token: bool
    was_sent: bool
    is_completed: bool
    response_id: str | None
    digest: str | None
    output_limit: int | None
    chars: int
    is_refused: bool = False


class Correction(NamedTuple):
    """The corrected usage of a record where streams were resumed: it counts instead of the record's own."""

    tokens: Tokens
    usd: Decimal | None
    has_usage: bool


class Ours:
    """Reads the ledger for an audit, again for each pass. `corrections`: by stream id, may be set after the first pass.

    `sha256`: the digest of the records of the period alone, as the first pass read them. `unreadable`: the ids of the records
    that a pass left out, since their members are not those of a record: an earlier version may have stored such a one.
    """

    def __init__(self, ledger: Records, period: Period, mapping: ProviderMapping) -> None:
        self.corrections: Mapping[str, Correction] = {}
        self._ledger = ledger
        self._period = period
        self._mapping = mapping
        self._day_of = DayOf(period.timezone)
        self._decode = msgspec.json.Decoder(StoredRecord).decode
        self._decode_identity = msgspec.json.Decoder(_Identity).decode
        self._providers: dict[str | None, str] = {}
        self.sha256 = ""
        self.unreadable: dict[str, None] = {}

    def first_records(self) -> Iterator[tuple[int, StoredRecord]]:
        """As `records`, for the pass that makes `sha256`: the digest is of the records that the sums are made of."""
        digest, since_us, until_us = hashlib.sha256(), self._period.since_us, self._period.until_us
        for start_us, text, record in self._read(frozenset()):
            if since_us <= start_us < until_us:
                digest.update(text + b"\n")
            if record is not None:
                yield start_us, record
        self.sha256 = digest.hexdigest()

    def records(self, days: Set[str] = frozenset()) -> Iterator[tuple[int, StoredRecord]]:
        """The records of the period and of the day either side, each with its start in microseconds.

        `days`: only the records of these days; none for all.
        """
        for start_us, _, record in self._read(days):
            if record is not None:
                yield start_us, record

    def _read(self, days: Set[str]) -> Iterator[tuple[int, bytes, StoredRecord | None]]:
        for since_us, until_us in self._period.runs_of(days):
            for text in self._ledger.query(chosen=Filter(since_us, until_us)):
                record = self._decoded(text)
                started_at = self._decode_identity(text).started_at if record is None else record.started_at
                yield microseconds(datetime.fromisoformat(started_at)), text, record

    def _decoded(self, text: bytes) -> StoredRecord | None:
        try:
            return self._decode(text)
        except msgspec.DecodeError:
            self.unreadable[self._decode_identity(text).stream_id] = None
            return None

    def group_of(self, start_us: int, record: StoredRecord) -> GroupKey:
        """The grouping key of a record."""
        provider = self._providers.get(record.upstream)
        if provider is None:
            provider = self._providers[record.upstream] = self._mapping.provider_of(record.upstream)
        return GroupKey(
            self._day_of(start_us),
            provider,
            record.response_model or record.request_model,
            self._mapping.our_key(record.tenant, record.credential_id),
            record.service_tier,
        )

    def streams(self, wanted: Callable[[GroupKey], bool], days: Set[str] = frozenset()) -> Iterator[OurStream]:
        """The streams of the wanted cells, oldest first. `days`: as for `records`."""
        for start_us, record in self.records(days):
            group = self.group_of(start_us, record)
            if wanted(group):
                yield self.stream_of(start_us, group, record)

    def stream_of(self, start_us: int, group: GroupKey, record: StoredRecord) -> OurStream:
        """A record as a stream."""
        request, end_s = record.request, record.timing.end_s
        limit = None if request is None or request.max_tokens is None else request.max_tokens * (request.n or 1)
        corrected = self.corrections.get(record.stream_id)
        counts, tokens = record.counts, record.tokens if corrected is None else corrected.tokens
        return OurStream(
            id=record.stream_id,
            group=group,
            start_us=start_us,
            end_us=start_us + round(end_s * _MICROSECONDS) if end_s is not None and 0 <= end_s <= _MAX_END_S else None,
            tokens=tokens,
            priced=tokens,
            usd=record.usd_of(tokens) if corrected is None else corrected.usd,
            reasoning=record.usage.reasoning_tokens or 0 if corrected is None else 0,
            is_final=record.usage.source == "final",
            has_usage=record.is_reported if corrected is None else corrected.has_usage,
            has_token=record.timing.first_token_s is not None,
            was_sent=record.status_code is not None or record.outcome not in ("upstream_reset", "timeout"),
            is_completed=record.outcome == "completed",
            response_id=record.known_response_id,
            digest=record.request_digest,
            output_limit=limit,
            chars=counts.text_chars + counts.reasoning_chars + counts.refusal_chars,
            is_refused=record.outcome == "http_error" or (record.status_code or 0) >= _REFUSED,
        )
