"""A clock for the age of rows in the spool, which steps of the wall clock do not change.

The clock is the host's running time (sleep included) plus an offset that is constant until the next boot. Only the time
between two boots is taken from the wall clock, and only if that went forward. A note of the clock in the spool continues it
in the next process. If the note cannot be read, the clock continues at the time of the last row: rows may then wait longer,
and none is dropped early.
"""

import functools
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

# How often the clock is noted (seconds). A reboot may lose so much of a row's age, whose limit is hours or days.
NOTE_S = 60

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Moment(NamedTuple):
    """The boot's id, seconds since the boot, and UTC seconds."""

    boot: str
    up_s: int
    wall_s: int


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


class _Note(msgspec.Struct, array_like=True, frozen=True):
    boot: str
    offset_s: int
    noted_s: int  # what the clock showed when this was stored; `wall_s`: the wall clock at that moment
    wall_s: int


_DECODER = msgspec.msgpack.Decoder(_Note)


class RowClock:
    """The clock of one process. `note`: the last note in the spool; `last_s`: the time of the spool's last row."""

    def __init__(self, note: bytes | None, last_s: int, now: Callable[[], Moment]) -> None:
        self._now = now
        self._offset_s = _offset_s(note, last_s, now())
        self._noted_s: int | None = None

    def seconds(self) -> int:
        """The time that the clock shows."""
        return self._now().up_s + self._offset_s

    def due_note(self) -> bytes | None:
        """A note to store; None if the last one is not older than NOTE_S."""
        now = self._now()
        shown = now.up_s + self._offset_s
        if self._noted_s is not None and shown - self._noted_s < NOTE_S:
            return None
        self._noted_s = shown
        return msgspec.msgpack.encode(_Note(now.boot, self._offset_s, shown, now.wall_s))


def _offset_s(note: bytes | None, last_s: int, now: Moment) -> int:
    try:
        noted = _DECODER.decode(note or b"")
    except msgspec.DecodeError:
        return last_s - now.up_s
    if noted.boot == now.boot:
        return noted.offset_s
    return noted.noted_s + max(now.wall_s - noted.wall_s, 0) - now.up_s
