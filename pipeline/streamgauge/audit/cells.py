"""Cells: a day, a provider, a model, a key and a tier, with what we saw in it and what is billed for it.

An alias of a model, its dated snapshot and its display name are one model. Only names that one side has and the other has not
are joined: two snapshots stay apart where both sides name both.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from streamgauge.audit.amounts import (
    EXACT,
    ZERO,
    ZERO_USD,
    Tokens,
    minus,
    negated,
    plus,
    total_of,
    usd_minus,
    usd_total,
)
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.theirs import Shape, TheirCell

# What providers call the tier of a request that names none.
STANDARD = "standard"
_STANDARD = frozenset({None, "default", "auto", STANDARD, "standard_only"})
# What follows an alias in the name of a snapshot: -2024-08-06, -20250514, @20250514, -0613, -latest, and -001 (Gemini).
_DATED = re.compile(r"[-@](\d{4}-\d\d-\d\d|\d{8}|\d{6}|\d{4}|00\d|latest)$")
# OpenRouter's variants (openrouter.ai/docs/guides/routing/model-variants). Other suffixes tell models apart: llama3:8b.
_VARIANT = re.compile(r":(free|batch|beta|extended|thinking|nitro|floor|online|exacto)$")
_MARKS = re.compile(r"[^a-z0-9]+")
# A model id of Amazon Bedrock: a geography if it is an inference profile, the maker, the model, and a version
# (docs.aws.amazon.com/bedrock: Supported foundation models; Supported Regions and models for inference profiles). The plain
# name is that of version 1: "Claude 3.5 Sonnet" is -20240620-v1:0, "Claude 3.5 Sonnet v2" is -20241022-v2:0.
_BEDROCK = re.compile(
    r"(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?"
    r"(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|nvidia|openai|qwen|writer|zai)\."
    r"(?P<model>.+?)(?:-v?1:0|-v1|-(?P<version>v\d+)(?::0)?)?(?::\d+k)?"
)


class Rate(NamedTuple):
    """A price that changed: dollars for a million tokens of a kind (or `total`), and the first day of the new one."""

    kind: str
    old: Decimal | None
    new: Decimal
    first_seen: str


@dataclass(frozen=True)
class Explanation:
    """A part of a difference and its cause.

    usd: None if its money is not known. streams: the ids, by start. requests: how many requests it adds to ours. labels: the
    names of charges, as the invoice writes them.
    """

    cause: str
    tokens: Tokens
    usd: Decimal | None
    streams: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    requests: int = 0
    labels: tuple[str, ...] = ()

    def with_streams(self, streams: Iterable[str]) -> "Explanation":
        """The same with other streams."""
        return replace(self, streams=tuple(streams))


@dataclass(frozen=True)
class Undecided:
    """A part of a difference that each of several causes explains. usd, streams: as in Explanation."""

    one_of: tuple[str, ...]
    tokens: Tokens
    usd: Decimal | None = None
    streams: tuple[str, ...] = ()


@dataclass
class OurCell:
    """What we saw in a cell. `unpriced`: streams with usage and without a price. `reported`: streams with usage."""

    tokens: Tokens = ZERO
    usd: Decimal = ZERO_USD
    unpriced: int = 0
    streams: int = 0
    reported: int = 0
    reasoning: int = 0

    def add(self, tokens: Tokens, usd: Decimal | None, has_usage: bool, reasoning: int, streams: int = 1) -> None:
        """Add a stream."""
        self.streams += streams
        if has_usage:
            self.reported += streams
            self.tokens = plus(self.tokens, tokens)
            self.reasoning += reasoning
            if usd is None:
                self.unpriced += streams
            else:
                self.usd = EXACT.add(self.usd, usd)

    def merge(self, other: "OurCell") -> None:
        """Add all streams of another cell."""
        self.tokens = plus(self.tokens, other.tokens)
        self.usd = EXACT.add(self.usd, other.usd)
        self.unpriced += other.unpriced
        self.streams += other.streams
        self.reported += other.reported
        self.reasoning += other.reasoning


@dataclass
class Cell:
    """A cell with both sides. `billed_day`: whether its day is in the period, or the invoices have a row of it: on any other
    day a missing row does not say that nothing is billed.

    The search for causes fills the others. `streams`: those of the cell, if they were read (`is_read`). `gone`: the ids of
    those that are billed elsewhere or nowhere; `came`: streams of other cells that are billed here, `came_ids`: their ids
    while the streams are not loaded.

    `our_tiers`, `their_tiers`: the tiers of the streams and of the invoices' rows, also where tiers are not compared.
    """

    group: GroupKey
    shape: Shape
    ours: OurCell
    theirs: TheirCell
    billed_day: bool
    explanations: list[Explanation] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    streams: list[OurStream] = field(default_factory=list)
    is_read: bool = False
    gone: set[str] = field(default_factory=set)
    came: list[OurStream] = field(default_factory=list)
    came_ids: list[str] = field(default_factory=list)
    our_tiers: frozenset[str] = frozenset()
    their_tiers: frozenset[str] = frozenset()

    @property
    def other_tiers(self) -> frozenset[str]:
        """The tiers that the invoices name and no stream has. Rows of costs do not always name the tier: standard is none."""
        return self.their_tiers - self.our_tiers - {STANDARD}

    @property
    def billed(self) -> list[OurStream]:
        """The streams with usage that are billed in this cell, as far as it is known."""
        return [stream for stream in self.streams if stream.has_usage and stream.id not in self.gone] + self.came

    @property
    def requests_rest(self) -> int | None:
        """How many more requests are billed than ours and the explained ones; None if they are not counted."""
        if self.theirs.requests is None:
            return None
        return (
            self.theirs.requests - self.ours.reported - sum(explanation.requests for explanation in self.explanations)
        )

    @property
    def our_usd(self) -> Decimal | None:
        """The cost of our streams; None if a price is missing."""
        return None if self.ours.unpriced else self.ours.usd

    @property
    def their_usd(self) -> Decimal | None:
        """The money that is billed; None if the invoices have no money."""
        return self.theirs.usd if self.shape.has_money else None

    @property
    def tokens(self) -> Tokens:
        """The difference in tokens: 0 if the invoices have no tokens."""
        return minus(self.theirs.tokens, self.ours.tokens) if self.shape.has_tokens else ZERO

    @property
    def usd(self) -> Decimal | None:
        """The difference in money; None if one side has no money."""
        return usd_minus(self.their_usd, self.our_usd)

    @property
    def lacks_cost(self) -> bool:
        """Whether money is billed that is not compared, since the cost of one of our streams is unknown."""
        return self.our_usd is None and bool(self.their_usd)

    @property
    def parts(self) -> list[Explanation | Undecided]:
        """The parts of the difference that are explained or undecided."""
        return [*self.explanations, *self.undecided]

    @property
    def rest(self) -> Tokens:
        """The tokens that are neither explained nor undecided."""
        return minus(self.tokens, total_of(part.tokens for part in self.parts))

    @property
    def usd_rest(self) -> Decimal | None:
        """The money that is neither explained nor undecided; None if it is unknown."""
        if self.usd is None:
            return None
        return usd_minus(self.usd, usd_total(ZERO_USD if part.usd is None else part.usd for part in self.parts))

    @property
    def differs(self) -> bool:
        """Whether both sides differ: in tokens, or in money by more than what rounding explains."""
        return self.tokens != ZERO or (self.usd is not None and abs(self.usd) > self.theirs.slack)

    def explain(
        self, cause: str, tokens: Tokens, usd: Decimal | None, streams: Iterable[OurStream] = (), requests: int = 0
    ) -> None:
        """Add an explanation."""
        money = None if self.usd is None else usd
        self.explanations.append(Explanation(cause, tokens, money, ids_of(streams), requests=requests))

    def leave_undecided(self, one_of: Iterable[str], tokens: Tokens, streams: Iterable[OurStream] = ()) -> None:
        """Say that each of several causes explains these tokens. Their money follows from prices."""
        self.undecided.append(Undecided(tuple(sorted(set(one_of))), tokens, None, ids_of(streams)))

    def explain_missing(self, streams: list[OurStream]) -> None:
        """Add the explanation that streams are not billed."""
        usd = usd_of(streams)
        money = None if usd is None else EXACT.minus(usd)
        self.explain("missing_from_invoice", negated(tokens_of(streams)), money, streams, -len(streams))
        self.gone.update(stream.id for stream in streams)


def ids_of(streams: Iterable[OurStream]) -> tuple[str, ...]:
    """The ids of streams, by their start."""
    return tuple(stream.id for stream in sorted(streams, key=lambda stream: (stream.start_us, stream.id)))


class Folding:
    """Reduce our keys and counts to the granularity of a provider's invoices; unify the names of models."""

    def __init__(
        self, shapes: Mapping[str, Shape], ours: Iterable[tuple[GroupKey, bool]], theirs: Iterable[GroupKey]
    ) -> None:
        self._shapes = shapes
        reported: dict[str, set[str]] = {}
        others: dict[str, set[str]] = {}
        billed: dict[str, set[str]] = {}
        for group, has_usage in ours:
            (reported if has_usage else others).setdefault(group.provider, set()).add(group.model or "")
        for group in theirs:
            billed.setdefault(group.provider, set()).add(group.model or "")
        self._names: dict[str, dict[str, str]] = {}
        for provider in shapes:
            names = joined_names(reported.get(provider, set()) - {""}, billed.get(provider, set()) - {""})
            for model in sorted(others.get(provider, set()) - names.keys() - {""}):
                alike = {shown for name, shown in names.items() if family_of(name) == family_of(model)}
                names[model] = alike.pop() if len(alike) == 1 else model
            self._names[provider] = names

    def reduced(self, group: GroupKey) -> GroupKey:
        """The key without the dimensions that the invoices lack, with the unified name of its model."""
        shape, names = self._shapes[group.provider], self._names[group.provider]
        return GroupKey(
            group.day if shape.has_days else "",
            group.provider,
            None if group.model is None else names.get(group.model, group.model),
            group.key if shape.has_keys else None,
            tier_of(group.tier) if shape.has_tiers else None,
        )

    def tokens(self, provider: str, tokens: Tokens) -> Tokens:
        """The counts in the kinds that are compared."""
        splits = self._shapes[provider].splits
        cached = tokens.input_cached if "input_cached" in splits else 0
        written = tokens.input_cache_write if "input_cache_write" in splits else 0
        return Tokens(tokens.input - cached - written, cached, written, tokens.output)


