"""The texts that are kept for a recount: which streams, how long, how many, and what a disk that refuses costs."""

import random
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Opening, Read, Segment
from streamgauge.core.record import Record, encode_record
from streamgauge.spool.file import SQLITE_FAULTS
from streamgauge.spool.text_store import EXPIRE_EVERY_S, TextStore
from streamgauge.taps.replay.contract import BrokenRecording, Tally
from streamgauge.taps.replay.spool_rows import logged_texts
from tests.faults.small_disk import SmallDisk, small_disk
from tests.streams import MS, bundles_of, chat_segments, interleaved, opening, stream_id

MIB = 1024**2
__all__ = ["small_disk"]  # a fixture


class Clock:
    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


class Kept:
    """A store, and the assembler beside it. `said`: to the operator."""

    def __init__(self, folder: Path, max_bytes: int = 64 * MIB, max_age_s: float = 100.0) -> None:
        self.path = folder / "texts.sqlite"
        self.said: list[str] = []
        self.clock = Clock()
        self.store = TextStore(self.path, max_bytes, max_age_s, self.said.append, self.clock)
        self.assembler = Assembler()
        self.records: list[Record] = []
        self._offset = 0

    def take(self, bundles: Iterable[Bundle]) -> None:
        for bundle in bundles:
            records = self.assembler.apply(self._offset, 0, bundle)
            self._offset += 1
            self.records += records
            self.store.take(bundle, records, lambda stream: self.assembler.state_of(stream, whole=False) is not None)

    def take_streams(self, *numbers: int, tokens: int = 5) -> None:
        for number in numbers:
            bundles = bundles_of(chat_segments(number, tokens), instance=number.to_bytes(16))
            self.take(bundles)

    def streams(self) -> list[str]:
        return [record.stream_id for record in read(self.path)]


def read(path: Path) -> list[Record]:
    """The records of what is kept."""
    assembler = Assembler()
    return [record for logged in logged_texts(path, Tally()) for record in assembler.apply(*logged)]


def ids(*numbers: int) -> list[str]:
    import uuid

    return [str(uuid.UUID(bytes=stream_id(number))) for number in numbers]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.store.close()


def masked(segments: list[Segment]) -> list[Segment]:
    def changed(segment: Segment) -> Segment:
        if segment.opening is None:
            return segment
        return msgspec.structs.replace(segment, opening=msgspec.structs.replace(segment.opening, capture="masked"))

    return [changed(segment) for segment in segments]


def test_a_stream_is_read_back_with_the_record_that_it_had(kept: Kept) -> None:
    kept.take(bundles_of(interleaved(20)))
    kept.store.commit()
    assert by_id(read(kept.path)) == by_id(kept.records)
    assert len(kept.records) == 20
    assert kept.said == []


@given(seed=st.integers(0, 1_000), per_bundle=st.integers(1, 9), kill_at=st.integers(0, 40))
def test_any_order_and_any_kill_gives_the_same_texts(
    tmp_path_factory: pytest.TempPathFactory, seed: int, per_bundle: int, kill_at: int
) -> None:
    """A kill loses what was taken after the last commit. Then all bundles come again, to the saved state or to none."""
    folder, chance = tmp_path_factory.mktemp("texts"), random.Random(seed)
    bundles = bundles_of(interleaved(4, seed), per_bundle)
    commit_at = chance.randint(0, kill_at)

    def live(assembler: Assembler, begin: int, end: int) -> dict[int, bytes]:
        """Returns the state of the last commit."""
        store, saved = TextStore(folder / "texts.sqlite", 64 * MIB, 100.0, print), {}
        for offset, bundle in enumerate(bundles[begin:end], begin):
            records = assembler.apply(offset, 0, bundle)
            store.take(bundle, records, lambda stream: assembler.state_of(stream, whole=False) is not None)
            if offset in (commit_at, len(bundles) - 1):
                store.commit()
                saved = {key: assembler.dump(key) for key in assembler.changed()}
        store._database.close()
        return saved

    saved = live(Assembler(), 0, kill_at)
    again = Assembler()
    if chance.random() < 0.5:  # else the kill came before the state was saved
        for key, value in saved.items():
            again.load(key, value)
    live(again, 0, len(bundles))
    whole = Assembler()
    expected = [record for offset, bundle in enumerate(bundles) for record in whole.apply(offset, 0, bundle)]
    assert by_id(read(folder / "texts.sqlite")) == by_id(expected)


