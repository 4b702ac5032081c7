"""A record as a row of a ledger: its JSON, and the columns by which ledgers sort, group and add up."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from streamgauge.core.record import Record, encode_record

# A ledger adds this to each record. The price is not known when a record is first stored.
_COST = b',"cost":null}'

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = 1_000_000


class UnreadableRecordError(ValueError):
    """The bytes are not a record of this version. The text contains no value of the bytes."""


@dataclass(frozen=True)
class LedgerRow:
    """One record. `started_us`: microseconds since 1970, UTC; `record`: its JSON with `cost` as last member.

    `model` is the one that answered, since that one is billed; if no response named a model, the one in the request.
    `resumed_from`, `request_digest`, `response_id` and `last_event_id` are columns so that usage can be counted once for an
    origin and the resumed streams that continue it (`core/assembly/resumption.py`). `request_digest` and `attempt` group
    the retries of one request. `attributes`: a JSON object of the record's attributes; None if it has none.
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
    record: bytes

    @property
    def own_bytes(self) -> bytes:
        """The stored JSON up to the value of its cost: this part is equal in two copies of a record."""
        return self.record[: -len(b"null}")]

    @classmethod
    def of_json(cls, record: bytes) -> "LedgerRow":
        """The row of a record's JSON, as `streamgauge.records` holds it. Raises UnreadableRecordError, and nothing else."""
        try:
            # All members are decoded, also those that no row needs: a typed decoder would skip broken strings in these.
            known = msgspec.convert(msgspec.json.decode(record), _Known)
            is_id = str(UUID(known.stream_id)) == known.stream_id
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise UnreadableRecordError("not a record of this version") from error
        if not is_id:
            raise UnreadableRecordError("the stream id is not a lower-case hyphenated UUID")
        if known.cost is not msgspec.UNSET or not record.endswith(b"}"):
            raise UnreadableRecordError("the record has a cost already, or does not end with a brace")
        return _row(known, record[:-1] + _COST)


def row_of(record: Record) -> LedgerRow:
    """The row of a record that was made in this process."""
    return _row(record, encode_record(record)[:-1] + _COST)


# The largest accepted count: a sum of a few counts of up to 2**53 each still fits a database's 64-bit integer.
MAX_TOKENS = 2**60
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None
# The largest accepted attempt: an integer in every database. A tap reads at most six digits of retries.
MAX_ATTEMPT = 2**31 - 1
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)] | None


class _Usage(msgspec.Struct):
    input_tokens: _Tokens
    output_tokens: _Tokens
    total_tokens: _Tokens
    input_cached_tokens: _Tokens
    reasoning_tokens: _Tokens
    source: str


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
    attributes: dict[str, str] = {}  # records of earlier versions have none
    cost: object = msgspec.UNSET


def _row(known: _Known | Record, record: bytes) -> LedgerRow:
    started = _moment(known.started_at)
    return LedgerRow(
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
        usage_source=known.usage.source,
        request_digest=known.request_digest,
        response_id=known.response_id,
        last_event_id=known.last_event_id,
        resumed_from=known.resumed_from,
        attempt=known.attempt,
        attributes=attributes_column(known.attributes),
        input_tokens=known.usage.input_tokens,
        output_tokens=known.usage.output_tokens,
        total_tokens=known.usage.total_tokens,
        input_cached_tokens=known.usage.input_cached_tokens,
        reasoning_tokens=known.usage.reasoning_tokens,
        record=record,
    )


def attributes_column(attributes: Mapping[str, str]) -> str | None:
    """Attributes as a ledger's column: a JSON object; None for none."""
    return msgspec.json.encode(attributes).decode() if attributes else None


def _moment(started_at: str | None) -> datetime | None:
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
