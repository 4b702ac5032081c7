"""A growing piece has the count of the whole piece, at every prefix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.recount.bpe import GrowingPiece, Merges
from tests.recount.tokenizers import PUBLISHED, published, random_ranks

ALPHABET = b"abc"
VOCABULARIES = [Merges(random_ranks(seed, ALPHABET)) for seed in range(20)]


@given(st.sampled_from(VOCABULARIES), st.lists(st.sampled_from(ALPHABET), max_size=80).map(bytes))
def test_every_prefix_has_the_count_of_its_encoding(merges: Merges, piece: bytes) -> None:
    growing = GrowingPiece(merges)
    assert growing.count == 0
    for size in range(1, len(piece) + 1):
        growing.append(piece[size - 1 : size])
        assert growing.count == len(merges.encode(piece[:size]))


def test_memory_does_not_grow_with_the_piece() -> None:
    merges = VOCABULARIES[0]
    growing = GrowingPiece(merges)
    growing.append(b"abcabba" * 3_000)
    assert len(growing._bytes) <= merges.max_length
    assert len(growing._prefixes) <= merges.max_length


def test_a_piece_that_is_a_token_is_one_token_even_if_no_merges_lead_to_it() -> None:
    ranks = {bytes([value]): value for value in range(256)} | {b"abcd": 300}
    growing = GrowingPiece(Merges(ranks))
    growing.append(b"abcd")
    assert growing.count == 1
    growing.append(b"e")
    assert growing.count == 5


def test_a_merge_at_the_end_may_change_earlier_tokens() -> None:
    ranks = {bytes([value]): value for value in range(256)} | {b"bc": 256, b"ab": 257, b"abcd"[2:]: 258}
    growing = GrowingPiece(Merges(ranks))
    counts = []
    for byte in b"abcd":
        growing.append(bytes([byte]))
        counts.append(growing.count)
    assert counts == [1, 1, 2, 3]  # a, ab, a|bc, a|bc|d


@pytest.mark.parametrize("name", PUBLISHED)
def test_merges_lead_to_every_token_of_a_published_vocabulary(name: str) -> None:
    merges = published(name).merges
    tokens = list(merges.ranks)[::53]  # all of them take seconds
    assert [token for token in tokens if merges.encode(token) != [token]] == []
