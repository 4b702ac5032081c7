"""Finds the vocabulary files of public tokenizers on this machine. Nothing is downloaded."""

import base64
import binascii
import gzip
import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from streamgauge.recount.splits import CL100K, O200K, TEKKEN, Split

if TYPE_CHECKING:
    from streamgauge.recount.tokenizer import Tokenizer


class Vocabulary(NamedTuple):
    """A vocabulary. `file`: its name as published; `sha256`: of that file; `package`, `folder`: where an installed package
    carries it, also compressed by gzip; `install`: what pip installs that package by.
    """

    split: Split
    file: str
    sha256: str
    package: str
    folder: str
    install: str
    read: Callable[[bytes], Mapping[bytes, int]]


class MissingVocabulary(Exception):
    """No usable file of a vocabulary was found. The text is a sentence: what is missing, and what to do."""


def _lines(content: bytes) -> Mapping[bytes, int]:
    """Lines of a token in base64 and its rank, as tiktoken publishes them."""
    pairs = (line.split() for line in content.splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


class _Token(msgspec.Struct):
    rank: int
    token_bytes: str


class _Config(msgspec.Struct):
    default_vocab_size: int
    default_num_special_tokens: int


class _Tekken(msgspec.Struct):
    config: _Config
    vocab: list[_Token]


def _tekken(content: bytes) -> Mapping[bytes, int]:
    """A document with the tokens by rank, as Mistral publishes it. Its model uses only the first of them."""
    document = msgspec.json.decode(content, type=_Tekken)
    used = document.config.default_vocab_size - document.config.default_num_special_tokens
    return {base64.b64decode(token.token_bytes): token.rank for token in document.vocab[:used]}


VOCABULARIES: dict[str, Vocabulary] = {
    "o200k_base": Vocabulary(
        O200K,
        "o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "bpe_openai",
        "data",
        "streamgauge[recount]",
        _lines,
    ),
    "cl100k_base": Vocabulary(
        CL100K,
        "cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "bpe_openai",
        "data",
        "streamgauge[recount]",
        _lines,
    ),
    "tekken_240718": Vocabulary(
        TEKKEN,
        "tekken_240718.json",
        "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
        "mistral_common",
        "data",
        "mistral-common",
        _tekken,
    ),
    "tekken_240911": Vocabulary(
        TEKKEN,
        "tekken_240911.json",
        "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
        "mistral_common",
        "data",
        "mistral-common",
        _tekken,
    ),
}


@cache
def tokenizer(name: str, folder: Path | None = None) -> "Tokenizer":
    """The tokenizer of this name, from a file in `folder` or in an installed package. Raises MissingVocabulary."""
    try:
        from streamgauge.recount.tokenizer import Tokenizer  # an extra
    except ImportError:
        raise MissingVocabulary("tiktoken is not installed: run `pip install 'streamgauge[recount]'`") from None
    vocabulary = VOCABULARIES[name]
    for file in _places(vocabulary, folder):
        try:
            content = file.read_bytes()
            content = gzip.decompress(content) if file.suffix == ".gz" else content
        except (OSError, EOFError) as error:
            raise MissingVocabulary(f"the vocabulary {file} cannot be read: {error}") from None
        if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
            raise MissingVocabulary(f"{file} is not the published {vocabulary.file}: its SHA-256 differs; replace it")
        try:
            return Tokenizer(name, vocabulary.split, vocabulary.read(content))
        except (ValueError, binascii.Error) as error:
            raise MissingVocabulary(f"the vocabulary {file} is damaged: {error}") from None
    raise MissingVocabulary(
        f"the vocabulary {vocabulary.file} is missing: run `pip install '{vocabulary.install}'`, or put the published file "
        "into a directory and name that with --vocabularies"
    )


def _places(vocabulary: Vocabulary, folder: Path | None) -> Iterator[Path]:
    """The files of this vocabulary that exist."""
    folders = [] if folder is None else [folder]
    found = importlib.util.find_spec(vocabulary.package)
    if found is not None:
        folders += [Path(place, vocabulary.folder) for place in found.submodule_search_locations or ()]
    for place in folders:
        yield from (file for suffix in ("", ".gz") if (file := place / f"{vocabulary.file}{suffix}").is_file())
