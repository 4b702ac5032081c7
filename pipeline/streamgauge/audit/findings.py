"""What the records show by themselves, without an invoice. Findings never change whether an audit agrees.

SQL counts what columns show, and names the first streams of it. Faults in counts are in records that `our_sums.py` looks at.
What only the JSON of usual records shows (limits of output, characters) is found in a sample of them, if there are many
(`read_again`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, usd_text
from streamgauge.audit.ours import GroupKey, Ours, StoredRecord
from streamgauge.audit.period import Period
from streamgauge.ledger.contract import Attempt, Selection, Step, Usage
from streamgauge.ledger.cost import COST_DIGITS

# Streams that a finding names; it counts all of them.
MAX_NAMED = 100
# Records that are sampled at most, on average: so many reported usage, a sixteenth, a sixteenth of that, ...
SAMPLED = 100_000
# Ids of streams that are looked up at a time.
_BATCH = 1_000
# An attempt that began longer after the one before it is of another request with the same body (microseconds, a quarter of an
# hour): clients give up an attempt after ten minutes, and wait some seconds then.
_RETRY_US = 900 * 1_000_000
# A stream is an outlier if it costs so many times the mean of its model, in a model with so many streams.
OUTLIER_FACTOR, OUTLIER_STREAMS = 50, 100
# The share of cached input, and output tokens a character, are compared between the halves of the period; each needs so
# many streams there. A fall by a third, or a drift by a tenth, is reported.
HALF_STREAMS = 100
CACHE_FALL = Fraction(2, 3)
DRIFT = Fraction(1, 10)
# A provider may stop a little below or above a limit of output (tokens): stop sequences, and tokens that are not shown.
LIMIT_SLACK = 8

NAMES = (
    "usage_missing",
    "usage_inconsistent",
    "totals_do_not_add_up",
    "reported_against_recount",
    "finish_reason_against_limit",
    "duplicate_response_id",
    "request_billed_twice",
    "cost_outlier",
    "cache_share_fell",
    "output_per_character_drifted",
    "seen_by_two_taps",
    "upstream_without_invoice",
    "money_not_compared",
    "record_unreadable",
    "preliminary",
)


class Finding(NamedTuple):
    """A finding. provider, model: what it concerns, None for several. concerned: how many streams. streams: the first ids."""

    name: str
    provider: str | None
    model: str | None
    concerned: int
    streams: tuple[str, ...]
    detail: str


@dataclass
class _Named:
    count: int = 0
    streams: list[str] = field(default_factory=list)


@dataclass
class _Half:
    """Sums of a model in one half of the period."""

    streams: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    chars: int = 0


class _Costs(NamedTuple):
    """The highest cost (10**-12 USD) of an upstream's model in a step of a ledger."""

    highest: int
    part: int
    since_us: int
    until_us: int
    upstream: str | None
    model: str | None


@dataclass
class _Model:
    """Sums of a model in the period. usd: in 10**-12 USD, of the streams with a cost. outliers: filled at the end."""

    halves: tuple[_Half, _Half] = field(default_factory=lambda: (_Half(), _Half()))
    priced: int = 0
    usd: int = 0
    costs: list[_Costs] = field(default_factory=list)
    outliers: list[tuple[int, str]] = field(default_factory=list)
    outlier_count: int = 0

    @property
    def limit(self) -> int | None:
        """The cost above which a stream is an outlier (10**-12 USD); None if the model has too few streams."""
        return self.usd * OUTLIER_FACTOR // self.priced if self.priced >= OUTLIER_STREAMS else None


