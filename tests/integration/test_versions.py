"""Old and new taps and workers on one real Kafka: earlier formats are read, later ones are kept, state is not damaged."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from streamgauge.core.assembly.assembler import PRODUCERS
from streamgauge.core.assembly.state_codec import decode_entry, encode_entry
from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import Record, encode_record
from streamgauge.kafka.topics import Topics
from streamgauge.worker.faust.store import key_of
from tests.integration.synthetic import SyntheticTap, assembled, distinct
from tests.integration.test_worker import collect, log_of, records_of, same, wait_for_ledger, write, write_keyed
from tests.integration.workers import worker
from tests.kafka_broker.reading import read_until
from tests.running import command

pytestmark = pytest.mark.kafka


def fields_of(bundle: Bundle) -> list[Any]:
    found: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(bundle))
    return found


def trimmed(fields: list[Any]) -> list[Any]:
    """Without what an older writer did not have: trailing fields that are None or empty."""
    while fields and fields[-1] in (None, []):
        fields = fields[:-1]
    return [trimmed(field) if isinstance(field, list) else field for field in fields]


def as_older(message: bytes) -> bytes:
    fields = trimmed(fields_of(decode_bundle(message))[:5])
    return repacked(message, fields)


def as_newer(message: bytes) -> bytes:
    """What a later writer of the same format adds: fields at the ends of bundle, segments, openings and reads."""
    fields = fields_of(decode_bundle(message))
    for segment in fields[4]:
        segment[5] = [[*read, "added"] for read in segment[5]]
        segment[2] = segment[2] and [*segment[2], {"added": 1}]
        segment.append(["added"])
    return repacked(message, [*fields, "added", None])


def repacked(message: bytes, fields: list[Any]) -> bytes:
    return message[:3] + zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(fields))


def changed_state(state: Iterable[Any]) -> list[tuple[int, bytes, bytes]]:
    """The newest entry of each key, alternately as an unversioned program wrote it and with added fields."""
    newest = {message.key: message for message in state}
    entries = []
    for turn, message in enumerate(newest.values()):
        fields = msgspec.msgpack.decode(decode_entry(message.value), strict=False)
        longer = encode_entry(msgspec.msgpack.encode([*fields, "added"]))
        entries.append((message.partition, message.key, longer if turn % 2 else msgspec.msgpack.encode(fields[:2])))
    return entries


def test_older_and_newer_writers_in_one_log_and_older_state(kafka: str, prefix: str, tmp_path: Path) -> None:
    plain = list(SyntheticTap(21).bundles(80, segments=8))
    mixed = [(at, (as_older, as_newer, bytes)[turn % 3](one)) for turn, (at, one) in enumerate(plain)]
    assert all(decode_bundle(one) == decode_bundle(two) for (_, one), (_, two) in zip(plain, mixed, strict=True))
    assert sum(one != two for one, two in zip(plain, mixed, strict=True)) >= len(plain) * 6 // 10
    half = len(mixed) // 2
    write(kafka, prefix, mixed[:half])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, checkpoint_s=0.2) as process:
        process.wait_ready()
        records_of(kafka, prefix, 1, timeout_s=10)
        assert process.stop() == 0
    asyncio.run(write_keyed(kafka, f"{prefix}.state", changed_state(log_of(kafka, f"{prefix}.state"))))
    write(kafka, prefix, mixed[half:])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 80)
        assert process.stop() == 0
        assert process.metric("streamgauge_duplicate_bundles_total") == 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 80
    assert asyncio.run(collect(kafka, prefix)) == []


def test_bundles_of_a_later_format_are_kept_and_can_be_returned_once(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Taps were upgraded before the workers. The bundles wait among the dead letters; returned twice, they count once."""
    written = list(SyntheticTap(22).bundles(40))
    write(kafka, prefix, written)
    settings = {"bootstrap": kafka, "prefix": prefix, "fault": "read_an_earlier_format_alone"}
    with worker(tmp_path, module="tests.faults.faulty_worker", **settings) as process:
        letters = asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= len(written)))
        assert process.stop() == 0
        assert process.metric('streamgauge_dead_letters_total{error_class="version",stage="decode"}') + process.metric(
            'streamgauge_dead_letters_total{stage="decode",error_class="version"}'
        ) == len(written)
    assert sorted(letter.value for letter in letters) == sorted(value for _, value in written)
    assert log_of(kafka, f"{prefix}.records") == []
    for _ in range(2):
        done = command("deadletter", "retry", "--all", "--kafka", kafka, "--topic-prefix", prefix)
        assert (done.returncode, done.stderr) == (0, "")
    write(kafka, prefix, list(SyntheticTap(24).bundles(40)))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 80)  # those of the later bundles come after all that was returned twice
        assert process.stop() == 0
        assert process.metric("streamgauge_duplicate_bundles_total") == len(written)
    assert len(found) == 80
    assert all(len(records) == 1 for records in found.values())
    assert all(b'"complete":true' in record for records in found.values() for record in records)
    assert len(log_of(kafka, f"{prefix}.deadletter")) == len(written)


