"""Tokenizers for tests: small random vocabularies for each family of expressions, and the published ones if installed."""

import random
from functools import cache

import pytest

from streamgauge.recount.bpe import Merges
from streamgauge.recount.splits import CL100K, O200K, TEKKEN
from streamgauge.recount.tokenizer import Tokenizer
from streamgauge.recount.vocabularies import VOCABULARIES, MissingVocabulary, tokenizer

SPLITS = {"cl100k": CL100K, "o200k": O200K, "tekken": TEKKEN}


def random_ranks(seed: int, alphabet: bytes, merges: int = 60, longest: int = 12) -> dict[bytes, int]:
    """All bytes, and merges of two earlier tokens each over an alphabet, as training makes them: each is reachable."""
    draw, ranks = random.Random(seed), {bytes([value]): value for value in range(256)}
    tokens = [bytes([value]) for value in alphabet]
    for _ in range(merges):
        token = draw.choice(tokens) + draw.choice(tokens)
        if token not in ranks and len(token) <= longest and len(Merges(ranks).encode(token)) == 2:
            ranks[token] = len(ranks)
            tokens.append(token)
    return ranks


@cache
def small(family: str, seed: int = 0) -> Tokenizer:
    """A tokenizer with a random vocabulary over the bytes of frequent test characters."""
    return Tokenizer(family, SPLITS[family], random_ranks(seed, "aAb =\n/文".encode()))


def published(name: str) -> Tokenizer:
    """A published tokenizer; skips the test if its vocabulary is not installed."""
    try:
        return tokenizer(name)
    except MissingVocabulary as error:
        pytest.skip(str(error))


PUBLISHED = tuple(VOCABULARIES)
