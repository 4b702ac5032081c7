"""A clock for the age of rows in the spool, which steps of the wall clock do not change.

The clock is the host's running time (sleep included) plus an offset that is constant until the next boot. Only the time
between two boots is taken from the wall clock, and only if that went forward. If the stored clock cannot be read, a new
clock continues at the time of the last row: rows may then wait longer, and none is dropped early.
"""

import functools
import sqlite3
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from streamgauge.spool.file import with_checksum, without_checksum

# How often the clock is stored (seconds). A reboot may lose so much of a row's age, whose limit is hours or days.
NOTE_S = 60

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEY = "clock"


class Moment(NamedTuple):
    """The boot's id, seconds since the boot, and UTC seconds."""

    boot: str
    up_s: int
    wall_s: int


class _Clock(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    offset_s: int
    noted_s: int  # what the clock showed when this was stored; `wall_s`: the wall clock at that moment
    wall_s: int


_DECODER = msgspec.msgpack.Decoder(_Clock)


def moment() -> Moment:
    """The current moment."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Moment(_boot(), int(time.clock_gettime(clock)), int(time.time()))


@functools.cache
def _boot() -> str:
    """The kernel's id of this boot; on systems other than Linux a random id for each process."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())


def age_now(connection: sqlite3.Connection, now: Moment) -> int:
    """The time of the age clock (seconds). Call it in a transaction that may write: it stores the clock every NOTE_S."""
    clock = _noted(connection)
    if clock is not None and clock.boot == now.boot:
        age = now.up_s + clock.offset_s
        if age - clock.noted_s < NOTE_S:
            return age
    elif clock is not None:
        age = clock.noted_s + max(now.wall_s - clock.wall_s, 0)
    else:
        age = connection.execute("SELECT coalesce((SELECT put_s FROM rows ORDER BY id DESC LIMIT 1), 0)").fetchone()[0]
    stored = with_checksum(msgspec.msgpack.encode(_Clock(now.boot, age - now.up_s, age, now.wall_s)))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, stored))
    return int(age)


def _noted(connection: sqlite3.Connection) -> _Clock | None:
    row = connection.execute("SELECT value FROM meta WHERE key=?", (_KEY,)).fetchone()
    try:
        return _DECODER.decode(without_checksum(row[0]) or b"") if row else None
    except msgspec.DecodeError:
        return None
