"""What the records show by themselves, without an invoice. Findings never change whether an audit agrees.

They are collected while the ledger is read for the sums, in bounded memory. Ids that may repeat are looked up in a second
reading (`read_again`): the first one keeps a filter of bits, not the ids.
"""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, ZERO_USD, Tokens, usd_text
from streamgauge.audit.ours import GroupKey, Ours, StoredRecord
from streamgauge.audit.period import Period
from streamgauge.audit.repeated import SeenDigests
from streamgauge.core.resumption import is_resumed

# Streams that a finding names; it counts all of them.
MAX_NAMED = 100
# Ids that are looked up at most: more repeated ids are an error of the upstream, and the finding says so anyway.
_MAX_LOOKED_UP = 200_000
# Requests whose last attempt is remembered.
_MAX_REQUESTS = 100_000
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


class _Attempt(NamedTuple):
    """The last attempt of a request that reported usage. is_named: whether a finding names it already."""

    start_us: int
    number: int
    group: GroupKey
    stream: str
    is_named: bool


@dataclass
class _Half:
    """Sums of a model in one half of the period."""

    streams: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    chars: int = 0


@dataclass
class _Model:
    """Sums of a model in the period, and the streams with the highest costs."""

    halves: tuple[_Half, _Half] = field(default_factory=lambda: (_Half(), _Half()))
    priced: int = 0
    usd: Decimal = ZERO_USD
    highest: list[tuple[Decimal, str]] = field(default_factory=list)

    def is_outlier(self, usd: Decimal) -> bool:
        """Whether a cost is far above the mean of the model."""
        limit = EXACT.multiply(self.usd, Decimal(OUTLIER_FACTOR))
        return self.priced >= OUTLIER_STREAMS and EXACT.multiply(usd, Decimal(self.priced)) > limit


