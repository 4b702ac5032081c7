"""Tokenizers for tests: small random vocabularies for each expression, and the published ones if installed."""

import random
from functools import cache

import pytest
import tiktoken

from streamgauge.recount.tokenizer import RankTokenizer
from streamgauge.recount.vocabularies import CL100K, O200K, TEKKEN, VOCABULARIES, MissingVocabulary, tokenizer

PATTERNS = {"cl100k": CL100K, "o200k": O200K, "tekken": TEKKEN}
BYTES = {bytes([value]): value for value in range(256)}


def random_ranks(seed: int, alphabet: bytes, merges: int = 60, longest: int = 12) -> dict[bytes, int]:
    """All bytes, and merges of two earlier tokens each over an alphabet."""
    draw, ranks = random.Random(seed), dict(BYTES)
    tokens = [bytes([value]) for value in alphabet]
    for _ in range(merges):
        token = draw.choice(tokens) + draw.choice(tokens)
        if token not in ranks and len(token) <= longest:
            ranks[token] = len(ranks)
            tokens.append(token)
    return ranks


@cache
def small(family: str, seed: int = 0) -> RankTokenizer:
    """A tokenizer with a random vocabulary over the bytes of frequent test characters."""
    return RankTokenizer(family, PATTERNS[family], random_ranks(seed, "aAb =\n/文".encode()))


@cache
def _beginning(family: str) -> tiktoken.Encoding:
    """An encoding with a token for each byte of a text's first piece, and none for the rest."""
    pattern = rf"\A(?:{PATTERNS[family]})"
    return tiktoken.Encoding("beginning", pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})


def pieces(family: str, text: str) -> list[bytes]:
    """The pieces into which an expression splits a text."""
    parts, rest = [], text.encode()
    while rest:
        size = len(_beginning(family).encode_ordinary(rest.decode()))
        parts.append(rest[:size])
        rest = rest[size:]
    return parts


def published(name: str) -> RankTokenizer:
    """A published tokenizer; skips the test if its vocabulary is not installed."""
    try:
        return tokenizer(name)
    except MissingVocabulary as error:
        pytest.skip(str(error))


PUBLISHED = tuple(VOCABULARIES)
