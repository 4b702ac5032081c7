"""Our side of an audit: the records of a ledger, as the members that an audit reads, and as streams.

Only final and partial numbers are ours; an estimate never is. Money is the cost that the ledger added to a record.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Protocol

import msgspec

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens, plus
from streamgauge.audit.mapping import Mapping as ProviderMapping
from streamgauge.audit.period import DayOf, Period, microseconds
from streamgauge.core.safe_values import MASKED, whole_number
from streamgauge.ledger import Filter, Part

_REPORTED = frozenset({"final", "partial"})
_MICROSECONDS = 1_000_000
# From this status on a response refuses the request.
_REFUSED = 400
# A longer time is no time of a stream (seconds: 30 years).
_MAX_END_S = 1e9


class Records(Protocol):
    """The records of a ledger."""

    def query(self, limit: int | None = None, chosen: Filter = ..., *, newest_first: bool = False) -> Iterator[bytes]:
        """The chosen records as JSON, oldest first; equal times by stream id."""


class AuditedLedger(Records, Protocol):
    """What an audit reads of a ledger."""

    @property
    def parts(self) -> Sequence[Part]:
        """The ledgers that it consists of."""


class _Request(msgspec.Struct, gc=False):
    n: int | None = None
    max_tokens: int | None = None
    body_bytes: int | None = None


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
    parts: list[dict[str, object]] = []


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
    tap: str | None = None
    tap_instance: str | None = None
    provider_request_id: str | None = None

    @property
    def is_reported(self) -> bool:
        """Whether the provider reported usage in this stream."""
        return self.usage.source in _REPORTED

    @property
    def model(self) -> str | None:
        """The model that answered, else the one that was asked for."""
        return self.response_model or self.request_model

    @property
    def known_response_id(self) -> str | None:
        """The response id; None also for one that was masked, since it stands for many."""
        return None if self.response_id == MASKED else self.response_id

    @property
    def tokens(self) -> Tokens:
        """What the provider reported, in kinds that exclude each other. What it did not report adds nothing.

        The parts of its usage that are tokens of the record's own model are among it.
        """
        return with_parts(tokens_of_usage(self.usage), self.usage.parts, self.model) if self.is_reported else ZERO

    @property
    def of_other_models(self) -> dict[str, Tokens]:
        """The tokens of its parts that name another model, by model."""
        found: dict[str, Tokens] = {}
        for part in self.usage.parts if self.is_reported else ():
            model = part.get("model")
            if isinstance(model, str) and model != self.model:
                found[model] = plus(found.get(model, ZERO), _tokens_of_part(part))
        return found

    def usd_of(self, tokens: Tokens) -> Decimal | None:
        """Its cost in dollars; None if it has usage and no price is known. A stream without usage costs nothing here.

        A cost that includes parts of another model is not divided, so it is None, too. `tokens`: its own, which the caller
        has made already.
        """
        if self.usage.parts and self.of_other_models:
            return None
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
    """Reported counts in kinds that exclude each other, without parts."""
    cached, written = usage.input_cached_tokens or 0, usage.input_cache_write_tokens or 0
    whole = cached + written if usage.input_tokens is None else usage.input_tokens
    return Tokens(whole - cached - written, cached, written, usage.output_tokens or 0)


# Tools whose tokens are billed as those of another model, which the part does not name (core/usage_parts.py).
_IMAGE_TOOLS = frozenset({"image_gen", "image_generation"})
_BILLED_UNITS = "billed_units"


def with_parts(tokens: Tokens, parts: Sequence[Mapping[str, object]], model: str | None) -> Tokens:
    """A record's tokens with the tokens of the parts of its usage, which `core/usage_parts.py` describes.

    Cohere bills units in place of the tokens that it reports. The parts of another model than `model` do not count.
    """
    for part in parts:
        own = _tokens_of_part(part)
        if part.get("type") == _BILLED_UNITS:
            has_tokens = any(whole_number(part.get(name)) is not None for name in ("input_tokens", "output_tokens"))
            tokens = own if has_tokens else tokens
        elif part.get("name") not in _IMAGE_TOOLS and part.get("model") in (None, model):
            tokens = plus(tokens, own)
    return tokens


# The counts of a part, in the order of Tokens. Its input does not include its cache.
_PART_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def _tokens_of_part(part: Mapping[str, object]) -> Tokens:
    return Tokens(*(whole_number(part.get(name)) or 0 for name in _PART_COUNTS))


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
    an error instead of a stream. body_bytes: the size of the request's body.
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
    body_bytes: int | None = None


class Correction(NamedTuple):
    """The corrected usage of a record where streams were resumed: it counts instead of the record's own."""

    tokens: Tokens
    usd: Decimal | None
    has_usage: bool


