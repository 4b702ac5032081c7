"""A certain end of a piece is one, whatever text follows, and the text before it has the same pieces without it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.recount.certain_ends import certain_end
from streamgauge.recount.tokenizer import Tokenizer
from tests.recount.test_token_counter import TEXTS
from tests.recount.tokenizers import SPLITS, small


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    found = []
    while text:
        size = tokenizer.end(tokenizer.split.pattern, text)
        found.append(text[:size])
        text = text[size:]
    return found


WITHOUT_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@pytest.mark.parametrize("family", SPLITS)
def test_pieces_before_and_after_a_certain_end_are_independent(family: str) -> None:
    tokenizer = small(family)

    @given(
        TEXTS,
        WITHOUT_SURROGATES,
    )
    def agree(text: str, more: str) -> None:
        text = text.encode("utf-8", "replace").decode()
        end = certain_end(text)
        assert pieces(tokenizer, text[:end]) + pieces(tokenizer, text[end:] + more) == pieces(tokenizer, text + more)

    agree()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one word", " word"),
        ("one word ", " "),
        ("a = b\n", " b\n"),
        ("a = b\n    c", " b\n    c"),
        ("你好\uff0c世界", "\uff0c世界"),
        ('{"a":12', '":12'),
        ("don't", "don't"),
        ("x\n/", "x\n/"),
        ("", ""),
    ],
)
def test_what_is_kept(text: str, kept: str) -> None:
    assert text[certain_end(text) :] == kept