def by_id(records: Iterable[Record]) -> dict[str, bytes]:
    return {record.stream_id: encode_record(record) for record in records}


def test_nothing_of_a_masked_capture_is_stored(kept: Kept) -> None:
    kept.take(bundles_of(masked(chat_segments(1))))
    kept.take(bundles_of(chat_segments(2), instance=bytes(15) + b"2"))
    kept.store.commit()
    assert len(kept.records) == 2
    assert kept.streams() == ids(2)
    with closing(sqlite3.connect(kept.path)) as database:
        assert {stream for (stream,) in database.execute("SELECT stream FROM segments")} == {stream_id(2)}


def test_nothing_is_kept_of_a_stream_without_a_record(kept: Kept) -> None:
    """Traffic that is no model's may pass the tap, too."""
    first, *rest = chat_segments(3)
    other = msgspec.structs.replace(
        first,
        opening=Opening("proxy", "0", "full", upstream="sim", path=None),
        reads=[Read(0, 20, 20, b"data: private\n\n")],
    )
    kept.take(bundles_of([other, msgspec.structs.replace(rest[-1], number=1)]))
    kept.store.commit()
    assert kept.records == []
    with closing(sqlite3.connect(kept.path)) as database:
        assert database.execute("SELECT count(*) FROM segments").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM streams").fetchone() == (0,)


def test_a_stream_whose_tap_was_killed_is_read_with_its_record(kept: Kept) -> None:
    *begin, _ = chat_segments(1)
    kept.take(bundles_of(begin))
    kept.take([Bundle(bytes(15) + b"9", 0, 0, 0, dead=[bytes(range(16))])])
    kept.store.commit()
    assert [record.outcome for record in kept.records] == [record.outcome for record in read(kept.path)]
    assert len(kept.records) == 1


def test_a_stream_is_deleted_when_it_is_too_old_and_leaves_no_text(kept: Kept) -> None:
    kept.take_streams(1)
    kept.store.commit()
    kept.clock.s += 60
    kept.take_streams(2)
    kept.store.commit()
    kept.clock.s += 41
    kept.store.expire(0.0)
    assert kept.streams() == ids(2)
    kept.clock.s += 60
    kept.store.expire(EXPIRE_EVERY_S - 1)
    assert kept.streams() == ids(2), "it is not looked for all the time"
    kept.store.expire(EXPIRE_EVERY_S)
    assert kept.streams() == []
    assert kept.path.with_name("texts.sqlite-wal").stat().st_size == 0
    with closing(sqlite3.connect(kept.path)) as database:
        assert database.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_deleted_text_is_overwritten(kept: Kept) -> None:
    kept.take_streams(*range(1, 40))
    kept.store.commit()
    with closing(sqlite3.connect(kept.path)) as database:
        (value,) = database.execute("SELECT value FROM segments ORDER BY rowid LIMIT 1").fetchone()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert value[:200] in kept.path.read_bytes()
    kept.clock.s += 101
    kept.store.expire(0.0)
    assert value[:200] not in kept.path.read_bytes()


def test_an_open_stream_that_is_too_old_is_not_continued(kept: Kept) -> None:
    segments = chat_segments(1)
    kept.take(bundles_of(segments[:1]))
    kept.store.commit()
    kept.clock.s += 101
    kept.store.expire(0.0)
    kept.take(msgspec.structs.replace(one, number=one.number + 1) for one in bundles_of(segments[1:]))
    kept.store.commit()
    assert len(kept.records) == 1
    assert kept.streams() == []
    with closing(sqlite3.connect(kept.path)) as database:
        assert database.execute("SELECT count(*) FROM segments").fetchone() == (0,)


def test_the_file_stays_within_its_size_and_the_oldest_streams_go_first(tmp_path: Path) -> None:
    kept, chance = Kept(tmp_path, max_bytes=MIB, max_age_s=10**9), random.Random(4)
    for number in range(1, 120):
        text = "".join(chr(chance.randint(0x4E00, 0x9FFF)) for _ in range(chance.choice((20, 2_000, 9_000))))
        event = b'data: {"choices":[{"index":0,"delta":{"content":"' + text.encode() + b'"}}]}\n\n'
        first, *_, end = chat_segments(number)
        changed = msgspec.structs.replace(first, reads=[Read(MS, len(event), len(event), event)])
        kept.clock.s += 1
        kept.take(bundles_of([changed, msgspec.structs.replace(end, number=1)], instance=number.to_bytes(16)))
        kept.store.commit()
        assert kept.path.stat().st_size <= MIB
    assert kept.said == []
    assert 10 < len(kept.streams()) < 119
    assert kept.streams() == ids(*range(120 - len(kept.streams()), 120))
    kept.store.close()