class Findings:
    """Collects findings of the streams of a period. `miscounted`: the streams that a recount contradicts."""

    def __init__(self, period: Period, miscounted: Set[str] = frozenset()) -> None:
        self._miscounted = miscounted
        self._period = period
        self._middle_us = period.middle_us
        self._named: dict[tuple[str, str, str | None], _Named] = {}
        self._models: dict[tuple[str, str | None], _Model] = {}
        self._repeated: dict[str, int] = {}
        self._attempts_named: dict[str, int] = {}
        self._found: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Add a finding that was made elsewhere."""
        self._found.append(finding)

    def add_sums(self, step: Step, provider: str, usage: Usage, part: int) -> None:
        """Take the sums of records of the period, and name what they show. `part`: the place of their ledger."""
        if usage.usage_source == "absent" and usage.completed:
            self._name_chosen(step, "usage_missing", Selection.MISSING, provider, usage, usage.completed)
        if usage.inconsistent:
            self._name_chosen(step, "usage_inconsistent", Selection.INCONSISTENT, provider, usage, usage.inconsistent)
        if not usage.is_reported:
            return
        model = self._model(provider, usage.model)
        half = model.halves[step.since_us >= self._middle_us]
        half.streams += usage.streams
        half.input += usage.input
        half.cached += usage.cached
        model.priced += usage.streams - usage.unpriced
        model.usd += usage.cost
        if usage.highest:
            model.costs.append(_Costs(usage.highest, part, step.since_us, step.until_us, usage.upstream, usage.model))

    def see_faults(self, group: GroupKey, record: StoredRecord) -> None:
        """Take a record of the period whose counts may have faults that no column shows."""
        usage = record.usage
        if usage.identity_failed is not None:
            self.name("totals_do_not_add_up", group, record.stream_id)
        lacks = usage.source == "final" and (usage.input_tokens is None or usage.output_tokens is None)
        is_shown = lacks or (usage.input_tokens is not None and usage.input_tokens < _parts_of_input(record))
        if usage.bad_values and not is_shown:
            self.name("usage_inconsistent", group, record.stream_id)

    def add_attempts(self, step: Step, provider_of: Callable[[str | None], str]) -> None:
        """Name the attempts of one request of which several report usage.

        An attempt whose number is not higher, or that comes much later, begins another request with this body.
        """
        last: dict[str, Attempt] = {}
        found: dict[str, Attempt] = {}
        for one in step.attempts():
            before = last.pop(one.request_digest, None)
            if before is not None and (one.attempt <= before.attempt or one.started_us - before.started_us > _RETRY_US):
                before = None
            if one.is_reported and before is not None:
                found |= {before.stream_id: before, one.stream_id: one}
            if one.is_reported:
                last[one.request_digest] = one
            elif before is not None:
                last[one.request_digest] = before
        for one in found.values():
            day = self._period.since_us <= one.started_us < self._period.until_us
            if day and _is_new(self._attempts_named, one.stream_id, one.started_us):
                self._name("request_billed_twice", provider_of(one.upstream), one.model, one.stream_id)

    def name_repeated_id(self, start_us: int, provider: str, model: str | None, stream: str) -> None:
        """Name a stream whose response id another stream has, too. It may be named before."""
        if _is_new(self._repeated, stream, start_us):
            self._name("duplicate_response_id", provider, model, stream)

    def name(self, name: str, group: GroupKey, stream: str) -> None:
        """Name a stream of the period."""
        self._name(name, group.provider, group.model, stream)

    def read_again(self, ours: Ours) -> None:
        """Look at a sample of the records, at those that a recount contradicts, and at those that cost most."""
        parts = ours.ledger.parts
        streams = sum(half.streams for model in self._models.values() for half in model.halves)
        digits = 0
        while streams > SAMPLED * 16**digits:
            digits += 1
        seen: set[str] = set()
        for part in parts:
            for text in part.sample(self._period.since_us, self._period.until_us, digits):
                if (found := ours.decoded(text)) is None or found[1].stream_id in seen:
                    continue
                if len(parts) > 1:
                    seen.add(found[1].stream_id)
                self._see_sampled(ours.group_of(*found), *found)
        miscounted = sorted(self._miscounted)
        for at in range(0, len(miscounted), _BATCH):
            stored = {
                name: text for part in parts for name, text in part.stored_among(miscounted[at : at + _BATCH]).items()
            }
            for text in stored.values():
                if (found := ours.decoded(text)) is not None and found[1].is_reported:
                    group = ours.group_of(*found)
                    if self._period.has(group.day):
                        self.name("reported_against_recount", group, found[1].stream_id)
        for model in self._models.values():
            self._find_outliers(ours, model)

    def _find_outliers(self, ours: Ours, model: _Model) -> None:
        for costs in model.costs if model.limit is not None else ():
            if model.limit is None or costs.highest <= model.limit:
                continue
            with ours.ledger.parts[costs.part].usage_step(costs.since_us, costs.until_us) as step:
                for one in () if step is None else step.costing_more(model.limit, costs.upstream, costs.model):
                    model.outlier_count += 1
                    model.outliers.append((one.cost, one.stream_id))
            model.outliers = sorted(model.outliers, reverse=True)[:MAX_NAMED]
        model.costs.clear()

    def _see_sampled(self, group: GroupKey, start_us: int, record: StoredRecord) -> None:
        usage, counts, request = record.usage, record.counts, record.request
        half = self._model(group.provider, group.model).halves[start_us >= self._middle_us]
        chars = counts.text_chars + counts.reasoning_chars + counts.refusal_chars
        if chars and usage.source == "final":
            half.output += (usage.output_tokens or 0) - (usage.reasoning_tokens or 0) * (counts.reasoning_chars == 0)
            half.chars += chars
        if request is None or request.max_tokens is None or usage.output_tokens is None:
            return
        limit = request.max_tokens * (request.n or 1)
        is_short = (
            record.finish_reason == "length" and usage.output_tokens < limit - LIMIT_SLACK and request.n in (None, 1)
        )
        if usage.output_tokens > limit + LIMIT_SLACK or is_short:
            self.name("finish_reason_against_limit", group, record.stream_id)

    def all(self, unmapped: Counter[str]) -> list[Finding]:
        """Every finding, in the order of NAMES, then by provider and model."""
        findings = [
            Finding(name, provider, model, named.count, tuple(named.streams), _DETAILS[name])
            for (name, provider, model), named in self._named.items()
        ]
        for (provider, model), sums in self._models.items():
            findings += _of_model(provider, model, sums)
        for upstream, count in (+unmapped).items():
            findings.append(Finding("upstream_without_invoice", upstream or None, None, count, (), _DETAILS_UNMAPPED))
        findings += self._found
        return sorted(
            findings, key=lambda finding: (NAMES.index(finding.name), finding.provider or "", finding.model or "")
        )

    def _model(self, provider: str, model: str | None) -> _Model:
        found = self._models.get((provider, model))
        if found is None:
            found = self._models[provider, model] = _Model()
        return found

    def _name_chosen(
        self, step: Step, name: str, selection: Selection, provider: str, usage: Usage, count: int
    ) -> None:
        """Count streams, and name the first of them."""
        named = self._named.setdefault((name, provider, usage.model), _Named())
        named.count += count
        room = MAX_NAMED - len(named.streams)
        if room > 0:
            named.streams += step.chosen(selection, usage, room)

    def _name(self, name: str, provider: str, model: str | None, stream: str) -> None:
        named = self._named.setdefault((name, provider, model), _Named())
        named.count += 1
        if len(named.streams) < MAX_NAMED:
            named.streams.append(stream)


def _parts_of_input(record: StoredRecord) -> int:
    return (record.usage.input_cached_tokens or 0) + (record.usage.input_cache_write_tokens or 0)


# Streams that are remembered, since the next step of the ledger may show them again.
_MAX_REMEMBERED = 200_000


def _is_new(known: dict[str, int], stream: str, start_us: int) -> bool:
    """Whether a stream was not named before. Those that began long before are forgotten: no step shows them again."""
    if stream in known:
        return False
    known[stream] = start_us
    if len(known) > _MAX_REMEMBERED:
        for name in [name for name, began_us in known.items() if began_us < start_us - 2 * _RETRY_US]:
            del known[name]
    return True


def _of_model(provider: str, model: str | None, sums: _Model) -> Iterable[Finding]:
    if sums.outliers:
        highest = usd_text(EXACT.scaleb(Decimal(sums.outliers[0][0]), -COST_DIGITS))
        detail = f"each costs more than {OUTLIER_FACTOR} times the mean; the highest costs {highest} USD"
        named = tuple(stream for _, stream in sums.outliers)
        yield Finding("cost_outlier", provider, model, sums.outlier_count, named, detail)
    early, late = sums.halves
    if early.streams < HALF_STREAMS or late.streams < HALF_STREAMS:
        return
    if early.input and late.input and early.cached:
        before, after = Fraction(early.cached, early.input), Fraction(late.cached, late.input)
        if after < before * CACHE_FALL:
            detail = (
                f"cached input in the first half of the period: {_percent(before)}, in the second: {_percent(after)}"
            )
            yield Finding("cache_share_fell", provider, model, late.streams, (), detail)
    if early.chars and late.chars and early.output:
        before, after = Fraction(early.output, early.chars), Fraction(late.output, late.chars)
        if abs(after - before) > before * DRIFT:
            detail = f"output tokens a character in the first half: {_ratio(before)}, in the second: {_ratio(after)}"
            yield Finding("output_per_character_drifted", provider, model, late.streams, (), detail)


def _percent(share: Fraction) -> str:
    return f"{round(share * 100)} %"


def _ratio(value: Fraction) -> str:
    thousandths = round(value * 1000)
    return f"{thousandths // 1000}.{thousandths % 1000:03}"


_DETAILS = {
    "usage_missing": "these streams completed, and the provider reported no usage",
    "usage_inconsistent": "the reported counts lack input or output, have bad values, or more cached input than input",
    "totals_do_not_add_up": "the reported counts do not satisfy their own equation (usage.identity_failed)",
    "reported_against_recount": "the reported output tokens are not those that the recount of the text allows",
    "finish_reason_against_limit": "output is above the limit of the request, or ended by `length` below it",
    "duplicate_response_id": "several streams that began within minutes have one response id: the upstream repeats ids",
    "seen_by_two_taps": "another tap saw the same call: the earlier record counts, and these were left out",
    "request_billed_twice": "several attempts of one request report usage",
}
_DETAILS_UNMAPPED = "no invoice is for this upstream: name its provider in [upstreams] of --map, or give its invoice"
