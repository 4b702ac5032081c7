"""Finds the other users who may read or change a file or a directory, by its owner, group and mode.

A group counts as private to a user if it has the user's name, as on systems with a umask of 002, or if it has no name on
this host, as the group of a volume in a container.
"""

import grp
import os
import pwd
import stat
from pathlib import Path

# Rights, as the bits of a mode for all other users.
READ, WRITE = 0o4, 0o2


def others_who_may(status: os.stat_result, rights: int) -> str | None:
    """The users besides the owner who have one of `rights`, named for a sentence; None if there are none."""
    if status.st_mode & rights:
        return "every user of this host"
    group = _shared_group(status.st_gid) if status.st_mode >> 3 & rights else None
    return f"the members of the group {group}" if group else None


def _shared_group(number: int) -> str | None:
    """The group's name, if other users may be in it; else None.

    A group does not list the users who have it as their main group. So the group's name decides as well as its members.
    """
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None
    is_own = group.gr_name == user or number == 0  # what root's group may do, root may do
    return None if is_own and set(group.gr_mem) <= {user, "root"} else group.gr_name


def mode_of(status: os.stat_result) -> str:
    """The mode as chmod takes it."""
    return f"{stat.S_IMODE(status.st_mode):04o}"


def owner_of(status: os.stat_result) -> str:
    """The owner's name, or the owner's number if there is no name."""
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return str(status.st_uid)


def is_our_directory(path: str | os.PathLike[str]) -> bool:
    """Whether this is a directory of this user in which no other user, except root, can add or replace a file."""
    try:
        status = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and others_who_may(status, WRITE) is None
