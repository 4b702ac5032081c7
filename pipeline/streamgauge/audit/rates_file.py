"""The operator's rates of exchange (`--rates FILE`, TOML): what one unit of a currency is in US dollars, by day.

valid_days = 7                  # optional, 7 if not given: so long a rate serves the days after its own

[[rate]]
currency = "EUR"
day = 2026-11-02                # or from = 2026-11-01 and until = 2026-12-01, which is excluded
usd = "1.0842"

Central banks and invoices name no rate for days without trade: the last one before holds on these.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from streamgauge.audit.amounts import EXACT, MAX_PLACES
from streamgauge.audit.period import day_after
from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault

USD = "USD"
_DEFAULT_DAYS, _MAX_DAYS = 7, 366
_KEYS = ("currency", "day", "from", "until", "usd")
_CURRENCY = re.compile(r"[A-Z]{3}\Z")  # ISO 4217
# A larger rate is a typing error: no currency's unit is worth more than some dollars.
_MAX_RATE = 1_000_000


class DatedRate(NamedTuple):
    """Dollars for one unit of a currency, on the days from `first` to `last` (YYYY-MM-DD, both included)."""

    first: str
    last: str
    usd: Decimal


@dataclass(frozen=True)
class Rates:
    """Rates by currency, in the order of their days, which do not overlap. `valid_days`: how many days after its last one a
    rate still serves.
    """

    by_currency: Mapping[str, Sequence[DatedRate]] = field(default_factory=dict)
    valid_days: int = _DEFAULT_DAYS

    def usd(self, amount: Decimal, currency: str, day: str) -> Decimal | None:
        """An amount of `currency` (ISO 4217, capitals) in dollars, by the rate of `day` (YYYY-MM-DD), exact.

        Else by the rate of the last day before, if that is at most `valid_days` ago; None if there is none. Dollars need no
        rate. Raises decimal.Inexact for an amount of more digits than an invoice may have.
        """
        if currency == USD:
            return amount
        rates = self.by_currency.get(currency, ())
        place = bisect_right(rates, day, key=lambda rate: rate.first)
        if not place:
            return None
        rate = rates[place - 1]
        return EXACT.multiply(amount, rate.usd) if day <= day_after(rate.last, self.valid_days) else None


NO_RATES = Rates()


def load_rates(path: Path) -> Rates:
    """Read a file of rates. Raises UsageFault, which names the rate, and what to write."""
    try:
        tables = parse_toml(path.read_bytes(), Decimal)
    except OSError as error:
        raise UsageFault(f"--rates {path} cannot be read: {error.strerror}") from None
    except NotTomlError as error:
        raise UsageFault(f"--rates {path} is not TOML: {error}") from None
    try:
        return _rates(tables)
    except ValueError as error:
        raise UsageFault(f"--rates {path}: {error}") from None


def _rates(tables: Mapping[str, object]) -> Rates:
    if unknown := tables.keys() - {"valid_days", "rate"}:
        raise ValueError(f"{min(unknown)} is not known: it holds valid_days and [[rate]]")
    days = tables.get("valid_days", _DEFAULT_DAYS)
    if not isinstance(days, int) or isinstance(days, bool) or not 0 <= days <= _MAX_DAYS:
        raise ValueError(f"valid_days must be a whole number of days from 0 to {_MAX_DAYS}")
    entries = tables.get("rate", [])
    if not isinstance(entries, list):
        raise ValueError("rate must be a list: write [[rate]]")
    by_currency: dict[str, list[DatedRate]] = {}
    for number, entry in enumerate(entries, 1):
        currency, rate = _rate(f"rate {number}", entry)
        by_currency.setdefault(currency, []).append(rate)
    for currency, rates in by_currency.items():
        rates.sort()
        for earlier, later in pairwise(rates):
            if later.first <= earlier.last:
                raise ValueError(f"{currency} has two rates for {later.first}: leave one out")
    return Rates(by_currency, days)


def _rate(where: str, entry: object) -> tuple[str, DatedRate]:
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is not a table: write [[rate]]")
    if unknown := entry.keys() - set(_KEYS):
        raise ValueError(f"{where}: {min(unknown)} is not known: use {', '.join(_KEYS)}")
    currency = entry.get("currency")
    if not isinstance(currency, str) or not _CURRENCY.match(currency) or currency == USD:
        raise ValueError(f'{where}: currency must be three capital letters other than {USD}, as in currency = "EUR"')
    if entry.keys() & {"day"} and entry.keys() & {"from", "until"}:
        raise ValueError(f"{where}: give day, or from and until, not both")
    first = _day(where, entry, "day" if "day" in entry else "from")
    if "day" in entry:
        return currency, DatedRate(str(first), str(first), _usd(where, entry))
    end = _day(where, entry, "until")
    if end <= first:
        raise ValueError(f"{where}: until must be later than from: it is the day after the last one")
    return currency, DatedRate(str(first), str(end - timedelta(days=1)), _usd(where, entry))


def _day(where: str, entry: Mapping[str, object], name: str) -> date:
    value = entry.get(name)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError(f"{where}: {name} must be a date, as in {name} = 2026-11-01")
    if not date(1971, 1, 1) <= value <= date(8999, 12, 31):
        raise ValueError(f"{where}: {name} must be a date of the years 1971 to 8999")
    return value


def _usd(where: str, entry: Mapping[str, object]) -> Decimal:
    value = entry.get("usd")
    try:
        rate = Decimal(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else None
    except InvalidOperation:
        rate = None
    # The places come first: a number such as 1e-999999 is a decimal, too.
    if rate is None or not rate.is_finite() or not -MAX_PLACES <= int(rate.as_tuple().exponent) <= MAX_PLACES:
        rate = Decimal(0)
    if not 0 < rate <= _MAX_RATE:
        raise ValueError(f'{where}: usd must be dollars for one unit of the currency, as in usd = "1.0842"')
    return rate
