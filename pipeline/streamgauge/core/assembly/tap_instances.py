"""The tap instances of a partition: which of their bundles were seen, by slot, and when the last message came.

A tap resends bundles that were not acknowledged, so a bundle may come again; its number identifies it. The log's time (of
the partition, not of a tap's clock) shows when an instance has been silent for so long that its streams are abandoned.
While the broker is unavailable no tap can write, so such a pause counts as two minutes of silence at most.
"""

from collections.abc import Iterable

import msgspec

# How far below the highest number a bundle may still come late (count). A shipper has at most some tens in flight. A
# bundle below the window counts as a duplicate. Missing numbers inside the window are remembered.
WINDOW = 1_024

# Tap instances that are remembered, at some 40 bytes each: a bundle that is resent after a day's sleep of its host must
# still be recognised. This is enough for a month of restarts of a hundred taps. Only a forger, or a tap that crashes
# every few seconds, makes more.
MAX_INSTANCES = 2_048

# The most silence that counts between two messages of a log (milliseconds). While streams are open, a worker writes a
# tick each minute. So a longer pause means that the broker accepted nothing, and that the taps' messages wait in
# spools.
MAX_PAUSE_MS = 120_000


class SlotState(msgspec.Struct, array_like=True):
    """Bundles of one instance in one slot: the highest number seen, and the missing numbers below it.

    `runs`: the missing numbers as pairs (first, last), since in a log without its beginning the numbers of every tap start
    far from 0. `missing`: missing numbers one by one, as older programs kept them.
    """

    highest: int = -1
    missing: list[int] = []
    runs: list[tuple[int, int]] = []

    @property
    def has_gap(self) -> bool:
        """Whether a bundle below the highest number is missing."""
        return bool(self.runs or self.missing)


class TapInstanceState(msgspec.Struct, array_like=True):
    """One tap instance. `last_ms`: the `clock_ms` of its last message. `is_abandoned`: its streams were abandoned."""

    last_ms: int
    slots: dict[int, SlotState] = {}
    is_abandoned: bool = False


class TapInstances(msgspec.Struct, array_like=True):
    """All instances of a partition; `applied_offset` is the offset of the last message applied.

    `clock_ms`: the clock that measures silence; it starts at the log's time, and adds at most MAX_PAUSE_MS per message.
    `log_ms`: the log time of the last message. Both are None in the state of an older program without this clock.
    """

    applied_offset: int = -1
    instances: dict[bytes, TapInstanceState] = {}
    clock_ms: int | None = None
    log_ms: int | None = None

    def pass_time(self, log_ms: int) -> int:
        """Advance `clock_ms` to a message of this log time (milliseconds), and return it. It never goes back."""
        if self.clock_ms is None or self.log_ms is None:
            self.clock_ms = log_ms
        else:
            self.clock_ms += min(max(0, log_ms - self.log_ms), MAX_PAUSE_MS)
        self.log_ms = log_ms
        return self.clock_ms

    def record_bundle(self, instance: bytes, slot: int, number: int, now_ms: int) -> bool:
        """Record a bundle; return False if it was seen before. A duplicate, too, ends the silence of its instance."""
        producer = self.instances.get(instance)
        if producer is None:
            producer = self.instances[instance] = TapInstanceState(now_ms)
        producer.last_ms = max(producer.last_ms, now_ms)
        known = producer.slots.get(slot)
        if known is None:
            known = producer.slots[slot] = SlotState()
        if number == known.highest + 1 and not known.has_gap:  # nearly always
            known.highest = number
            return True
        return _record_number(known, number)

    def has_gap(self, instance: bytes, slot: int) -> bool:
        """Whether a bundle of this slot is missing, which may hold a stream's beginning. False for an abandoned instance."""
        producer = self.instances.get(instance)
        return producer is not None and not producer.is_abandoned and producer.slots[slot].has_gap

    def revive(self, instance: bytes) -> None:
        """Clear `is_abandoned` of an instance that has begun a stream."""
        self.instances[instance].is_abandoned = False

    def register_missing(self, instances: Iterable[bytes], now_ms: int) -> bool:
        """Register those instances that are unknown or abandoned, as if a message came now; return whether there were any."""
        lost = [tap for tap in instances if tap not in self.instances or self.instances[tap].is_abandoned]
        for instance in lost:
            producer = self.instances.setdefault(instance, TapInstanceState(now_ms))
            producer.is_abandoned, producer.last_ms = False, max(producer.last_ms, now_ms)
        return bool(lost)

    def silent(self, since_ms: int) -> set[bytes]:
        """Instances that are not abandoned and whose last message came at or before `since_ms`."""
        return {
            instance
            for instance, producer in self.instances.items()
            if producer.last_ms <= since_ms and not producer.is_abandoned
        }

    def mark_abandoned(self, instances: set[bytes]) -> None:
        """Mark instances whose streams are abandoned. The numbers of their bundles stay known: a resend may come late."""
        for instance in instances:
            self.instances[instance].is_abandoned = True

    def oldest_ms(self) -> int | None:
        """The earliest `last_ms` of the instances that are not abandoned; None if there are none."""
        return min(
            (producer.last_ms for producer in self.instances.values() if not producer.is_abandoned), default=None
        )

    def over_capacity(self) -> set[bytes]:
        """The instances above MAX_INSTANCES: those that have been silent for longest."""
        many = len(self.instances) - MAX_INSTANCES
        if many <= 0:
            return set()
        return set(sorted(self.instances, key=lambda instance: self.instances[instance].last_ms)[:many])

    def forget(self, instances: set[bytes]) -> None:
        """Remove instances. The caller has closed their streams."""
        for instance in instances:
            del self.instances[instance]


def _record_number(slot: SlotState, number: int) -> bool:
    """Record a bundle's number; return False if it was seen before, or is below the window."""
    if slot.missing:  # state of an older program
        slot.runs, slot.missing = [*slot.runs, *((missing, missing) for missing in slot.missing)], []
    if number > slot.highest:
        first, floor = max(slot.highest + 1, number - WINDOW), number - WINDOW
        slot.runs = [(max(begin, floor + 1), end) for begin, end in slot.runs if end > floor]
        if first < number:
            slot.runs.append((first, number - 1))
        slot.highest = number
        return True
    for index, (begin, end) in enumerate(slot.runs):
        if begin <= number <= end:
            left = ((begin, number - 1), (number + 1, end))
            slot.runs[index : index + 1] = [run for run in left if run[0] <= run[1]]
            return True
    return False
