"""The tokens of a record by the kinds that have prices, and what images, videos and audio cost by them."""

from typing import Any

import pytest

from streamgauge.core.token_kinds import reported_tokens
from streamgauge.ledger import Cost
from streamgauge.ledger.cost import Unpriced, usd
from streamgauge.prices import Prices
from streamgauge.prices.price_file import load_prices
from streamgauge.prices.rates import input_groups, output_groups
from tests.ledger.rows import make_row
from tests.metrics.records import make_usage

GEMINI: dict[str, Any] = {"host": "generativelanguage.googleapis.com", "dialect": "gemini"}
OPENAI: dict[str, Any] = {"host": "api.openai.com", "dialect": "openai-chat"}


def details(**tokens: int) -> Any:
    return [{"modality": modality.upper(), "tokenCount": count} for modality, count in tokens.items()]


def found(model: str, usage: Any, of: dict[str, Any] = GEMINI) -> Cost | Unpriced:
    return Prices().cost_of(make_row(1, **of, response_model=model, started_at="2026-10-20T12:00:00Z", usage=usage))


def cost(model: str, given: int, made: int, of: dict[str, Any] = GEMINI, **raw: Any) -> str | Unpriced:
    """The cost in USD of a usage with these counts, and with these lists of modalities."""
    known = {name: raw.pop(name) for name in [*raw] if name.endswith("_tokens")}
    priced = found(model, make_usage(given, made, raw=raw, **known), of)
    return usd(priced.total) if isinstance(priced, Cost) else priced


# --- output ------------------------------------------------------------------------------------------------------------


def test_an_image_costs_the_price_of_images() -> None:
    """gemini-3-pro-image: 2 USD in, 12 out, 120 for images. 1,120 tokens are an image of 0.1344 USD."""
    text = details(text=1_000_000)
    prompt: dict[str, Any] = {"promptTokensDetails": text}
    image = cost("gemini-3-pro-image-preview", 10**6, 1120, **prompt, candidatesTokensDetails=details(image=1120))
    assert image == "2.1344"
    text_only = cost("gemini-3-pro-image-preview", 10**6, 1120, **prompt, candidatesTokensDetails=details(text=1120))
    assert text_only == "2.01344"


@pytest.mark.parametrize("modality", ["IMAGE", 2])
def test_what_the_details_leave_out_beside_an_image_is_text(modality: object) -> None:
    """gemini-2.5-flash-image: 2.50 USD out, 30 for images; the list of genai-prices says it of these models."""
    image: Any = [{"modality": modality, "tokenCount": 1290}]
    assert cost("gemini-2.5-flash-image", 0, 1290 + 100, candidatesTokensDetails=image) == "0.03895"
    reasoned = cost("gemini-2.5-flash-image", 0, 1390, candidatesTokensDetails=image, reasoning_tokens=100)
    assert reasoned == "0.03895", "thoughts cost what text costs"


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"candidatesTokensDetails": []},
        {"candidatesTokensDetails": details(text=10)},
        {"candidatesTokensDetails": 5},
    ],
)
def test_without_modalities_the_output_of_a_model_with_a_price_of_images_has_no_cost(raw: dict[str, Any]) -> None:
    assert cost("gemini-2.5-flash-image", 10, 1300, **raw) is Unpriced.NO_KINDS
    assert isinstance(cost("gemini-2.5-flash-image", 10, 0, **raw), str), "no output is no image"


def test_more_images_than_output_have_no_cost() -> None:
    assert cost("gemini-2.5-flash-image", 10, 100, candidatesTokensDetails=details(image=101)) is Unpriced.NO_KINDS


@pytest.mark.parametrize("modality", ["image", "video", "audio", "document", "smell"])
def test_output_of_a_modality_without_a_price_has_no_cost(modality: str) -> None:
    raw = {"candidatesTokensDetails": details(**{modality: 9})}
    assert cost("gemini-2.5-pro", 10, 100, **raw) is Unpriced.NO_KIND_PRICE
    assert isinstance(cost("gemini-2.5-pro", 10, 100, candidatesTokensDetails=details(**{modality: 0})), str)


def test_a_video_costs_the_price_of_videos() -> None:
    """gemini-omni-1.1-flash: 1.50 USD in, 9 out, 17.50 for videos."""
    made = details(text=10, video=1_000_000)
    assert cost("gemini-omni-1.1-flash", 0, 1_000_010, candidatesTokensDetails=made) == "17.50009"