class Ours:
    """The records of a ledger for an audit.

    `corrections`: by stream id, what counts instead of a record's own usage. `left_out`: ids of streams that are no streams
    of their own. Both are set by `our_sums.py`. `unreadable`: the ids of records that were left out, as their members are not
    those of a record: an earlier version may have stored such a one.
    """

    def __init__(self, ledger: AuditedLedger, period: Period, mapping: ProviderMapping) -> None:
        self.corrections: Mapping[str, Correction] = {}
        self.left_out: Container[str] = frozenset()
        self.unreadable: dict[str, None] = {}
        self.ledger = ledger
        self.period = period
        self._mapping = mapping
        self._day_of = DayOf(period.timezone)
        self._decode = msgspec.json.Decoder(StoredRecord).decode
        self._decode_identity = msgspec.json.Decoder(_Identity).decode
        self._providers: dict[str | None, str] = {}

    def records(self, chosen: Filter) -> Iterator[tuple[int, StoredRecord]]:
        """The chosen records, each with its start in microseconds."""
        for text in self.ledger.query(chosen=chosen):
            if (found := self.decoded(text)) is not None:
                yield found

    def decoded(self, text: bytes) -> tuple[int, StoredRecord] | None:
        """A record with its start in microseconds; None if it is unreadable."""
        try:
            record = self._decode(text)
        except msgspec.DecodeError:
            self.unreadable[self._decode_identity(text).stream_id] = None
            return None
        return microseconds(datetime.fromisoformat(record.started_at)), record

    def provider_of(self, upstream: str | None) -> str:
        """The provider of an upstream."""
        provider = self._providers.get(upstream)
        if provider is None:
            provider = self._providers[upstream] = self._mapping.provider_of(upstream)
        return provider

    def key_of(self, tenant: str | None, credential_id: str | None) -> str | None:
        """The key of a stream, as the operator's map has it."""
        return self._mapping.our_key(tenant, credential_id)

    def group_of(self, start_us: int, record: StoredRecord) -> GroupKey:
        """The grouping key of a record."""
        return GroupKey(
            self._day_of(start_us),
            self.provider_of(record.upstream),
            record.model,
            self.key_of(record.tenant, record.credential_id),
            record.service_tier,
        )

    def streams(self, wanted: Callable[[GroupKey], bool], chosen: Filter | None = None) -> Iterator[OurStream]:
        """The streams of the wanted groups, oldest first. `chosen`: among these records; None: among all that are read."""
        for start_us, record in self.records(chosen or Filter(self.period.read_since_us, self.period.read_until_us)):
            group = self.group_of(start_us, record)
            others = record.of_other_models if record.usage.parts else {}
            if not others and not wanted(group):
                continue
            if record.stream_id not in self.left_out:
                stream = self.stream_of(start_us, group, record)
                found = [stream, *(_part_of(stream, model, tokens) for model, tokens in others.items())]
                yield from (one for one in found if wanted(one.group))

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
            body_bytes=None if request is None else request.body_bytes,
        )


def _part_of(stream: OurStream, model: str, tokens: Tokens) -> OurStream:
    """The part of a stream that another model answered. What it costs is not known."""
    group = stream.group._replace(model=model)
    return stream._replace(
        group=group, tokens=tokens, priced=tokens, usd=None, reasoning=0, response_id=None, digest=None
    )
