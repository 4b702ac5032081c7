"""Which other users may read or change a file, by its mode and by what its group is on this host."""

import grp
import os
import pwd
import stat
from pathlib import Path

import pytest

from streamgauge.runtime.ownership import READ, WRITE, is_our_directory, mode_of, others_who_may, owner_of

USER = pwd.getpwuid(os.geteuid())
UNUSED_NUMBER = 3_999_999_999  # of no user and no group


def found(mode: int, group: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 0, os.geteuid(), group, 0, 0, 0, 0))


def other_group() -> grp.struct_group:
    """A group of this host that is not this user's own."""
    return next(group for group in grp.getgrall() if group.gr_gid and group.gr_name != USER.pw_name)


@pytest.mark.parametrize(
    ("mode", "may_read", "may_write"),
    [(0o600, False, False), (0o604, True, False), (0o602, False, True), (0o666, True, True), (0o1777, True, True)],
)
def test_all_users_by_the_last_digit(mode: int, may_read: bool, may_write: bool) -> None:
    file = found(mode, USER.pw_gid)
    assert (others_who_may(file, READ) == "every user of this host") == may_read
    assert (others_who_may(file, WRITE) == "every user of this host") == may_write


def test_a_group_of_others_is_named() -> None:
    group = other_group()
    assert others_who_may(found(0o660, group.gr_gid), WRITE) == f"the members of the group {group.gr_name}"
    assert others_who_may(found(0o640, group.gr_gid), WRITE) is None
    assert others_who_may(found(0o640, group.gr_gid), READ | WRITE) == f"the members of the group {group.gr_name}"
    assert others_who_may(found(0o600, group.gr_gid), READ | WRITE) is None


def test_a_user_s_own_group_and_one_without_a_name_are_private() -> None:
    """A umask of 002 gives files to the former, a volume of a container often belongs to the latter."""
    assert others_who_may(found(0o660, UNUSED_NUMBER), READ | WRITE) is None
    try:
        own = grp.getgrnam(USER.pw_name)
    except KeyError:
        pytest.skip("this user has no group of its own name")
    assert others_who_may(found(0o660, own.gr_gid), READ | WRITE) is None


def test_a_mode_and_an_owner_are_shown_as_the_shell_shows_them(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o640)
    assert mode_of(file.stat()) == "0640"
    assert owner_of(file.stat()) == USER.pw_name
    assert owner_of(os.stat_result((0, 0, 0, 0, UNUSED_NUMBER, 0, 0, 0, 0, 0))) == str(UNUSED_NUMBER)


def test_a_directory_is_ours_where_no_other_user_can_put_anything(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    assert not is_our_directory(directory)
    directory.mkdir(mode=0o700)
    assert is_our_directory(directory)
    directory.chmod(0o755)
    assert is_our_directory(str(directory))
    directory.chmod(0o757)
    assert not is_our_directory(directory)
    (tmp_path / "file").touch(mode=0o600)
    assert not is_our_directory(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_user_s_directory_is_not_ours(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir(mode=0o700)
    os.chown(directory, 65_534, 65_534)
    assert not is_our_directory(directory)
