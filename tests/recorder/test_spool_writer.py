"""Bundles are written to the spool in order, whatever the disk does; losses are counted, and heads and ends are kept."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.bundles import decode_bundle, encode_bundle, without_reads
from streamgauge.core.capture.segments import Bundle, Ending, Opening, Read, Segment, StreamEnding
from streamgauge.recorder import spool_writer
from streamgauge.recorder.bundler import reads_of
from streamgauge.recorder.spool_writer import SpoolWriter, unfinished_instances
from streamgauge.settings.declarations import SpoolPolicy, SpoolSettings
from streamgauge.spool import NewRow, Reserve, Spool
from streamgauge.spool.read_counters import Counters, read_balance, read_incidents
from streamgauge.spool.response_counters import NotCaptured, read_responses
from streamgauge.spool.row_clock import Moment
from tests.faults.small_disk import SmallDisk, small_disk

__all__ = ["small_disk"]
INSTANCE = b"i" * 16
MIB = 1024 * 1024


def bundle(number: int, *, size: int = 100, reads: int = 2, slot: int = 1, farewell: bool = False) -> Bundle:
    """Content that hardly compresses."""
    content = [Read(1, size, size, os.urandom(size)) for _ in range(reads)]
    first = Segment(number.to_bytes(16), 0, Opening("t", "1", "full"), reads=content, end=StreamEnding(Ending.COMPLETE))
    return Bundle(INSTANCE, slot, number, 0, [first] if reads else [], farewell)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Counters]:
    with Counters(tmp_path / "counters", "recorder") as opened:
        yield opened


def dropped(tmp_path: Path) -> dict[str, int]:
    return {reason: reads for reason, reads in read_balance(tmp_path / "counters").dropped.items() if reads}


def in_spool(spool: Spool) -> list[Bundle]:
    rows = spool.take(0, 1 << 40)
    bundles = [decode_bundle(row.value) for row in rows]
    assert [(row.slot, row.reads) for row in rows] == [(one.slot, reads_of(one)) for one in bundles]
    return bundles


def test_bundles_are_read_as_they_were_written(place: Path, counters: Counters, tmp_path: Path) -> None:
    spool = Spool(place / "spool.sqlite")
    sent = [bundle(number, slot=number % 3) for number in range(10)]
    out = SpoolWriter(INSTANCE, spool, counters)
    out.send(sent[:4], [0, 1])
    out.send([], [0, 1])
    out.send(sent[4:], [0, 1, 2])
    assert out.is_empty
    assert in_spool(spool) == sent
    assert dropped(tmp_path) == {}
    spool.close()


def test_a_bundle_is_compressed_once_before_it_is_written(
    place: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool contains the result of exactly one compression of each bundle, and one of the bundle without its reads."""
    made: list[bytes] = []
    light: list[bytes] = []

    def counted(one: Bundle) -> bytes:
        made_now = made if reads_of(one) else light
        made_now.append(encode_bundle(one))
        return made_now[-1]

    monkeypatch.setattr(spool_writer, "encode_bundle", counted)
    spool = Spool(place / "spool.sqlite")
    read = Read(1, 20_000, 20_000, b"the same again " * 1_000)
    sent = [Bundle(INSTANCE, 1, number, 0, [Segment(bytes(16), number, reads=[read])]) for number in range(10)]
    out = SpoolWriter(INSTANCE, spool, counters)
    out.send(sent, [1])
    values = [row.value for row in spool.take(0, 1 << 40)]
    assert values == made
    assert [decode_bundle(value) for value in values] == sent
    assert light == [encode_bundle(without_reads(one)) for one in sent]
    assert max(map(len, values)) < 1_000
    spool.close()


