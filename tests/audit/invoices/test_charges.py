"""What an invoice bills beside tokens keeps its name, and the tier that a row names is kept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.invoices.charges import charge_of
from streamgauge.audit.result import CHARGES
from tests.audit.invoices.reading import read
from tests.audit.invoices.samples import BY_NAME


def first_of(name: str, **changes: Any) -> Any:
    """The first line of a sample with other values in its first row."""
    sample = BY_NAME[name]
    return read(sample.text([{**sample.rows[0], **changes}]))[0]


@pytest.mark.parametrize(
    ("item", "charge"),
    [
        ("web search tool calls", "web_search"),
        ("file search tool calls", "other_charge"),
        ("Code interpreter sessions", "code_interpreter"),
        ("ft-gpt-4o-mini-2024-07-18, training", "training"),
        ("vector store storage", "storage"),
        ("image models", "images"),
        ("Text tokens", "other_charge"),
        ("Sales tax", "tax"),
        ("monthly minimum", "minimum"),
        ("volume discount", "discount"),
        ("Savings plan of a year", "other_charge"),
        ("search tool calls", "other_charge"),
        ("whisper-1, duration", "other_charge"),
    ],
)
def test_a_line_item_of_openai_that_is_no_tokens_is_a_charge(item: str, charge: str) -> None:
    for name, at in (("OpenAI costs (API)", "line_item"), ("OpenAI costs (dashboard)", "line_item")):
        line = first_of(name, **{at: item})
        assert (line.charge, line.label, line.model, line.kind) == (charge, item, None, None)


@pytest.mark.parametrize(
    ("item", "model", "tier", "kind"),
    [
        ("gpt-5-2025-08-07, batch input", "gpt-5-2025-08-07", "batch", "input_uncached"),
        ("gpt-5-2025-08-07, batch cached input", "gpt-5-2025-08-07", "batch", "input_cached"),
        ("gpt-5-2025-08-07, flex output", "gpt-5-2025-08-07", "flex", "output"),
        ("priority | gpt-5-2025-08-07, output, long context", "gpt-5-2025-08-07", "priority", "output"),
        ("batch | o3, cache writes", "o3", "batch", "input_cache_write"),
        ("gpt-audio-mini-2025-12-15 audio, input", "gpt-audio-mini-2025-12-15", None, "input_uncached"),
        ("gpt-image-2.5-sunburst text, cached input", "gpt-image-2.5-sunburst", None, "input_cached"),
    ],
)
def test_k_a_line_item_of_openai_keeps_its_tier(item: str, model: str, tier: str | None, kind: str) -> None:
    line = first_of("OpenAI costs (API)", line_item=item)
    assert (line.model, line.tier, line.kind, line.charge, line.label) == (model, tier, kind, None, None)


@pytest.mark.parametrize(
    ("cost_type", "charge"),
    [("web_search", "web_search"), ("code_execution", "code_interpreter"), ("session_usage", "other_charge")],
)
def test_a_cost_type_of_anthropic_is_a_charge(cost_type: str, charge: str) -> None:
    changes = {"cost_type": cost_type, "model": None, "token_type": None}
    line = first_of("Anthropic cost report (API)", description="As it is called", **changes)
    assert (line.charge, line.label) == (charge, "As it is called")
    line = first_of("Anthropic costs (Console)", **changes | {"model": "", "token_type": ""})
    assert (line.charge, line.label) == (charge, cost_type)


@pytest.mark.parametrize("cost_type", ["token", "tokens", "", "standard"])
def test_a_row_that_names_a_kind_of_token_is_no_charge(cost_type: str) -> None:
    """The Console writes `token`, the API `tokens`."""
    line = first_of("Anthropic costs (Console)", cost_type=cost_type)
    assert (line.charge, line.label, line.kind) == (None, None, "output")
    line = first_of("Anthropic cost report (API)", cost_type=cost_type)
    assert (line.charge, line.kind) == (None, "input_cache_write")


def test_a_batch_is_a_tier_of_every_export_that_names_it() -> None:
    assert first_of("OpenAI usage (API)", batch=True).tier == "batch"
    assert first_of("OpenAI usage (dashboard)", batch="TRUE").tier == "batch"
    assert first_of("Anthropic usage report (API)", service_tier="batch").tier == "batch"
    assert first_of("Anthropic cost report (API)", service_tier="batch").tier == "batch"
    assert first_of("Anthropic tokens (Console)", usage_type="batch").tier == "batch"
    assert first_of("Anthropic costs (Console)", usage_type="batch").tier == "batch"
    assert first_of("Anthropic costs (Console)", usage_type="message").tier is None


@pytest.mark.parametrize(
    ("category", "description", "charge"),
    [
        ("Tax", "x", "tax"),
        ("Credit", "Goodwill", "credit"),
        ("Purchase", "Provisioned throughput", "other_charge"),
        ("Purchase", "Minimum commitment of November", "minimum"),
        ("Adjustment", "Volume discount", "discount"),
        ("Adjustment", "", "other_charge"),
    ],
)
def test_a_charge_of_focus_that_is_no_usage_keeps_its_name(category: str, description: str, charge: str) -> None:
    line = first_of("FOCUS", ChargeCategory=category, ChargeDescription=description, SkuMeter="")
    assert (line.model, line.tokens, line.charge, line.label) == (None, None, charge, description or category)


@given(label=st.text(max_size=60))
def test_any_label_is_one_of_the_charges(label: str) -> None:
    assert charge_of(label) in CHARGES
