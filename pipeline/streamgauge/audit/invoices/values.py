"""Reads the values of invoices strictly. Each function raises BadFieldError with the field and what is wrong with it."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from streamgauge.audit.amounts import EXACT, MAX_PLACES, MAX_WHOLE_DIGITS
from streamgauge.audit.invoices.contract import BadFieldError, Span

# More tokens than a provider serves in a year; and its sums stay far from what a reader of the result can hold (2**63).
MAX_COUNT = 10**15
# Longer values are cut in error messages (characters).
_SHOWN = 40
_MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNT = re.compile(r"[0-9]{1,16}", re.ASCII)
# Groups of three digits, as the Console of Anthropic prints them.
_GROUPED = re.compile(r"-?[0-9]{1,3}(,[0-9]{3})+", re.ASCII)
_GROUPED_MONEY = re.compile(r"-?[0-9]{1,3}(,[0-9]{3})+\.[0-9]+", re.ASCII)
_MONEY = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z| UTC|[+-]\d\d:?\d\d)?", re.ASCII)
_AMERICAN_DATE = re.compile(r"(\d\d?)/(\d\d?)/(\d{4})", re.ASCII)

# A dot or a comma and three digits: one thousand in one language, one and a fraction in another.
_AMBIGUOUS = re.compile(r"-?[1-9][0-9]{0,2}([.,])[0-9]{3}(\1[0-9]{3})*", re.ASCII)

Values = Mapping[str, object]


class SemicolonCells(dict[str, object]):
    """The cells of a CSV row whose separator is `;`: spreadsheets of languages with a decimal comma write it."""


def shown(value: object) -> str:
    """A value for an error message: short, and printable."""
    text = value if isinstance(value, str) else str(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def text(values: Values, name: str) -> str | None:
    """Text; None for null and for an empty cell."""
    value = values.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadFieldError(name, f"{shown(value)} is not text")
    return value.strip() or None


def required_text(values: Values, name: str, why: str = "it is missing") -> str:
    """Text that has to be there. `why`: the sentence for an empty value."""
    content = text(values, name)
    if content is None:
        raise BadFieldError(name, why)
    return content


def count(values: Values, name: str, *, signed: bool = False) -> int | None:
    """A whole number of 0 or more (`signed`: or negative); None for null and for an empty cell.

    Spreadsheets write whole numbers as `59200.0`: zeros after the point are accepted, in text alone.
    """
    value = values.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise BadFieldError(name, f"{shown(value)} is not a number of tokens or requests")
    _check_separators(values, name, value)
    number = value if isinstance(value, int) else _whole(name, str(value).strip(), signed)
    if number < 0 and not signed:
        raise BadFieldError(name, f"{shown(value)} is negative")
    if abs(number) > MAX_COUNT:
        raise BadFieldError(name, f"{shown(value)} is too large for a count")
    return number


def _check_separators(values: Values, name: str, value: object) -> None:
    """Refuse a number of a file with semicolons whose dot or comma may separate thousands or a fraction."""
    if isinstance(values, SemicolonCells) and isinstance(value, str) and _AMBIGUOUS.fullmatch(value.strip()):
        fault = "may be thousands or a fraction in a file with semicolons: export it with commas, as the provider does"
        raise BadFieldError(name, f"{shown(value)} {fault}")


def _whole(name: str, content: str, signed: bool) -> int:
    if _GROUPED.fullmatch(content):
        content = content.replace(",", "")
    sign, digits = ("-", content[1:]) if content.startswith("-") else ("", content)
    whole, point, places = digits.partition(".")
    if not _COUNT.fullmatch(whole) or (point and not re.fullmatch("[0-9]+", places)):
        raise BadFieldError(name, f"{shown(content)} is not a whole number")
    if places.strip("0"):
        raise BadFieldError(name, f"{shown(content)} is a fraction: a count is a whole number")
    if sign and not signed:
        raise BadFieldError(name, f"{shown(content)} is negative")
    return -int(whole) if sign else int(whole)


def required_count(values: Values, name: str, *, signed: bool = False) -> int:
    """A whole number that has to be there."""
    number = count(values, name, signed=signed)
    if number is None:
        raise BadFieldError(name, "it is missing: a count is a whole number")
    return number


def money(values: Values, name: str) -> Decimal | None:
    """An exact amount, from a JSON number or a decimal string; None for null and for an empty cell."""
    value = values.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise BadFieldError(name, f"{shown(value)} is not an amount of money")
    _check_separators(values, name, value)
    content = str(value).strip()
    if _GROUPED_MONEY.fullmatch(content):
        content = content.replace(",", "")
    if not _MONEY.fullmatch(content):
        raise BadFieldError(name, f"{shown(value)} is not an amount of money: write digits with a decimal point")
    if len(content) > MAX_WHOLE_DIGITS + MAX_PLACES + 8:
        raise BadFieldError(name, f"{shown(value)} has too many digits")
    amount = Decimal(content)
    if amount and amount.adjusted() >= MAX_WHOLE_DIGITS:
        raise BadFieldError(name, f"{shown(value)} is too large for an amount of money")
    if amount and places_of(amount) > MAX_PLACES:
        raise BadFieldError(name, f"{shown(value)} has more than {MAX_PLACES} decimal places")
    return amount if amount else Decimal(0)


def required_money(values: Values, name: str) -> Decimal:
    """An exact amount that has to be there."""
    amount = money(values, name)
    if amount is None:
        raise BadFieldError(name, "it is missing: an amount of money is a decimal number")
    return amount


def places_of(amount: Decimal) -> int:
    """How many digits an amount has after the point."""
    exponent = amount.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def cents(amount: Decimal) -> Decimal:
    """An amount of cents in dollars."""
    return EXACT.scaleb(amount, -2)


def currency(values: Values, name: str) -> str:
    """A currency that has to be there, by its code of three letters (ISO 4217), in capitals."""
    code = required_text(values, name, "the currency is missing").upper()
    if not re.fullmatch("[A-Z]{3}", code):
        raise BadFieldError(name, f"{shown(code)} is not the code of a currency, such as USD or EUR")
    return code


def moment_us(values: Values, name: str, *, zone: bool = True) -> int:
    """A time: Unix seconds, or RFC 3339. Without a zone it is UTC, unless `zone` requires one."""
    value = values.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _unix(value)
        except ValueError as error:
            raise BadFieldError(name, str(error)) from None
    content = required_text(values, name)
    try:
        return _moment(content, zone)
    except ValueError as error:
        raise BadFieldError(name, str(error)) from None


# The rows of an hour or a day have the same times.
@lru_cache(maxsize=4_096)
def _moment(given: str, zone: bool) -> int:
    """A time as text. Raises ValueError, which says what is wrong."""
    content = given.upper()
    if re.fullmatch(r"[0-9]{9,11}(\.0+)?", content):
        return _unix(int(content.partition(".")[0]))
    if not _TIME.fullmatch(content):
        raise ValueError(f"{shown(content)} is not a time such as 2026-11-01T00:00:00Z")
    try:
        moment = datetime.fromisoformat(content.replace(" UTC", "Z"))
    except ValueError:
        raise ValueError(f"{shown(content)} is no possible time") from None
    if moment.tzinfo is None:
        if zone:
            raise ValueError(f"{shown(content)} has no time zone")
        moment = moment.replace(tzinfo=UTC)
    if not 1970 <= moment.year <= 8999:  # far from the ends of Python's dates, since zones add to it
        raise ValueError(f"{shown(content)} is no possible time")
    past = moment - _EPOCH
    return (past.days * 86_400 + past.seconds) * _MICROSECONDS + past.microseconds


def _unix(seconds: int) -> int:
    if not 0 < seconds < 10**11:
        raise ValueError(f"{seconds} is not a Unix time in seconds")
    return seconds * _MICROSECONDS


def span(values: Values, start: str, end: str, *, zone: bool = True) -> Span:
    """A bucket's span, its end excluded."""
    span = Span(moment_us(values, start, zone=zone), moment_us(values, end, zone=zone))
    if span.start_us >= span.end_us:
        raise BadFieldError(end, f"the end is not after {start}")
    return span


def date(values: Values, name: str) -> str:
    """A date, YYYY-MM-DD; a time of midnight after it is accepted."""
    content = required_text(values, name)
    day = content[:10]
    if not _DATE.fullmatch(day) or (content[10:] and not re.fullmatch(r"[T ]00:00(:00(\.0+)?)?Z?", content[10:])):
        raise BadFieldError(name, f"{shown(content)} is not a date such as 2026-11-01")
    try:
        datetime.fromisoformat(day)
    except ValueError:
        raise BadFieldError(name, f"{shown(content)} is no possible date") from None
    return day


def american_date(values: Values, name: str) -> str:
    """A date, as month/day/year or YYYY-MM-DD. For exports whose documents say that the month comes first."""
    content = required_text(values, name)
    match = _AMERICAN_DATE.fullmatch(content)
    if match is None:
        return date(values, name)
    try:
        return f"{datetime(int(match[3]), int(match[1]), int(match[2]), tzinfo=UTC):%Y-%m-%d}"
    except ValueError:
        raise BadFieldError(name, f"{shown(content)} is no possible date, as month/day/year") from None


def texts(*values: str | None) -> tuple[str, ...]:
    """Those that are there, without repetition, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
