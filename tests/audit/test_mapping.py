"""The operator's map."""

import pytest

from streamgauge.audit.invoices import Meter
from streamgauge.audit.mapping import Mapping, mapping_of
from streamgauge.errors import UsageFault

TEXT = """
[upstreams]
openai-eu = "OpenAI"
[tenants]
river = ["proj_1", "River production", "00ff"]
[meters]
"cached Inp" = {model = "gpt-4.1", kind = "input_cached"}
"Units" = {model = "m", kind = "output", multiple = 1000, tier = "batch"}
"Bing" = {charge = "web_search"}
"""


def test_what_it_maps() -> None:
    mapping = mapping_of(TEXT, "map.toml")
    assert mapping.provider_of("openai-eu") == "openai"
    assert mapping.their_key(("key_9", "proj_1")) == "river"
    assert mapping.their_key(("key_9", "proj_9")) == "key_9"
    assert (mapping.our_key("delta", "00ff"), mapping.our_key(None, "00ff"), mapping.our_key(None, "11")) == (
        "delta", "river", "11"
    )  # fmt: skip
    assert mapping.meters == {
        "cached Inp": Meter("gpt-4.1", "input_cached"),
        "Units": Meter("m", "output", 1_000, "batch"),
        "Bing": Meter(None, None, charge="web_search"),
    }


def test_without_a_map_an_upstream_is_the_provider_of_its_name_or_host() -> None:
    names = ("OpenAI", "api.anthropic.com:443", "openrouter.ai", "local", None)
    assert [Mapping().provider_of(name) for name in names] == ["openai", "anthropic", "openrouter", "local", ""]


def test_a_host_of_a_cloud_is_that_clouds() -> None:
    for host, provider in (
        ("river.openai.azure.com", "microsoft"),
        ("River.services.ai.azure.com:443", "microsoft"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "aws"),
        ("bedrock-runtime-fips.us-east-1.amazonaws.com", "aws"),
        ("europe-west4-aiplatform.googleapis.com", "google cloud"),
        ("aiplatform.googleapis.com", "google cloud"),
        ("generativelanguage.googleapis.com:443", "google cloud"),
        ("s3.us-east-1.amazonaws.com", "s3.us-east-1.amazonaws.com"),
        ("azure", "microsoft"),
        ("vertex_ai", "google cloud"),
    ):
        assert Mapping().provider_of(host) == provider


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[upstreams", "is not TOML"),
        ("[keys]\na = 1", "keys is not one of the tables"),
        ("upstreams = 1", "upstreams is not one of the tables"),
        ("[upstreams]\na = 1", r"write \[upstreams\] lines"),
        ('[tenants]\na = "b"', r"write \[tenants\] lines"),
        ('[tenants]\na = ["k"]\nb = ["k"]', "k belongs to two tenants, a and b"),
        ('[meters]\na = {model = "m", kind = "cached"}', "kind = one of input_uncached"),
        ('[meters]\na = {model = "", kind = "output"}', "kind = one of input_uncached"),
        ('[meters]\na = {model = "m", kind = "output", multiple = 0}', "multiple = the tokens of a unit"),
        ('[meters]\na = {model = "m", kind = "output", multiple = true}', "multiple = the tokens of a unit"),
        ('[meters]\na = {model = "m", kind = "output", multiple = 1.5}', "multiple = the tokens of a unit"),
        ('[meters]\na = {model = "m", kind = "output", factor = 2}', "multiple = the tokens of a unit"),
        ('[meters]\na = {charge = "fee"}', "charge = one of web_search"),
        ('[meters]\na = {charge = "tax", model = "m"}', "charge = one of web_search"),
    ],
)
def test_a_wrong_map_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageFault, match=says):
        mapping_of(text, "map.toml")


@pytest.mark.parametrize("text", ["a = 1" + "0" * 5_000, "a = " + "[" * 100_000])
def test_a_number_or_a_nesting_without_end_is_not_toml(text: str) -> None:
    with pytest.raises(UsageFault, match="is not TOML"):
        mapping_of(text, "map.toml")
