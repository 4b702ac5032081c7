"""Which models stream their reasoning, by the names that providers and gateways give them."""

import pytest

from streamgauge.core.reasoning_models import streams_reasoning


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("anthropic/claude-3.7-sonnet:thinking", True),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("claude-sonnet-4-5-20250929", False),
        ("anthropic/claude-4.5-haiku-20251001", False),
        ("google/gemini-3-pro-preview", False),
        ("openai/gpt-5", False),
        ("gpt-5-mini", False),
        ("o4-mini-2025-04-16", False),
        ("openai/gpt-oss-120b", None),
        ("gpt-4o", None),
        ("deepseek-reasoner", None),
        ("octo1", None),
        (None, None),
    ],
)
def test_a_documented_model(model: str | None, expected: bool | None) -> None:
    assert streams_reasoning(model) is expected
