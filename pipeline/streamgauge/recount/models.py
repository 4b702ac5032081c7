"""Which public tokenizer a model has, and which models reason without showing it."""

import re
from typing import NamedTuple


class _Family(NamedTuple):
    """Models whose names begin so, up to a separator. `hides_reasoning`: output tokens include reasoning that is not sent."""

    beginning: str
    tokenizer: str
    hides_reasoning: bool = False


# OpenAI: as tiktoken's own table of models (tiktoken/model.py, 0.14), for models with a stream of text. Mistral: as the
# table of mistral-common 1.13 (tokens/tokenizers/mistral.py). The longest beginning counts.
_FAMILIES = (
    _Family("gpt-5", "o200k_base", hides_reasoning=True),
    _Family("o1", "o200k_base", hides_reasoning=True),
    _Family("o3", "o200k_base", hides_reasoning=True),
    _Family("o4-mini", "o200k_base", hides_reasoning=True),
    _Family("gpt-4.5", "o200k_base"),
    _Family("gpt-4.1", "o200k_base"),
    _Family("gpt-4o", "o200k_base"),
    _Family("chatgpt-4o", "o200k_base"),
    _Family("gpt-oss", "o200k_base"),  # o200k_harmony: the same, apart from special tokens
    _Family("ft:gpt-4o", "o200k_base"),
    _Family("gpt-4", "cl100k_base"),
    _Family("gpt-3.5-turbo", "cl100k_base"),
    _Family("gpt-35-turbo", "cl100k_base"),
    _Family("ft:gpt-4", "cl100k_base"),
    _Family("ft:gpt-3.5-turbo", "cl100k_base"),
    _Family("open-mistral-nemo-2407", "tekken_240718"),
    _Family("ministral-8b-2410", "tekken_240718"),
    _Family("mistral-small-2409", "tekken_240718"),
    _Family("pixtral-12b-2409", "tekken_240911"),
)
# A dot separates a version that this table does not know; of GPT-5 tiktoken knows them all.
_END = re.compile(r"[-:@]|\Z")
_END_OF_GPT_5 = re.compile(r"[-.:@]|\Z")


def version_of(model: str | None) -> str:
    """A model's name without the vendor that gateways put before it: the version that bands belong to."""
    return (model or "").rpartition("/")[2].lower()


def tokenizer_name(model: str | None) -> str | None:
    """The name of the model's public tokenizer; None if it has none that is known."""
    family = _family(model)
    return None if family is None else family.tokenizer


def hides_reasoning(model: str | None) -> bool:
    """Whether the provider may bill reasoning of this model that it does not send."""
    family = _family(model)
    return family is not None and family.hides_reasoning


def begins_with(version: str, beginning: str) -> bool:
    """Whether a version is a model of this name, or a variant of it, separated by `-`, `:` or `@`."""
    end = _END_OF_GPT_5 if beginning == "gpt-5" else _END
    return version.startswith(beginning) and end.match(version, len(beginning)) is not None


def _family(model: str | None) -> _Family | None:
    version = version_of(model)
    return next((family for family in _FAMILIES if begins_with(version, family.beginning)), None)
