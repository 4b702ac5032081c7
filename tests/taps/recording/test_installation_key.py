"""The installation's key: made once, private, never half."""

import threading
from pathlib import Path

import pytest

from streamgauge.taps.recording.installation_key import UnusableKeyError, installation_key


def test_it_is_made_once_and_private(tmp_path: Path) -> None:
    key = installation_key(tmp_path)
    assert len(key) == 32
    assert installation_key(tmp_path) == key
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_all_makers_get_the_same_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    makers = [threading.Thread(target=lambda: keys.append(installation_key(tmp_path))) for _ in range(20)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(keys) == 20
    assert len(set(keys)) == 1


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UnusableKeyError, match="32 bytes"):
        installation_key(tmp_path)
    assert (tmp_path / "key").read_bytes() == content


def test_no_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        installation_key(tmp_path / "missing")
