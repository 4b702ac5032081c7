"""The operator's file of prices: what it may say, and the sentence for what it may not."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.errors import UsageFault
from streamgauge.prices.catalogue import Offer, rates_of
from streamgauge.prices.price_file import load_prices
from streamgauge.prices.rates import Rate, Rates, of_request

WHOLE = """
[upstreams]
azure-prod = "azure"
vllm = "none"

[[price]]
model = "gpt-4o*"
upstream = "azure-prod"
from = 2026-11-01
until = 2027-01-01
input = 2.5
output = 10
input_cached = "1.25"
request = 0.01
above = [{ input_tokens = 200000, input = 5, output = 15 }, { input_tokens = 100000, input = 4 }]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_that_a_file_may_say(tmp_path: Path) -> None:
    known = load_prices(written(tmp_path, WHOLE))
    assert known.upstreams == {"azure-prod": "azure", "vllm": "none"}
    (price,) = known.entries
    assert (price.model, price.upstream, price.times.first, price.times.end) == (
        "gpt-4o*",
        "azure-prod",
        "2026-11-01",
        "2027-01-01",
    )
    assert price.rates.input == Rate.of(Decimal("2.5"), ((100_000, Decimal(4)), (200_000, Decimal(5))))
    assert price.rates.output == Rate.of(Decimal(10), ((200_000, Decimal(15)),))
    assert (price.rates.input_cached, price.rates.request) == (Rate.of(Decimal("1.25")), of_request(Decimal("0.01")))
    assert price.rates.reasoning is None


def test_a_number_is_read_as_it_is_written(tmp_path: Path) -> None:
    text = '[[price]]\nmodel = "m"\nfrom = 2026-01-01\ninput = 0.1\noutput = 0.075\n'
    (price,) = load_prices(written(tmp_path, text)).entries
    assert price.rates.input == Rate.of(Decimal("0.1"))


LINES = {"model": '"m"', "from": "2026-01-01", "input": "1", "output": "1"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": None}, "price 1: model must be text"),
        ({"model": '""'}, "price 1: model must be text"),
        ({"model": "5"}, "price 1: model must be text"),
        ({"upstream": "5"}, "price 1: upstream must be text"),
        ({"from": None}, "price 1: from is missing"),
        ({"from": '"2026-01-01"'}, "price 1: from must be a date"),
        ({"from": "2026-01-01T00:00:00Z"}, "price 1: from must be a date"),
        ({"until": "2026-01-01"}, "price 1: until must be later than from"),
        ({"input": None}, "input and output are required"),
        ({"input": "-1"}, "price 1: input must be a number of USD"),
        ({"input": "nan"}, "price 1: input must be a number of USD"),
        ({"input": "true"}, "price 1: input must be a number of USD"),
        ({"input": '"1,5"'}, "price 1: input must be a number of USD"),
        ({"input": "1e9"}, "price 1: input must be a number of USD"),
        ({"currency": '"EUR"'}, "price 1: currency is not known"),
        ({"above": "5"}, "above must be a list"),
        ({"above": "[{ input = 2 }]"}, "input_tokens must be a whole number"),
        ({"above": "[{ input_tokens = 5, colour = 2 }]"}, "above has input_tokens and prices"),
        ({"above": "[{ input_tokens = 5, reasoning = 2 }]"}, "reasoning has a price above"),
    ],
)
def test_a_wrong_price_is_refused_with_its_number_and_key(
    tmp_path: Path, changes: dict[str, str | None], why: str
) -> None:
    lines = {**LINES, **changes}
    text = "[[price]]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items() if value is not None)
    with pytest.raises(UsageFault, match=why):
        load_prices(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[price", "not valid TOML"),
        ("price = 5", "write"),
        ("[prices]\n", "prices is not known"),
        ('[upstreams]\na = "nobody at all"', "knows no provider"),
        ("[upstreams]\na = 5", "upstream = "),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageFault, match=why):
        load_prices(written(tmp_path, text))


DISCOUNT = {"provider": '"openai"', "from": "2026-01-01", "percent": "5"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"provider": None}, "discount 1: provider or upstream is missing"),
        ({"provider": '"nobody at all"'}, "discount 1: genai-prices knows no provider 'nobody at all'"),
        ({"provider": "5"}, "discount 1: provider must be text"),
        ({"upstream": '""'}, "discount 1: upstream must be text"),
        ({"model": '""'}, "discount 1: model must be text"),
        ({"from": None}, "discount 1: from is missing"),
        ({"hours": '"9-12"'}, "discount 1: hours must be"),
        ({"percent": None}, "discount 1: percent must be a number above 0, at most 100"),
        ({"percent": "0"}, "discount 1: percent must be"),
        ({"percent": "101"}, "discount 1: percent must be"),
        ({"percent": "nan"}, "discount 1: percent must be"),
        ({"percent": '"1e-99"'}, "discount 1: percent must be"),
        ({"percent": "true"}, "discount 1: percent must be"),
        ({"region": '"eu"'}, "discount 1: region is not known: use from"),
    ],
)
def test_a_wrong_discount_is_refused(tmp_path: Path, changes: dict[str, str | None], why: str) -> None:
    lines = "".join(f"{name} = {value}\n" for name, value in (DISCOUNT | changes).items() if value is not None)
    with pytest.raises(UsageFault, match=why):
        load_prices(written(tmp_path, f"[[discount]]\n{lines}"))


