"""The files of tokenizers on this machine: published vocabularies, and each tokenizer.json that the user names.

Nothing is downloaded.
"""

import base64
import gzip
import hashlib
import importlib.util
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from streamgauge.recount.models import begins_with, tokenizer_name, version_of
from streamgauge.recount.tokenizer import JsonTokenizer, RankTokenizer, Tokenizer

# A tokenizer.json of a current model has up to 35 MB.
MAX_JSON_BYTES = 256 * 1024 * 1024

# How vocabularies split a text into pieces, in the dialect of tiktoken's engine.
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS_BY_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_OTHER_PIECES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
O200K = "|".join([*(word + _CONTRACTION + "?" for word in _WORDS_BY_CASE), r"\p{N}{1,3}", _OTHER_PIECES])
TEKKEN = "|".join([*_WORDS_BY_CASE, r"\p{N}", _OTHER_PIECES])


class Vocabulary(NamedTuple):
    """A published vocabulary. `pattern`: the expression for pieces; `file`: its name; `sha256`: of that file; `package`,
    `folder`: where an installed package carries it, also compressed by gzip; `install`: what pip installs that package by.
    """

    pattern: str
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
def tokenizer(name: str, folder: Path | None = None) -> RankTokenizer:
    """The tokenizer of a published vocabulary, from a file in `folder` or in an installed package.

    Raises MissingVocabulary.
    """
    vocabulary = VOCABULARIES[name]
    file = next(_files_of(vocabulary, folder), None)
    if file is None:
        raise MissingVocabulary(
            f"the vocabulary {vocabulary.file} is missing: run `pip install '{vocabulary.install}'`, or put the published "
            "file into a directory and name that with --vocabularies"
        )
    try:
        content = file.read_bytes()
        content = gzip.decompress(content) if file.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise MissingVocabulary(f"the vocabulary {file} cannot be read: {error}") from None
    if hashlib.sha256(content).hexdigest() != vocabulary.sha256:
        raise MissingVocabulary(f"{file} is not the published {vocabulary.file}: its SHA-256 differs; replace it")
    try:
        return RankTokenizer(name, vocabulary.pattern, vocabulary.read(content))
    except ImportError:
        raise MissingVocabulary("tiktoken is not installed: run `pip install 'streamgauge[recount]'`") from None


def _files_of(vocabulary: Vocabulary, folder: Path | None) -> Iterator[Path]:
    """The files of a vocabulary that exist."""
    folders = [] if folder is None else [folder]
    package = importlib.util.find_spec(vocabulary.package)
    if package is not None:
        folders += [Path(location, vocabulary.folder) for location in package.submodule_search_locations or ()]
    for directory in folders:
        yield from (file for suffix in ("", ".gz") if (file := directory / f"{vocabulary.file}{suffix}").is_file())


def json_tokenizer(name: str, file: Path) -> JsonTokenizer:
    """The tokenizer of a tokenizer.json. Raises MissingVocabulary."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise MissingVocabulary(f"the tokenizer {file} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_JSON_BYTES:
        raise MissingVocabulary(f"the tokenizer {file} is too large: it has more than {MAX_JSON_BYTES} bytes")
    try:
        return JsonTokenizer(name, content)
    except ImportError:
        raise MissingVocabulary(f"{file} needs the package tokenizers: run `pip install tokenizers`") from None
    except ValueError as error:
        raise MissingVocabulary(f"{file} is not a usable tokenizer.json: {error}") from None


class Tokenizers:
    """The tokenizers of models: first those that the user names, then the published ones.

    `files`: each tokenizer.json by the beginning of the names of its models; `folder`: a directory of vocabularies.
    `missing`: a sentence for each tokenizer that a model has and that cannot be used.
    """

    def __init__(self, folder: Path | None = None, files: Iterable[tuple[str, Path]] = ()) -> None:
        self._folder = folder
        self._files = dict(files)
        self._loaded: dict[str, Tokenizer | None] = {}
        self.missing: dict[str, str] = {}

    def name_of(self, model: str | None) -> str | None:
        """The name of a model's tokenizer; None if the model has none that is known."""
        version = version_of(model)
        own = [beginning for beginning in self._files if begins_with(version, beginning)]
        return max(own, key=len) if own else tokenizer_name(model)

    def of(self, model: str | None) -> Tokenizer | None:
        """The tokenizer of a model; None if it has none that is known, or that can be used."""
        name = self.name_of(model)
        if name is None:
            return None
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Tokenizer | None:
        try:
            if name in self._files:
                return json_tokenizer(name, self._files[name])
            return tokenizer(name, self._folder)
        except MissingVocabulary as error:
            self.missing[name] = str(error)
            return None
