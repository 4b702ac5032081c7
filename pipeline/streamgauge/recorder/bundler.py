"""Makes bundles of segments: slots, numbers, heartbeats, farewells. Sans-IO: the caller passes the time in.

A stream's slot is chosen when it begins and kept until it ends. An instance starts with one slot and uses more as its
rate grows. In every slot that it has used it sends a heartbeat while it has nothing else to send, and a farewell at its
end. A new instance declares dead the instances that ended on this data directory without a farewell, in the slots that they
used: it uses these slots first, and names the dead instances in its first bundle of each slot. That bundle comes after all
bundles of the dead instance in the spool.
"""

from collections.abc import Iterable, Mapping

from streamgauge.core.capture.segments import BUNDLE_BYTES, BUNDLE_NS, SLOTS, Bundle, Segment

# The rate at which another slot is taken (bytes of segments a second): a small part of what a worker reads of a
# partition, and high enough that bundles reach their size limit before their age limit.
SLOT_BYTES_PER_S = 6 * BUNDLE_BYTES
# A slot sends a heartbeat after so long without a bundle (ns).
HEARTBEAT_NS = 5_000_000_000
# The rate is averaged over so long (ns).
_RATE_NS = 1_000_000_000
# The size of a segment, and of a read, without the reads' content (bytes, about): ids, stamps, sizes.
_SEGMENT_BYTES = 64
_READ_BYTES = 16


class _Slot:
    """One slot in use: its next number, and the bundle that is being filled."""

    def __init__(self, slot: int, dead: list[bytes], now_ns: int) -> None:
        self.slot = slot
        self.number = 0
        self.dead = dead
        self.sent_ns: int | None = None
        self.segments: list[Segment] = []
        self.size = 0
        self.since_ns = now_ns


class Bundler:
    """Makes one instance's bundles. `dead`: earlier instances, by their 16-byte ids, with the slots that they used.

    `bundle_bytes`: the size at which a bundle is closed.
    """

    def __init__(
        self,
        instance: bytes,
        now_ns: int,
        dead: Mapping[bytes, Iterable[int]] | None = None,
        heartbeat_ns: int = HEARTBEAT_NS,
        bundle_bytes: int = BUNDLE_BYTES,
    ) -> None:
        self.instance = instance
        self._bundle_bytes = bundle_bytes
        self._heartbeat_ns = heartbeat_ns
        dead_in: dict[int, list[bytes]] = {}  # dead instances by slot
        for dead_instance, slots in sorted((dead or {}).items()):
            for slot in slots:
                dead_in.setdefault(slot % SLOTS, []).append(dead_instance)
        first = int.from_bytes(instance) % SLOTS
        others = [slot for offset in range(SLOTS) if (slot := (first + offset) % SLOTS) not in dead_in]
        self._order = [*sorted(dead_in), *others]
        self._slots = {slot: _Slot(slot, dead_in.get(slot, []), now_ns) for slot in self._order[: max(len(dead_in), 1)]}
        self._slot_of: dict[bytes, int] = {}
        self._wanted = 1
        self._next = 0
        self._rate_bytes = 0
        self._rate_since_ns = now_ns
        self._ready: list[Bundle] = []

    @property
    def slots(self) -> list[int]:
        """Every slot used so far: each needs a farewell at the end."""
        return sorted(self._slots)

    @property
    def open_streams(self) -> int:
        """Streams that have begun and not ended."""
        return len(self._slot_of)

    def add(self, segments: Iterable[Segment], now_ns: int, since_ns: int | None = None) -> None:
        """Put segments into their slots' bundles. `since_ns`: the earliest time at which a read in them may have arrived."""
        for segment in segments:
            slot = self._slots[self._place(segment, now_ns)]
            size = size_of(segment)
            self._rate_bytes += size
            if slot.segments and slot.size + size > self._bundle_bytes:
                self._close(slot, now_ns)
            if not slot.segments:
                slot.since_ns = now_ns if since_ns is None else since_ns
            slot.segments.append(segment)
            slot.size += size

    def take(self, now_ns: int) -> list[Bundle]:
        """The bundles that are to be sent: full ones, old ones, and heartbeats."""
        self._measure(now_ns)
        for slot in self._slots.values():
            full = slot.size >= self._bundle_bytes or (slot.segments and now_ns - slot.since_ns >= BUNDLE_NS)
            quiet = slot.sent_ns is None or now_ns - slot.sent_ns >= self._heartbeat_ns
            if full or (quiet and not slot.segments):
                self._close(slot, now_ns)
        return self.take_ready()

    @property
    def ready(self) -> int:
        """The number of full bundles that wait to be taken."""
        return len(self._ready)

    def take_ready(self) -> list[Bundle]:
        """The bundles that are closed already; the bundles still being filled stay."""
        ready, self._ready = self._ready, []
        return ready

    def farewell(self, now_ns: int) -> list[Bundle]:
        """Close every slot that this instance used with its last bundle: the remaining segments, marked as a farewell."""
        for slot in self._slots.values():
            self._close(slot, now_ns, farewell=True)
        return self.take_ready()

    def _place(self, segment: Segment, now_ns: int) -> int:
        """The slot of a segment's stream."""
        slot = self._slot_of.get(segment.stream)
        if slot is None:
            self._next = (self._next + 1) % self._wanted
            slot = self._order[self._next]
            if slot not in self._slots:
                self._slots[slot] = _Slot(slot, [], now_ns)
            self._slot_of[segment.stream] = slot
        if segment.end is not None:
            del self._slot_of[segment.stream]
        return slot

    def _measure(self, now_ns: int) -> None:
        """Set over how many slots new streams are spread, by the rate of about the last second."""
        elapsed = now_ns - self._rate_since_ns
        if elapsed < _RATE_NS:
            return
        rate = self._rate_bytes * 1_000_000_000 // elapsed
        self._wanted = min(1 + rate // SLOT_BYTES_PER_S, SLOTS)
        self._rate_bytes, self._rate_since_ns = 0, now_ns

    def _close(self, slot: _Slot, now_ns: int, *, farewell: bool = False) -> None:
        self._ready.append(
            Bundle(
                instance=self.instance,
                slot=slot.slot,
                number=slot.number,
                tap_ns=now_ns,
                segments=slot.segments,
                farewell=farewell,
                dead=slot.dead,
            )
        )
        slot.number += 1
        slot.dead, slot.segments, slot.size, slot.sent_ns = [], [], 0, now_ns


def size_of(segment: Segment) -> int:
    """A segment's approximate size in a bundle, before compression (bytes)."""
    size = _SEGMENT_BYTES + _READ_BYTES * len(segment.reads) + sum([len(read.content) for read in segment.reads])
    if segment.end is not None:
        size += len(segment.end.tail) + len(segment.end.body or b"")
    return size


def reads_of(bundle: Bundle) -> int:
    """The number of reads in a bundle, as the balance counts them."""
    return sum(len(segment.reads) for segment in bundle.segments)
