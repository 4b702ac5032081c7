"""The installation's key: created once, private, never partial."""

import grp
import os
import threading
from pathlib import Path

import pytest

from streamgauge.recorder.installation_key import UnusableKeyError, installation_key, previous_key


def test_it_is_created_once_and_private(tmp_path: Path) -> None:
    key = installation_key(tmp_path)
    assert len(key) == 32
    assert installation_key(tmp_path) == key
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_concurrent_creators_get_the_same_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    makers = [threading.Thread(target=lambda: keys.append(installation_key(tmp_path))) for _ in range(20)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(keys) == 20
    assert len(set(keys)) == 1


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(UnusableKeyError, match="32 bytes"):
        installation_key(tmp_path)
    assert (tmp_path / "key").read_bytes() == content


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o604, 0o602, 0o640])
def test_a_key_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    key, path = installation_key(tmp_path), tmp_path / "key"
    if mode == 0o640:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file to a group that it is not in")
        os.chown(path, 0, next(group.gr_gid for group in grp.getgrall() if group.gr_gid))
    path.chmod(mode)
    with pytest.raises(UnusableKeyError) as refused:
        installation_key(tmp_path)
    sentence = str(refused.value)
    who, _, rest = sentence.partition(" can read or change ")
    assert who.startswith("the members of the group " if mode == 0o640 else "every user of this host")
    assert rest.startswith(f"the key {path} (mode {mode:04o}): chmod 600 {path}, or remove it")
    assert "\n" not in sentence
    path.chmod(0o600)
    assert installation_key(tmp_path) == key


def test_a_key_of_the_users_own_group_is_accepted(tmp_path: Path) -> None:
    """Kubernetes makes each file of a volume readable for the volume's group, which has no other member."""
    key, path = installation_key(tmp_path), tmp_path / "key"
    if os.geteuid() == 0:
        os.chown(path, 0, 3_999_999_999)
        path.chmod(0o660)
    assert installation_key(tmp_path) == key


def test_another_kind_of_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(UnusableKeyError, match="is not a regular file"):
        installation_key(tmp_path)
    (tmp_path / "key").unlink()
    (tmp_path / "key").symlink_to("nowhere")
    with pytest.raises(OSError, match="No such file"):
        installation_key(tmp_path)
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        installation_key(tmp_path / "missing")


def test_a_key_that_was_moved_is_the_previous_one_and_a_new_one_is_made(tmp_path: Path) -> None:
    old = installation_key(tmp_path)
    assert previous_key(tmp_path) is None
    (tmp_path / "key").rename(tmp_path / "key.previous")
    new = installation_key(tmp_path)
    assert new != old
    assert previous_key(tmp_path) == old
    (tmp_path / "key.previous").chmod(0o644)
    with pytest.raises(UnusableKeyError, match=r"key\.previous \(mode 0644\).* to end the rotation"):
        previous_key(tmp_path)
