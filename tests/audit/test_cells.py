"""One model under several names, and several models that stay apart."""

import pytest

from streamgauge.audit.cells import family_of, joined_names

ONE_MODEL = (
    ("gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o", "GPT-4o"),
    ("gpt-4", "gpt-4-0613"),
    ("o3", "o3-2025-04-16"),
    ("claude-haiku-4-5", "claude-haiku-4-5-20251001", "Claude Haiku 4.5", "anthropic/claude-4.5-haiku-20251001"),
    ("claude-sonnet-4-20250514", "Claude Sonnet 4", "claude-sonnet-4-0", "claude-sonnet-4@20250514"),
    ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", "Claude Sonnet 3.5"),
    ("gemini-2.0-flash", "gemini-2.0-flash-001"),
    ("mistral-large-latest", "mistral-large-2411"),
    ("meta-llama/llama-3.3-70b-instruct", "meta-llama/llama-3.3-70b-instruct:free"),
    # Ids of Amazon Bedrock, and what its bill calls them.
    ("us.anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-4-6-v1:0", "Claude Opus 4.6", "claude-4.6-opus"),
    ("anthropic.claude-3-5-sonnet-20241022-v2:0", "Claude 3.5 Sonnet v2"),
    ("arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku"),
    ("amazon.nova-pro-v1:0", "eu.amazon.nova-pro-v1:0", "amazon.nova-pro-v1:0:300k", "nova-pro"),
    ("amazon.nova-2-lite-v1:0", "nova-2.0-lite"),
    ("meta.llama4-maverick-17b-instruct-v1:0", "llama4-maverick-17b"),
    ("openai.gpt-oss-120b-1:0", "gpt-oss-120b"),
    ("qwen.qwen3-32b-v1:0", "qwen.qwen3-32b"),
)


@pytest.mark.parametrize("names", ONE_MODEL, ids=lambda names: names[0])
def test_names_of_one_model(names: tuple[str, ...]) -> None:
    assert len({family_of(name) for name in names}) == 1


def test_models_stay_apart() -> None:
    names = [names[0] for names in ONE_MODEL]
    others = [
        "gpt-4o-mini",
        "gpt-4o-audio-preview",
        "claude-opus-4-1",
        "claude-sonnet-4-5",
        "gemini-2.5-flash",
        "o3-mini",
        "anthropic.claude-v2",
        "anthropic.claude-v2:1",
        "amazon.titan-embed-text-v1",
        "amazon.titan-embed-text-v2:0",
    ]
    assert len({family_of(name) for name in [*names, *others]}) == len(names) + len(others)


def test_an_alias_is_joined_with_its_snapshot() -> None:
    assert joined_names(["gpt-4o-2024-08-06"], ["gpt-4o"]) == {"gpt-4o-2024-08-06": "gpt-4o", "gpt-4o": "gpt-4o"}


def test_two_snapshots_stay_apart_where_both_sides_name_both() -> None:
    names = ["gpt-4o-2024-05-13", "gpt-4o-2024-08-06"]
    assert joined_names(names, names) == {name: name for name in names}


def test_a_model_of_one_side_keeps_its_name() -> None:
    assert joined_names(["gpt-4o-2024-05-13", "gpt-4o-2024-08-06"], ["o3"]) == {
        "gpt-4o-2024-05-13": "gpt-4o-2024-05-13",
        "gpt-4o-2024-08-06": "gpt-4o-2024-08-06",
        "o3": "o3",
    }


def test_a_suffix_that_is_no_variant_tells_models_apart() -> None:
    assert family_of("llama3:8b") != family_of("llama3:70b")
    assert joined_names(["llama3:8b"], ["llama3:70b"]) == {"llama3:8b": "llama3:8b", "llama3:70b": "llama3:70b"}


@pytest.mark.parametrize("variant", ["free", "extended", "thinking", "nitro", "floor", "online", "exacto", "beta"])
def test_variants_of_openrouter_are_one_model(variant: str) -> None:
    assert family_of(f"openai/gpt-5.2:{variant}") == family_of("gpt-5.2")
