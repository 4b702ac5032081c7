"""A secret is one line of a file; what cannot be used is one sentence without it."""

from pathlib import Path

import pytest

from streamgauge.runtime.secret import read_secret


@pytest.mark.parametrize("content", ["one secret", "one secret\n", "one secret\r\n"])
def test_a_secret_is_the_line_without_its_break(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content.encode())
    assert read_secret(file) == "one secret"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the token file FILE does not contain exactly one line with a token"),
        (b"CANARY\nCANARY\n", "the token file FILE does not contain exactly one line with a token"),
        (b"CANARY\0", "the token file FILE does not contain exactly one line with a token"),
        (b"CANARY" * 1000, "the token file FILE does not contain exactly one line with a token"),
        (b"CANARY\xff", "the token in FILE is not UTF-8"),
        (None, "the token file FILE cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError) as refused:
        read_secret(file, "token")
    assert str(refused.value) == says.replace("FILE", str(file))


def test_a_secret_in_place_of_its_file_is_not_quoted() -> None:
    with pytest.raises(ValueError, match="path not shown, because it may be the token") as refused:
        read_secret(Path("CANARY").absolute(), "token")
    assert "CANARY" not in str(refused.value)
