"""The operator's rates of exchange: which one holds on a day, and the sentence for what a file may not say."""

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamgauge.audit.rates_file import NO_RATES, DatedRate, Rates, load_rates
from streamgauge.errors import UsageFault

TEXT = """
valid_days = 3
[[rate]]
currency = "EUR"
day = 2026-11-06
usd = "1.0842"
[[rate]]
currency = "EUR"
day = 2026-11-02
usd = 1.09
[[rate]]
currency = "CNY"
from = 2026-11-01
until = 2026-12-01
usd = "0.14"
"""


def load(folder: Path, text: str | bytes) -> Rates:
    path = folder / "rates.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_rates(path)


def test_the_rate_of_the_day_holds_else_the_last_one_before(tmp_path: Path) -> None:
    rates = load(tmp_path, TEXT)
    euros = {day: rates.usd(Decimal(100), "EUR", f"2026-11-{day:02}") for day in range(1, 12)}
    assert [day for day, usd in euros.items() if usd == Decimal(109)] == [2, 3, 4, 5]
    assert [day for day, usd in euros.items() if usd == Decimal("108.42")] == [6, 7, 8, 9]
    assert [day for day, usd in euros.items() if usd is None] == [1, 10, 11]


def test_a_rate_of_several_days_holds_to_its_last_day_and_a_while_longer(tmp_path: Path) -> None:
    rates = load(tmp_path, TEXT)
    days = ("2026-10-31", "2026-11-01", "2026-11-30", "2026-12-03", "2026-12-04")
    assert [rates.usd(Decimal(50), "CNY", day) for day in days] == [None, 7, 7, 7, None]


def test_dollars_need_no_rate_and_other_currencies_do() -> None:
    assert NO_RATES.usd(Decimal("1.5"), "USD", "2026-11-01") == Decimal("1.5")
    assert NO_RATES.usd(Decimal("1.5"), "EUR", "2026-11-01") is None


def test_a_rate_serves_seven_days_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    rates = load(tmp_path, TEXT.replace("valid_days = 3", ""))
    assert rates.usd(Decimal(1), "EUR", "2026-11-13") is not None
    assert rates.usd(Decimal(1), "EUR", "2026-11-14") is None


@given(amount=st.decimals(-(10**18), 10**18, places=24), rate=st.decimals(Decimal("0.000001"), 10**6, places=6))
def test_amounts_are_exact(amount: Decimal, rate: Decimal) -> None:
    rates = Rates({"EUR": [DatedRate("2026-11-01", "2026-11-01", rate)]})
    usd = rates.usd(amount, "EUR", "2026-11-01")
    assert usd is not None and Fraction(usd) == Fraction(amount) * Fraction(rate)


RATE = {"currency": '"EUR"', "day": "2026-11-01", "usd": '"1.1"'}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"currency": None}, "rate 1: currency must be three capital letters"),
        ({"currency": '"eur"'}, "rate 1: currency must be three capital letters"),
        ({"currency": '"USD"'}, "rate 1: currency must be three capital letters other than USD"),
        ({"currency": '"EUR\\n"'}, "rate 1: currency must be three capital letters"),
        ({"day": None}, "rate 1: from must be a date"),
        ({"day": '"2026-11-01"'}, "rate 1: day must be a date"),
        ({"day": "2026-11-01T00:00:00Z"}, "rate 1: day must be a date"),
        ({"day": "0001-01-01"}, "rate 1: day must be a date of the years"),
        ({"from": "2026-11-01"}, "rate 1: give day, or from and until"),
        ({"day": None, "from": "2026-11-01"}, "rate 1: until must be a date"),
        ({"day": None, "from": "2026-11-01", "until": "2026-11-01"}, "rate 1: until must be later than from"),
        ({"usd": None}, "rate 1: usd must be dollars"),
        ({"usd": "0"}, "rate 1: usd must be dollars"),
        ({"usd": '"-1"'}, "rate 1: usd must be dollars"),
        ({"usd": '"1,08"'}, "rate 1: usd must be dollars"),
        ({"usd": "nan"}, "rate 1: usd must be dollars"),
        ({"usd": "true"}, "rate 1: usd must be dollars"),
        ({"usd": '"1e-99999999"'}, "rate 1: usd must be dollars"),
        ({"usd": '"1e99999999"'}, "rate 1: usd must be dollars"),
        ({"rate": "1"}, "rate 1: rate is not known: use currency, day, from, until, usd"),
    ],
)
def test_a_wrong_rate_is_refused(tmp_path: Path, changes: dict[str, str | None], says: str) -> None:
    lines = [f"{name} = {value}" for name, value in (RATE | changes).items() if value is not None]
    with pytest.raises(UsageFault, match=says):
        load(tmp_path, "\n".join(["[[rate]]", *lines]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rate", "is not TOML"),
        (b"\xff", "is not TOML"),
        ("rate = 1", r"write \[\[rate\]\]"),
        ("rate = [1]", "rate 1 is not a table"),
        ("rates = []", "rates is not known: it holds valid_days"),
        ("valid_days = -1", "valid_days must be a whole number"),
        ("valid_days = true", "valid_days must be a whole number"),
        (TEXT.replace("day = 2026-11-06", "day = 2026-11-02"), "EUR has two rates for 2026-11-02"),
        (TEXT + '[[rate]]\ncurrency = "CNY"\nday = 2026-11-30\nusd = 1', "CNY has two rates for 2026-11-30"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(UsageFault, match=says):
        load(tmp_path, text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"rates\.toml cannot be read: No such file"):
        load_rates(tmp_path / "rates.toml")


VALUES = st.one_of(
    st.sampled_from(
        ["1", "0", "-1", "true", "nan", "inf", '""', '"EUR"', "[]", "{}", "1e400", "2026-11-01", "07:00:00"]
    ),
    st.dates(date(1, 1, 1)).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: f'"{number}"'),
)
LINE = st.tuples(st.sampled_from(["valid_days", "currency", "day", "from", "until", "usd", "rate", "[[rate]]"]), VALUES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE.map(lambda line: line[0] if line[0] == "[[rate]]" else " = ".join(line)), max_size=12))
@example(["[[rate]]", 'currency = "EUR"', "day = 9999-12-31", "usd = 1"])
def test_any_file_is_read_or_refused_with_a_sentence(tmp_path: Path, lines: list[str]) -> None:
    try:
        rates = load(tmp_path, "\n".join(lines))
    except UsageFault as fault:
        assert str(fault).startswith("--rates ")
        return
    for day in (date(2026, 11, 1) + timedelta(days=days) for days in range(3)):
        usd = rates.usd(Decimal(2), "EUR", str(day))
        assert usd is None or usd > 0