def test_a_discount_holds_for_images() -> None:
    """Batches of gemini-3-pro-image: 60 USD for images since 14 October 2026."""
    usage = make_usage(0, 10**6, raw={"candidatesTokensDetails": details(image=10**6)})
    row = make_row(
        1, **GEMINI, response_model="gemini-3-pro-image-preview", service_tier="batch", usage=usage,
        started_at="2026-10-20T12:00:00Z",
    )  # fmt: skip
    assert usd(Prices().cost_of(row).total) == "60"  # type: ignore[union-attr]


# --- input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"promptTokensDetails": details(text=1_000_000)},
        {"promptTokensDetails": details(text=10, image=500_000, video=499_990)},
        {"promptTokensDetails": details(document=1_000_000)},
        {"promptTokensDetails": details(text=10)},
        {"promptTokensDetails": details(image=2_000_000)},
    ],
)
def test_a_model_with_one_price_of_input_charges_images_and_videos_by_it(raw: dict[str, Any]) -> None:
    """ai.google.dev/gemini-api/docs/pricing, Gemini 2.5 Flash: 0.30 USD for text, image and video."""
    assert cost("gemini-2.5-flash", 1_000_000, 0, **raw) == "0.3"


def test_images_and_videos_have_their_own_price_of_input_where_the_list_has_it() -> None:
    """gemini-3.1-flash-live-preview: 0.75 USD text, 3 audio, 1 image and video."""
    prompt = details(text=100_000, audio=100_000, image=500_000, video=300_000)
    model = "gemini-3.1-flash-live-preview"
    assert cost(model, 1_000_000, 0, promptTokensDetails=prompt, audio_input_tokens=100_000) == "1.175"
    assert cost(model, 1_000_000, 0) is Unpriced.NO_KINDS
    assert cost(model, 1_000_000, 0, promptTokensDetails=details(document=1_000_000)) is Unpriced.NO_KINDS
    assert cost(model, 1_000_000, 0, promptTokensDetails=details(smell=1_000_000)) is Unpriced.NO_KINDS


def test_an_input_of_a_modality_that_is_not_known_has_no_cost() -> None:
    assert cost("gemini-2.5-pro", 10, 0, promptTokensDetails=details(smell=10)) is Unpriced.NO_KIND_PRICE


def test_what_a_tool_adds_to_the_input_has_its_modality() -> None:
    """Gemini 2.5 Flash: 0.30 USD text, 1 audio."""
    raw: dict[str, Any] = {
        "promptTokensDetails": details(text=10**6),
        "toolUsePromptTokensDetails": details(audio=10**6),
    }
    assert cost("gemini-2.5-flash", 2 * 10**6, 0, **raw) == "1.3"


def test_cached_audio_has_its_own_price() -> None:
    """Gemini 2.5 Flash: 0.30 USD text, 1 audio, cached 0.03 text and 0.10 audio."""
    counts: dict[str, Any] = {"audio_input_tokens": 400_000, "input_cached_tokens": 500_000}
    prompt: dict[str, Any] = {"promptTokensDetails": details(text=600_000, audio=400_000)}
    cached = details(text=200_000, audio=300_000)
    model = "gemini-2.5-flash"
    # 400,000 text, 100,000 audio, and the cached ones.
    known = cost(model, 10**6, 0, **prompt, cacheTokensDetails=cached, **counts)
    assert known == "0.256"
    assert cost(model, 10**6, 0, **prompt, **counts) is Unpriced.NO_KINDS, "it does not say which were cached"
    assert cost(model, 10**6, 0, **prompt, cacheTokensDetails=details(text=9), **counts) is Unpriced.NO_KINDS
    images: dict[str, Any] = {
        "promptTokensDetails": details(text=600_000, image=400_000),
        "input_cached_tokens": 500_000,
    }
    assert cost(model, 10**6, 0, **images) == "0.165", "text and images have one price"


def test_cached_audio_without_a_price_has_no_cost() -> None:
    """gpt-audio has a price of audio, and none of the cache."""
    raw: dict[str, Any] = {"prompt_tokens_details": {"audio_tokens": 10, "cached_tokens": 5}}
    counts: dict[str, Any] = {"audio_input_tokens": 10, "input_cached_tokens": 5}
    assert cost("gpt-audio", 100, 5, OPENAI, **raw, **counts) is Unpriced.NO_KIND_PRICE