NAMES = st.sampled_from(("model", "provider", "upstream", "from", "until", "input", "output", "percent", "hours", "weekdays",
                         "timezone", "above", "request", "price", "discount", "upstreams"))  # fmt: skip
TEXTS = ("openai", "gpt*", "mon", "16:30-00:30", "Asia/Shanghai", "12.5", "none", "")
VALUES = st.one_of(
    st.sampled_from([f'"{text}"' for text in TEXTS]),
    st.sampled_from(["1", "-1", "true", "nan", "1e999999", "[]", "{}", '["mon"]', "[{}]", "2026-11-01", "07:00:00"]),
    st.decimals(allow_nan=False).map(lambda number: f'"{number}"'),
)
WHOLE_PRICE = '[[price]]\nmodel = "gpt*"\nfrom = 2026-01-01\ninput = 1\noutput = 1'
WHOLE_DISCOUNT = '[[discount]]\nprovider = "openai"\nfrom = 2026-01-01\npercent = 5'
ANY_LINE = st.one_of(
    st.tuples(NAMES, VALUES).map(" = ".join),
    st.sampled_from(["[[price]]", "[[discount]]", "[upstreams]", WHOLE_PRICE, WHOLE_DISCOUNT]),
)


@given(lines=st.lists(ANY_LINE, max_size=8))
def test_any_file_is_read_or_refused_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    file = written(tmp_path_factory.getbasetemp(), "\n".join(lines))
    try:
        known = load_prices(file)
    except UsageFault as fault:
        assert str(fault).startswith("the price file ")
        return
    offer = Offer("azure-prod", "api.openai.com", None, "gpt-4o", None, None)
    moment = datetime(2026, 11, 2, 16, 30, tzinfo=UTC)
    listed = rates_of(offer, moment)
    assert isinstance(listed, Rates)
    rates = known.rates_of(offer, moment) or known.discounted(listed, offer, moment)
    assert rates.input is not None
    assert rates.input.base >= 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"prices\.toml cannot be read: No such file"):
        load_prices(tmp_path / "prices.toml")


@pytest.mark.parametrize("text", ["a = 1" + "0" * 5_000, "a = " + "[" * 100_000])
def test_a_number_or_a_nesting_without_end_is_not_toml(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(UsageFault, match="is not valid TOML"):
        load_prices(tmp_path / "prices.toml")
