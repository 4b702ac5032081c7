"""A text that comes in parts has the count of the whole text, whatever the parts are."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamgauge.recount import token_counter
from streamgauge.recount.token_counter import TokenCounter, certain_end, without_surrogates
from streamgauge.recount.tokenizer import Tokenizer
from tests.each import each
from tests.recount.tokenizers import PUBLISHED, SPLITS, published, small

# Each class of characters that the expressions distinguish, and what is special in one of them.
SPECIAL = [
    "a", "b", "é", "A", "B", "ǅ", "ʰ", "文", "字", "ก", "\u0301", "1", "2", "٣", "½", " ", "\t", "\u3000", "\x85", "\x1c",
    "\n", "\r", "/", "'", "'s", "'LL", "'r", "\u017f", "=", "-", ".", "\uff0c", "…", "😀", "\ud83d", "\ude00",
]  # fmt: skip
RUNS = st.builds(lambda text, times: text * times, st.sampled_from(SPECIAL), st.sampled_from([1, 1, 1, 2, 3, 9, 40]))
TEXTS = st.lists(RUNS | st.text(max_size=4), max_size=40).map("".join)
# Few characters in a text make long pieces likely.
NARROW = st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=3).flatmap(
    lambda some: st.lists(st.sampled_from(some), max_size=120).map("".join)
)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=12)


def parts(text: str, sizes: list[int]) -> Iterator[str]:
    """The text in parts of these sizes, over and over."""
    at = number = 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        yield text[at : at + size]
        at, number = at + size, number + 1


def counted(tokenizer: Tokenizer, text: str, sizes: list[int]) -> int:
    counter = TokenCounter(tokenizer)
    for part in parts(text, sizes):
        counter.add(part)
    return counter.total()


@pytest.fixture(params=[(1, 5, 7), (3, 12, 50), (512, 2_048, 65_536)], ids=str)
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows, so that short texts take the ways of long ones, and the real ones."""
    for name, value in zip(("GATHERED", "MAX_KEPT", "_AT_ONCE"), request.param, strict=True):
        monkeypatch.setattr(token_counter, name, value)


@pytest.mark.parametrize("family", SPLITS)
@pytest.mark.usefixtures("window")
def test_a_small_vocabulary(family: str) -> None:
    @given(TEXTS | NARROW, SIZES, st.integers(0, 5))
    @example("文AAAA" * 20, [1], 0)
    @example("\u0301AAAA\u0301AA'll", [2], 0)
    @example("=\u0301==========", [3], 0)
    @example("=" * 40 + "\n\n//" * 10 + "a", [3], 0)
    @example(" \n" * 20 + "  \u3000  ", [1], 0)
    @example(" \n" * 20 + "  \u3000  x", [1], 0)
    @example("'s" + "a" * 30, [1], 0)
    @example("a" * 30 + "'", [1], 0)
    @example("A" * 30 + "'s'S", [1], 0)
    @example("\ud83d", [1], 0)
    @example("\ud83d\ud83d\ude00\ude00", [1], 0)
    def agree(text: str, sizes: list[int], seed: int) -> None:
        tokenizer = small(family, seed)
        assert counted(tokenizer, text, sizes) == tokenizer.count(without_surrogates(text))

    agree()


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.usefixtures("window")
def test_a_published_vocabulary(name: str) -> None:
    tokenizer = published(name)

    @given(TEXTS | NARROW, SIZES)
    @settings(max_examples=settings().max_examples // 3)
    def agree(text: str, sizes: list[int]) -> None:
        assert counted(tokenizer, text, sizes) == tokenizer.count(without_surrogates(text))

    agree()


LONG = [
    "=" * 4_000 + "\n" * 3_000 + "a",
    "A" * 4_000 + "b" + "c" * 3_000 + "'ll",
    "文" * 3_000 + "A" * 3_000 + " x",
    "\n " * 1_500 + " " * 1_000 + "x",
    " " * 4_000,
    "1" * 9_000,
    "กำลัง" * 2_000,
    "'s" * 5_000,
    "Every word of this sentence has its end. " * 400,
    "a" * 3_000 + " " + "/" * 3_000 + "\r\n" * 1_000 + "é" * 3_000,
]


@pytest.mark.slow
@each(product(PUBLISHED, LONG), lambda case: f"{case[0]} {case[1][:3]!r}")
def test_long_runs(case: tuple[str, str]) -> None:
    name, text = case
    tokenizer = published(name)
    for size in (7, 3_001):
        assert counted(tokenizer, text, [size]) == tokenizer.count(text)


@pytest.mark.parametrize("text", LONG, ids=lambda text: repr(text[:3]))
def test_text_is_not_kept(text: str) -> None:
    counter = TokenCounter(small("o200k"))
    most = 0
    for part in parts(text, [100]):
        counter.add(part)
        most = max(most, len(counter._kept))
    assert most <= token_counter.MAX_KEPT + token_counter.GATHERED + 100


def test_nothing_has_no_tokens() -> None:
    counter = TokenCounter(small("o200k"))
    assert counter.total() == 0
    counter.add("")
    assert counter.total() == 0


def test_a_surrogate_pair_in_two_parts_is_one_character() -> None:
    tokenizer = small("o200k")
    assert counted(tokenizer, "\ud83d\ude00", [1]) == tokenizer.count("😀")
    assert counted(tokenizer, "\ud83d", [1]) == tokenizer.count("\ufffd")


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
