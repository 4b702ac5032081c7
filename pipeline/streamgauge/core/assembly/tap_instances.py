"""Who sent what: for each tap instance and slot of a partition, which bundles were seen and when the last one came.

A tap resends what was not acknowledged, so a bundle may come again: it is known by its number. The log's own time (of the
partition, no tap's clock) tells when an instance has been silent for so long that its open streams are given up. Time in
which nobody at all could write (the broker was away) is nobody's silence: it passes for two minutes at most.
"""

from collections.abc import Iterable

import msgspec

# How far below the highest number a bundle may still come late: a shipper has at most some tens in flight, so one that
# is further behind was seen, or is counted as a duplicate. Numbers that are missing inside the window are remembered.
WINDOW = 1_024

# Tap instances that are remembered, at some 40 bytes each: what is resent after a day's sleep must still be known. A month of
# restarts of a hundred taps; what lies beyond is a forger, or a tap that dies every few seconds.
MAX_INSTANCES = 2_048

# How much time may pass between two messages of a log (milliseconds). Where streams are open a worker writes a tick a
# minute, so a longer pause means that the broker took nothing; then every tap's spool is full of what it has to tell.
MAX_PAUSE_MS = 120_000


class SlotState(msgspec.Struct, array_like=True):
    """Bundles of one instance in one slot: the highest number, and those below it that have not come.

    `runs`: their numbers, from each first to each last: a log that lost its beginning begins far from 0 for every tap.
    `missing`: the same one by one, as earlier programs kept them.
    """

    highest: int = -1
    missing: list[int] = []
    runs: list[tuple[int, int]] = []

    @property
    def has_gap(self) -> bool:
        return bool(self.runs or self.missing)


class TapInstanceState(msgspec.Struct, array_like=True):
    """One tap instance. `last_ms`: when its last message came, by `clock_ms`. `given_up`: its streams were abandoned."""

    last_ms: int
    slots: dict[int, SlotState] = {}
    given_up: bool = False


class TapInstances(msgspec.Struct, array_like=True):
    """All instances of a partition; `applied_offset` is the offset up to which this speaks.

    `clock_ms`: the time that has passed for them; it begins as the log's, and falls behind by the log's long pauses.
    `log_ms`: log time of the last message. Both None in state of a program that had no such clock.
    """

    applied_offset: int = -1
    instances: dict[bytes, TapInstanceState] = {}
    clock_ms: int | None = None
    log_ms: int | None = None

    def pass_time(self, log_ms: int) -> int:
        """A message of this log time came (milliseconds); gives the time by our own clock, which never goes back."""
        if self.clock_ms is None or self.log_ms is None:
            self.clock_ms = log_ms
        else:
            self.clock_ms += min(max(0, log_ms - self.log_ms), MAX_PAUSE_MS)
        self.log_ms = log_ms
        return self.clock_ms

    def record_bundle(self, instance: bytes, slot: int, number: int, now_ms: int) -> bool:
        """Note a bundle; False if it was seen before. Any message of an instance is a sign of life."""
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
        return _note(known, number)

    def has_gap(self, instance: bytes, slot: int) -> bool:
        """Whether a bundle of that slot has not come, so that a stream's beginning may be in it."""
        producer = self.instances.get(instance)
        return producer is not None and not producer.given_up and producer.slots[slot].has_gap

    def revive(self, instance: bytes) -> None:
        """An instance that was given up has begun a new stream."""
        self.instances[instance].given_up = False

    def register_missing(self, instances: Iterable[bytes], now_ms: int) -> bool:
        """These have open streams: whoever is not known, or given up, counts as heard of now. Whether there was one."""
        lost = [one for one in instances if one not in self.instances or self.instances[one].given_up]
        for instance in lost:
            producer = self.instances.setdefault(instance, TapInstanceState(now_ms))
            producer.given_up, producer.last_ms = False, max(producer.last_ms, now_ms)
        return bool(lost)

    def silent(self, since_ms: int) -> set[bytes]:
        """Instances that are not given up and whose last message came at or before `since_ms`."""
        return {
            instance
            for instance, producer in self.instances.items()
            if producer.last_ms <= since_ms and not producer.given_up
        }

    def give_up(self, instances: set[bytes]) -> None:
        """Their streams are abandoned. What they sent is still known: a resend may come long after."""
        for instance in instances:
            self.instances[instance].given_up = True

    def oldest_ms(self) -> int | None:
        """When the one that is silent for longest came last, of those that are not given up; None if there is none."""
        return min((producer.last_ms for producer in self.instances.values() if not producer.given_up), default=None)

    def over_capacity(self) -> set[bytes]:
        """Instances beyond MAX_INSTANCES, those first that are silent for longest."""
        many = len(self.instances) - MAX_INSTANCES
        if many <= 0:
            return set()
        return set(sorted(self.instances, key=lambda instance: self.instances[instance].last_ms)[:many])

    def forget(self, instances: set[bytes]) -> None:
        """Their streams are closed, and so is the book on them."""
        for instance in instances:
            del self.instances[instance]


def _note(slot: SlotState, number: int) -> bool:
    if slot.missing:  # state of a program that kept single numbers
        slot.runs, slot.missing = [*slot.runs, *((one, one) for one in slot.missing)], []
    if number > slot.highest:
        first, floor = max(slot.highest + 1, number - WINDOW), number - WINDOW
        slot.runs = [(max(begin, floor + 1), end) for begin, end in slot.runs if end > floor]
        if first < number:
            slot.runs.append((first, number - 1))
        slot.highest = number
        return True
    for place, (begin, end) in enumerate(slot.runs):
        if begin <= number <= end:
            left = ((begin, number - 1), (number + 1, end))
            slot.runs[place : place + 1] = [run for run in left if run[0] <= run[1]]
            return True
    return False
