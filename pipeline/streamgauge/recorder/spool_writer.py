"""Puts bundles into the spool, in order. If the spool is full, or the disk fails, reads are dropped and counted.

Each bundle is encoded whole and without its reads: heads, ends, heartbeats, and the losses that count the dropped reads.
The spool stores both, or only the second where the reads have no room (`Spool.put`). While the disk refuses everything,
bundles wait here; when they are too many, they wait without their reads. At the end the writer drops the reads of bundles
that still wait, and puts heads and ends into the reserved disk space (spool/reserve.py).

The spool also stores which instances ran on this data directory and did not send farewells, with the slots they used.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from streamgauge.core.capture.bundles import encode_bundle, without_reads
from streamgauge.core.capture.segments import Bundle
from streamgauge.recorder.bundler import reads_of
from streamgauge.recorder.write_refusals import WriteRefusals
from streamgauge.settings.declarations import SpoolSettings
from streamgauge.spool import NewRow, Reserve, Spool
from streamgauge.spool.read_counters import Counters, DropReason, Incident
from streamgauge.spool.response_counters import NotCaptured

# Bundles that wait while the disk refuses everything (bytes): half of it for any bundles, the rest only for those
# without reads, which are about a hundred thousand heads and ends.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# Rows of one transaction (bytes): a disk writes them in a moment. Small spools have smaller transactions.
AT_ONCE_BYTES = 4 * 1024 * 1024
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
    bundle: Bundle  # without its reads
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
                self._put(running)
        while self._put(running) and self._waiting:
            pass
        if farewell and not self._waiting:
            self._put({})

    def close(self, slots: Sequence[int]) -> Lost | None:
        """Drop the reads of bundles that the disk refused, and put their heads and ends into the reserved space.

        Returns what was lost; None if everything is in the spool. Call it after `send` with `farewell`.
        """
        if not self._waiting:
            return None
        error, reason = self._spool.error, self._reason
        self._refusals = None  # the last rows use the reserve: they do not show that the disk accepts reads again
        discarded = [item for item in self._waiting if item.row.reads]
        self._waiting = deque(self._drop_reads(item, reason) if item.row.reads else item for item in self._waiting)
        self._waiting_bytes = sum(item.cost for item in self._waiting)
        if self._reserve is not None:
            self._reserve.release()
        while self._waiting:
            if not self._put({self._instance: list(slots)}):
                self._at_once //= 2
                if self._at_once < _LEAST_AT_ONCE_BYTES:
                    break
        else:
            self._put({})
        missing = list(self._waiting)
        self._counters.happened(Incident.BUNDLE_LOST, len(missing))
        for item in missing:
            self._lose(item.bundle)
        self._count_unstored(list(self._unstored))
        self._waiting.clear()
        self._waiting_bytes = 0
        streams = {segment.stream for item in (*discarded, *missing) for segment in item.bundle.segments}
        begun = {segment.stream for item in missing for segment in item.bundle.segments if segment.opening is not None}
        return Lost(sum([item.row.reads for item in discarded]), len(streams), len(begun), reason, error)

    def drop_old_reads(self) -> bool:
        """Drop the reads of bundles that have waited in the spool for too long. Returns whether there may be more."""
        return self._spool.drop_old_reads(self._settings.spool_age) > 0

    def _append(self, item: _Item) -> None:
        if item.row.reads and self._waiting_bytes + item.cost > MAX_WAITING_BYTES // 2:
            item = self._drop_reads(item, self._reason)
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

    def _put(self, instances: dict[bytes, list[int]]) -> bool:
        """Put bundles from the front, in one transaction. Returns whether any was put.

        `instances`: the entry of unfinished instances, which is written with the bundles when it differs from the last one.
        """
        rows = self._next_rows()
        entry = {} if instances == self._stored_instances else {_INSTANCES: msgspec.msgpack.encode(instances)}
        if not rows and not entry:
            return False
        put = self._spool.put(rows, entry, self._settings.spool_policy)
        if put.failure:
            if self._refusals is not None:
                self._refusals.refused(self._spool.error)
            return False
        if self._refusals is not None:
            self._refusals.written()
        self._stored_instances = instances
        self._waiting_bytes -= sum([self._waiting.popleft().cost for _ in range(put.stored)])
        return put.stored > 0

    def _next_rows(self) -> list[NewRow]:
        """The rows of the next transaction, from the front."""
        rows: list[NewRow] = []
        size = 0
        for item in self._waiting:
            size += item.cost
            if rows and size > self._at_once:
                break
            rows.append(item.row)
        return rows

    @property
    def _reason(self) -> DropReason:
        """The reason for drops at this moment."""
        return DropReason.SPOOL_FAILED if self._spool.failure else DropReason.SPOOL_FULL

    def _drop_reads(self, item: _Item, reason: DropReason) -> _Item:
        """The bundle without its reads, which this call counts as dropped."""
        self._counters.dropped(reason, item.row.reads)
        row = NewRow(item.row.slot, 0, item.row.light)
        return _Item(item.bundle, row, row.cost)


def _item(bundle: Bundle) -> _Item:
    light, reads, value = without_reads(bundle), reads_of(bundle), encode_bundle(bundle)
    row = NewRow(bundle.slot, reads, value, encode_bundle(light) if reads else b"")
    return _Item(light, row, row.cost)
