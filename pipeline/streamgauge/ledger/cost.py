"""The cost of a record, as a ledger stores it.

Costs are whole numbers of 10**-12 USD, so that databases add them exactly. For one token, the prices of genai-prices are
whole numbers of it; nine million USD fit 64 bits.
"""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

import msgspec

COST_DIGITS = 12
# The largest cost of a record: a 64-bit integer (10**-12 USD), nine million USD.
_MAX_COST = 2**63 - 1
# The `price_source` of a cost that the provider, or a gateway, reported itself.
PROVIDER = "provider"


def usd(cost: int) -> str:
    """A cost in 10**-12 USD as a decimal string in USD, without trailing zeros."""
    whole, rest = divmod(cost, 10**COST_DIGITS)
    return f"{whole}.{rest:0{COST_DIGITS}}".rstrip("0") if rest else str(whole)


def amount_of(dollars: str) -> int | None:
    """A decimal string in USD as a cost in 10**-12 USD, half to even; None if it is larger than any cost.

    Raises decimal.InvalidOperation for a text that is no number.
    """
    number = Decimal(dollars)
    if not number.is_finite() or not 0 <= number <= Decimal(_MAX_COST).scaleb(-COST_DIGITS):
        return None
    return int(number.scaleb(COST_DIGITS).to_integral_value())


class Unpriced(StrEnum):
    """Reasons why a record has no cost."""

    NO_USAGE = "no_usage"
    """It reports neither tokens nor a cost."""
    NO_SELLER = "no_seller"
    """No seller is known for its upstream, or the operator's file says that it has none: an own server, a gateway."""
    NO_MODEL = "no_model"
    """It names no model, or a model that the seller's list does not have."""
    NO_START = "no_start"
    """It has no start, so the day of its price is not known."""
    NO_TIER_PRICE = "no_tier_price"
    """The list has no price for its service tier, or its speed."""
    NO_REGION_PRICE = "no_region_price"
    """The list has no price for the region that its host or its usage names."""
    NO_DEPLOYMENT = "no_deployment"
    """Neither host nor request shows the kind of deployment or the region, and the seller's prices differ by it (Azure)."""
    NO_KIND_PRICE = "no_kind_price"
    """The list has no price for a kind of its tokens, such as audio."""
    NO_KINDS = "no_kinds"
    """It does not say of which kinds its tokens are, and these have several prices: text, images, cached audio."""
    NO_LIST = "no_list"
    """The list of prices could not be read."""


@dataclass(frozen=True)
class Cost:
    """The cost of a record: as the provider reported it, else of its reported tokens at the price that held when it started.

    `input`, `output`: in 10**-12 USD; None if that side was not reported. A cost that the provider reported is not divided:
    all of it is in `input`. `source`: which price it is, or PROVIDER. `date`: the day from which this price holds
    (YYYY-MM-DD); None if the source does not give it. `listed`: beside a reported cost, the cost of the tokens by the prices
    (10**-12 USD); None if those are not known. `lacks`: what the record reports beside tokens that have a price, and that
    this cost does not include.
    """

    input: int | None
    output: int | None
    source: str
    date: str | None
    listed: int | None = None
    lacks: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Both sides together, in 10**-12 USD."""
        return (self.input or 0) + (self.output or 0)

    @property
    def is_reported(self) -> bool:
        """Whether the provider reported it."""
        return self.source == PROVIDER

    @property
    def list_usd(self) -> str | None:
        """The cost of the tokens by the prices, as a decimal string in USD; None if those are not known."""
        listed = self.listed if self.is_reported else self.total
        return None if listed is None else usd(listed)

    def as_json(self) -> bytes:
        """The value of a record's `cost`. `lacks` is there only if something lacks."""
        known = {
            "usd": usd(self.total),
            "price_source": self.source,
            "price_date": self.date,
            "list_usd": self.list_usd,
        }
        return msgspec.json.encode(known | {"lacks": self.lacks} if self.lacks else known)

    @classmethod
    def of_json(cls, value: object) -> "Cost | None":
        """The decoded value of a record's `cost`. It does not distinguish the sides: all counts as input.

        Raises msgspec.ValidationError, also for a cost that does not fit 64 bits.
        """
        known = msgspec.convert(value, _Stored | None)
        if known is None:
            return None
        total = amount_of(known.usd)
        if total is None:
            raise msgspec.ValidationError("the cost is larger than any")
        listed = None if known.list_usd is None or known.price_source != PROVIDER else amount_of(known.list_usd)
        return cls(total, None, known.price_source, known.price_date, listed, known.lacks)


_Usd = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,7}(\.[0-9]{1,12})?$")]


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    usd: _Usd
    price_source: str
    price_date: str | None
    list_usd: _Usd | None = None
    lacks: tuple[str, ...] = ()
