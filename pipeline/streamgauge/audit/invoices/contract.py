"""What every invoice reader gives: lines, in the order of the file, or an InvoiceError. Nothing is guessed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple

from streamgauge.audit.amounts import ZERO_USD, Tokens
from streamgauge.errors import UsageFault


class InvoiceError(UsageFault):
    """An invoice is refused. The text is `FILE: line N, field F: what is wrong`, as far as the file has lines and fields."""

    def __init__(self, file: str, fault: str, line: int | None = None, field: str | None = None) -> None:
        places = [f"line {line}"] * (line is not None) + [f"field {field}"] * (field is not None)
        super().__init__(": ".join([file, *([", ".join(places)] if places else []), fault]))


class BadFieldError(ValueError):
    """A value is wrong. `field`: its name; the text says what is wrong with it."""

    def __init__(self, field: str, fault: str) -> None:
        super().__init__(fault)
        self.field = field


def repeated_name(names: Iterable[str]) -> str | None:
    """The first name that occurs a second time; None if there is none. The time is linear."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


class BadTextError(ValueError):
    """The file is not well-formed. `line`: where, from 1; None if it concerns the whole file."""

    def __init__(self, fault: str, line: int | None = None) -> None:
        super().__init__(fault)
        self.line = line


class Span(NamedTuple):
    """A half-open span of time: microseconds since 1970, UTC."""

    start_us: int
    end_us: int


class InvoiceLine(NamedTuple):
    """One row of an invoice.

    when: the span of its bucket, or the date that it names. model: as the export writes it; None for a charge that is no
    model's. keys: the ids and names of API key, workspace and project that it names, the most specific first. tier: None if
    it names none. tokens: None if it has no counts. usd: None if it has no money. kind: the only kind of token that its
    money is for. half_digit: half of the last printed digit, if the export rounds its money. requests: how many requests it
    sums up. request_id: the id of the only request that it is for. splits: false if its uncached input may include input
    that others count as read from or written to a cache. charge: what it bills, if that is no tokens: a value of
    `result.CHARGES`; None for usage. label: that charge, as the export names it; None if it does not. currency: of its
    money, in capitals. endpoint: the one whose usage its export has, if it has no other's. digest: of all its fields.
    """

    provider: str
    when: Span | str
    model: str | None
    keys: tuple[str, ...] = ()
    tier: str | None = None
    tokens: Tokens | None = None
    usd: Decimal | None = None
    kind: str | None = None
    half_digit: Decimal = ZERO_USD
    requests: int | None = None
    request_id: str | None = None
    splits: bool = True
    charge: str | None = None
    label: str | None = None
    currency: str = "USD"
    endpoint: str | None = None
    digest: bytes = b""


@dataclass(frozen=True)
class Meter:
    """What a row of a cloud's bill stands for: a model and a kind of token, with the tier if its name says one.

    multiple: how many tokens one of the row's units is, where the unit does not say it. charge: what it bills instead, a
    value of `result.CHARGES`; then it has no model.
    """

    model: str | None
    kind: str | None
    multiple: int | None = None
    tier: str | None = None
    charge: str | None = None


# The meters of the operator's table, by the names and ids that rows have.
Meters = Mapping[str, Meter]
# Which money of FOCUS is taken: what an invoice bills, or the cost after prepayments are spread over their usage.
Cost = Literal["billed", "effective"]


@dataclass(frozen=True)
class Row:
    """A row as a format reads it: its values by column or key, and those of its bucket (JSON)."""

    values: Mapping[str, object]
    bucket: Mapping[str, object] = field(default_factory=dict)
    meters: Meters = field(default_factory=dict)
    cost: Cost = "billed"


@dataclass(frozen=True)
class OtherService:
    """A row of a bill of a whole cloud that is for a service without models. Its name and its money are reported."""

    name: str
    amount: Decimal
    currency: str


# What a format makes of a row. None: it has no content, such as a day without usage.
Read = InvoiceLine | Sequence[InvoiceLine] | OtherService | None


def same(name: str) -> str:
    """A column's name as it is."""
    return name


@dataclass(frozen=True)
class Format:
    """One export of a provider.

    signs: the columns (CSV) or the keys of a row (JSON) that tell it from all others, with `object_name`, which the value of
    a row's `object` matches whole. required: further columns without which it is refused. read: what it makes of a row;
    raises BadFieldError. has_tokens, has_money: what its rows hold. splits: the kinds of input that it counts apart from
    the rest of the input. tiers: whether its rows can name every tier. spelled: the one spelling of a column's name, for
    exports that spell it in several ways. one_currency: whether all its rows are of one organization, which is billed in one
    currency. refusal: what to bring instead, if an export is known and cannot be read.
    lists_empty_days: whether it has a bucket also for a day without usage.
    """

    name: str
    is_json: bool
    signs: frozenset[str]
    read: Callable[[Row], Read]
    has_tokens: bool
    has_money: bool
    required: frozenset[str] = frozenset()
    splits: frozenset[str] = frozenset({"input_cached", "input_cache_write"})
    tiers: bool = True
    object_name: str | None = None
    spelled: Callable[[str], str] = same
    one_currency: bool = True
    refusal: str | None = None
    lists_empty_days: bool = False


def signs(names: str) -> frozenset[str]:
    """A set of names, written with blanks between them."""
    return frozenset(names.split())
