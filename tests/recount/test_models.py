"""Which tokenizer a model has: by the version's own name, and no further than the table goes."""

import pytest

from streamgauge.recount.models import hides_reasoning, tokenizer_name, version_of
from streamgauge.recount.vocabularies import VOCABULARIES


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ("gpt-4o-2024-08-06", "o200k_base"),
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4o-mini", "o200k_base"),
        ("gpt-4.1-mini-2025-04-14", "o200k_base"),
        ("gpt-5.2-2025-12-11", "o200k_base"),
        ("o4-mini-2025-04-16", "o200k_base"),
        ("openai/gpt-oss-120b", "o200k_base"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "o200k_base"),
        ("gpt-4-0613", "cl100k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("ministral-8b-2410", "tekken_240718"),
        ("pixtral-12b-2409", "tekken_240911"),
        ("gpt-4.9", None),
        ("gpt-40", None),
        ("mistral-small-latest", None),
        ("claude-sonnet-4-5-20250929", None),
        ("", None),
        (None, None),
    ],
)
def test_the_tokenizer_of_a_model(model: str | None, tokenizer: str | None) -> None:
    assert tokenizer_name(model) == tokenizer
    assert tokenizer is None or tokenizer in VOCABULARIES


def test_only_models_that_reason_hide_reasoning() -> None:
    assert hides_reasoning("openai/o3")
    assert hides_reasoning("gpt-5-mini")
    assert not hides_reasoning("gpt-4o")
    assert not hides_reasoning("claude-sonnet-4-5")


def test_a_version_has_no_vendor() -> None:
    assert version_of("moonshotai/kimi-k2-Instruct-0905") == "kimi-k2-instruct-0905"
    assert version_of("accounts/x/models/y") == "y"
    assert version_of(None) == ""
