"""How old a row of the spool is, by a clock that no step of the wall clock touches.

Age is the host's running time (sleep counts) plus an offset that holds until the next boot. Only what passed between two
boots is taken from the wall clock, and only if it went forward. A clock that cannot be read begins anew at the last row:
rows then wait longer, none is given up early.
"""

import functools
import sqlite3
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from streamgauge.spool.file import with_checksum, without_checksum

# How often the clock notes where it stands (seconds): so much age a reboot may cost a row, of a limit of hours or days.
NOTE_S = 60

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEY = "clock"


class Moment(NamedTuple):
    """Which boot, seconds since then, and UTC seconds."""

    boot: str
    up_s: int
    wall_s: int


class _Clock(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    offset_s: int
    noted_s: int  # the age when this was written, and the wall clock then
    wall_s: int


_DECODER = msgspec.msgpack.Decoder(_Clock)


def moment() -> Moment:
    """Now."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Moment(_boot(), int(time.clock_gettime(clock)), int(time.time()))


@functools.cache
def _boot() -> str:
    """The kernel's name for this boot; elsewhere than on Linux each process is one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())


def age_now(connection: sqlite3.Connection, now: Moment) -> int:
    """What the age clock shows (seconds); within a transaction that may write."""
    clock = _noted(connection)
    if clock is not None and clock.boot == now.boot:
        age = now.up_s + clock.offset_s
        if age - clock.noted_s < NOTE_S:
            return age
    elif clock is not None:
        age = clock.noted_s + max(now.wall_s - clock.wall_s, 0)
    else:
        age = connection.execute("SELECT coalesce((SELECT put_s FROM rows ORDER BY id DESC LIMIT 1), 0)").fetchone()[0]
    told = with_checksum(msgspec.msgpack.encode(_Clock(now.boot, age - now.up_s, age, now.wall_s)))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, told))
    return int(age)


def _noted(connection: sqlite3.Connection) -> _Clock | None:
    found = connection.execute("SELECT value FROM meta WHERE key=?", (_KEY,)).fetchone()
    try:
        return _DECODER.decode(without_checksum(found[0]) or b"") if found else None
    except msgspec.DecodeError:
        return None