def test_a_stream_larger_than_the_file_is_not_kept_and_later_ones_are(tmp_path: Path) -> None:
    kept = Kept(tmp_path, max_bytes=MIB)
    chance = random.Random(1)
    first, *_, end = chat_segments(1)
    reads = [Read(MS, 9, 9, b"data: " + chance.randbytes(20_000).hex().encode() + b"\n\n") for _ in range(100)]
    kept.take(bundles_of([msgspec.structs.replace(first, reads=reads), msgspec.structs.replace(end, number=1)]))
    kept.store.commit()
    kept.take_streams(2)
    kept.store.commit()
    assert kept.streams() == ids(2)
    assert kept.path.stat().st_size <= MIB
    assert [sentence.rpartition(": ")[2] for sentence in kept.said[:1]] == [
        "the texts of these streams cannot be counted again, their records are stored"
    ]
    assert kept.said[1:] == ["texts are kept again"]
    kept.store.close()


def test_a_disk_that_refuses_costs_the_texts_of_that_moment(kept: Kept) -> None:
    segments = chat_segments(1)
    kept.take(bundles_of(segments[:1]))
    kept.store.commit()
    with closing(sqlite3.connect(kept.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        kept.store._database.execute("PRAGMA busy_timeout = 0")
        kept.take(msgspec.structs.replace(one, number=one.number + 1) for one in bundles_of(segments[1:]))
        kept.take_streams(2)
        kept.store.commit()
        kept.take_streams(3)
        kept.store.commit()
        assert len(kept.said) == 1
        assert "cannot be written (database is locked)" in kept.said[0]
    kept.take_streams(4)
    kept.store.commit()
    assert kept.said[1:] == ["texts are kept again"]
    assert kept.streams() == ids(4)
    assert len(kept.records) == 4


def test_a_full_disk_costs_texts_and_raises_nothing(small_disk: SmallDisk) -> None:
    kept = Kept(small_disk.path)
    kept.take_streams(1)
    kept.store.commit()
    with small_disk.full():
        for number in range(2, 60):
            kept.take_streams(number, tokens=200)
            kept.store.commit()
        assert len(kept.said) == 1
        assert "texts.sqlite cannot be written" in kept.said[0]
    kept.take_streams(60)
    kept.store.commit()
    assert kept.said[1:] == ["texts are kept again"]
    assert {*ids(1, 60)} <= {*kept.streams()}
    assert len(kept.records) == 60
    kept.store.close()


def test_the_file_is_for_its_user_alone(kept: Kept) -> None:
    kept.take_streams(1)
    kept.store.commit()
    for file in kept.path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "texts.sqlite").write_bytes(b"no database, but long enough to be read as one" * 100)
    kept = Kept(tmp_path)
    assert "is damaged, and is replaced" in kept.said[0]
    kept.take_streams(1)
    kept.store.close()
    assert kept.streams() == ids(1)


def test_the_opening_of_these_tests_is_a_full_capture() -> None:
    assert opening().capture == "full"


@example(places=[(0.109375, 128)])  # a name that is no UTF-8, in the text of SQLite's error
@given(places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=12))
def test_a_file_with_any_flipped_bytes_is_read_as_far_as_it_can_be_or_refused(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[float, int]]
) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    kept = Kept(folder)
    kept.take(bundles_of(interleaved(5)))
    kept.store.close()
    content = bytearray(kept.path.read_bytes())
    for place, bits in places:
        content[int(place * len(content))] ^= bits
    kept.path.write_bytes(content)
    try:
        found = [logged.bundle for logged in logged_texts(kept.path, Tally())]
    except BrokenRecording:
        return
    assembler = Assembler()
    for at, bundle in enumerate(found):
        assembler.apply(at, 0, bundle)
    with suppress(*SQLITE_FAULTS), closing(TextStore(kept.path, 64 * MIB, 100.0, kept.said.append)) as again:
        again.take(bundles_of(chat_segments(9))[0], [], lambda _: True)
        again.commit()
