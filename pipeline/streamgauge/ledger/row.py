"""A record as a row of a ledger: its JSON, and the columns by which ledgers sort, group and add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from streamgauge.core.modalities import NO_MODALITIES, Modalities, modalities_of
from streamgauge.core.record import Record, encode_record
from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS, reported_tokens, token_kinds
from streamgauge.ledger.cost import Cost, Unpriced, amount_of

# A ledger adds this member to each record, as the last one.
_COST = b',"cost":'
_NO_COST = _COST + b"null}"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = 1_000_000


class UnreadableRecordError(ValueError):
    """The bytes are not a record of this version. The text contains no value of the bytes."""


@dataclass(frozen=True)
class LedgerRow:
    """One record. `started_us`: microseconds since 1970, UTC; `record`: its JSON with `cost` as last member.

    `model` is the model that answered, since it is billed; else the requested model.
    `resumed_from`, `request_digest`, `response_id` and `last_event_id` are columns so that usage can be counted once for an
    origin and the resumed streams that continue it (`core/resumption.py`). `request_digest` and `attempt` group
    the retries of one request. `attributes`: a JSON object of the record's attributes; None if it has none.

    The `_tokens` are what the record reports; from `input_uncached` to `output_audio` they are disjoint kinds.
    `inference_geo`: the region in which the provider computed it (Anthropic). `wait_us`: the time to the first token, or to
    the end of a stream without one, in microseconds. `speed`: the speed that the provider names in its usage (Anthropic); it
    decides the price, and is no column. `reported_usd`: the cost that the provider reports (10**-12 USD); None also
    where that is only a gateway's fee beside a key of the caller's own. `parts`: what is billed apart from the tokens, or in
    place of them (`usage.parts`). `modalities`: the tokens by modality that the provider reports; no columns either.
    """

    stream_id: str
    started_us: int | None
    day: str | None
    model: str | None
    request_model: str | None
    response_model: str | None
    tap: str | None
    upstream: str | None
    dialect: str | None
    endpoint: str | None
    outcome: str
    finish_reason: str | None
    tenant: str | None
    credential_id: str | None
    service_tier: str | None
    usage_source: str | None
    request_digest: str | None
    response_id: str | None
    last_event_id: str | None
    resumed_from: str | None
    attempt: int | None
    attributes: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    input_cached_tokens: int | None
    reasoning_tokens: int | None
    trace_id: str | None
    inference_geo: str | None
    wait_us: int | None
    input_cache_write_tokens: int | None
    input_cache_write_1h_tokens: int | None
    audio_input_tokens: int | None
    audio_output_tokens: int | None
    input_uncached: int | None
    input_cached: int | None
    input_cache_write: int | None
    input_audio: int | None
    output_text: int | None
    reasoning: int | None
    output_audio: int | None
    upstream_host: str | None
    record: bytes
    cost: Cost | None = None
    speed: str | None = None
    reported_usd: int | None = None
    parts: tuple[Mapping[str, object], ...] = ()
    modalities: Modalities = NO_MODALITIES

    @property
    def own_bytes(self) -> bytes:
        """The stored JSON up to the value of its cost: this part is equal in two copies of a record."""
        return self.record[: -len(b"null}")]

    def values(self, cost: Cost | Unpriced | None) -> tuple[Any, ...]:
        """The values of COLUMNS, with this cost, or the reason why there is none; None if that is not known either."""
        if not isinstance(cost, Cost):
            return *_OWN(self), None, None, None, None, None if cost is None else cost.value, self.record
        record = b"%b%b}" % (self.own_bytes, cost.as_json())
        return *_OWN(self), cost.input, cost.output, cost.source, cost.date, None, record

    @classmethod
    def of_json(cls, record: bytes) -> "LedgerRow":
        """The row of a record's JSON, as `streamgauge.records` holds it. Raises UnreadableRecordError, and nothing else."""
        return cls._without_cost(_known_of(record, _Whole), record)

    @classmethod
    def of_stored(cls, record: bytes) -> "LedgerRow":
        """The row of a record's JSON as a ledger stores it, with its cost. Raises UnreadableRecordError.

        A ledger of an earlier version may hold a record that `of_json` refuses: this method reads it.
        """
        return cls._with_cost(_known_of(record, _Known), record)

    @classmethod
    def of_line(cls, record: bytes) -> "LedgerRow":
        """The row of a record's JSON, with or without a cost, for a ledger to store. Raises UnreadableRecordError."""
        known = _known_of(record, _Whole)
        return cls._without_cost(known, record) if known.cost is msgspec.UNSET else cls._with_cost(known, record)

    @staticmethod
    def _without_cost(known: "_Known", record: bytes) -> "LedgerRow":
        if known.cost is not msgspec.UNSET or not record.endswith(b"}"):
            raise UnreadableRecordError("the record has a cost already, or does not end with a brace")
        return _row(known, record[:-1] + _NO_COST)

    @staticmethod
    def _with_cost(known: "_Known", record: bytes) -> "LedgerRow":
        own, separator, cost = record.rpartition(_COST)
        try:
            if (
                not separator
                or known.cost is msgspec.UNSET
                or msgspec.json.decode(cost.removesuffix(b"}")) != known.cost
            ):
                raise UnreadableRecordError("the cost is not the record's last member")
            price = Cost.of_json(known.cost)
        except msgspec.DecodeError as error:
            raise UnreadableRecordError("the cost is not one that a ledger adds") from error
        return replace(_row(known, own + _NO_COST), cost=price)


