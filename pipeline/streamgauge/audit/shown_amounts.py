"""Amounts as people read them: money rounded to cents, digits grouped. The exact amounts stay beside them."""

from decimal import ROUND_HALF_UP, Decimal

from streamgauge.audit.amounts import EXACT

_CENT = Decimal("0.01")
# As EXACT, but rounding is wanted.
_ROUNDED = EXACT.copy()
_ROUNDED.clear_traps()
# The one sentence about rounding, for every form of output that rounds.
ROUNDING = (
    "Money is shown in dollars and rounded to cents, half a cent away from zero; sums are made of the exact amounts."
)


def dollars(usd: str) -> str:
    """An exact amount of dollars, rounded to cents: -1,234.57. One that rounds to zero is <0.01 or >-0.01, not zero."""
    exact = Decimal(usd)
    rounded = exact.quantize(_CENT, ROUND_HALF_UP, _ROUNDED)
    if exact and not rounded:
        return "<0.01" if exact > 0 else ">-0.01"
    return f"{rounded:,.2f}" if rounded else "0.00"


def grouped(count: int) -> str:
    """A count with grouped digits: -1,234,567."""
    return f"{count:,}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: 1 line, 1,234 lines."""
    return f"{grouped(count)} {noun}{'' if count == 1 else 's'}"