def test_images_of_openais_chat_cost_what_text_costs() -> None:
    raw: dict[str, Any] = {"prompt_tokens_details": {"image_tokens": 900, "cached_tokens": 0}}
    assert cost("gpt-4o", 1_000, 100, OPENAI, **raw) == cost("gpt-4o", 1_000, 100, OPENAI) == "0.0035"


@pytest.mark.parametrize(
    "raw",
    [
        {"promptTokensDetails": details(text=50, audio=30, image=20), "cacheTokensDetails": details(image=9)},
        {"promptTokensDetails": details(text=50, image=500)},
        {"promptTokensDetails": details(image=70), "cacheTokensDetails": details(text=40)},
        {"prompt_tokens_details": {"image_tokens": 10}, "candidatesTokensDetails": details(image=60)},
        {"candidatesTokensDetails": details(image=20, audio=10)},
        {},
    ],
)
@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"input_cached_tokens": 40},
        {"input_cached_tokens": 40, "input_cache_write_tokens": 30, "input_cache_write_1h_tokens": 10},
        {"audio_input_tokens": 20, "audio_output_tokens": 5, "reasoning_tokens": 12},
        {"audio_input_tokens": 200, "reasoning_tokens": 200},
    ],
)
def test_every_token_is_in_one_group(raw: dict[str, Any], counts: dict[str, int]) -> None:
    usage = make_usage(100, 50, raw=raw, **counts)
    row = make_row(1, **GEMINI, usage=usage)
    assert sum(group.tokens for group in input_groups(row)) == reported_tokens(usage)["input"]
    assert sum(group.tokens for group in output_groups(row)) == reported_tokens(usage)["output"]
    assert all(group.tokens >= 0 for group in (*input_groups(row), *output_groups(row)))


def test_own_prices_may_name_modalities_and_else_charge_the_side(tmp_path: Any) -> None:
    file = tmp_path / "prices.toml"
    price = '[[price]]\nmodel = "gemini-2.5-flash-image"\nfrom = 2026-01-01\ninput = 1\noutput = 2\n'
    made = {"candidatesTokensDetails": details(image=10**6)}
    row = make_row(1, **GEMINI, response_model="gemini-2.5-flash-image", usage=make_usage(0, 10**6, raw=made))
    for line, dollars in (("", "2"), ("output_image = 40\n", "40")):
        file.write_text(price + line)
        known = Prices(load_prices(file)).cost_of(row)
        assert isinstance(known, Cost)
        assert usd(known.total) == dollars


def test_what_reading_audio_from_the_cache_saves_is_the_difference_of_its_prices() -> None:
    """Gemini 2.5 Flash: audio costs 1 USD, and 0.10 from the cache."""
    raw = {"promptTokensDetails": details(audio=10), "cacheTokensDetails": details(audio=10)}
    usage = make_usage(10, 0, raw=raw, input_cached_tokens=10, audio_input_tokens=10)
    row = make_row(1, **GEMINI, response_model="gemini-2.5-flash", usage=usage)
    rates = Prices().rates_of(row)
    assert not isinstance(rates, Unpriced)
    assert rates.cache_effect_of(row) == (10 * 900_000, 0)


@pytest.mark.parametrize(("audio_price", "saved"), [("", 500 * 2 - 500), ("input_audio = 8\n", 0)])
def test_what_the_cache_saves_is_known_where_each_kind_of_the_cached_tokens_saves_it(
    tmp_path: Any, audio_price: str, saved: int
) -> None:
    """Nothing says which of the cached tokens are audio."""
    file = tmp_path / "prices.toml"
    price = '[[price]]\nmodel = "own"\nfrom = 2026-01-01\ninput = 2\ninput_cached = 1\ncache_write = 2\noutput = 4\n'
    file.write_text(price + audio_price)
    usage = make_usage(900, 10, input_cached_tokens=500, input_cache_write_tokens=100, audio_input_tokens=50)
    row = make_row(1, host="10.0.0.5", response_model="own", usage=usage)
    rates = Prices(load_prices(file)).rates_of(row)
    assert not isinstance(rates, Unpriced)
    assert rates.cache_effect_of(row).saved == saved * 10**6
