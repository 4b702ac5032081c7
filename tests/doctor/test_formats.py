"""Files and topics of other versions."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from streamgauge.core.assembly.state_codec import STATE_VERSION, encode_entry
from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import SLOTS
from streamgauge.doctor.checks import CHECKS, run_checks
from streamgauge.doctor.contract import Installation
from streamgauge.spool import Spool
from streamgauge.worker.local import STATE_FILE, StateFile
from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.kafka_broker.administration import delete_topics
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import write_all
from tests.streams import bundles_of, chat_segments


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory with an empty spool and an empty state."""
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    with contextlib.closing(Spool(path / "spool.sqlite", 1024**2)) as spool:
        spool.waiting()
    StateFile(path / STATE_FILE).close()
    return path


def put_state(folder: Path, value: bytes) -> None:
    with contextlib.closing(sqlite3.connect(folder / STATE_FILE)) as database, database:
        database.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (value,))


def test_files_of_this_version_and_no_files_are_ok(folder: Path, tmp_path: Path) -> None:
    put_state(folder, encode_entry(b"x"))
    assert (folder / "spool.sqlite").stat().st_size > 0
    assert only("formats", installation("up", tmp_path)).level is OK
    assert only("formats", installation("up", tmp_path / "none")).level is OK


def test_a_spool_of_another_version(folder: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "spool.sqlite")) as database:
        database.execute("PRAGMA user_version = 1")
    seen = only("formats", installation("tap", tmp_path))
    assert (seen.level, "is not a spool of this version" in seen.says) == (WARN, True)


def test_a_state_of_a_later_version(folder: Path, tmp_path: Path) -> None:
    put_state(folder, b"SGS" + bytes((STATE_VERSION + 1,)) + b"x")
    seen = only("formats", installation("up", tmp_path))
    assert (seen.level, f"in format {STATE_VERSION + 1}" in seen.says) == (FAIL, True)
    (folder / STATE_FILE).write_bytes(b"no database, but long enough to be read as one")
    assert only("formats", installation("up", tmp_path)).level is FAIL


async def send(kafka: str, topic: str, value: bytes) -> None:
    """One message with a key, which compacted topics require."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value, key=b"k", partition=0)
    finally:
        await producer.stop()


@pytest.mark.kafka
def test_topics_with_messages_of_other_versions(kafka: str, prefix: str, tmp_path: Path) -> None:
    def examined() -> Installation:
        return installation("worker", tmp_path, kafka, topic_prefix=prefix)

    assert only("formats", examined()).level is OK
    known = {
        "segments": encode_bundle(bundles_of(chat_segments(1))[0]),
        "records": b'{"schema_version":1}',
        "state": encode_entry(b"x"),
    }
    for topic, value in known.items():
        asyncio.run(send(kafka, f"{prefix}.{topic}", value))
    assert only("formats", examined()).level is OK
    for topic, value in {"segments": b"SG\xffx", "records": b'{"schema_version":99}', "state": b"SGS\xffx"}.items():
        asyncio.run(send(kafka, f"{prefix}.{topic}", value))
    seen = found("formats", examined())
    assert [(one.level, one.says.partition(" holds ")[0]) for one in seen] == [
        (FAIL, f"{prefix}.segments"),
        (FAIL, f"{prefix}.records"),
        (FAIL, f"{prefix}.state"),
    ], seen


@pytest.mark.kafka
def test_the_largest_topics_are_read_within_the_time_of_a_check(kafka: str, tmp_path: Path) -> None:
    prefix = make_topics(kafka, SLOTS)
    bundle = encode_bundle(bundles_of(chat_segments(1))[0])
    try:
        asyncio.run(write_all(kafka, f"{prefix}.segments", [(number, bundle) for number in range(SLOTS)] * 2))
        examined = installation("worker", tmp_path, kafka, topic_prefix=prefix)
        assert examined.cluster is not None
        ends = asyncio.run(examined.cluster.ends(f"{prefix}.segments", SLOTS))
        offsets = {number: (first.offset, last.offset) for number, (first, last) in ends.items()}
        assert offsets == dict.fromkeys(range(SLOTS), (0, 1))
        checks = [check for check in CHECKS if check.name == "formats"]
        [(_, seen)] = asyncio.run(run_checks(installation("worker", tmp_path, kafka, topic_prefix=prefix), 20, checks))
        assert seen.level is OK
    finally:
        asyncio.run(delete_topics(kafka, prefix))
