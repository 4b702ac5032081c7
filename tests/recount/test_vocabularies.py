"""Vocabularies are found in a directory or an installed package, and only the published file is accepted."""

import base64
import gzip
import hashlib
from pathlib import Path

import pytest

from streamgauge.recount import vocabularies
from streamgauge.recount.splits import CL100K
from streamgauge.recount.vocabularies import VOCABULARIES, MissingVocabulary, Vocabulary, tokenizer
from tests.recount.tokenizers import published


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
    made = Vocabulary(CL100K, "made.tiktoken", digest, "no_such_package", "", "nothing", vocabularies._lines)
    monkeypatch.setitem(VOCABULARIES, "made", made)
    (tmp_path / f"made.tiktoken{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    assert tokenizer("made", tmp_path).count("abc") == 3


@pytest.mark.usefixtures("fresh")
def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cl100k_base.tiktoken.gz").write_bytes(b"no gzip")
    with pytest.raises(MissingVocabulary, match="cannot be read"):
        tokenizer("cl100k_base", tmp_path)


@pytest.mark.parametrize(
    ("name", "size"), [("o200k_base", 199_998), ("cl100k_base", 100_256), ("tekken_240911", 130_072)]
)
def test_the_published_vocabularies_are_whole(name: str, size: int) -> None:
    assert len(published(name).merges.ranks) == size
