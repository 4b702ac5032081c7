"""What a record costs, as a ledger stores it.

Costs are whole numbers of 10**-12 USD, so that databases add them exactly. For one token, the prices of genai-prices are
whole numbers of it; nine million USD fit 64 bits.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import msgspec

COST_DIGITS = 12
# The largest cost of a record: a 64-bit integer (10**-12 USD), nine million USD.
_MAX_COST = 2**63 - 1


def usd(cost: int) -> str:
    """A cost in 10**-12 USD as a decimal string in USD, without trailing zeros."""
    whole, rest = divmod(cost, 10**COST_DIGITS)
    return f"{whole}.{rest:0{COST_DIGITS}}".rstrip("0") if rest else str(whole)


@dataclass(frozen=True)
class Cost:
    """What the reported tokens of a record cost, by the price that held when it started.

    `input`, `output`: in 10**-12 USD; None if that side was not reported. `source`: which price it is. `date`: the day from
    which this price holds (YYYY-MM-DD); None if the source does not say it.
    """

    input: int | None
    output: int | None
    source: str
    date: str | None

    @property
    def total(self) -> int:
        """Both sides together, in 10**-12 USD."""
        return (self.input or 0) + (self.output or 0)

    def as_json(self) -> bytes:
        """The value of a record's `cost`."""
        return msgspec.json.encode({"usd": usd(self.total), "price_source": self.source, "price_date": self.date})

    @classmethod
    def of_json(cls, value: object) -> "Cost | None":
        """The decoded value of a record's `cost`. It does not tell the sides apart: all counts as the input's.

        Raises msgspec.ValidationError, also for a cost that does not fit 64 bits.
        """
        known = msgspec.convert(value, _Stored | None)
        if known is None:
            return None
        cost = int(Decimal(known.usd).scaleb(COST_DIGITS))
        if cost > _MAX_COST:
            raise msgspec.ValidationError("the cost is larger than any")
        return cls(cost, None, known.price_source, known.price_date)


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    usd: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,7}(\.[0-9]{1,12})?$")]
    price_source: str
    price_date: str | None