def test_rows_without_room_wait_in_order_and_the_instance_stays_unfinished(
    place: Path, counters: Counters, tmp_path: Path
) -> None:
    spool = Spool(place / "spool.sqlite", MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters)
    for size in (3000, 1):
        while spool.put([NewRow(0, 0, bytes(size))]).stored:
            pass
    sent = [bundle(number, size=1000) for number in range(3)]
    out.send(sent, [1], farewell=True)
    assert not out.is_empty
    assert unfinished_instances(spool) == {INSTANCE: [1]}
    assert dropped(tmp_path) == {}, "bundles in memory keep their reads"
    spool.done([row.id for row in spool.take(0, 1 << 40)])
    out.send([], [1], farewell=True)
    assert out.is_empty
    assert in_spool(spool) == sent
    assert unfinished_instances(spool) == {}
    spool.close()


def test_the_spool_stores_the_running_instance_until_its_final_bundle(place: Path, counters: Counters) -> None:
    spool = Spool(place / "spool.sqlite")
    assert unfinished_instances(spool) == {}
    out = SpoolWriter(INSTANCE, spool, counters)
    out.send([bundle(0)], [1])
    assert unfinished_instances(spool) == {INSTANCE: [1]}
    out.send([bundle(1)], [1, 7])
    assert unfinished_instances(spool) == {INSTANCE: [1, 7]}
    second = SpoolWriter(b"j" * 16, spool, counters)
    second.send([bundle(0)], [1, 7])
    assert unfinished_instances(spool) == {b"j" * 16: [1, 7]}
    second.send([bundle(2, farewell=True)], [1, 7], farewell=True)
    assert unfinished_instances(spool) == {}
    spool.set("instances", b"rubbish")
    assert unfinished_instances(spool) == {}
    spool.close()