def tier_of(tier: str | None) -> str:
    """The name of a tier."""
    return STANDARD if tier in _STANDARD else str(tier)


def usd_of(streams: Iterable[OurStream]) -> Decimal | None:
    """The cost of streams; None if a price is missing."""
    return usd_total(stream.usd for stream in streams)


def tokens_of(streams: Iterable[OurStream]) -> Tokens:
    """The tokens of streams."""
    return total_of(stream.tokens for stream in streams)


def family_of(model: str) -> str:
    """The family of a model: the same text for its alias, its snapshots and its display name."""
    name = _VARIANT.sub("", model.strip().lower().rpartition("/")[2])  # without the folders before it
    bedrock = _BEDROCK.fullmatch(name)
    if bedrock is not None:
        name = bedrock["model"]
    while _DATED.search(name):
        name = _DATED.sub("", name)
    parts = [part for part in _MARKS.split(name) if part]
    if bedrock is not None:  # the bill leaves "instruct" out: Bedrock has no other Llama
        parts = [part for part in parts if part != "instruct" or "llama" not in name]
        parts += filter(None, [bedrock["version"]])
    if "nova" in parts:  # the bill has Nova2.0Lite, the id is nova-2-lite
        parts = [part for part in parts if part != "0"]
    if "claude" not in parts:
        return "-".join(parts)
    # Anthropic wrote the version first (claude-3-5-sonnet), and later the size (claude-sonnet-4-5, "Claude Sonnet 4.5").
    numbers = [part for part in parts if part.isdigit()]
    while len(numbers) > 1 and numbers[-1] == "0":  # claude-opus-4-0 is the alias of claude-opus-4
        numbers.pop()
    return "-".join([*sorted(part for part in parts if not part.isdigit()), *numbers])


def joined_names(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """The unified name of each model. Names of a family are joined unless both sides have the same names.

    The unified name is the shortest of theirs, the first by alphabet: the name that stands on the bill.
    """
    families: dict[str, tuple[set[str], set[str]]] = {}
    for side, names in enumerate((ours, theirs)):
        for name in names:
            families.setdefault(family_of(name), (set(), set()))[side].add(name)
    joined: dict[str, str] = {}
    for our_names, their_names in families.values():
        both = our_names | their_names
        if our_names == their_names or not (our_names and their_names) or len(both) == 1:
            joined |= {name: name for name in both}
        else:
            shown = min(their_names, key=lambda name: (len(name), name))
            joined |= dict.fromkeys(both, shown)
    return joined
