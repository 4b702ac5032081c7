"""The order in which an outcome is decided: the first rule that holds."""

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.core.outcome import FINISH_REASONS, MAX_SENTENCE, normal_reason, outcome_of, reason_label
from streamgauge.core.safe_values import MASKED


@pytest.mark.parametrize(
    ("status", "error", "terminal", "ending", "gone", "outcome"),
    [
        (500, True, True, Ending.COMPLETE, True, "http_error"),
        (300, False, False, Ending.COMPLETE, False, "http_error"),
        (200, True, True, Ending.CLIENT, True, "stream_error"),
        (200, False, True, Ending.RESET, False, "completed"),
        (200, False, True, Ending.CLIENT, True, "completed"),
        (200, False, True, None, False, "completed"),
        (200, False, False, Ending.RESET, True, "client_abort"),
        (None, False, False, Ending.CLIENT, True, "client_abort"),
        (None, False, False, Ending.RESET, False, "upstream_reset"),
        (200, False, False, Ending.RESET, False, "upstream_reset"),
        (200, False, False, Ending.COMPLETE, False, "truncated"),
        (None, False, False, Ending.TIMEOUT, False, "timeout"),
        (200, False, False, Ending.CUT, False, "abandoned"),
        (None, False, False, None, False, "abandoned"),
    ],
)
def test_the_first_rule_that_holds_decides(
    status: int | None, error: bool, terminal: bool, ending: Ending | None, gone: bool, outcome: str
) -> None:
    assert outcome_of(status=status, error=error, terminal=terminal, ending=ending, client_gone=gone) == outcome


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        (None, None),
        ("", None),
        (7, "7"),
        ("any-new.word", "any-new.word"),
        ("null", None),
        ("None", None),
        ("NULL", None),
        ("none-of-these", "none-of-these"),
        ("stopped by content-filter", "content-filter"),
        ("tool-calls: pending", "tool-calls"),
        ("pre-length ended", "length"),
        ("there is none, null", MASKED),
        ("filter: MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"),
        ("error(length)", "error"),
        ("the model's malformed_tool_use", "malformed_tool_use"),
        ("nonstop, Stop, stopped", MASKED),
        ("stöp ", MASKED),
        ("x " * MAX_SENTENCE + "stop", MASKED),
        ("malformed_" + "x" * 200 + " length", "length"),
        (" null\n", None),
        ("  ", None),
        ("stop\n", "stop"),
        (False, None),
        (0, None),
        (0.0, None),
        ([], None),
        ({}, None),
        (["stop"], MASKED),
        ({"stop": 1}, MASKED),
        (1.5, MASKED),
    ],
)
def test_the_known_reason_in_a_sentence_is_kept(raw: object, label: str | None) -> None:
    assert reason_label(raw) == label
    assert reason_label(label) == label


def test_text_of_the_model_is_not_kept_as_a_reason() -> None:
    assert normal_reason("malformed_anything") == "error"
    assert normal_reason("malformed") is None


@pytest.mark.parametrize("raw", FINISH_REASONS)
def test_a_reason_in_another_form_is_that_reason(raw: str) -> None:
    forms = {raw, raw.lower(), raw.upper(), raw.replace("_", "-"), raw.lower().replace("_", "-")}
    assert {normal_reason(form) for form in forms} == {FINISH_REASONS[raw]}


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("sensitive", "content_filter"),
        ("repetition_truncation", "length"),
        ("network_error", "error"),
        ("MALFORMED_RESPONSE", "error"),
        ("malformed-tool-use", "error"),
        ("tool-calls", "tool_calls"),
        ("OTHER", None),
        ("", None),
    ],
)
def test_reasons_of_gateways_have_a_normal_one(raw: str, normal: str | None) -> None:
    assert normal_reason(raw) == normal


def test_finish_reasons_have_one_vocabulary() -> None:
    assert set(FINISH_REASONS.values()) == {"stop", "length", "tool_calls", "content_filter", "error", "paused"}
