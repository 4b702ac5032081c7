"""Bundles into the spool, in order, whatever the disk does: what is full or fails costs reads, and is counted.

Where there is no room for a bundle's reads, reads are dropped: by policy those of the oldest bundles that wait in the
spool, or its own. A bundle without its reads stays in its place: heads, ends, heartbeats, and the losses that tell of the
drop. Where there is no room even for these, bundles in the spool lose their reads whatever the policy: the oldest, or the
newest. While the disk refuses everything, bundles wait here, and when that gets too much they wait without their reads.
At the end the outbox drops the reads of what still waits, and puts heads and ends into the space that is kept for them.

The spool also remembers which instances ran on this data directory and did not say farewell, with the slots they used.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.recorder.bundler import reads_of, without_reads
from streamgauge.recorder.write_refusals import WriteRefusals
from streamgauge.spool import MAX_AGE_S, NewRow, Reserve, Room, Spool, cost_of
from streamgauge.spool.read_counters import Counters, DropReason, Incident

# Bundles that wait for a disk that refuses everything (bytes): half of it for any, all of it for those without reads,
# which are some hundred thousand heads and ends.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# Rows of one transaction (bytes): a disk's moment. Small spools take less at once.
_AT_ONCE_BYTES = 4 * 1024 * 1024
# When room has to be made, so much is made at once (bytes): a few bundles, ten milliseconds' work.
_ROOM_BYTES = 256 * 1024
# Where the kept space does not take all of the last rows, they are put in smaller transactions, down to this size (bytes):
# each takes some pages more than its rows.
_LEAST_AT_ONCE_BYTES = 16 * 1024

Policy = Literal["drop-newest", "drop-oldest"]

_INSTANCES = "instances"
_DECODER = msgspec.msgpack.Decoder(dict[bytes, list[int]])


def unfinished_instances(spool: Spool) -> dict[bytes, list[int]]:
    """Instances that ran and did not say farewell, with their slots; none where that cannot be read."""
    try:
        return _DECODER.decode(spool.get(_INSTANCES) or b"\x80")
    except msgspec.DecodeError:
        return {}


class _Item(msgspec.Struct, frozen=True):
    bundle: Bundle
    row: NewRow
    cost: int


class Lost(msgspec.Struct, frozen=True):
    """What was lost when the outbox was closed, as it is counted, and the error of the system (empty: the spool is full).

    `reads` of so many `streams` were dropped. `without_record`: the streams of which nothing lies in the spool.
    """

    reads: int
    streams: int
    without_record: int
    reason: DropReason
    error: str

    def sentence(self, data_dir: str) -> str:
        """For the operator: what was lost, and what to do."""
        missing = f"; {self.without_record} of these streams have no record" if self.without_record else ""
        cure = "free space there, or make the directory writable," if self.error else "set a larger --spool-bytes"
        return (
            f"the spool in {data_dir} could not store the last reads ({self.error or 'it is full'}): {self.reads} reads of"
            f" {self.streams} streams are lost and counted as {self.reason}{missing}; {cure} before the next start"
        )


class SpoolWriter:
    """One instance's way into the spool. Raises nothing for the disk's faults.

    `refusals` is told how each write went. `reserve`: disk space for the last rows.
    """

    def __init__(
        self,
        instance: bytes,
        spool: Spool,
        counters: Counters,
        policy: Policy = "drop-newest",
        max_age_s: float = MAX_AGE_S,
        refusals: WriteRefusals | None = None,
        reserve: Reserve | None = None,
    ) -> None:
        self._instance = instance
        self._policy: Policy = policy
        self._max_age_s = max_age_s
        self._spool, self._counters = spool, counters
        self._refusals, self._reserve = refusals, reserve
        self._at_once = min(_AT_ONCE_BYTES, spool.most_at_once)
        self._waiting: deque[_Item] = deque()
        self._waiting_bytes = 0
        self._told: dict[bytes, list[int]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether everything that was sent lies in the spool."""
        return not self._waiting

    def send(self, bundles: Iterable[Bundle], slots: Sequence[int], *, farewell: bool = False) -> None:
        """Put bundles behind what was sent before. `slots`: all that the instance has used so far."""
        running = {self._instance: list(slots)}
        for bundle in bundles:
            self._append(_item(bundle))
            if self._waiting_bytes >= self._at_once:
                self._put(running, last={})
        self._put(running, last={} if farewell else running)
        while self._waiting and self._put(running, last={} if farewell else running):
            pass

    def close(self, slots: Sequence[int]) -> Lost | None:
        """Drop the reads of what the disk did not take, and put heads and ends where space is kept for them.

        Gives what was lost; None if all lies in the spool. After a call of `send` with `farewell`.
        """
        if not self._waiting:
            return None
        error, reason = self._spool.error, self._reason
        self._refusals = None  # that the last rows find room says nothing of other reads
        given_up = [item.bundle for item in self._waiting if item.row.reads]
        self._waiting = deque(self._lighter(item) if item.row.reads else item for item in self._waiting)
        self._waiting_bytes = sum(item.cost for item in self._waiting)
        if self._reserve is not None:
            self._reserve.release()
        running = {self._instance: list(slots)}
        while self._waiting:
            if not self._put(running, last={}):
                self._at_once //= 2
                if self._at_once < _LEAST_AT_ONCE_BYTES:
                    break
        missing = [item.bundle for item in self._waiting]
        self._counters.happened(Incident.BUNDLE_LOST, len(missing))
        self._waiting.clear()
        self._waiting_bytes = 0
        streams = {one.stream for bundle in (*given_up, *missing) for one in bundle.segments}
        begun = {one.stream for bundle in missing for one in bundle.segments if one.opening is not None}
        return Lost(sum(map(reads_of, given_up)), len(streams), len(begun), reason, error)

    def give_up_old(self) -> bool:
        """Reads that have waited in the spool for too long are dropped, of a few bundles. Whether there may be more."""
        return self._spool.give_up_old(self._max_age_s, _light) > 0

    def _append(self, item: _Item) -> None:
        if item.row.reads and self._waiting_bytes + item.cost > MAX_WAITING_BYTES // 2:
            item = self._lighter(item)
        if self._waiting_bytes + item.cost > MAX_WAITING_BYTES:
            self._counters.happened(Incident.BUNDLE_LOST)
            return
        self._waiting.append(item)
        self._waiting_bytes += item.cost

    def _put(self, running: dict[bytes, list[int]], *, last: dict[bytes, list[int]]) -> bool:
        """Put what fits, from the front. Whether anything went.

        What is told of instances goes with the first rows that need it, and with the last: their farewells.
        """
        fitting = self._fitting()
        known = last if len(fitting) == len(self._waiting) else running
        told = {} if known == self._told else {_INSTANCES: msgspec.msgpack.encode(known)}
        if not (fitting or told) or self._spool.failure or self._spool.put(fitting, told).failure:
            if self._spool.failure and self._refusals is not None:
                self._refusals.refused(self._spool.error)
            return False
        if self._refusals is not None:
            self._refusals.written()
        self._told = known
        for _ in fitting:
            self._waiting_bytes -= self._waiting.popleft().cost
        return bool(fitting)

    def _fitting(self) -> list[NewRow]:
        """Rows from the front that there is room for, or room is made for; or that lose their reads for lack of it."""
        rows: list[NewRow] = []
        used = 0
        room = self._spool.room() if self._waiting else Room(0, 0)
        for place in range(len(self._waiting)):
            item = self._waiting[place]
            room = self._with_room(room, item, used)
            too_large = item.cost > min(room.reads - used, self._spool.most_at_once)
            if item.row.reads and too_large and self._spool.failure is None:
                self._waiting_bytes -= item.cost
                item = self._waiting[place] = self._lighter(item)
                self._waiting_bytes += item.cost
                room = self._with_room(room, item, used)
            if used + item.cost > (room.reads if item.row.reads else room.vital):
                break
            if rows and used + item.cost > self._at_once:
                break
            rows.append(item.row)
            used += item.cost
        return rows

    def _with_room(self, room: Room, item: _Item, used: int) -> Room:
        """The room, after some was made for this item if it needs that and may have it."""
        if item.row.reads and self._policy == "drop-newest":
            return room
        while self._spool.failure is None:
            short = used + item.cost - (room.reads if item.row.reads else room.vital)
            newest = self._policy == "drop-newest"  # then no more than is needed, or new reads would take the rest
            want = short if newest else max(short, _ROOM_BYTES)
            if short <= 0 or not self._spool.drop_reads_for_space(want, _light, newest=newest):
                break
            room = self._spool.room()
        return room

    @property
    def _reason(self) -> DropReason:
        """Why reads are dropped now."""
        return DropReason.SPOOL_FAILED if self._spool.failure else DropReason.SPOOL_FULL

    def _lighter(self, item: _Item) -> _Item:
        """The bundle without its reads, which are dropped."""
        self._counters.dropped(self._reason, item.row.reads)
        return _item(without_reads(item.bundle))


def _item(bundle: Bundle) -> _Item:
    reads, value = reads_of(bundle), encode_bundle(bundle)
    return _Item(bundle, NewRow(bundle.slot, reads, value, vital=not reads), cost_of(value))


def _light(value: bytes) -> bytes | None:
    """A bundle in the spool without its reads; None if it is none that can be read here."""
    try:
        return encode_bundle(without_reads(decode_bundle(value)))
    except UnreadableBundle:
        return None
