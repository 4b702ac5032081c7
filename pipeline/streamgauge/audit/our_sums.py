"""Adds up our side of an audit by SQL, and corrects the sums by the few records whose JSON has to be looked at.

These are the records with parts, resumed streams, and streams that two taps saw. They count once: of two records of different
taps with the same id of the response (or of the provider's request), equal usage and overlapping times, the later one is left
out. An id that one tap has for several streams identifies no stream.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby

import msgspec

from streamgauge.audit.amounts import EXACT, ZERO, Tokens, minus, plus, usd_negated
from streamgauge.audit.cells import OurCell
from streamgauge.audit.findings import Findings
from streamgauge.audit.ours import GroupKey, Ours, StoredRecord
from streamgauge.audit.period import QUARTER_US
from streamgauge.audit.resumed import corrections_of
from streamgauge.audit.steps import AddedUp, Span, read_ahead
from streamgauge.audit.tables import Tables, id_bytes
from streamgauge.core.resumption import is_resumed
from streamgauge.ledger import Part
from streamgauge.ledger.contract import Step, Usage
from streamgauge.ledger.cost import COST_DIGITS

# Records with one id that are held, to find those of two taps. An id of more identifies no stream.
_MAX_HELD = 20
# How long a stream lasts whose end is not known (microseconds).
_UNKNOWN_END_US = 60 * 1_000_000
_MICROSECONDS = 1_000_000
# Ids that are looked up at a time.
_BATCH = 1_000


@dataclass
class OurSums:
    """The sums of our side.

    `cells`: by group, of providers that have an invoice. `unmapped`: streams of other providers in the period. `streams`: of
    all of them in the period. `upstreams`: by provider. `sha256`: a digest of the period's records, made of their number,
    starts, tokens and costs, added up by day and key: a record that is added or removed, or a cost that changes, changes it.
    """

    cells: dict[GroupKey, OurCell] = field(default_factory=dict)
    unmapped: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    upstreams: dict[str, set[str | None]] = field(default_factory=dict)
    sha256: str = ""
    # What corrections changed, by provider and quarter of an hour since 1970.
    corrected: dict[tuple[str, int], Tokens] = field(default_factory=dict)

    def by_quarter(self, ours: Ours, provider: str) -> dict[int, Tokens]:
        """The tokens of a provider by quarter of an hour since 1970, from another reading."""
        period = ours.period
        sums = {quarter: tokens for (own, quarter), tokens in self.corrected.items() if own == provider}
        for part in ours.ledger.parts:
            for usage in part.usage_by_quarter(period.read_since_us, period.read_until_us):
                if ours.provider_of(usage.upstream) == provider:
                    tokens = Tokens(
                        usage.input - usage.cached - usage.written, usage.cached, usage.written, usage.output
                    )
                    sums[usage.quarter] = plus(sums.get(usage.quarter, ZERO), tokens)
        return sums


class _LeftOut:
    """Ids of streams that are left out, in the temporary database: a chain of two taps sees each stream twice."""

    def __init__(self, tables: Tables) -> None:
        self._database = tables.database
        self._database.execute("CREATE TABLE left_out (id BLOB PRIMARY KEY) WITHOUT ROWID")
        self._any = False

    def add(self, stream_id: str) -> bool:
        """Add an id; False if it was there."""
        self._any = True
        return self._database.execute("INSERT OR IGNORE INTO left_out VALUES (?)", (id_bytes(stream_id),)).rowcount > 0

    def __contains__(self, stream_id: object) -> bool:
        if not self._any:
            return False
        row = self._database.execute("SELECT 1 FROM left_out WHERE id = ?", (id_bytes(str(stream_id)),)).fetchone()
        return row is not None


def sums_of(ours: Ours, providers: Iterable[str], findings: Findings, tables: Tables) -> OurSums:
    """Add up the period, and the day either side of it. `providers`: those that have an invoice.

    Sets the corrections of `ours`, and what is left out of it. Raises LedgerUnavailableError.
    """
    return _Reading(ours, frozenset(providers), findings, tables).sums()


class _Reading:
    def __init__(self, ours: Ours, providers: frozenset[str], findings: Findings, tables: Tables) -> None:
        self._ours = ours
        self._providers = providers
        self._findings = findings
        self._left_out = _LeftOut(tables)
        self._sums = OurSums()
        self._attempts: set[int] = set()  # the lowest and the highest number of an attempt so far
        self._known: set[str] = set()  # ids that another ledger has, too, of this step and the one before
        self._last_known: set[str] = set()
        self._seen: dict[tuple[str | None, ...], _Seen] = {}

    def sums(self) -> OurSums:
        ours, sums = self._ours, self._sums
        ours.left_out = self._left_out
        period, parts, digest = ours.period, ours.ledger.parts, hashlib.sha256()
        days = [period.before, *period.days, period.end]
        places = range(len(parts))
        spans = [Span(day, place, *half) for day in days for place in places for half in period.halves_of(day)]
        with closing(read_ahead(parts, spans)) as steps:
            for day, of_day in groupby(steps, key=lambda ahead: ahead.span.day):
                for ahead in of_day:
                    with ahead.read() as added_up:
                        self._add_step(added_up, day, parts[: ahead.span.part])
                digest.update(_text(day, self._seen))
                self._seen.clear()
        resumed = (text for part in parts for text in part.linked_records(period.read_since_us, period.read_until_us))
        self._correct_resumed(found for text in resumed if (found := ours.decoded(text)) is not None)
        sums.sha256 = digest.hexdigest()
        self._findings.read_again(ours)
        return sums

    def _add_step(self, added_up: AddedUp, day: str, earlier: Sequence[Part]) -> None:
        step, sums, equal_ids = added_up
        self._add_sums(step, day, sums, len(earlier))
        self._take_out_known(step, earlier)
        self._look_at_unusual(step)
        has_nameless = any(usage.nameless and usage.is_reported for usage in sums)
        self._leave_out_twins(step, equal_ids, has_nameless=has_nameless)
        self._find_attempts(step, sums)

    def _add_sums(self, step: Step, day: str, sums: Iterable[Usage], place: int) -> None:
        """Add the sums of a step of the ledger at `place`."""
        ours, is_of_period = self._ours, self._ours.period.has(day)
        for usage in sums:
            provider = ours.provider_of(usage.upstream)
            if is_of_period:
                self._seen.setdefault(_keys(usage), _Seen()).add(usage, step.since_us - ours.period.since_us)
                self._sums.streams += usage.streams
                self._findings.add_sums(step, provider, usage, place)
            if provider not in self._providers:
                self._sums.unmapped[provider] += usage.streams * is_of_period
                continue
            self._sums.upstreams.setdefault(provider, set()).add(usage.upstream)
            key_of = ours.key_of(usage.tenant, usage.credential_id)
            group = GroupKey(day, provider, usage.model, key_of, usage.service_tier)
            cell = self._sums.cells.setdefault(group, OurCell())
            cell.streams += usage.streams
            if usage.is_reported:
                cell.reported += usage.streams
                cell.tokens = plus(cell.tokens, _tokens(usage))
                cell.reasoning += usage.reasoning
                cell.unpriced += usage.unpriced
                cell.usd = EXACT.add(cell.usd, usd_of_cost(usage.cost))

    def _find_attempts(self, step: Step, sums: Iterable[Usage]) -> None:
        """Find attempts of one request, unless every attempt so far has the same number: that of a first one."""
        for usage in sums:
            if usage.first_attempt is not None and usage.last_attempt is not None:
                self._attempts |= {usage.first_attempt, usage.last_attempt}
        if len(self._attempts) > 1:
            self._attempts = {min(self._attempts), max(self._attempts)}
            self._findings.add_attempts(step, self._ours.provider_of)

    def _look_at_unusual(self, step: Step) -> None:
        """Add the parts of records to the sums, which have what the columns have; and find faults in counts."""
        ours = self._ours
        for start_us, record in self._decoded(step.unusual()):
            group = ours.group_of(start_us, record)
            if ours.period.has(group.day):
                self._findings.see_faults(group, record)
            if record.usage.parts:
                self._change(start_us, group, _without_parts(record), -1)
                self._change(start_us, group, record, 1)

    def _take_out_known(self, step: Step, earlier: Sequence[Part]) -> None:
        """Take out what another ledger has, too: a record counts once."""
        known: set[str] = set()
        for some in _some(sorted(step.ids()) if earlier else []):
            found = {name: text for part in earlier for name, text in part.stored_among(some).items()}
            for start_us, record in self._decoded(found.values()):
                group = self._ours.group_of(start_us, record)
                self._sums.streams -= self._ours.period.has(group.day)
                self._change(start_us, group, _without_parts(record), -1)
            known |= found.keys()
        # Those of the step before are read again beside the ones of this step.
        self._known = known | self._last_known
        self._last_known = known

    def _leave_out_twins(self, step: Step, counts: Mapping[str, int], *, has_nameless: bool) -> None:
        """Leave out streams that another tap saw, too; and find ids of several streams. `counts`: how many have equal ids."""
        ours, period = self._ours, self._ours.period
        few, many = (
            sorted(one for one, count in counts.items() if (count > _MAX_HELD) is is_many) for is_many in (False, True)
        )
        for ids in _some(few):
            for _, lines in groupby(step.with_ids(ids), key=lambda line: line[0]):
                self._compare(step, list(self._decoded(text for _, text in lines)), names_repeated=True)
        for ids in _some(many):
            for one in step.named_with_ids(ids):
                if period.since_us <= one.started_us < period.until_us and one.stream_id not in self._known:
                    provider = ours.provider_of(one.upstream)
                    self._findings.name_repeated_id(one.started_us, provider, one.model, one.stream_id)
        if not has_nameless:
            return
        by_request: dict[str, list[tuple[int, StoredRecord]]] = {}
        for start_us, record in self._decoded(step.without_ids()):
            if record.provider_request_id is not None:
                by_request.setdefault(record.provider_request_id, []).append((start_us, record))
        for found in by_request.values():
            self._compare(step, found, names_repeated=False)

    def _compare(self, step: Step, held: list[tuple[int, StoredRecord]], *, names_repeated: bool) -> None:
        """Leave out the later ones of the records with one id that are one stream; name the others on request."""
        ours, period = self._ours, self._ours.period
        if not 1 < len(held) <= _MAX_HELD:
            return
        twins: dict[str, str] = {}
        for provider in {ours.provider_of(record.upstream) for _, record in held} & self._providers:
            own = [entry for entry in held if ours.provider_of(entry[1].upstream) == provider]
            taps = [(record.tap, record.tap_instance) for _, record in own]
            if len(set(taps)) == len(taps):
                twins |= _twins(own)
        for start_us, record in held:
            if record.stream_id in twins and start_us >= step.since_us and self._left_out.add(record.stream_id):
                group = ours.group_of(start_us, record)
                self._change(start_us, group, record, -1)
                if period.has(group.day):
                    self._findings.name("seen_by_two_taps", group, record.stream_id)
        if names_repeated:
            self._name_repeated([entry for entry in held if entry[1].stream_id not in {*twins, *twins.values()}])

    def _name_repeated(self, held: list[tuple[int, StoredRecord]]) -> None:
        """Name several streams with one response id."""
        for start_us, record in held if len(held) > 1 else ():
            group = self._ours.group_of(start_us, record)
            if self._ours.period.has(group.day):
                self._findings.name_repeated_id(start_us, group.provider, group.model, record.stream_id)

    def _correct_resumed(self, records: Iterator[tuple[int, StoredRecord]]) -> None:
        """Count usage once for a stream and those that resume it: as the ledger does in its totals."""
        ours = self._ours
        found = {
            record.stream_id: (start_us, record)
            for start_us, record in records
            if record.stream_id not in self._left_out
        }
        if not any(is_resumed(record) for _, record in found.values()):
            return
        ours.corrections = corrections_of(found.values())
        for name, correction in ours.corrections.items():
            start_us, record = found[name]
            group = ours.group_of(start_us, record)
            if group not in self._sums.cells:
                continue
            self._change(start_us, group, record, -1)
            self._sums.cells[group].add(correction.tokens, correction.usd, correction.has_usage, 0)
            self._correct(start_us, group, correction.tokens)

    def _change(self, start_us: int, group: GroupKey, record: StoredRecord, sign: int) -> None:
        """Add a record to the sums (1), or take it out (-1)."""
        if group.provider not in self._providers:
            self._sums.unmapped[group.provider] += sign * self._ours.period.has(group.day)
            return
        tokens = record.tokens
        usd = record.usd_of(tokens)
        self._add(group, tokens, usd, record.is_reported, record.usage.reasoning_tokens or 0, sign)
        self._correct(start_us, group, tokens if sign > 0 else minus(ZERO, tokens))
        for model, other in record.of_other_models.items():
            cell = self._sums.cells.setdefault(group._replace(model=model), OurCell())
            cell.tokens = plus(cell.tokens, other if sign > 0 else minus(ZERO, other))
            cell.unpriced += sign
            self._correct(start_us, group, other if sign > 0 else minus(ZERO, other))

    def _add(
        self, group: GroupKey, tokens: Tokens, usd: Decimal | None, has_usage: bool, reasoning: int, sign: int
    ) -> None:
        if sign < 0:
            tokens, usd, reasoning = minus(ZERO, tokens), usd_negated(usd), -reasoning
        self._sums.cells.setdefault(group, OurCell()).add(tokens, usd, has_usage, reasoning, streams=sign)

    def _correct(self, start_us: int, group: GroupKey, tokens: Tokens) -> None:
        key = group.provider, start_us // QUARTER_US
        self._sums.corrected[key] = plus(self._sums.corrected.get(key, ZERO), tokens)

    def _decoded(self, texts: Iterable[bytes]) -> Iterator[tuple[int, StoredRecord]]:
        """The readable records, but for those that another ledger has, too."""
        found = (found for text in texts if (found := self._ours.decoded(text)) is not None)
        return ((start_us, record) for start_us, record in found if record.stream_id not in self._known)


def _some(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids, some at a time."""
    return (ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH))