def row_of(record: Record) -> LedgerRow:
    """The row of a record that was made in this process."""
    return _row(record, encode_record(record)[:-1] + _NO_COST)


def unstored_row_of(record: Record) -> LedgerRow:
    """The columns of a record that is not stored by them: `record` is empty, which saves encoding it."""
    return _row(record, b"")


# The columns of a price, which a ledger adds, and why there is none; all columns, in the order of `values`.
PRICE = ("cost_input", "cost_output", "price_source", "price_date")
UNPRICED = "cost_unknown"
_NO_COLUMNS = ("record", "cost", "speed", "reported_usd", "parts", "modalities")
_OWN_NAMES = tuple(field.name for field in fields(LedgerRow) if field.name not in _NO_COLUMNS)
_OWN = attrgetter(*_OWN_NAMES)
COLUMNS = (*_OWN_NAMES, *PRICE, UNPRICED, "record")


def _known_of(record: bytes, kind: "type[_Known]") -> "_Known":
    try:
        # All members are decoded, also those that no row needs: a typed decoder would skip broken strings in these.
        known = msgspec.convert(msgspec.json.decode(record), kind)
        is_id = str(UUID(known.stream_id)) == known.stream_id
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise UnreadableRecordError("not a record of this version") from error
    if not is_id:
        raise UnreadableRecordError("the stream id is not a lower-case hyphenated UUID")
    return known


# The largest accepted count: a sum of a few counts of up to 2**53 each still fits a database's 64-bit integer.
MAX_TOKENS = 2**60
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None
# The largest accepted attempt: an integer in every database. A tap reads at most six digits of retries.
MAX_ATTEMPT = 2**31 - 1
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)] | None


class _ReportedCost(msgspec.Struct):
    usd: str
    byok: bool | None = None


class _Usage(msgspec.Struct):
    input_tokens: _Tokens
    output_tokens: _Tokens
    total_tokens: _Tokens
    input_cached_tokens: _Tokens
    reasoning_tokens: _Tokens
    source: str
    input_cache_write_tokens: _Tokens = None
    input_cache_write_1h_tokens: _Tokens = None
    audio_input_tokens: _Tokens = None
    audio_output_tokens: _Tokens = None
    raw: dict[str, object] | None = None
    reported_cost: _ReportedCost | None = None
    parts: list[dict[str, object]] = []


class _Timing(msgspec.Struct):
    first_token_s: float | None = None
    end_s: float | None = None


class _Request(msgspec.Struct):
    host: str | None = None


class _Known(msgspec.Struct):
    """The members of a record from which a row is made. Other members are ignored: later versions may add some."""

    schema_version: Literal[1]
    stream_id: str
    tap: str | None
    started_at: str | None
    request_model: str | None
    response_model: str | None
    upstream: str | None
    dialect: str | None
    endpoint: str | None
    outcome: str
    finish_reason: str | None
    tenant: str | None
    credential_id: str | None
    service_tier: str | None
    request_digest: str | None
    response_id: str | None
    last_event_id: str | None
    resumed_from: str | None
    attempt: _Attempt
    usage: _Usage
    timing: _Timing = msgspec.field(default_factory=_Timing)
    trace_id: str | None = None
    request: _Request | None = None
    attributes: dict[str, str] = {}  # records of earlier versions have none
    cost: object = msgspec.UNSET


# Types for the members of a record that no row needs, but readers of a ledger: tables and the audit.
class _WholeRequest(_Request):
    n: int | None = None
    max_tokens: int | None = None
    body_bytes: int | None = None


class _WholeUsage(_Usage):
    identity_failed: str | None = None
    bad_values: int = 0


class _Gaps(msgspec.Struct):
    p50_s: float | None


class _WholeTiming(msgspec.Struct):
    first_token_s: float | None
    end_s: float | None
    gaps: _Gaps


class _Counts(msgspec.Struct):
    events: int
    text_chars: int = 0
    reasoning_chars: int = 0
    refusal_chars: int = 0


class _Whole(_Known, kw_only=True):
    """The members of a record that a ledger accepts: a record without one of them would stop every reader later."""

    usage: _WholeUsage
    timing: _WholeTiming  # type: ignore[assignment]
    counts: _Counts
    request: _WholeRequest | None = None
    status_code: int | None = None


