"""Amounts of tokens and of money, exact: tokens are integers, money is decimal. Nothing here goes through a float.

Tokens are counted in four kinds that exclude each other, so that they may be added up: input that was neither read from nor
written to a cache, input read from a cache, input written to a cache, and output (which includes reasoning).
"""

from collections.abc import Iterable
from decimal import Clamped, Context, Decimal, Inexact, InvalidOperation, Overflow, Underflow
from fractions import Fraction
from typing import NamedTuple

KINDS = ("input_uncached", "input_cached", "input_cache_write", "output")

# Digits of an amount that may be read, before and after the point: far more than any bill has.
MAX_WHOLE_DIGITS = 18
MAX_PLACES = 24
# Sums and products of amounts that were read are exact within these digits: a rounding raises instead of passing unseen.
EXACT = Context(prec=200, traps=[Inexact, InvalidOperation, Overflow, Underflow, Clamped])
ZERO_USD = Decimal(0)


class Tokens(NamedTuple):
    """Counts of tokens by kind. A difference may be negative."""

    input_uncached: int = 0
    input_cached: int = 0
    input_cache_write: int = 0
    output: int = 0

    @property
    def input(self) -> int:
        """All input."""
        return self.input_uncached + self.input_cached + self.input_cache_write

    @property
    def total(self) -> int:
        """All tokens."""
        return self.input + self.output

    @property
    def size(self) -> int:
        """The sum of the absolute counts: 0 only if every count is 0."""
        return sum(map(abs, self))


ZERO = Tokens()


def plus(left: Tokens, right: Tokens) -> Tokens:
    """The sum, kind by kind."""
    return Tokens(left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3])


def minus(left: Tokens, right: Tokens) -> Tokens:
    """The difference, kind by kind."""
    return Tokens(left[0] - right[0], left[1] - right[1], left[2] - right[2], left[3] - right[3])


def negated(left: Tokens) -> Tokens:
    """The counts with their signs reversed."""
    return Tokens(-left[0], -left[1], -left[2], -left[3])


def total_of(amounts: Iterable[Tokens]) -> Tokens:
    """The sum of amounts, kind by kind."""
    sums = [0, 0, 0, 0]
    for tokens in amounts:
        for index in range(4):
            sums[index] += tokens[index]
    return Tokens(*sums)


def usd_plus(left: Decimal | None, right: Decimal | None) -> Decimal | None:
    """The sum of two amounts of money; None if one of them is unknown."""
    return None if left is None or right is None else EXACT.add(left, right)


def usd_minus(left: Decimal | None, right: Decimal | None) -> Decimal | None:
    """The difference of two amounts of money; None if one of them is unknown."""
    return None if left is None or right is None else EXACT.subtract(left, right)


def usd_negated(amount: Decimal | None) -> Decimal | None:
    """An amount with its sign reversed; None stays None."""
    return None if amount is None else EXACT.minus(amount)


def usd_total(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """The sum of many amounts of money; None if one of them is unknown."""
    total: Decimal | None = ZERO_USD
    for amount in amounts:
        total = usd_plus(total, amount)
    return total


def usd_text(amount: Decimal) -> str:
    """An amount as a decimal string without exponent and needless zeros: the same amount has one spelling."""
    text = f"{amount:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def as_decimal(amount: Fraction, places: int) -> Decimal:
    """A fraction as a decimal of at most `places` places, rounded half to even."""
    scaled = round(amount * 10**places)
    return EXACT.scaleb(Decimal(scaled), -places)
