"""Counts of whole texts: exact within the bounds of length, and none beyond them."""

import json
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.recount.tokenizer import (
    MAX_JSON_TEXT,
    MAX_UNCUT,
    JsonTokenizer,
    RankTokenizer,
    last_cut,
    without_surrogates,
)
from tests.each import each
from tests.recount.tokenizers import PATTERNS, PUBLISHED, pieces, published, small

# Each class of characters that the expressions distinguish, and what is special in one of them.
SPECIAL = [
    "a", "b", "é", "A", "B", "ǅ", "ʰ", "文", "字", "ก", "\u0301", "1", "2", "٣", "½", " ", "\t", "\u3000", "\x85", "\x1c",
    "\n", "\r", "/", "'", "'s", "'LL", "'r", "\u017f", "=", "-", ".", "\uff0c", "…", "😀",
]  # fmt: skip
RUNS = st.builds(lambda text, times: text * times, st.sampled_from(SPECIAL), st.sampled_from([1, 1, 1, 2, 3, 9, 40]))
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.lists(RUNS | st.text(CHARACTERS, max_size=4), max_size=40).map("".join)


@pytest.mark.parametrize("family", PATTERNS)
def test_a_cut_splits_no_piece_whatever_follows(family: str) -> None:
    @given(TEXTS, st.text(CHARACTERS, max_size=10))
    @example("don't stop", "")
    @example("a \n", "  b")
    @example("x\n/", "/")
    @example("文A b", "c")
    def agree(text: str, more: str) -> None:
        cut = last_cut(text)
        assert pieces(family, text[:cut]) + pieces(family, text[cut:] + more) == pieces(family, text + more)

    agree()


@pytest.mark.parametrize(
    ("text", "rest"),
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
def test_the_last_cut(text: str, rest: str) -> None:
    assert text[last_cut(text) :] == rest


def in_windows(tokenizer: RankTokenizer, size: int) -> RankTokenizer:
    """The tokenizer with a smaller bound, so that short texts are counted as long ones are."""
    tokenizer = copy(tokenizer)
    tokenizer.max_uncut = size
    return tokenizer


@pytest.mark.parametrize("family", PATTERNS)
def test_a_text_in_windows_has_the_count_of_the_whole(family: str) -> None:
    @given(TEXTS, st.integers(1, 60), st.integers(0, 5))
    def agree(text: str, window: int, seed: int) -> None:
        tokenizer = small(family, seed)
        longest = max(map(len, (piece.decode() for piece in pieces(family, text))), default=0)
        count = in_windows(tokenizer, window).count(text)
        assert count == tokenizer.count(text) or (count is None and len(text) > window)
        assert count is None or longest <= window

    agree()


def test_a_window_is_no_bound_for_text_that_can_be_cut() -> None:
    text, tokenizer = "Every word of this sentence has its end.\n" * 40, small("o200k")
    assert in_windows(tokenizer, 16).count(text) == tokenizer.count(text)


# One piece each, of a class that is slow or deep in the engine, or takes long to merge.
UNCUT = ["a", "A", "=", " ", "\n", " \n", "\t", "\u3000", "กำลัง", "文", "😀", "\u0301", "a\u0301", "streamgauge"]


@each(UNCUT, repr)
def test_a_piece_is_counted_up_to_the_bound(part: str) -> None:
    text = (part * MAX_UNCUT)[:MAX_UNCUT]
    tokenizer = published("o200k_base")
    assert 0 < (tokenizer.count(text) or 0) <= len(text.encode())
    assert tokenizer.count(text + part) is None
    assert tokenizer.count(f"Before it. {text + part}") is None


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_bound_is_of_a_piece_and_not_of_the_text(name: str) -> None:
    tokenizer = published(name)
    part = "x" * (MAX_UNCUT - 1)
    one, four = tokenizer.count(" " + part), tokenizer.count(f" {part}" * 4)
    assert one is not None
    assert four == 4 * one


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("\ud83d\ude00", "😀"),
        ("\ud83d", "\ufffd"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("é", "é"),
        ("", ""),
    ],
)
def test_surrogates(text: str, joined: str) -> None:
    assert without_surrogates(text) == joined


def test_special_tokens_in_a_text_are_text() -> None:
    assert (published("o200k_base").count("<|endoftext|>") or 0) > 1


@pytest.mark.parametrize(("name", "tokens"), [("o200k_base", 4), ("cl100k_base", 4)])
def test_a_known_count(name: str, tokens: int) -> None:
    assert published(name).count("hello world, again") == tokens


def document(**changes: Any) -> bytes:
    """A tokenizer.json whose tokens are single characters, and `he`."""
    tokens = ["h", "e", "l", "o", " ", "<", "|", "n", "d", ">", "he", "?"]
    model = {
        "type": "BPE", "dropout": None, "unk_token": "?", "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "vocab": {token: rank for rank, token in enumerate(tokens)},
        "merges": [["h", "e"]],
    }  # fmt: skip
    special = {
        "id": 12, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": True,
    }  # fmt: skip
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    return json.dumps(whole | changes).encode()


@pytest.fixture
def library() -> None:
    pytest.importorskip("tokenizers")


@pytest.mark.usefixtures("library")
class TestJsonTokenizer:
    def test_it_counts(self) -> None:
        tokenizer = JsonTokenizer("hello-1", document())
        assert (tokenizer.name, tokenizer.count("hello hello"), tokenizer.count("")) == ("hello-1", 4 + 1 + 4, 0)

    def test_special_tokens_in_a_text_are_text(self) -> None:
        assert JsonTokenizer("hello-1", document()).count("<|end|>") == 7

    def test_truncation_and_padding_of_the_file_do_not_count(self) -> None:
        truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
        padding = {
            "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 11, "pad_type_id": 0,
            "pad_token": "?",
        }  # fmt: skip
        assert JsonTokenizer("hello-1", document(truncation=truncation, padding=padding)).count("hello") == 4

    def test_a_longer_text_than_the_bound_has_no_count(self) -> None:
        tokenizer = JsonTokenizer("hello-1", document())
        assert tokenizer.count("h" * MAX_JSON_TEXT) == MAX_JSON_TEXT
        assert tokenizer.count("h" * MAX_JSON_TEXT + "h") is None

    @pytest.mark.parametrize(
        "content",
        [b"", b"{}", b"\xff", document(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"})],
        ids=["empty", "no model", "no text", "a character that it cannot encode"],
    )
    def test_an_unusable_file_is_refused(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            JsonTokenizer("hello-1", content)


def test_the_bound_of_a_tokenizer_json_is_in_the_guide() -> None:
    guide = (Path(__file__).parent.parent.parent / "docs" / "guides" / "recount.md").read_text()
    assert f"{MAX_UNCUT:,} characters" in guide
    assert f"{MAX_JSON_TEXT:,} characters" in guide
