"""Who sent what: for each tap instance and slot of a partition, which bundles were seen and when the last one came.

A tap resends what was not acknowledged, so a bundle may come again: it is known by its number. The log's own time (of the
partition, no tap's clock) tells when an instance has been silent for so long that its open streams are given up.
"""

import msgspec

# How far below the highest number a bundle may still come late: a shipper has at most some tens in flight, so one that
# is further behind was seen, or is counted as a duplicate. Numbers that are missing inside the window are remembered.
WINDOW = 1_024


class SlotState(msgspec.Struct, array_like=True):
    """Bundles of one instance in one slot: the highest number, and those below it that have not come."""

    highest: int = -1
    missing: list[int] = []


class ProducerState(msgspec.Struct, array_like=True):
    """One tap instance. `last_ms`: log time of its last message. `given_up`: its open streams were abandoned."""

    last_ms: int
    slots: dict[int, SlotState] = {}
    given_up: bool = False


class Producers(msgspec.Struct, array_like=True):
    """All instances of a partition; `applied_offset` is the offset up to which this speaks."""

    applied_offset: int = -1
    instances: dict[bytes, ProducerState] = {}

    def see(self, instance: bytes, slot: int, number: int, log_ms: int) -> bool:
        """Note a bundle; False if it was seen before. Any message of an instance is a sign of life."""
        producer = self.instances.get(instance)
        if producer is None:
            producer = self.instances[instance] = ProducerState(log_ms)
        producer.last_ms = max(producer.last_ms, log_ms)
        return _note(producer.slots.setdefault(slot, SlotState()), number)

    def has_gap(self, instance: bytes, slot: int) -> bool:
        """Whether a bundle of that slot has not come, so that a stream's beginning may be in it."""
        producer = self.instances.get(instance)
        return producer is not None and not producer.given_up and bool(producer.slots[slot].missing)

    def revive(self, instance: bytes) -> None:
        """An instance that was given up has begun a new stream."""
        self.instances[instance].given_up = False

    def silent(self, since_ms: int) -> set[bytes]:
        """Instances whose last message came at or before `since_ms`."""
        return {instance for instance, producer in self.instances.items() if producer.last_ms <= since_ms}

    def give_up(self, instances: set[bytes], *, forget_before_ms: int) -> None:
        """Their streams are abandoned; those that have been silent for long are forgotten: nothing of them can come."""
        for instance in instances:
            self.instances[instance].given_up = True
            if self.instances[instance].last_ms <= forget_before_ms:
                del self.instances[instance]


def _note(slot: SlotState, number: int) -> bool:
    if number > slot.highest:
        first = max(slot.highest + 1, number - WINDOW)
        slot.missing = [one for one in slot.missing if one > number - WINDOW] + list(range(first, number))
        slot.highest = number
        return True
    if number in slot.missing:
        slot.missing.remove(number)
        return True
    return False