class Findings:
    """Collects findings of the streams of a period. `miscounted`: the streams that a recount contradicts."""

    def __init__(self, period: Period, miscounted: Set[str] = frozenset()) -> None:
        self._miscounted = miscounted
        self._since_us, self._until_us = period.since_us, period.until_us
        self._middle_us = (self._since_us + self._until_us) // 2
        self._named: dict[tuple[str, str, str | None], _Named] = {}
        self._models: dict[tuple[str, str | None], _Model] = {}
        self._seen = SeenDigests()
        self._responses: set[str] = set()
        self._requests: dict[str, _Attempt] = {}
        self._outliers: Counter[tuple[str, str | None]] = Counter()
        self._found: list[Finding] = []

    def see(self, start_us: int, group: GroupKey, record: StoredRecord, tokens: Tokens, usd: Decimal | None) -> None:
        """Take a record with its tokens and cost, in the first reading."""
        if not self._since_us <= start_us < self._until_us:
            return
        usage = record.usage
        if record.is_reported:
            self._check_usage(group, record, tokens)
            if record.stream_id in self._miscounted:
                self._name("reported_against_recount", group, record)
            self._add_to_model(start_us, group, record, tokens, usd)
        elif record.outcome == "completed" and usage.source == "absent":
            self._name("usage_missing", group, record)
        response = None if is_resumed(record) else record.known_response_id
        if response is not None:
            digest = blake2b(response.encode(), digest_size=16).digest()
            if self._seen.had(digest) and len(self._responses) < _MAX_LOOKED_UP:
                self._responses.add(response)
        if record.attempt is not None and record.request_digest is not None:
            self._add_attempt(start_us, group, record, record.request_digest, record.attempt)

    def read_again(self, ours: Ours) -> None:
        """Look up, in a second reading, the ids that may be those of several streams; and count what was not kept."""
        uncounted = {
            key: model
            for key, model in self._models.items()
            if len(model.highest) == MAX_NAMED and model.is_outlier(model.highest[0][0])
        }
        if not self._responses and not uncounted:
            return
        responses: dict[str, list[tuple[GroupKey, str]]] = {}
        for start_us, record in ours.records():
            if not self._since_us <= start_us < self._until_us:
                continue
            if uncounted and record.is_reported:
                group = ours.group_of(start_us, record)
                model, usd = uncounted.get((group.provider, group.model)), record.usd_of(record.tokens)
                if model is not None and usd is not None:
                    self._outliers[group.provider, group.model] += model.is_outlier(usd)
            if record.response_id in self._responses and not is_resumed(record):
                group = ours.group_of(start_us, record)
                responses.setdefault(str(record.response_id), []).append((group, record.stream_id))
        for _, streams in sorted(responses.items()):
            if len(streams) > 1:
                for group, stream in streams:
                    self._add("duplicate_response_id", group, stream)

    def all(self, unmapped: Counter[str]) -> list[Finding]:
        """Every finding, in the order of NAMES, then by provider and model."""
        findings = [
            Finding(name, provider, model, named.count, tuple(named.streams), _DETAILS[name])
            for (name, provider, model), named in self._named.items()
        ]
        for (provider, model), sums in self._models.items():
            findings += _of_model(provider, model, sums, self._outliers[provider, model])
        for upstream, count in (+unmapped).items():
            findings.append(Finding("upstream_without_invoice", upstream or None, None, count, (), _DETAILS_UNMAPPED))
        findings += self._found
        return sorted(
            findings, key=lambda finding: (NAMES.index(finding.name), finding.provider or "", finding.model or "")
        )

    def add(self, finding: Finding) -> None:
        """Add a finding that was made elsewhere."""
        self._found.append(finding)

    def _add_attempt(self, start_us: int, group: GroupKey, record: StoredRecord, digest: str, attempt: int) -> None:
        """Add an attempt; name it and the attempt before it if both report usage.

        An attempt whose number is not higher, or that comes much later, begins another request with this body.
        """
        last = self._requests.pop(digest, None)
        if last is not None and (attempt <= last.number or start_us - last.start_us > _RETRY_US):
            last = None
        if record.is_reported:
            if last is not None and not last.is_named:
                self._add("request_billed_twice", last.group, last.stream)
            if last is not None:
                self._add("request_billed_twice", group, record.stream_id)
            last = _Attempt(start_us, attempt, group, record.stream_id, last is not None)
        if last is not None:
            self._requests[digest] = last
        if len(self._requests) > _MAX_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def _check_usage(self, group: GroupKey, record: StoredRecord, tokens: Tokens) -> None:
        usage = record.usage
        if usage.identity_failed is not None:
            self._name("totals_do_not_add_up", group, record)
        lacks = usage.input_tokens is None or usage.output_tokens is None
        if tokens.input_uncached < 0 or usage.bad_values or (usage.source == "final" and lacks):
            self._name("usage_inconsistent", group, record)
        request = record.request
        if request is None or request.max_tokens is None or usage.output_tokens is None:
            return
        limit = request.max_tokens * (request.n or 1)
        is_short = (
            record.finish_reason == "length" and usage.output_tokens < limit - LIMIT_SLACK and request.n in (None, 1)
        )
        if usage.output_tokens > limit + LIMIT_SLACK or is_short:
            self._name("finish_reason_against_limit", group, record)

    def _add_to_model(
        self, start_us: int, group: GroupKey, record: StoredRecord, tokens: Tokens, usd: Decimal | None
    ) -> None:
        model = self._models.get((group.provider, group.model))
        if model is None:
            model = self._models[group.provider, group.model] = _Model()
        half, counts = model.halves[start_us >= self._middle_us], record.counts
        half.streams += 1
        half.input += tokens.input
        half.cached += tokens.input_cached
        chars = counts.text_chars + counts.reasoning_chars + counts.refusal_chars
        if chars and record.usage.source == "final":
            half.output += tokens.output - (record.usage.reasoning_tokens or 0) * (counts.reasoning_chars == 0)
            half.chars += chars
        if usd is not None:
            model.priced += 1
            model.usd = EXACT.add(model.usd, usd)
            if len(model.highest) < MAX_NAMED or usd > model.highest[0][0]:
                model.highest = sorted([*model.highest, (usd, record.stream_id)])[-MAX_NAMED:]

    def _name(self, name: str, group: GroupKey, record: StoredRecord) -> None:
        self._add(name, group, record.stream_id)

    def _add(self, name: str, group: GroupKey, stream: str) -> None:
        named = self._named.setdefault((name, group.provider, group.model), _Named())
        named.count += 1
        if len(named.streams) < MAX_NAMED:
            named.streams.append(stream)


def _of_model(provider: str, model: str | None, sums: _Model, outliers: int) -> Iterable[Finding]:
    over = [stream for usd, stream in reversed(sums.highest) if sums.is_outlier(usd)]
    if over:
        highest = usd_text(sums.highest[-1][0])
        detail = f"each costs more than {OUTLIER_FACTOR} times the mean; the highest costs {highest} USD"
        yield Finding("cost_outlier", provider, model, max(outliers, len(over)), tuple(over), detail)
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
    "duplicate_response_id": "several streams have one response id: two taps captured one call, or the upstream repeats ids",
    "request_billed_twice": "several attempts of one request report usage",
}
_DETAILS_UNMAPPED = "no invoice is for this upstream: name its provider in [upstreams] of --map, or give its invoice"