def test_state_of_a_later_format_is_refused_and_not_changed(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(23)
    write(kafka, prefix, list(tap.begin(20)))
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        asyncio.run(read_until(kafka, f"{prefix}.state", lambda all_: len(all_) >= 8))
        assert process.stop() == 0
    later = b"SGS\x02 whatever the next version writes"
    asyncio.run(write_keyed(kafka, f"{prefix}.state", [(1, key_of(1, PRODUCERS), later)]))
    before = [one for one in log_of(kafka, f"{prefix}.state") if one.partition == 1]
    with worker(tmp_path, **settings) as process:
        assert process.process.wait(60) == 3
        (line,) = [json.loads(line)["message"] for line in process.log.splitlines() if '"error"' in line]
    assert line.startswith(f"{prefix}.state/1: a later version wrote the state in format 2")
    assert "run the later version" in line
    after = [one for one in log_of(kafka, f"{prefix}.state") if one.partition == 1]
    assert [(one.key, one.value) for one in after] == [(one.key, one.value) for one in before]
    assert after[-1].value == later


def test_records_of_a_later_schema_are_separated_by_class(
    kafka: str, prefix: str, tmp_path: Path, a_record: Record
) -> None:
    topics, ledger = Topics(prefix), tmp_path / "ledger.sqlite"
    plain = msgspec.json.decode(encode_record(a_record))
    grown = msgspec.json.encode(plain | {"added_later": 1})
    newer = msgspec.json.encode(plain | {"schema_version": 2, "stream_id": plain["stream_id"].replace("0", "1")})
    keyed = [(0, b"id", value) for value in (grown, newer, b'{"schema_version": "x"}')]
    asyncio.run(write_keyed(kafka, topics.records, keyed))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, ledger=f"sqlite:////{ledger}") as process:
        asyncio.run(read_until(kafka, topics.deadletter, lambda all_: len(all_) >= 2))
        rows = wait_for_ledger(ledger, 1)
        assert process.stop() == 0
    assert rows == {plain["stream_id"]: grown}
    letters = asyncio.run(collect(kafka, prefix))
    assert [(letter.stage, letter.error_class, letter.value) for letter in letters] == [
        ("ledger", "version", newer),
        ("ledger", "unreadable", b'{"schema_version": "x"}'),
    ]
    assert distinct(log_of(kafka, topics.records)).keys() == {"id"}


def test_omitted_fields_have_their_defaults() -> None:
    """The arrays of this test are shorter; otherwise its first test would show nothing."""
    for _, message in SyntheticTap(24).bundles(5):
        bundle = decode_bundle(message)
        assert len(trimmed(fields_of(bundle)[:5])) == 5 < len(fields_of(bundle))
        assert encode_bundle(decode_bundle(as_older(message))) == message
