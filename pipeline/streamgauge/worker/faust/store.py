"""The Faust table that holds open streams, and its in-memory store, which keeps the newest entry, not the last one.

Written for faust-streaming 0.12 to 0.15, whose memory store keeps the last entry, as a compacted log does.

Key: `partition/entry` as ASCII; entries 0 to 63 are buckets, 64 the producers entry. Value: the assembler's dump, which
contains its applied offset. A worker that was suspended and lost its partition can still write an entry that is older than
its successor's. So recovery keeps, for each key, the entry with the highest applied offset.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any, cast

import faust
import msgspec
from faust.stores.memory import Store as MemoryStore
from faust.types import TP, EventT
from faust.types.stores import StoreT

from streamgauge.core.assembly.assembler import PRODUCERS
from streamgauge.core.assembly.state_codec import NewerStateError, offset_of
from streamgauge.worker.faust.consumer import recovery_is_whole

# Faust's services log their start and stop under the name of the module that defines them; these lines belong to Faust's
# own log.
FAUST_LOG = logging.getLogger("faust.streamgauge")


def key_of(partition: int, entry: int) -> bytes:
    """The changelog key of one entry of a partition's state."""
    return b"%d/%d" % (partition, entry)


@cache
def _keys(partition: int) -> frozenset[bytes]:
    return frozenset(key_of(partition, entry) for entry in range(PRODUCERS + 1))


class NewestStore(MemoryStore[bytes, bytes]):
    """Faust's memory store, which keeps the newest entry of each key.

    Applying entries never raises, because an error would make the recovery lose the rest of its batch.
    """

    logger = FAUST_LOG

    def __post_init__(self) -> None:
        super().__post_init__()
        self._applied_offsets: dict[bytes, int] = {}
        self.newer: dict[int, str] = {}  # partitions with state of a later version -> the error's text

    def apply_changelog_batch(
        self, batch: Iterable[EventT[Any]], to_key: Callable[[Any], Any], to_value: Callable[[Any], Any]
    ) -> None:
        """Apply entries of the changelog, in the order of the log."""
        for event in batch:
            self.apply_entry(event.message.partition, event.message.key, event.message.value)

    def apply_entry(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one entry: keep it if its key is valid for the partition, and it is not older than the present one."""
        try:
            offset = offset_of(value or b"")
        except NewerStateError as error:
            if key in _keys(partition):
                self.newer[partition] = str(error)
            return
        except (msgspec.DecodeError, RecursionError, IndexError, ValueError):
            return
        if key is None or value is None or key not in _keys(partition):
            return
        if offset >= self._applied_offsets.get(key, -1):
            self._applied_offsets[key] = offset
            self.data[key] = value
            self._key_partition[key] = partition

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Drop the entries of partitions that are no longer assigned."""
        await super().on_recovery_completed(active_tps, standby_tps)
        self._applied_offsets = {key: offset for key, offset in self._applied_offsets.items() if key in self.data}

    def entries(self, partition: int) -> dict[int, bytes]:
        """The state of one partition, by entry."""
        values = {entry: self.data.get(key_of(partition, entry)) for entry in range(PRODUCERS + 1)}
        return {entry: value for entry, value in values.items() if value is not None}


class StateTable(faust.Table[bytes, bytes]):
    """A table whose store is a NewestStore."""

    logger = FAUST_LOG

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._restart_callbacks: list[Callable[[], Awaitable[None]]] = []

    @property
    def newest(self) -> NewestStore:
        """The table's store."""
        store: Any = self.data
        return cast(NewestStore, store)

    def on_recovery_restart(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call `callback` when the recovery of the same partitions starts again, before any entry is read again."""
        self._restart_callbacks.append(callback)

    async def discard_recovered(self) -> None:
        """Call every callback of `on_recovery_restart`."""
        for callback in self._restart_callbacks:
            await callback()

    async def on_changelog_event(self, event: EventT[Any]) -> None:
        """Called by the recovery with each new message, after it has counted it as read."""
        await super().on_changelog_event(event)
        recovery: Any = self.app.tables.recovery  # type: ignore[attr-defined]
        await recovery.check_delivery(event.message.tp, event.message.offset)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Call the recovery callbacks if the state is complete. After an interrupted recovery, the next one calls them."""
        if recovery_is_whole(self.app):
            await super().on_recovery_completed(active_tps, standby_tps)

    def _new_store(self) -> StoreT[bytes, bytes]:
        return NewestStore(
            "memory://",
            self.app,
            self,
            table_name=self.name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            loop=self.loop,
        )
