"""What a single assembler that never crashed makes of a log, and whether all of that was durable at each commit."""

from collections.abc import Callable

from streamgauge.core.assembly.assembler import BUCKETS, PRODUCERS, Assembler
from streamgauge.core.assembly.state_codec import offset_of
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.limits import Limits
from streamgauge.core.record import encode_record
from tests.worker.simulation.broker import Entry


class Bug(Exception):
    """What a test lets the assembler raise."""


class Oracle:
    """One partition. It reads the log once, message by message, as far as it is asked to."""

    def __init__(self, partition: int, limits: Limits, log: list[Entry]) -> None:
        self._partition = partition
        self._log = log
        self._at = 0
        self._checked = self._told = 0
        self.assembler = Assembler(limits)
        self.records: dict[str, bytes] = {}
        self.made_at: dict[str, int] = {}  # the message that finished each stream
        self.poison: list[int] = []
        self.twice: list[str] = []  # streams of which the assembler itself made two records

    def advance(self, offset: int) -> None:
        """Apply what lies below this offset."""
        while self._at < len(self._log) and self._log[self._at].offset < offset:
            entry = self._log[self._at]
            self._at += 1
            try:
                bundle = decode_bundle(entry.value)
            except UnreadableBundle:
                self.poison.append(entry.offset)
                continue
            try:
                records = self.assembler.apply(entry.offset, entry.at_ms, bundle)
            except Bug:
                records = self.assembler.take_finished()
            for record in records:
                if record.stream_id in self.records:
                    self.twice.append(record.stream_id)
                self.records.setdefault(record.stream_id, encode_record(record))
                self.made_at.setdefault(record.stream_id, entry.offset)

    def missing_at_commit(
        self, offset: int, is_recorded: Callable[[str, bytes], bool], newest: dict[int, int]
    ) -> list[str]:
        """What is not durable although everything below this offset is said to be done."""
        if offset <= self._checked:
            return []
        self.advance(offset)
        new = list(self.records.items())[self._told :]
        self._checked, self._told = offset, len(self.records)
        missing = [f"the record of {stream}" for stream, record in new if not is_recorded(stream, record)]
        for key in range(PRODUCERS + 1):
            if self.assembler.applied_offset(key) > newest.get(key, -1):
                what = "producers" if key == BUCKETS else f"bucket {key}"
                missing.append(f"{what} at {self.assembler.applied_offset(key)}, durable {newest.get(key, -1)}")
        return [f"committed {offset} of partition {self._partition} without {one}" for one in missing]


class Durable:
    """The newest entry of each key of the state topic."""

    def __init__(self) -> None:
        self.newest: dict[int, dict[int, int]] = {}

    def note(self, key: bytes, value: bytes) -> None:
        partition, entry = map(int, key.split(b"/"))
        known = self.newest.setdefault(partition, {})
        known[entry] = max(known.get(entry, -1), offset_of(value))

    def look_again(self, partition: int, entries: list[Entry]) -> None:
        """After compaction: what is still there."""
        self.newest[partition] = {}
        for entry in entries:
            self.note(entry.key or b"", entry.value or b"")
