"""The streams of a claim: what the ledger knows of the streams that a result names for a cause, one row each.

Where a cause that the provider has to answer for names no single stream, such as rows that are billed twice, the claim has
all streams of the lines that it concerns: they show what was used there.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec

from streamgauge.audit.amounts import EXACT, ZERO_USD, usd_text
from streamgauge.audit.cells import family_of
from streamgauge.audit.invoices.contract import InvoiceLine
from streamgauge.audit.mapping import Mapping as ProviderMapping
from streamgauge.audit.ours import Records, StoredRecord
from streamgauge.audit.period import DayOf, Period, day_after, microseconds
from streamgauge.audit.result import Alternatives, Line, LineExplanation, Result
from streamgauge.audit.rows import Number
from streamgauge.audit.totals import DISPUTED
from streamgauge.ledger import Filter

CLAIM_COLUMNS = (
    "stream_id", "started_at", "provider", "response_id", "request_id", "model", "key", "tier", "input_uncached",
    "input_cached", "input_cache_write", "output", "our_usd", "billed_usd", "explained_tokens", "explained_usd",
)  # fmt: skip
# What `--cause` calls the parts that several causes explain equally well.
UNDECIDED = "undecided"
# Tiers of requests that name none, as `cells.py` has them.
_STANDARD = frozenset({None, "default", "auto", "standard", "standard_only"})


class _ClaimedRecord(StoredRecord, gc=False):
    """The members of a record that a claim shows."""

    provider_request_id: str | None = None


class Wanted(NamedTuple):
    """What is claimed. cause: a value of `result.CAUSES`, or UNDECIDED. provider, model: None for all."""

    cause: str
    provider: str | None = None
    model: str | None = None


@dataclass
class Claim:
    """The streams that a result names for a cause, by id, in its order: `lines` of each, and the part of the difference that
    names it alone, if there is one.

    `whole_lines`: the lines whose streams are all claimed, since their parts name none.
    """

    lines: dict[str, Line] = field(default_factory=dict)
    alone: dict[str, LineExplanation | Alternatives] = field(default_factory=dict)
    whole_lines: list[Line] = field(default_factory=list)

    @property
    def days(self) -> set[str]:
        """The days of these lines; none if a line has none."""
        lines = [*self.lines.values(), *self.whole_lines]
        return (
            set() if any(line.day is None for line in lines) else {line.day for line in lines if line.day is not None}
        )


def claim_of(result: Result, wanted: Wanted) -> Claim:
    """The streams of a claim. It has neither streams nor lines if the result has no such part, or no stream for it."""
    claim = Claim()
    for line in result.lines:
        if wanted.provider not in (None, line.provider) or wanted.model not in (None, line.model):
            continue
        for part in _parts_of(line, wanted.cause):
            for stream in part.streams:
                claim.lines.setdefault(stream, line)
                if len(part.streams) == 1:
                    claim.alone.setdefault(stream, part)
            if not part.streams and wanted.cause in DISPUTED:
                claim.whole_lines.append(line)
    return claim


def _parts_of(line: Line, cause: str) -> Iterable[LineExplanation | Alternatives]:
    if cause == UNDECIDED:
        return line.alternatives
    return (explanation for explanation in line.explanations if explanation.cause == cause)


def billed_requests(rows: Iterable[InvoiceLine]) -> dict[str, Decimal]:
    """What an export with a row for each request bills, in dollars by the request's id: rows that repeat add up."""
    billed: dict[str, Decimal] = {}
    for row in rows:
        if row.request_id is not None and row.usd is not None and row.currency == "USD":
            billed[row.request_id] = EXACT.add(billed.get(row.request_id, ZERO_USD), row.usd)
    return billed


def claim_rows(
    claim: Claim, period: Period, ledger: Records, mapping: ProviderMapping, billed: Mapping[str, Decimal]
) -> Iterator[list[object]]:
    """A row for each stream of the claim that the ledger has, by CLAIM_COLUMNS, oldest first.

    Tokens are those that the provider reported in the stream. `billed_usd` is known if `billed` has the request.
    Raises LedgerUnavailableError.
    """
    decode = msgspec.json.Decoder(_ClaimedRecord).decode
    whole = _WholeLines(claim.whole_lines, period, mapping)
    for since_us, until_us in period.runs_of(_with_neighbours(claim.days, period)):
        for text in ledger.query(chosen=Filter(since_us, until_us)):
            try:
                record = decode(text)
            except msgspec.DecodeError:
                continue  # a finding of the audit names it
            line = claim.lines.get(record.stream_id) or whole.line_of(record)
            if line is not None:
                yield _row(record, line, mapping, claim.alone.get(record.stream_id), billed)


def _with_neighbours(days: Set[str], period: Period) -> set[str]:
    """A stream may be billed on the day before or after its own."""
    near = {day_after(day, step) for day in days for step in (-1, 0, 1)}
    return {day for day in near if period.reads(day)}


class _WholeLines:
    """Finds the line that a record belongs to. Names of models of one family are one where a side has only one of them."""

    def __init__(self, lines: Iterable[Line], period: Period, mapping: ProviderMapping) -> None:
        self._lines: dict[tuple[str, str | None], list[Line]] = {}
        for line in lines:
            self._lines.setdefault((line.provider, line.day), []).append(line)
        self._models = {(provider, line.model) for (provider, _), own in self._lines.items() for line in own}
        self._day_of = DayOf(period.timezone)
        self._mapping = mapping

    def line_of(self, record: StoredRecord) -> Line | None:
        """The line; None if it is another one's, or the record has no reported usage."""
        if not self._lines or not record.is_reported:
            return None
        provider = self._mapping.provider_of(record.upstream)
        day = self._day_of(microseconds(datetime.fromisoformat(record.started_at)))
        key = self._mapping.our_key(record.tenant, record.credential_id)
        tier = "standard" if record.service_tier in _STANDARD else record.service_tier
        model = record.response_model or record.request_model
        lines = [*self._lines.get((provider, day), []), *self._lines.get((provider, None), [])]
        for line in lines:
            if self._is_model(line, model) and line.key in (None, key) and line.tier in (None, tier):
                return line
        return None

    def _is_model(self, line: Line, model: str | None) -> bool:
        if line.model is None or line.model == model or model is None:
            return line.model == model
        return (line.provider, model) not in self._models and family_of(line.model) == family_of(model)


def _row(
    record: _ClaimedRecord,
    line: Line,
    mapping: ProviderMapping,
    alone: LineExplanation | Alternatives | None,
    billed: Mapping[str, Decimal],
) -> list[object]:
    tokens, usd = record.tokens, record.usd_of(record.tokens)
    names = (record.known_response_id, record.provider_request_id)
    amount = next((billed[name] for name in names if name is not None and name in billed), None)
    explained = None if alone is None else alone.tokens
    return [
        record.stream_id,
        record.started_at,
        line.provider,
        *names,
        record.response_model or record.request_model,
        mapping.our_key(record.tenant, record.credential_id) or line.key,
        record.service_tier,
        *(tokens if record.is_reported else [None] * 4),
        None if usd is None or not record.is_reported else Number(usd_text(usd)),
        None if amount is None else Number(usd_text(amount)),
        None if explained is None else explained.total,
        None if alone is None or alone.usd is None else Number(alone.usd),
    ]