def _without_parts(record: StoredRecord) -> StoredRecord:
    return msgspec.structs.replace(record, usage=msgspec.structs.replace(record.usage, parts=[]))


def _tokens(usage: Usage) -> Tokens:
    return Tokens(usage.input - usage.cached - usage.written, usage.cached, usage.written, usage.output)


def usd_of_cost(cost: int) -> Decimal:
    """A cost of the ledger (10**-12 USD) in dollars, without needless zeros."""
    return EXACT.scaleb(Decimal(cost), -COST_DIGITS)


def _twins(records: Sequence[tuple[int, StoredRecord]]) -> dict[str, str]:
    """The ids of records that are an earlier one of another tap, each with the earlier one. `records`: in order of start."""
    twins: dict[str, str] = {}
    kept: list[tuple[int, StoredRecord]] = []
    for start_us, record in records:
        first = next((one for began_us, one in kept if _is_twin(began_us, one, start_us, record)), None)
        if first is None:
            kept.append((start_us, record))
        else:
            twins[record.stream_id] = first.stream_id
    return twins


def _is_twin(first_us: int, first: StoredRecord, start_us: int, record: StoredRecord) -> bool:
    """Whether a record is of the same call as an earlier one, whose id it has."""
    end_s = first.timing.end_s
    lasts_us = _UNKNOWN_END_US if end_s is None else round(end_s * _MICROSECONDS)
    return start_us <= first_us + lasts_us and _counts(first) == _counts(record)


def _counts(record: StoredRecord) -> tuple[int | None, ...]:
    usage = record.usage
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.input_cached_tokens,
        usage.input_cache_write_tokens,
        usage.reasoning_tokens,
    )


def _keys(usage: Usage) -> tuple[str | None, ...]:
    return usage.upstream, usage.model, usage.tenant, usage.credential_id, usage.service_tier, usage.usage_source


@dataclass
class _Seen:
    """What the digest of the records of a day and of some keys is made of."""

    numbers: list[int] = field(default_factory=lambda: [0] * 8)

    def add(self, usage: Usage, since_us: int) -> None:
        """Add records. `since_us`: the beginning of their step after that of the period."""
        added = (
            usage.streams, usage.priced, usage.input, usage.cached, usage.written, usage.output, usage.cost,
            usage.starts + usage.streams * since_us,
        )  # fmt: skip
        self.numbers = [before + more for before, more in zip(self.numbers, added, strict=True)]


def _text(day: str, seen: Mapping[tuple[str | None, ...], _Seen]) -> bytes:
    """What was seen of a day, the same in any order."""
    lines = sorted(repr((day, *keys, *one.numbers)) for keys, one in seen.items())
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
