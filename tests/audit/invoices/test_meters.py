"""What the rows of clouds count: models and kinds by the names of meters, tokens by units, and nothing that is guessed."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import KINDS, Tokens
from streamgauge.audit.cells import family_of
from streamgauge.audit.invoices import InvoiceLine, Meter, Meters, open_invoices
from streamgauge.audit.invoices.contract import BadFieldError
from streamgauge.audit.invoices.meters import AWS, CLOUDS, GOOGLE, MICROSOFT, meter_of, tokens_of
from tests.audit.invoices.reading import read, refusal
from tests.audit.invoices.samples import BY_NAME, Sample, table

UNCACHED, CACHED, WRITTEN, OUTPUT = KINDS


def first_of(name: str, meters: Meters | None = None, /, **changes: Any) -> InvoiceLine:
    """The first line of a sample with other values in its first row."""
    return read(text_of(name, **changes), meters)[0]


def text_of(name: str, **changes: Any) -> str:
    sample: Sample = BY_NAME[name]
    return sample.text([{**sample.rows[0], **changes}])


# Names of Azure's retail price API.
AZURE = [
    ("gpt 4o mini 0718 Inp glbl Tokens", "", "gpt-4o-mini-0718", UNCACHED, None),
    ("gpt 4o 1120 cached Inp glbl Tokens", "", "gpt-4o-1120", CACHED, None),
    ("gpt 4o 1120 Batch Inp glbl Tokens", "", "gpt-4o-1120", UNCACHED, "batch"),
    ("gpt-4o-0806-Batch-Outp-glbl Tokens", "", "gpt-4o-0806", OUTPUT, "batch"),
    ("o3 0416 Outp glbl Tokens", "", "o3-0416", OUTPUT, None),
    ("GPT 5 Inpt Glbl 1M Tokens", "", "gpt-5", UNCACHED, None),
    ("GPT 5 outpt Glbl 1M Tokens", "", "gpt-5", OUTPUT, None),
    ("5.4 inp Gl 1M Tokens", "Azure OpenAI GPT5", "gpt-5.4", UNCACHED, None),
    ("5.5 ShortCo opt Dz 1M Tokens", "Azure OpenAI GPT5", "gpt-5.5", OUTPUT, None),
    ("V4 Pro Inp glbl Tokens", "Azure Deepseek Models", "deepseek-v4-pro", UNCACHED, None),
    ("Phi-4-Input Tokens", "", "phi-4", UNCACHED, None),
    ("text-embedding-3-small-glbl Tokens", "", "text-embedding-3-small", UNCACHED, None),
]
# Usage types of the AWS Price List.
AMAZON = [
    ("USE1-Claude3Sonnet-input-tokens", "", "claude-3-sonnet", UNCACHED, None),
    ("USE1-Claude2.0-output-tokens", "", "claude-2.0", OUTPUT, None),
    ("USE1-NovaPro-cache-read-input-token-count", "", "nova-pro", CACHED, None),
    ("USE1-NovaPro-cache-write-input-token-count", "", "nova-pro", WRITTEN, None),
    ("USE1-Llama4-Maverick-17B-input-tokens-batch", "", "llama4-maverick-17b", UNCACHED, "batch"),
    ("USE1-GPT-OSS-Safeguard-20B-output-tokens-priority", "", "gpt-oss-safeguard-20b", OUTPUT, "priority"),
    ("USE1-Nova2.0Lite-input-tokens-cross-region-global-batch", "", "nova-2.0-lite", UNCACHED, "batch"),
    ("USE1-qwen.qwen3-32b-mantle-input-tokens-flex", "", "qwen.qwen3-32b", UNCACHED, "flex"),
    ("USE1-MP:USE1_CacheReadInputTokenCount_Global-Units", "Claude Haiku 4.5 (Amazon Bedrock Edition)",
     "Claude Haiku 4.5", CACHED, None),
    ("USE1_output_tokens_global_standard-Units", "Claude Sonnet 5 (Amazon Bedrock Edition)", "Claude Sonnet 5", OUTPUT, None),
]  # fmt: skip
# SKUs of the Cloud Billing Catalog.
GOOGLES = [
    ("Generate content input token count gemini 2.5 flash short input text", "", "gemini-2.5-flash", UNCACHED, None),
    ("Generate content output token count gemini 2.5 flash thinking text", "", "gemini-2.5-flash", OUTPUT, None),
    ("Generate content cached input token count gemini 2.5 flash input image", "", "gemini-2.5-flash", CACHED, None),
    ("Generate content input token count gemini 3.7 flash image flex caching", "", "gemini-3.7-flash", CACHED, "flex"),
    ("Generate content output token count gemini 3.1 flash lite preview text", "",
     "gemini-3.1-flash-lite-preview", OUTPUT, None),
    ("GenerateContent text output token count for Gemini 2.0 Flash", "", "gemini-2.0-flash", OUTPUT, None),
    ("EmbedContent input token count for gemini-embedding-2 text", "", "gemini-embedding-2", UNCACHED, None),
    ("Gemini 2.5 Flash GA Text Input - Predictions", "", "gemini-2.5-flash", UNCACHED, None),
]  # fmt: skip
NAMES = [(cloud, *name) for cloud, names in ((MICROSOFT, AZURE), (AWS, AMAZON), (GOOGLE, GOOGLES)) for name in names]


@pytest.mark.parametrize(("cloud", "name", "about", "model", "kind", "tier"), NAMES)
def test_the_structure_of_a_name_says_model_kind_and_tier(
    cloud: str, name: str, about: str, model: str, kind: str, tier: str | None
) -> None:
    meter = meter_of([name], {}, cloud, about)
    assert meter is not None
    assert (meter.model, meter.kind, meter.tier) == (model, kind, tier)


@pytest.mark.parametrize(
    ("cloud", "name"),
    [
        (MICROSOFT, "Provisioned Managed Global"),
        (MICROSOFT, "Standard Text Records"),
        (MICROSOFT, "gpt 4o FT training Tokens"),
        (AWS, "USE1-Guardrail-ContentPolicyUnitsConsumed"),
        (AWS, "$0.003 per 1K input tokens"),
        (AWS, "USE1-Nova2.0Lite-output-tokens-custom-model"),
        (GOOGLE, "Cached content storage token hours"),
        (GOOGLE, "Grounding with Google Search"),
        (GOOGLE, "Gemini 1.5 Pro Text Input - Predictions"),  # characters
        ("solora ai", "gpt 4o mini 0718 Inp glbl Tokens"),
    ],
)
def test_a_name_that_says_no_kind_of_token_is_not_read(cloud: str, name: str) -> None:
    assert meter_of([name], {}, cloud) is None


def test_names_of_clouds_are_of_the_family_that_taps_see() -> None:
    for cloud, seen in (
        ("gpt-4o-mini-0718", "gpt-4o-mini-2024-07-18"),
        ("claude-4.5-sonnet", "claude-sonnet-4-5-20250929"),
        ("Claude Haiku 4.5", "claude-haiku-4-5-20251001"),
        ("gemini-2.5-flash", "gemini-2.5-flash"),
    ):
        assert family_of(cloud) == family_of(seen)


MAPPED = Meter("m", OUTPUT)
UNITS = [
    ("Tokens", 1), ("token", 1), ("1K tokens", 1_000), ("1K Tokens", 1_000), ("1M Tokens", 10**6), ("1000 Tokens", 1_000),
    ("1,000,000 tokens", 10**6), ("Million tokens", 10**6), ("100K tokens", 100_000),
]  # fmt: skip
BARE = [("1K", 1_000), ("1M", 10**6), ("1", 1), ("count", 1), ("Counts", 1), ("1000", 1_000)]


def count(unit: str, quantity: str, meter: Meter | None, name: str = "x") -> int | None:
    return tokens_of({"q": quantity, "u": unit}, [("q", "u")], meter, name, signed=False)


@pytest.mark.parametrize(("unit", "multiple"), UNITS)
def test_a_unit_of_tokens_is_read(unit: str, multiple: int) -> None:
    assert count(unit, "3", MAPPED) == count(unit, "3", None) == 3 * multiple


@pytest.mark.parametrize(("unit", "multiple"), BARE)
def test_m_a_bare_number_is_a_unit_of_tokens_if_the_meter_counts_them(unit: str, multiple: int) -> None:
    assert count(unit, "3", MAPPED) == 3 * multiple
    assert count(unit, "3", None) is None
    with pytest.raises(BadFieldError, match="may count tokens, and is no unit that is known"):
        count(unit, "3", None, "gpt 9 Tokens")


@pytest.mark.parametrize("unit", ["Units", "Gazillion", "1 Hour", "tokns", "K K"])
def test_m_a_unit_of_a_known_meter_that_is_not_known_is_refused_and_named(unit: str) -> None:
    with pytest.raises(BadFieldError) as refused:
        count(unit, "3", MAPPED, "the meter")
    assert refused.value.field == "u"
    assert repr(unit) in str(refused.value)
    assert 'write \'the meter\' = {model = "...", kind = "...", multiple = 1000} in [meters]' in str(refused.value)
    assert count(unit, "3", Meter("m", OUTPUT, multiple=500)) == 1_500


@pytest.mark.parametrize(
    "unit", ["1 Hour", "Hours", "GB-Month", "1K requests", "Images", "1000 Pages", "gibibyte hour"]
)
def test_a_unit_of_something_else_counts_no_tokens(unit: str) -> None:
    assert count(unit, "3", None, "Cached content storage token hours") is None


def test_a_row_of_tokens_without_a_unit_or_a_quantity_is_refused() -> None:
    for meter in (MAPPED, Meter("m", OUTPUT)):
        with pytest.raises(BadFieldError, match="'' may count tokens, and is no unit that is known") as refused:
            count("", "3", meter, "the meter")
        assert refused.value.field == "u"
        with pytest.raises(BadFieldError, match="counts tokens, and the row has no quantity") as refused:
            count("Tokens", "", meter, "the meter")
        assert refused.value.field == "q"
    assert count("", "3", Meter("m", OUTPUT, multiple=1_000)) == 3_000
    assert count("", "3", None) is count("Hours", "", None) is None


def test_the_noise_of_a_double_is_no_part_of_a_token() -> None:
    assert count("1K", "12.340000000000002", MAPPED) == 12_340
    assert count("1M", "0.0014999999999999998", MAPPED) == 1_500
    with pytest.raises(BadFieldError, match="is a fraction of a token"):
        count("1K", "12.3405", MAPPED)


# --- rows ------------------------------------------------------------------------------------------------------------

AZURE_FOCUS: dict[str, Any] = {
    "ProviderName": "Microsoft",
    "ServiceProviderName": "",
    "ServiceName": "Azure OpenAI",
    "SkuPriceDetails": "",
    "SkuMeter": "gpt 4o mini Inp glbl 1M Tokens",
    "ConsumedUnit": "1M",
    "ConsumedQuantity": "0.0015",
}


def test_m_focus_of_azure_is_read_by_its_unit() -> None:
    line = first_of("FOCUS", **AZURE_FOCUS)
    assert (line.provider, line.model, line.tokens) == ("microsoft", "gpt-4o-mini", Tokens(1_500))
    assert first_of("FOCUS", **AZURE_FOCUS | {"ConsumedUnit": "1K", "ConsumedQuantity": "1.5"}).tokens == Tokens(1_500)


def test_focus_of_azure_names_the_unit_of_its_price() -> None:
    """ConsumedUnit and PricingUnit are the distinct unit, "Units"; x_PricingUnitDescription has the block."""
    units = {"ConsumedUnit": "Units", "ConsumedQuantity": "1500", "PricingUnit": "Units", "PricingQuantity": "1.5"}
    named = {"x_PricingUnitDescription": "1K", "x_PricingBlockSize": "1000"}
    assert first_of("FOCUS", **AZURE_FOCUS | units | named).tokens == Tokens(1_500)
    assert "'Units' may count tokens, and is no unit that is known" in refusal(text_of("FOCUS", **AZURE_FOCUS | units))


def test_the_operators_table_comes_before_every_name() -> None:
    named = {"gpt 4o mini Inp glbl 1M Tokens": Meter("mine", CACHED, multiple=2_000_000, tier="flex")}
    line = first_of("FOCUS", named, **AZURE_FOCUS)
    assert (line.model, line.tokens, line.tier) == ("mine", Tokens(0, 3_000), "flex")
    line = first_of("FOCUS", {"Cache Read Input Tokens": Meter("mine", OUTPUT)})  # also before SkuPriceDetails
    assert (line.model, line.tokens) == ("mine", Tokens(output=8_000_000))
    charged = {"gpt 4o mini Inp glbl 1M Tokens": Meter(None, None, charge="storage")}
    line = first_of("FOCUS", charged, **AZURE_FOCUS)
    assert (line.charge, line.tokens, line.model) == ("storage", None, None)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("FOCUS", AZURE_FOCUS | {"ConsumedUnit": "Blocks", "PricingUnit": "Blocks"}),
        ("Azure cost details", {"UnitOfMeasure": "Blocks"}),
        ("AWS Cost and Usage Report", {"pricing_unit": "Blocks"}),
        ("Google Cloud billing export (CSV)", {"usage.unit": "Blocks"}),
    ],
)
def test_m_no_cloud_drops_a_row_of_tokens_for_its_unit(name: str, changes: dict[str, Any]) -> None:
    assert "'Blocks' may count tokens, and is no unit that is known" in refusal(text_of(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("FOCUS", AZURE_FOCUS | {"SkuMeter": "Gizmo Tokens", "ConsumedUnit": "1M Tokens"}),
        ("Azure cost details", {"MeterName": "Gizmo Tokens", "UnitOfMeasure": "1K tokens"}),
        ("AWS Cost and Usage Report", {"line_item_usage_type": "USE1-Gizmo-tokens"}),
        ("Google Cloud billing export (CSV)", {"sku.description": "Gizmo token count", "usage.unit": "tokens"}),
    ],
)
def test_a_meter_of_tokens_that_is_not_known_is_refused(name: str, changes: dict[str, Any]) -> None:
    assert "counts tokens: name its model and kind in [meters] of --map" in refusal(text_of(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "service"),
    [
        ("FOCUS",
         AZURE_FOCUS | {"ServiceName": "Virtual Machines", "SkuMeter": "D4s v5", "ConsumedUnit": "Hours"}, "Virtual"),
        ("Azure cost details",
         {"MeterCategory": "Virtual Machines", "MeterSubCategory": "Dv5", "MeterName": "D4", "UnitOfMeasure": "1 Hour"},
         "Virtual"),
        ("AWS Cost and Usage Report",
         {"line_item_product_code": "AmazonEC2", "line_item_usage_type": "BoxUsage:t3.micro", "pricing_unit": "Hrs",
          "line_item_line_item_description": "$0.01 per hour"}, "AmazonEC2"),
        ("Google Cloud billing export (CSV)",
         {"service.description": "Compute Engine", "sku.description": "N2 core", "usage.unit": "seconds"}, "Compute"),
    ],
)  # fmt: skip
def test_rows_of_services_without_models_are_left_out_and_said(
    name: str, changes: dict[str, Any], service: str, tmp_path: Any
) -> None:
    sample = BY_NAME[name]
    path = tmp_path / "bill.csv"
    first = {**dict.fromkeys(changes, ""), **sample.rows[0]}
    path.write_text(table([first, {**first, **changes}, {**first, **changes}]))
    (file,) = open_invoices([path], {"Cache Read Input Tokens": Meter("m", CACHED)})
    lines = list(file.lines())
    assert len(lines) == 1
    (note,) = file.notes
    assert note.startswith(f"bill.csv: 2 rows of {service}")
    assert note.endswith("USD) left out: it serves no models")


@pytest.mark.parametrize(
    ("name", "changes", "charge"),
    [
        ("Azure cost details", {"ChargeType": "Refund"}, "credit"),
        ("Azure cost details", {"ChargeType": "Purchase", "MeterName": "Provisioned Managed Global"}, "other_charge"),
        ("Azure cost details", {"MeterName": "Fine tuning training", "UnitOfMeasure": "1 Hour"}, "training"),
        ("AWS Cost and Usage Report", {"line_item_line_item_type": "Tax"}, "tax"),
        ("AWS Cost and Usage Report", {"line_item_line_item_type": "Credit"}, "credit"),
        ("AWS Cost and Usage Report", {"line_item_line_item_type": "EdpDiscount"}, "discount"),
        ("Google Cloud billing export (CSV)", {"cost_type": "tax", "sku.description": "", "service.description": ""}, "tax"),
        ("Google Cloud billing export (CSV)", {"sku.description": "Grounding with Google Search"}, "web_search"),
        ("Google Cloud billing export (CSV)",
         {"sku.description": "Cached content storage token hours", "usage.unit": "hour"}, "storage"),
    ],
)  # fmt: skip
def test_what_a_cloud_bills_beside_tokens_is_a_charge(name: str, changes: dict[str, Any], charge: str) -> None:
    line = first_of(name, **changes)
    assert (line.charge, line.tokens, line.model) == (charge, None, None)
    assert line.label


def test_both_costs_of_focus_are_read() -> None:
    assert first_of("FOCUS").usd == Decimal("2.4")


def test_the_effective_cost_of_focus_is_read_on_demand(tmp_path: Any) -> None:
    (tmp_path / "bill.csv").write_text(BY_NAME["FOCUS"].text())
    (file,) = open_invoices([tmp_path / "bill.csv"], {}, cost="effective")
    assert [line.usd for line in file.lines()] == [Decimal("2.1")]


@pytest.mark.parametrize("name", ["MeterName", "meterName"])
def test_both_spellings_of_azures_columns_are_read(name: str) -> None:
    row = BY_NAME["Azure cost details"].rows[0]
    if name == "meterName":  # MCA
        row = {column[0].lower() + column[1:]: value for column, value in row.items()}
        row["billingCurrency"] = row.pop("billingCurrencyCode")
    (line,) = read(table([row]))
    assert (line.model, line.usd, line.when) == ("gpt-4o-1120", Decimal("0.0027"), "2026-03-01")
    assert f"field {name}: " in refusal(
        table([{**row, name: "Gizmo Tokens", _like(name, "UnitOfMeasure"): "1K tokens"}])
    )


def _like(name: str, other: str) -> str:
    return other if name[0].isupper() else other[0].lower() + other[1:]


@pytest.mark.parametrize("day", ["04/01/2026", "13/03/2026", "2026-13-01", "31/03/26"])
def test_a_date_of_azure_that_is_not_in_its_billing_period_is_refused(day: str) -> None:
    assert "field Date: " in refusal(text_of("Azure cost details", Date=day))


def test_the_older_names_of_an_aws_report_are_read() -> None:
    def older(name: str) -> str:
        section = next((part for part in ("line_item", "pricing", "product") if name.startswith(f"{part}_")), "")
        rest = name.removeprefix(f"{section}_").title().replace("_", "")
        parts = section.split("_")
        return f"{parts[0]}{''.join(part.title() for part in parts[1:])}/{rest}" if section else name

    row = {older(name): value for name, value in BY_NAME["AWS Cost and Usage Report"].rows[0].items()}
    assert "lineItem/UsageType" in row
    (line,) = read(table([row]))
    assert (line.model, line.tokens) == ("nova-pro", Tokens(0, 1_500))


def test_credits_of_google_stand_beside_the_cost() -> None:
    sample = BY_NAME["Google Cloud billing export (JSON)"]
    usage, credit = read(sample.text())
    assert (credit.charge, credit.usd, credit.tokens, usage.usd) == (
        "credit",
        Decimal("-0.001"),
        None,
        Decimal("0.0045"),
    )
    assert usage.digest != credit.digest
    for wrong in ("x", [1], [{"amount": "many"}], {"amount": 1}):
        assert "credits" in refusal(sample.text([{**sample.rows[0], "credits": wrong}]))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('[{"call_type": "acompletion", "spend": 0.1, "startTime": "x"}]', "litellm"),
        ("id,traceId,startTime,inputUsage\n1,2,3,4\n", "langfuse"),
        ('{"trace_id": "t", "start_time": "x", "usage_details": {}}', "langfuse"),
        ("request_id,request_created_at,response_status\n1,2,3\n", "helicone"),
    ],
)
def test_a_gateways_log_is_refused_with_the_command_that_reads_it(text: str, name: str) -> None:
    assert f"`streamgauge ledger import --format {name}`" in refusal(text)


def test_dbus_are_refused_with_what_to_bring() -> None:
    assert "bring a query of system.serving.endpoint_usage" in refusal("sku_name,usage_quantity,usage_unit\nx,1,DBU\n")


@given(name=st.text(max_size=80), about=st.text(max_size=40), cloud=st.sampled_from(sorted(set(CLOUDS.values()))))
def test_any_name_is_a_meter_of_a_known_kind_or_none(name: str, about: str, cloud: str) -> None:
    meter = meter_of([name], {}, cloud, about)
    assert meter is None or (meter.kind in KINDS and bool(meter.model))


@given(name=st.sampled_from(NAMES), place=st.integers(0, 80), put=st.text(max_size=6))
def test_any_damage_to_a_name_is_a_meter_or_none(name: tuple[str, ...], place: int, put: str) -> None:
    damaged = name[1][:place] + put + name[1][place + 1 :]
    meter = meter_of([damaged], {}, name[0], name[2])
    assert meter is None or (meter.kind in KINDS and bool(meter.model))


@given(unit=st.text(max_size=20), quantity=st.text(max_size=12), known=st.booleans())
def test_any_unit_is_counted_exactly_or_refused(unit: str, quantity: str, known: bool) -> None:
    try:
        tokens = count(unit, quantity, MAPPED if known else None, "Tokens")
    except BadFieldError:
        return
    assert tokens is None or tokens >= 0


def test_other_names_of_a_cloud_are_one_provider() -> None:
    for name in ("AWS", "Amazon Web Services", "Amazon Web Services, Inc."):
        changes = {"ServiceProviderName": name, "ServiceName": "Amazon Bedrock"}
        assert first_of("FOCUS", **changes).provider == "aws"


def test_details_of_focus_may_be_an_object_of_json() -> None:
    sample = BY_NAME["FOCUS (JSON)"]
    (line,) = read(json.dumps(list(sample.rows)))
    assert line.model == "solora-pro"