def _row(known: _Known | Record, record: bytes) -> LedgerRow:
    started = moment_of(known.started_at)
    usage = known.usage
    row = LedgerRow(
        stream_id=known.stream_id,
        started_us=None if started is None else microseconds_of(started),
        day=None if started is None else started.strftime("%Y-%m-%d"),
        model=known.response_model or known.request_model,
        request_model=known.request_model,
        response_model=known.response_model,
        tap=known.tap,
        upstream=known.upstream,
        dialect=known.dialect,
        endpoint=known.endpoint,
        outcome=known.outcome,
        finish_reason=known.finish_reason,
        tenant=known.tenant,
        credential_id=known.credential_id,
        service_tier=known.service_tier,
        usage_source=usage.source,
        request_digest=known.request_digest,
        response_id=known.response_id,
        last_event_id=known.last_event_id,
        resumed_from=known.resumed_from,
        attempt=known.attempt,
        attributes=attributes_column(known.attributes),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_cached_tokens=usage.input_cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        trace_id=known.trace_id,
        inference_geo=region_of(usage.raw),
        speed=_named(usage.raw, "speed"),
        wait_us=wait_of(known.timing.first_token_s, known.timing.end_s),
        input_cache_write_tokens=usage.input_cache_write_tokens,
        input_cache_write_1h_tokens=usage.input_cache_write_1h_tokens,
        audio_input_tokens=usage.audio_input_tokens,
        audio_output_tokens=usage.audio_output_tokens,
        **kinds_of(reported_tokens(usage)),
        upstream_host=known.request.host if known.request else None,
        record=record,
        reported_usd=_reported(getattr(usage, "reported_cost", None)),
        parts=_parts(usage.parts, usage.raw),
        modalities=modalities_of(usage.raw),
    )
    # PostgreSQL stores no NUL in text. No tap sends one: names with unprintable characters are masked.
    if b"\\u0000" in record and any(
        "\0" in text or "\\u0000" in text for text in vars(row).values() if type(text) is str
    ):
        raise UnreadableRecordError("a name contains a NUL")
    return row


KINDS = (*INPUT_KINDS, *OUTPUT_KINDS)
_NO_KINDS: Mapping[str, int | None] = dict.fromkeys(KINDS)


def kinds_of(reported: Mapping[str, int]) -> dict[str, Any]:
    """The disjoint kinds of reported tokens, as columns; the names of `reported` are the values of `REPORTED`."""
    kinds = token_kinds(reported)
    return {**_NO_KINDS, **kinds.input, **kinds.output}


def region_of(raw: Mapping[str, object] | None) -> str | None:
    """The region in a provider's own usage; None if it names none."""
    return _named(raw, "inference_geo")


def _named(raw: Mapping[str, object] | None, name: str) -> str | None:
    value = None if raw is None else raw.get(name)
    return value if isinstance(value, str) else None


def _parts(parts: Sequence[dict[str, object]], raw: Mapping[str, object] | None) -> tuple[Mapping[str, object], ...]:
    """The parts of a usage. Records of earlier versions have Cohere's billed units in the raw usage alone."""
    units = None if raw is None else raw.get("billed_units")
    if isinstance(units, dict) and not any(part.get("type") == "billed_units" for part in parts):
        return *parts, {"type": "billed_units", **units}
    return tuple(parts)


def _reported(cost: object) -> int | None:
    """The cost that the provider reports; None if it reports none, and for a fee beside the caller's own key.

    `cost`: a record's `reported_cost`, or another structure with its fields.
    """
    if cost is None or getattr(cost, "byok", None):
        return None
    try:
        return amount_of(getattr(cost, "usd", ""))
    except ArithmeticError:
        return None


# A longer wait is no time of a stream (seconds: 30 years).
_MAX_WAIT_S = 1e9


def wait_of(first_token_s: float | None, end_s: float | None) -> int | None:
    """The time that a client waited (us): for the first token, or for the end of a stream without one."""
    wait = end_s if first_token_s is None else first_token_s
    return round(wait * _MICROSECOND) if wait is not None and 0 <= wait <= _MAX_WAIT_S else None


def attributes_column(attributes: Mapping[str, str]) -> str | None:
    """Attributes as a ledger's column: a JSON object; None for none."""
    return msgspec.json.encode(attributes).decode() if attributes else None


def moment_of(started_at: str | None) -> datetime | None:
    """The time of `started_at`, in UTC. Raises UnreadableRecordError."""
    if started_at is None:
        return None
    try:
        moment = datetime.fromisoformat(started_at)
        if moment.tzinfo is None:
            raise UnreadableRecordError("started_at has no zone")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UnreadableRecordError("started_at is no time") from error


def microseconds_of(moment: datetime) -> int:
    """Microseconds since 1970, UTC, of a time with a zone: `started_us` of a record that started then."""
    past = moment - _EPOCH
    return (past.days * 86_400 + past.seconds) * _MICROSECOND + past.microseconds
