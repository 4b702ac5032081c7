"""A spool is read in place: nothing is changed or created, and damaged rows are counted."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamgauge.core.capture.bundles import encode_bundle, without_reads
from streamgauge.core.capture.segments import Bundle
from streamgauge.recorder.bundler import reads_of
from streamgauge.spool import NewRow, Spool
from streamgauge.taps.replay.contract import BrokenRecording, Logged, Tally
from streamgauge.taps.replay.spool_rows import logged
from tests.spool.layout_2 import of_layout_2
from tests.streams import bundles_of, interleaved

SIZE = 64 * 1024 * 1024


def bundle(number: int) -> Bundle:
    return Bundle(b"i" * 16, 3, number, tap_ns=5_000_000_000 + number)


def put(path: Path, *values: bytes) -> None:
    with closing(Spool(path, SIZE)) as spool:
        assert spool.put([NewRow(3, 0, value) for value in values]).failure is None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a spool?#%41.sqlite"


def read(path: Path, tally: Tally | None = None) -> list[Logged]:
    return list(logged(path, tally or Tally()))


def test_bundles_in_order_with_the_time_that_up_takes(path: Path) -> None:
    put(path, *[encode_bundle(bundle(number)) for number in range(200)])
    messages = read(path)
    assert [message.bundle for message in messages] == [bundle(number) for number in range(200)]
    assert {message.log_ms for message in messages} == {5_000}
    assert [message.offset for message in messages] == sorted({message.offset for message in messages})


def test_nothing_is_created_or_changed(path: Path) -> None:
    put(path, encode_bundle(bundle(0)))
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    assert len(read(path)) == 1
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_spool_that_is_being_written_is_read_up_to_its_end_at_the_start(path: Path) -> None:
    with closing(Spool(path, SIZE)) as spool:
        spool.put([NewRow(3, 0, encode_bundle(bundle(number))) for number in range(100)])
        reading = logged(path, Tally())
        first = next(reading)
        spool.put([NewRow(3, 0, encode_bundle(bundle(100)))])
        assert [first.bundle.number, *[one.bundle.number for one in reading]] == list(range(100))
        assert len(read(path)) == 101


def test_rows_that_are_delivered_during_the_reading_are_reported(path: Path) -> None:
    with closing(Spool(path, SIZE)) as spool:
        spool.put([NewRow(3, 0, encode_bundle(bundle(number))) for number in range(100)])
        tally = Tally()
        reading: Iterator[Logged] = logged(path, tally)
        next(reading)
        spool.done([row.id for row in spool.take(0, SIZE)])
        assert len(list(reading)) < 99
        assert tally.rows_removed > 0


def test_damaged_rows_are_counted(path: Path) -> None:
    put(path, *[encode_bundle(bundle(number)) for number in range(3)], b"no bundle")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE light SET value = value || x'00' WHERE id = (SELECT min(id) FROM light)")
    tally = Tally()
    assert [one.bundle.number for one in read(path, tally)] == [1, 2]
    assert tally.unreadable_rows == 2


def test_an_empty_spool_has_no_rows(path: Path) -> None:
    put(path)
    assert read(path) == []


@pytest.mark.parametrize("damage", ["DROP VIEW rows", "DROP TABLE whole"])
def test_a_spool_of_another_version_is_refused_with_its_version(path: Path, damage: str) -> None:
    put(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(damage)
    with pytest.raises(BrokenRecording, match="cannot be read as a spool of this version"):
        read(path)


def test_bundles_come_whole_while_they_have_their_reads(path: Path) -> None:
    (whole, *_) = bundles_of(interleaved(4))
    light = without_reads(whole)
    with closing(Spool(path, SIZE)) as spool:
        row = NewRow(3, reads_of(whole), encode_bundle(whole), encode_bundle(light))
        assert spool.put([row]).failure is None
        assert [one.bundle for one in read(path)] == [whole]
        assert spool.drop_old_reads(-1) == row.reads
        assert [one.bundle for one in read(path)] == [light]


def test_a_spool_of_layout_2_is_read_as_it_is(path: Path) -> None:
    """It was copied before this version converted it."""
    found = bundles_of(interleaved(4))
    of_layout_2(path, [NewRow(one.slot, reads_of(one), encode_bundle(one)) for one in found])
    assert [one.bundle for one in read(path)] == list(found)
