"""Vocabularies are found in a directory or an installed package, and only the published file is accepted."""

import base64
import gzip
import hashlib
import sys
from pathlib import Path

import pytest

from streamgauge.recount import vocabularies
from streamgauge.recount.vocabularies import (
    VOCABULARIES,
    MissingVocabulary,
    Tokenizers,
    _files_of,
    tokenizer,
)
from tests.recount.test_tokenizer import document


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tokenizer is remembered, and the packages that carry the files are not installed."""
    for name in ("cl100k_base", "tekken_240911"):
        monkeypatch.setitem(VOCABULARIES, name, VOCABULARIES[name]._replace(package="no_such_package"))
    tokenizer.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("name", "package"), [("cl100k_base", r"streamgauge\[recount\]"), ("tekken_240911", "mistral-common")]
)
def test_a_missing_vocabulary_says_what_to_do(name: str, package: str) -> None:
    with pytest.raises(MissingVocabulary, match=rf"run `pip install '{package}'`, or put .*--vocabularies"):
        tokenizer(name)


@pytest.mark.usefixtures("fresh")
def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cl100k_base.tiktoken").write_bytes(b"IQ== 0\n")
    with pytest.raises(MissingVocabulary, match="SHA-256"):
        tokenizer("cl100k_base", tmp_path)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_in_a_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    content = b"".join(b"%s %d\n" % (base64.b64encode(bytes([value])), value) for value in range(256))
    digest = hashlib.sha256(content).hexdigest()
    made = VOCABULARIES["cl100k_base"]._replace(file="made.tiktoken", sha256=digest, package="no_such_package")
    monkeypatch.setitem(VOCABULARIES, "made", made)
    (tmp_path / f"made.tiktoken{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    assert tokenizer("made", tmp_path).count("abc") == 3


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"cut")[:-9], gzip.compress(b"changed")[:10] + b"\xff" * 20],
    ids=["no-gzip", "cut", "changed"],
)
def test_a_damaged_file_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cl100k_base.tiktoken.gz").write_bytes(content)
    with pytest.raises(MissingVocabulary, match="cannot be read"):
        tokenizer("cl100k_base", tmp_path)


@pytest.mark.parametrize(
    ("name", "last"), [("o200k_base", 199_997), ("cl100k_base", 100_255), ("tekken_240911", 130_071)]
)
def test_the_published_vocabularies_are_whole(name: str, last: int) -> None:
    file = next(_files_of(VOCABULARIES[name], None), None)
    if file is None:
        pytest.skip("its package is not installed")
    content = file.read_bytes()
    ranks = VOCABULARIES[name].read(gzip.decompress(content) if file.suffix == ".gz" else content)
    assert sorted(ranks.values())[-1] == last
    assert {bytes([value]) for value in range(256)} <= ranks.keys()


def named(folder: Path, **files: bytes) -> Tokenizers:
    """The tokenizers of a user who names a file with this content for each model."""
    for model, content in files.items():
        (folder / f"{model}.json").write_bytes(content)
    return Tokenizers(None, [(model, folder / f"{model}.json") for model in files])


class TestTokenizers:
    def test_the_longest_name_that_a_model_begins_with_counts(self, tmp_path: Path) -> None:
        tokenizers = named(tmp_path, own=b"", **{"own-2": b""})
        models = ("vendor/Own", "own-1", "own-2-large", "own2", "gpt-4o", None)
        assert [tokenizers.name_of(model) for model in models] == ["own", "own", "own-2", None, "o200k_base", None]

    def test_a_file_of_the_user_comes_before_a_published_vocabulary(self, tmp_path: Path) -> None:
        pytest.importorskip("tokenizers")
        tokenizers = named(tmp_path, **{"gpt-4o": document()})
        counter = tokenizers.of("gpt-4o-mini")
        assert counter is not None
        assert (counter.name, counter.count("hello"), tokenizers.missing) == ("gpt-4o", 4, {})
        assert tokenizers.of("gpt-4o-2024-08-06") is counter

    def test_an_unusable_file_is_said_once(self, tmp_path: Path) -> None:
        pytest.importorskip("tokenizers")
        tokenizers = named(tmp_path, own=b"{}")
        assert tokenizers.of("own-1") is tokenizers.of("own-1") is None
        [sentence] = tokenizers.missing.values()
        assert "own.json is not a usable tokenizer.json" in sentence

    def test_a_missing_file_is_said(self, tmp_path: Path) -> None:
        tokenizers = Tokenizers(None, [("own", tmp_path / "none.json")])
        assert tokenizers.of("own") is None
        assert "none.json cannot be read: No such file" in tokenizers.missing["own"]

    def test_a_file_without_an_end_is_not_read_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(vocabularies, "MAX_JSON_BYTES", 1_000)
        tokenizers = Tokenizers(None, [("own", Path("/dev/zero"))])
        assert tokenizers.of("own") is None
        assert "more than 1000 bytes" in tokenizers.missing["own"]

    def test_without_the_library_the_package_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        tokenizers = named(tmp_path, own=document())
        assert tokenizers.of("own") is None
        assert "run `pip install tokenizers`" in tokenizers.missing["own"]

    def test_without_tiktoken_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tokenizer.cache_clear()
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        tokenizers = Tokenizers()
        assert tokenizers.of("gpt-4o") is None
        assert "run `pip install 'streamgauge[recount]'`" in tokenizers.missing["o200k_base"]
