"""Calls of JSON-RPC in the metrics, under our names and OpenTelemetry's, and within the budgets of the page."""

import pytest

from streamgauge.core.formats.json_rpc import Call, CallResult, Unmeasured
from streamgauge.metrics.prometheus import Metrics
from tests.metrics.pages import read_at_once

LEVEL = Call("mcp", "tools/call", "level")
DURATION, UNMEASURED = "streamgauge_call_duration_seconds", "streamgauge_calls_unmeasured_total"
OTEL = "mcp_client_operation_duration_seconds"


def test_a_call_is_in_the_histogram_with_its_error() -> None:
    metrics = Metrics()
    metrics.observe_call(CallResult("up", LEVEL, 0.3))
    metrics.observe_call(CallResult("up", LEVEL, 1.5, "tool_error"))
    metrics.observe_call(CallResult(None, Call("a2a", "message/send"), 0.0))
    page = read_at_once(metrics.render())
    of_tool = {"upstream": "up", "call_protocol": "mcp", "call_method": "tools/call", "call_tool": "level"}
    assert page.value(f"{DURATION}_sum", **of_tool) == 0.3
    assert page.value(f"{DURATION}_bucket", le="0.5", **of_tool) == 1
    assert page.value(f"{DURATION}_bucket", le="0.2", **of_tool) == 0
    assert page.value(f"{DURATION}_sum", call_error="tool_error", **of_tool) == 1.5
    assert page.value(f"{DURATION}_count", upstream="unknown", call_protocol="a2a", call_method="message/send") == 1
    assert page.total(f"{DURATION}_count") == 3


@pytest.mark.parametrize("names", ["v1.41", "latest"])
def test_calls_of_mcp_have_opentelemetrys_names_if_they_are_asked_for(names: str) -> None:
    metrics = Metrics(otel_names=names)  # type: ignore[arg-type]
    metrics.observe_call(CallResult("up", LEVEL, 0.3, "tool_error"))
    metrics.observe_call(CallResult("up", Call("a2a", "message/send"), 0.3))
    page = read_at_once(metrics.render())
    labels = {"mcp_method_name": "tools/call", "gen_ai_tool_name": "level", "error_type": "tool_error"}
    assert page.value(f"{OTEL}_count", **labels) == page.total(f"{OTEL}_count") == 1


def test_a_call_that_was_not_measured_is_counted_by_its_reason() -> None:
    metrics = Metrics()
    for reason in Unmeasured:
        metrics.observe_call(CallResult("up", LEVEL, None, unmeasured=reason))
    page = read_at_once(metrics.render())
    for reason in Unmeasured:
        assert page.value(UNMEASURED, upstream="up", call_protocol="mcp", reason=reason.value) == 1
    assert page.total(f"{DURATION}_count") == 0


def test_tools_and_errors_beyond_their_budgets_are_other() -> None:
    metrics = Metrics()
    for number in range(2_000):
        call = Call("mcp", "tools/call", f"tool-{number}")
        metrics.observe_call(CallResult(f"up-{number % 100}", call, 0.1, f"{number}"))
    page = read_at_once(metrics.render())
    assert page.total(f"{DURATION}_count") == 2_000
    assert len(page.samples) < 8_000
