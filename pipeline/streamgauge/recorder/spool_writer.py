"""Puts bundles into the spool, in order. If the spool is full, or the disk fails, reads are dropped and counted.

If a bundle's reads do not fit, reads are dropped: by policy from the oldest bundles that wait in the spool, or from the
bundle itself. A bundle without its reads stays in its place: heads, ends, heartbeats, and the losses that count the drop.
If even that does not fit, bundles in the spool lose their reads under both policies: the oldest, or the newest. While the
disk refuses everything, bundles wait here; when they are too many, they wait without their reads. At the end the writer
drops the reads of bundles that still wait, and puts heads and ends into the reserved disk space (spool/reserve.py).

The spool also stores which instances ran on this data directory and did not send farewells, with the slots they used.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle, encode_bundle, without_reads
from streamgauge.core.capture.segments import Bundle
from streamgauge.recorder.bundler import reads_of
from streamgauge.recorder.write_refusals import WriteRefusals
from streamgauge.settings.declarations import SpoolSettings
from streamgauge.spool import NewRow, Reserve, Room, Spool, cost_of
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.spool.response_counters import NotCaptured

# Bundles that wait while the disk refuses everything (bytes): half of it for any bundles, the rest only for those
# without reads, which are about a hundred thousand heads and ends.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# Rows of one transaction (bytes): a disk writes them in a moment. Small spools have smaller transactions.
AT_ONCE_BYTES = 4 * 1024 * 1024
# When reads in the spool are dropped for space, this much is freed at once (bytes): a few bundles, 10 ms of work.
_ROOM_BYTES = 256 * 1024
# If the reserved space does not hold all of the last rows, they are put in smaller transactions, down to this size
# (bytes): each transaction needs some pages besides its rows.
_LEAST_AT_ONCE_BYTES = 16 * 1024

_INSTANCES = "instances"
_DECODER = msgspec.msgpack.Decoder(dict[bytes, list[int]])


def unfinished_instances(spool: Spool) -> dict[bytes, list[int]]:
    """Instances that ran and did not send farewells, with their slots; none if the entry cannot be read."""
    try:
        return _DECODER.decode(spool.get(_INSTANCES) or b"\x80")
    except msgspec.DecodeError:
        return {}


class _Item(msgspec.Struct, frozen=True):
    bundle: Bundle
    row: NewRow
    cost: int


class Lost(msgspec.Struct, frozen=True):
    """The losses when the writer was closed, as they are counted, and the system's error (empty: the spool is full).

    `reads`: the dropped reads; `streams`: the number of streams that lost data; `without_record`: the number of streams that
    have nothing in the spool.
    """

    reads: int
    streams: int
    without_record: int
    reason: DropReason
    error: str

    def sentence(self, data_dir: str) -> str:
        """A sentence for the operator: what was lost, and what to do."""
        missing = f"; {self.without_record} of these streams have no record" if self.without_record else ""
        cure = "free space there, or make the directory writable," if self.error else "set a larger --spool-bytes"
        return (
            f"the spool in {data_dir} could not store the last reads ({self.error or 'it is full'}): {self.reads} reads of"
            f" {self.streams} streams are lost and counted as {self.reason}{missing}; {cure} before the next start"
        )


class SpoolWriter:
    """Writes one instance's bundles into the spool. Raises nothing if the disk fails.

    `settings` None: the defaults. `refusals` gets the result of each write. `reserve`: disk space for the last rows.
    """

    def __init__(
        self,
        instance: bytes,
        spool: Spool,
        counters: Counters,
        settings: SpoolSettings | None = None,
        refusals: WriteRefusals | None = None,
        reserve: Reserve | None = None,
    ) -> None:
        self._instance = instance
        self._settings = settings or SpoolSettings()
        self._spool, self._counters = spool, counters
        self._refusals, self._reserve = refusals, reserve
        self._at_once = min(AT_ONCE_BYTES, spool.most_at_once)
        self._waiting: deque[_Item] = deque()
        self._waiting_bytes = 0
        self._stored_instances: dict[bytes, list[int]] | None = None
        self._unstored: dict[bytes, str | None] = {}  # the upstreams of streams of which all bundles so far are lost

    @property
    def is_empty(self) -> bool:
        """Whether everything that was sent is in the spool."""
        return not self._waiting

    def send(self, bundles: Iterable[Bundle], slots: Sequence[int], *, farewell: bool = False) -> None:
        """Put bundles after those sent before. `slots`: all that the instance has used so far.

        `farewell`: these are its last bundles. The spool's list of unfinished instances then loses this instance.
        """
        running = {self._instance: list(slots)}
        for bundle in bundles:
            self._append(_item(bundle))
            if self._waiting_bytes >= self._at_once:
                self._put(running, last=running)  # the last rows of all come below
        self._put(running, last={} if farewell else running)
        while self._waiting and self._put(running, last={} if farewell else running):
            pass

    def close(self, slots: Sequence[int]) -> Lost | None:
        """Drop the reads of bundles that the disk refused, and put their heads and ends into the reserved space.

        Returns what was lost; None if everything is in the spool. Call it after `send` with `farewell`.
        """
        if not self._waiting:
            return None
        error, reason = self._spool.error, self._reason
        self._refusals = None  # the last rows use the reserve: they do not show that the disk accepts reads again
        discarded = [item.bundle for item in self._waiting if item.row.reads]
        self._waiting = deque(self._strip_reads(item) if item.row.reads else item for item in self._waiting)
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
        for bundle in missing:
            self._lose(bundle)
        self._count_unstored(list(self._unstored))
        self._waiting.clear()
        self._waiting_bytes = 0
        streams = {segment.stream for bundle in (*discarded, *missing) for segment in bundle.segments}
        begun = {segment.stream for bundle in missing for segment in bundle.segments if segment.opening is not None}
        return Lost(sum(map(reads_of, discarded)), len(streams), len(begun), reason, error)

    def drop_old_reads(self) -> bool:
        """Drop the reads of a few bundles that have waited in the spool for too long. Returns whether there may be more."""
        return self._spool.drop_old_reads(self._settings.spool_age, _stripped) > 0

    def _append(self, item: _Item) -> None:
        if item.row.reads and self._waiting_bytes + item.cost > MAX_WAITING_BYTES // 2:
            item = self._strip_reads(item)
        if self._waiting_bytes + item.cost > MAX_WAITING_BYTES:
            self._counters.happened(Incident.BUNDLE_LOST)
            self._lose(item.bundle)
            return
        self._waiting.append(item)
        self._waiting_bytes += item.cost
        if self._unstored:
            for segment in item.bundle.segments:
                self._unstored.pop(segment.stream, None)

    def _lose(self, bundle: Bundle) -> None:
        """Notes the streams that begin in a lost bundle, and counts those that end in one before anything was stored."""
        for segment in bundle.segments:
            if segment.opening is not None:
                self._unstored[segment.stream] = segment.opening.upstream
            if segment.end is not None and segment.stream in self._unstored:
                self._count_unstored([segment.stream])

    def _count_unstored(self, streams: Sequence[bytes]) -> None:
        """Counts streams of which nothing is stored, and nothing will be: they have no record."""
        for stream in streams:
            self._counters.responses.not_captured(self._unstored.pop(stream), NotCaptured.SPOOL_LOST)

    def _put(self, running: dict[bytes, list[int]], *, last: dict[bytes, list[int]]) -> bool:
        """Put the bundles that fit, from the front. Returns whether any bundle was put.

        `running`: the entry of unfinished instances for rows that are not the last; `last`: the entry that goes with the
        last row. An entry is written only when it differs from the entry in the spool.
        """
        fitting = self._fitting()
        known = last if len(fitting) == len(self._waiting) else running
        entry = {} if known == self._stored_instances else {_INSTANCES: msgspec.msgpack.encode(known)}
        put = self._spool.put(fitting, entry) if (fitting or entry) and not self._spool.failure else None
        if put is None or put.failure:
            if self._spool.failure and self._refusals is not None:
                self._refusals.refused(self._spool.error)
            return False
        if self._refusals is not None:
            self._refusals.written()
        offered = [self._waiting.popleft() for _ in fitting]
        # The space may have shrunk since it was measured. Refused rows stay first in the queue.
        refused = [offered[index] for index in put.refused]
        self._waiting.extendleft(reversed(refused))
        self._waiting_bytes += sum([item.cost for item in refused]) - sum([item.cost for item in offered])
        if not refused:
            self._stored_instances = known
        return len(offered) > len(refused)

    def _fitting(self) -> list[NewRow]:
        """Rows from the front that fit, after space was made for them or they lost their own reads."""
        rows: list[NewRow] = []
        used = 0
        room = self._spool.room() if self._waiting else Room(0, 0)
        for index in range(len(self._waiting)):
            item = self._waiting[index]
            room = self._with_room(room, item, used)
            too_large = item.cost > min(room.reads - used, self._spool.most_at_once)
            if item.row.reads and too_large and self._spool.failure is None:
                self._waiting_bytes -= item.cost
                item = self._waiting[index] = self._strip_reads(item)
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
        """The free space, after reads in the spool were dropped for this item, if it needs that and the policy allows it."""
        if item.row.reads and self._settings.spool_policy == "drop-newest":
            return room
        while self._spool.failure is None:
            short = used + item.cost - (room.reads if item.row.reads else room.vital)
            newest = self._settings.spool_policy == "drop-newest"
            # With drop-newest only what is needed: new reads would take the rest.
            want = short if newest else max(short, _ROOM_BYTES)
            if short <= 0 or not self._spool.drop_reads_for_space(want, _stripped, newest=newest):
                break
            room = self._spool.room()
        return room

    @property
    def _reason(self) -> DropReason:
        """The reason for drops at this moment."""
        return DropReason.SPOOL_FAILED if self._spool.failure else DropReason.SPOOL_FULL

    def _strip_reads(self, item: _Item) -> _Item:
        """The bundle without its reads, which this call counts as dropped."""
        self._counters.dropped(self._reason, item.row.reads)
        return _item(without_reads(item.bundle))


def _item(bundle: Bundle) -> _Item:
    reads, value = reads_of(bundle), encode_bundle(bundle)
    return _Item(bundle, NewRow(bundle.slot, reads, value, vital=not reads), cost_of(value))


def _stripped(value: bytes) -> bytes | None:
    """A bundle of the spool without its reads; None if this version cannot decode it."""
    try:
        return encode_bundle(without_reads(decode_bundle(value)))
    except UnreadableBundle:
        return None