def test_the_spool_has_the_running_instance_between_transactions_of_one_call(
    place: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash there would leave no record of the instance, so its open streams would wait for its next bundle."""
    monkeypatch.setattr(spool_writer, "AT_ONCE_BYTES", 1)
    spool = Spool(place / "spool.sqlite")
    found: list[dict[bytes, list[int]]] = []
    put = spool.put

    def recorded(*arguments: Any) -> Any:
        done = put(*arguments)
        found.append(unfinished_instances(spool))
        return done

    monkeypatch.setattr(spool, "put", recorded)
    out = SpoolWriter(INSTANCE, spool, counters)
    out.send([bundle(number) for number in range(3)], [1])
    assert found == [{INSTANCE: [1]}] * len(found)
    found.clear()
    out.send([bundle(number, farewell=number == 5) for number in range(3, 6)], [1], farewell=True)
    assert found[:-1] == [{INSTANCE: [1]}] * (len(found) - 1)
    assert found[-1] == {}
    spool.close()


def test_a_full_spool_costs_reads_and_never_heads_or_ends(place: Path, counters: Counters, tmp_path: Path) -> None:
    spool = Spool(place / "spool.sqlite", 4 * MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters)
    sent = [bundle(number, size=20_000) for number in range(150)]
    for one in sent:
        out.send([one], [1])
        out.send([bundle(0, reads=0)], [1])
    bundles = [one for one in in_spool(spool) if one.segments]
    assert [one.number for one in bundles] == list(range(150))
    whole = sum(reads_of(one) == 2 for one in bundles)
    assert 40 < whole < 100
    assert [reads_of(one) for one in bundles] == [2] * whole + [0] * (150 - whole)
    assert all(one.segments[0].loss and one.segments[0].loss.dropped_reads == 2 for one in bundles[whole:])
    assert all(one.segments[0].end for one in bundles)
    assert dropped(tmp_path) == {"spool_full": 2 * (150 - whole)}
    ids = [row.id for row in spool.take(0, 1 << 40)]
    spool.done(ids[:-2])
    out.send([bundle(150, size=20_000)], [1])
    assert reads_of(in_spool(spool)[-1]) == 2
    spool.close()


@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_a_full_spool_never_costs_heartbeats_or_final_bundles(
    place: Path, counters: Counters, tmp_path: Path, policy: SpoolPolicy
) -> None:
    spool = Spool(place / "spool.sqlite", 4 * MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters, SpoolSettings(spool_policy=policy))
    for number in range(0, 300, 2):
        out.send([bundle(number, size=20_000)], [1])
        out.send([bundle(number + 1, reads=0)], [1])
    out.send([bundle(300, reads=0, farewell=True)], [1], farewell=True)
    assert out.is_empty
    bundles = in_file(spool)
    assert [one.number for one in bundles] == list(range(301))
    assert [one.number for one in bundles if not one.segments] == [*range(1, 300, 2), 300]
    assert [one.number for one in bundles if one.farewell] == [300]
    assert set(dropped(tmp_path)) == {"spool_full"}
    spool.close()


@pytest.mark.slow
def test_a_completely_full_spool_keeps_the_order(place: Path, counters: Counters, tmp_path: Path) -> None:
    spool = Spool(place / "spool.sqlite", MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters)
    number = 0
    while out.is_empty:
        out.send([bundle(number + place, size=3000) for place in range(50)], [1])
        number += 50
    out.send([bundle(number)], [1])
    assert not out.is_empty
    numbers = [one.number for one in in_spool(spool)]
    while rows := spool.take(0, MIB):
        spool.done([row.id for row in rows])
        out.send([], [1])
        numbers += [one.number for one in in_spool(spool)]
    assert out.is_empty
    assert numbers == list(range(number + 1))
    assert set(dropped(tmp_path)) == {"spool_full"}
    spool.close()


def test_a_short_failure_of_the_disk_costs_nothing(place: Path, counters: Counters, tmp_path: Path) -> None:
    spool = Spool(place / "spool.sqlite")
    out = SpoolWriter(INSTANCE, spool, counters)
    sent = [bundle(number) for number in range(30)]
    out.send(sent[:10], [1])
    spool.close()
    away = place.rename(tmp_path / "away")
    out.send(sent[10:20], [1, 2])
    assert not out.is_empty
    away.rename(place)
    out.send(sent[20:], [1, 2])
    assert out.is_empty
    assert in_spool(spool) == sent
    assert unfinished_instances(spool) == {INSTANCE: [1, 2]}
    assert dropped(tmp_path) == {}
    spool.close()


def test_a_long_failure_of_the_disk_costs_reads_then_bundles(
    place: Path, counters: Counters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_writer, "MAX_WAITING_BYTES", 100_000)
    shutil.rmtree(place)
    spool = Spool(place / "spool.sqlite")
    out = SpoolWriter(INSTANCE, spool, counters)
    sent = [bundle(number, size=1000) for number in range(300)]
    for one in sent:
        out.send([one], [1])
    lost = read_incidents(tmp_path / "counters")["bundle_lost"]
    assert lost > 0
    place.mkdir()
    out.send([], [1])
    assert out.is_empty
    bundles = in_spool(spool)
    assert [one.number for one in bundles] == list(range(300 - lost))
    whole = sum(reads_of(one) == 2 for one in bundles)
    assert whole > 10
    assert len(bundles) > 2 * whole
    assert [reads_of(one) for one in bundles] == [2] * whole + [0] * (len(bundles) - whole)
    assert dropped(tmp_path) == {"spool_failed": 2 * (300 - whole)}
    spool.close()


def in_file(spool: Spool) -> list[Bundle]:
    """The rows of the file, which are not removed."""
    return [decode_bundle(row.value) for row in spool.peek(0, 1 << 40)]


def test_by_policy_the_oldest_bundles_lose_their_reads(place: Path, counters: Counters, tmp_path: Path) -> None:
    spool = Spool(place / "spool.sqlite", 4 * MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters, SpoolSettings(spool_policy="drop-oldest"))
    sent = [bundle(number, size=20_000) for number in range(150)]
    for one in sent:
        out.send([one], [1])
    bundles = in_file(spool)
    assert [one.number for one in bundles] == list(range(150))  # none is missing or has another number
    whole = sum(reads_of(one) == 2 for one in bundles)
    assert 40 < whole < 100
    assert [reads_of(one) for one in bundles] == [0] * (150 - whole) + [2] * whole
    assert all(one.segments[0].loss and one.segments[0].loss.dropped_reads == 2 for one in bundles[: 150 - whole])
    assert all(one.segments[0].end for one in bundles)
    assert bundles[150 - whole :] == sent[150 - whole :]
    assert dropped(tmp_path) == {"spool_full": 2 * (150 - whole)}
    spool.close()


def test_the_policy_does_not_change_a_bundle_in_delivery(place: Path, counters: Counters, tmp_path: Path) -> None:
    spool = Spool(place / "spool.sqlite", 4 * MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters, SpoolSettings(spool_policy="drop-oldest"))
    out.send([bundle(number, size=20_000) for number in range(20)], [1])
    taken = spool.take(0, 200_000)
    for number in range(20, 150):
        out.send([bundle(number, size=20_000)], [1])
    bundles = in_file(spool)
    assert [reads_of(one) for one in bundles[: len(taken)]] == [2] * len(taken)
    assert [reads_of(one) for one in bundles[len(taken) : len(taken) + 30]] == [0] * 30
    assert spool.done([row.id for row in taken]) == 2 * len(taken)
    spool.close()


@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_heads_and_ends_have_room_when_the_reserve_is_used(
    place: Path, counters: Counters, tmp_path: Path, policy: SpoolPolicy
) -> None:
    """Twenty spools' worth of reads: their heads and ends alone are larger than the reserve."""
    spool = Spool(place / "spool.sqlite", 1 * MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters, SpoolSettings(spool_policy=policy))
    for start in range(0, 1200, 10):
        out.send([bundle(number, size=10_000) for number in range(start, start + 10)], [1])
        assert out.is_empty
    bundles = in_file(spool)
    assert [one.number for one in bundles] == list(range(1200))
    whole = [one.number for one in bundles if reads_of(one)]
    kept = slice(0, len(whole)) if policy == "drop-newest" else slice(1200 - len(whole), 1200)
    assert whole == list(range(1200))[kept]
    assert dropped(tmp_path) == {"spool_full": 2 * (1200 - len(whole))}
    assert read_incidents(tmp_path / "counters")["bundle_lost"] == 0
    assert spool.waiting().reads == 2 * len(whole)
    spool.close()


def test_a_bundle_too_large_for_the_spool_loses_its_reads_and_blocks_nothing(
    place: Path, counters: Counters, tmp_path: Path
) -> None:
    spool = Spool(place / "spool.sqlite", 1 * MIB, counters)
    out = SpoolWriter(INSTANCE, spool, counters)
    out.send([bundle(0), bundle(1, size=100_000), bundle(2)], [1])
    assert out.is_empty
    assert [reads_of(one) for one in in_file(spool)] == [2, 0, 2]
    assert dropped(tmp_path) == {"spool_full": 2}
    spool.close()


def test_a_bundle_that_has_waited_too_long_loses_its_reads(place: Path, counters: Counters, tmp_path: Path) -> None:
    now = [Moment("boot", 0, 0)]
    spool = Spool(place / "spool.sqlite", counters=counters, now=lambda: now[0])
    out = SpoolWriter(INSTANCE, spool, counters, SpoolSettings(spool_age=100))
    out.send([bundle(0)], [1])
    now[0] = Moment("boot", 60, 60)
    out.send([bundle(1)], [1])
    now[0] = Moment("boot", 101, 101)
    out.drop_old_reads()
    assert [reads_of(one) for one in in_file(spool)] == [0, 2]
    assert dropped(tmp_path) == {"too_old": 2}
    spool.close()


def on_full_disk(disk: SmallDisk, counters: Counters, count: int, *, kept: bool) -> tuple[SpoolWriter, Spool]:
    """A writer with so many bundles, of which a full disk refused those after the first ones."""
    spool, reserve = Spool(disk.path / "spool.sqlite"), Reserve(disk.path / "spool.reserve", 64 * MIB)
    assert reserve.keep()
    out = SpoolWriter(INSTANCE, spool, counters, reserve=reserve)
    for number in range(10):
        out.send([bundle(number, size=2_000)], [1])
    assert out.is_empty
    if not kept:
        reserve.release()
    with (disk.path / "other").open("wb", buffering=0) as other, contextlib.suppress(OSError):
        while True:
            other.write(os.urandom(4096))
    for start in range(10, count - 1, 10):
        out.send([bundle(number, size=500) for number in range(start, min(start + 10, count - 1))], [1])
    out.send([bundle(count - 1, reads=0, farewell=True)], [1], farewell=True)
    assert not out.is_empty
    return out, spool


@pytest.mark.slow
def test_at_the_end_a_full_disk_costs_reads_and_the_reserved_space_takes_heads_and_ends(
    small_disk: SmallDisk, counters: Counters, tmp_path: Path
) -> None:
    count = 400
    out, spool = on_full_disk(small_disk, counters, count, kept=True)
    lost = out.close([1])
    assert lost is not None
    assert (lost.without_record, str(lost.reason)) == (0, "spool_failed")
    assert "full" in lost.error
    assert dropped(tmp_path) == {"spool_failed": lost.reads}
    bundles = in_spool(spool)
    assert [one.number for one in bundles] == list(range(count))
    assert bundles[-1].farewell
    light = [one for one in bundles[:-1] if not reads_of(one)]
    assert lost.reads == 2 * len(light) > count
    assert lost.streams == len(light)
    assert all(one.segments[0].end and one.segments[0].loss for one in light)
    assert unfinished_instances(spool) == {}
    assert read_incidents(tmp_path / "counters")["bundle_lost"] == 0
    assert out.close([1]) is None
    spool.close()


def test_without_reserved_space_streams_without_a_record_are_counted(
    small_disk: SmallDisk, counters: Counters, tmp_path: Path
) -> None:
    count = 400
    out, spool = on_full_disk(small_disk, counters, count, kept=False)
    lost = out.close([1])
    assert lost is not None
    bundles = in_spool(spool)
    assert [one.number for one in bundles] == list(range(len(bundles)))
    assert lost.without_record == count - 1 - len(bundles) > 0
    assert dropped(tmp_path) == {"spool_failed": lost.reads}
    assert read_incidents(tmp_path / "counters")["bundle_lost"] == count - len(bundles)
    assert f"{lost.without_record} of these streams have no record" in lost.sentence("/data")
    assert read_responses(tmp_path / "counters")["unknown"].not_captured == {
        NotCaptured.SPOOL_LOST: lost.without_record
    }
    spool.close()


def test_a_stream_of_which_a_later_bundle_is_stored_is_not_counted_as_lost(
    place: Path, counters: Counters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(place / "spool.sqlite")
    out = SpoolWriter(INSTANCE, spool, counters)
    opening = Opening("t", "1", "full", upstream="up")
    begun = [Segment(bytes([number]) * 16, 0, opening) for number in (1, 2)]
    whole = Segment(bytes(16), 0, opening, end=StreamEnding(Ending.COMPLETE))
    ended = [Segment(one.stream, 1, end=StreamEnding(Ending.COMPLETE)) for one in begun]
    with monkeypatch.context() as full:
        full.setattr(spool_writer, "MAX_WAITING_BYTES", 0)
        out.send([Bundle(INSTANCE, 1, 0, 0, [whole, *begun])], [1])
        lost = read_responses(tmp_path / "counters")
        assert lost["up"].not_captured == {NotCaptured.SPOOL_LOST: 1}
    out.send([Bundle(INSTANCE, 1, 1, 0, ended[:1])], [1])
    with monkeypatch.context() as full:
        full.setattr(spool_writer, "MAX_WAITING_BYTES", 0)
        out.send([Bundle(INSTANCE, 1, 2, 0, ended[1:])], [1])
    assert read_responses(tmp_path / "counters")["up"].not_captured == {NotCaptured.SPOOL_LOST: 2}
    spool.close()
