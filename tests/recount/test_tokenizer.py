"""The tokenizer's engine: counts, and where expressions end."""

import pytest

from tests.recount.tokenizers import published, small


@pytest.mark.parametrize(
    ("pattern", "text", "end"),
    [(r"\p{L}+", "abc1", 3), (r"\p{L}+", "文字1", 2), (r"\p{L}+", "1a", 0), (r"\s+", "\u3000 x", 2), ("a|ab", "ab", 1)],
)
def test_the_end_of_a_match_is_in_characters(pattern: str, text: str, end: int) -> None:
    assert small("o200k").end(pattern, text) == end


def test_special_tokens_in_a_text_are_text() -> None:
    assert published("o200k_base").count("<|endoftext|>") > 1


@pytest.mark.parametrize(("name", "tokens"), [("o200k_base", 4), ("cl100k_base", 4)])
def test_a_known_count(name: str, tokens: int) -> None:
    assert published(name).count("hello world, again") == tokens
