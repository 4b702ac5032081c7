"""The metrics under OpenTelemetry's names."""

from typing import Any

import pytest

from streamgauge.core.dialects import DIALECTS
from streamgauge.core.record import Error
from streamgauge.metrics.otel_names import OPERATIONS
from streamgauge.metrics.prometheus import Metrics
from tests.metrics.pages import read_page
from tests.metrics.records import ABSENT, make_record, make_usage
from tests.metrics.test_prometheus import OPENMETRICS

CHAT = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "openai", "gen_ai_request_model": "gpt-4o"}
CLIENT, INFERENCE = "gen_ai_client_operation", "gen_ai_client_inference"


def page_of(names: Any, *records: Any) -> Any:
    metrics = Metrics(otel_names=names)
    for record in records:
        metrics.observe(record)
    return read_page(metrics.render())


def test_off_shows_none() -> None:
    assert not [name for name in page_of("off", make_record()).names_with_samples() if name.startswith("gen_ai")]


@pytest.mark.parametrize(("names", "prefix"), [("v1.41", CLIENT), ("latest", INFERENCE)])
def test_times(names: str, prefix: str) -> None:
    page = page_of(names, make_record())
    assert page.value(f"{prefix}_duration_seconds_sum", **CHAT) == 0.35
    assert page.value(f"{prefix}_time_to_first_chunk_seconds_sum", **CHAT) == 0.15
    assert page.value(f"{prefix}_time_per_output_chunk_seconds_count", **CHAT) == 4
    assert page.value("streamgauge_time_to_first_token_seconds_count", upstream="nimbus", model="gpt-4o") == 1
    other = INFERENCE if prefix == CLIENT else CLIENT
    assert not [name for name in page.names_with_samples() if name.startswith(other)]


def test_a_failure_has_its_type_and_success_has_no_such_label() -> None:
    failed = make_record(error=Error("in_stream", type="overloaded_error"), outcome="stream_error")
    page = page_of("v1.41", make_record(), failed, make_record(outcome="truncated"))
    name = f"{CLIENT}_duration_seconds_count"
    assert page.value(name, **CHAT) == 1
    assert page.value(name, **CHAT, error_type="overloaded_error") == 1
    assert page.value(name, **CHAT, error_type="truncated") == 1


def test_tokens_of_v1_41_are_one_histogram_by_type() -> None:
    page = page_of("v1.41", make_record(usage=make_usage(100, 50)), make_record(usage=ABSENT))
    name = "gen_ai_client_token_usage"
    assert page.value(f"{name}_sum", **CHAT, gen_ai_token_type="input") == 100
    assert page.value(f"{name}_sum", **CHAT, gen_ai_token_type="output") == 50
    assert page.value(f"{name}_count", **CHAT, gen_ai_token_type="output") == 1
    assert page.value(f"{name}_bucket", **CHAT, gen_ai_token_type="output", le="64.0") == 1


def test_tokens_of_the_latest_are_counters_in_which_parts_are_inside_of_wholes() -> None:
    usage = make_usage(
        100, 50, input_cached_tokens=60, input_cache_write_tokens=0, reasoning_tokens=20, audio_input_tokens=30
    )
    page = page_of("latest", make_record(usage=usage), make_record(usage=ABSENT))
    name, rest = f"{INFERENCE}_usage", {"gen_ai_token_modality": "unknown"}
    assert page.value(f"{name}_input_tokens_total", **CHAT, gen_ai_token_modality="audio") == 30
    assert page.value(f"{name}_input_tokens_total", **CHAT, **rest) == 70
    assert page.value(f"{name}_output_tokens_total", **CHAT, **rest) == 50
    assert page.value(f"{name}_cache_read_input_tokens_total", **CHAT, **rest) == 60
    assert page.value(f"{name}_cache_write_input_tokens_total", **CHAT, **rest) == 0
    assert page.value(f"{name}_reasoning_output_tokens_total", **CHAT, **rest) == 20
    assert page.value(f"{INFERENCE}_operation_input_tokens_sum", **CHAT) == 100
    assert page.value(f"{INFERENCE}_operation_output_tokens_count", **CHAT) == 1


def test_resumed_usage_counts_once() -> None:
    broken = make_record(response_id="r", outcome="truncated", usage=make_usage(30, 3, source="partial"))
    resumed = make_record(response_id="r", resumed_from="4", usage=make_usage(30, 12))
    page = page_of("latest", broken, resumed)
    name, rest = f"{INFERENCE}_usage", {"gen_ai_token_modality": "unknown"}
    assert page.value(f"{name}_input_tokens_total", **CHAT, **rest) == 30
    assert page.value(f"{name}_output_tokens_total", **CHAT, **rest) == 12
    assert page.total(f"{INFERENCE}_duration_seconds_count") == 1


def test_a_scraper_that_reads_dots_gets_them() -> None:
    metrics = Metrics(otel_names="latest")
    metrics.observe(make_record())
    accept = OPENMETRICS.replace("version=1.0.0", "version=1.0.0;escaping=allow-utf-8")
    page = metrics.page(accept)
    assert page.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
    read = read_page(page.body, openmetrics=True)
    labels = {name.replace("gen_ai_", "gen_ai.").replace("_name", ".name"): value for name, value in CHAT.items()}
    labels = {name.replace("request_model", "request.model"): value for name, value in labels.items()}
    assert read.value("gen_ai.client.inference.duration_seconds_count", **labels) == 1
    assert read.value("gen_ai.client.inference.usage.output_tokens_total", **labels, **MODALITY) == 5
    assert read.value("streamgauge_time_to_first_token_seconds_count", upstream="nimbus", model="gpt-4o") == 1
    assert "gen_ai.client" not in metrics.page(OPENMETRICS).body.decode()


MODALITY = {"gen_ai.token.modality": "unknown"}


@pytest.mark.parametrize("dialect", [None, "other", "gemini", "anthropic-messages"])
def test_the_dialect_says_operation_and_provider(dialect: str | None) -> None:
    page = page_of("v1.41", make_record(dialect=dialect))
    operation, provider = {
        "gemini": ("generate_content", "gcp.gemini"), "anthropic-messages": ("chat", "anthropic")
    }.get(dialect or "", ("unknown", "unknown"))  # fmt: skip
    labels = {**CHAT, "gen_ai_operation_name": operation, "gen_ai_provider_name": provider}
    assert page.value(f"{CLIENT}_duration_seconds_count", **labels) == 1


def test_each_dialect_has_an_operation_and_a_provider() -> None:
    assert set(OPERATIONS) == {dialect.name for dialect in DIALECTS}
