"""The worker on a real Kafka: one distinct record per stream, whatever happens to the worker, the log and the broker."""

import asyncio
import itertools
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.limits import Limits
from streamgauge.kafka import dead_letters, topics
from streamgauge.worker.activity_clock import Activity
from streamgauge.worker.faust.store import key_of
from tests.dead_letters import send_back
from tests.faults.lengths import length
from tests.integration.synthetic import SyntheticTap, assembled, distinct
from tests.integration.workers import worker
from tests.kafka_broker.administration import delete_beginning, delete_topic, set_config
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import PARTITIONS, make_topics
from tests.kafka_broker.reading import read_all, read_until, write_all
from tests.running import wait_for

pytestmark = pytest.mark.kafka


def log_of(bootstrap: str, topic: str) -> list[Any]:
    return asyncio.run(read_all(bootstrap, topic))


def records_of(bootstrap: str, prefix: str, count: int, timeout_s: float = 120) -> dict[str, set[bytes]]:
    """The records topic, once it has `count` streams."""
    topic = f"{prefix}.records"
    found = asyncio.run(read_until(bootstrap, topic, lambda all_: len(distinct(all_)) >= count, timeout_s))
    return distinct(found)


def write(bootstrap: str, prefix: str, messages: list[tuple[int, bytes]]) -> None:
    asyncio.run(write_all(bootstrap, f"{prefix}.segments", messages))


def same(found: dict[str, set[bytes]], expected: dict[str, bytes]) -> bool:
    """Exactly one record per stream, equal to the one that a replay of the log gives."""
    return {stream: list(records) for stream, records in found.items()} == {k: [v] for k, v in expected.items()}


def ledger_of(path: Path) -> dict[str, bytes]:
    """The ledger's rows, without the cost that it adds."""
    with sqlite3.connect(path) as connection:
        table = connection.execute(
            "SELECT name FROM sqlite_master WHERE type='table' AND sql LIKE '%record%'"
        ).fetchone()
        rows = connection.execute(f"SELECT stream_id, record FROM {table[0]}").fetchall()
    connection.close()
    return {stream: bytes(record).replace(b',"cost":null}', b"}") for stream, record in rows}


def wait_for_ledger(path: Path, count: int) -> dict[str, bytes]:
    deadline = time.monotonic() + 60
    while True:
        try:
            rows = ledger_of(path)
        except (sqlite3.OperationalError, TypeError):
            rows = {}
        if len(rows) >= count or time.monotonic() > deadline:
            return rows
        time.sleep(0.2)


def test_each_stream_becomes_one_record_in_topic_and_ledger(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(1)
    write(kafka, prefix, list(tap.bundles(200)))
    ledger = tmp_path / "ledger.sqlite"
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, ledger=f"sqlite:////{ledger}") as process:
        process.wait_ready()
        rows = wait_for_ledger(ledger, 200)
        assert process.stop() == 0
        assert process.metric('streamgauge_ledger_rows_total{result="new"}') == 200
        completed = [line for line in process.metrics.splitlines() if line.startswith("streamgauge_streams_total{")]
        assert sum(float(line.rsplit(" ", 1)[1]) for line in completed) == 200
    expected = assembled(log_of(kafka, f"{prefix}.segments"))
    assert sorted(expected) == sorted(tap.ids)
    assert same(records_of(kafka, prefix, 200), expected)
    assert rows == expected
    for line in process.log.splitlines():
        assert line.startswith('{"at":'), line


def test_f1_duplicate_bundles_change_nothing(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap, chance = SyntheticTap(2), random.Random(2)
    sent: list[tuple[int, bytes]] = []
    for message in tap.bundles(100):
        sent.append(message)
        sent.extend(chance.sample(sent, min(len(sent), chance.randrange(3))))
    write(kafka, prefix, sent)
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 100)
        assert process.stop() == 0
        assert process.metric("streamgauge_duplicate_bundles_total") > 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 100


# How often the worker of W5 is killed.
KILLS = length(6, 50)


@pytest.mark.timeout(length(180, 1200))
def test_w5_state_after_random_kills_equals_a_replay(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap, chance = SyntheticTap(3), random.Random(3)
    bundles = list(tap.bundles(400, segments=20))
    ledger = tmp_path / "ledger.sqlite"
    settings = {"bootstrap": kafka, "prefix": prefix, "ledger": f"sqlite:////{ledger}", "checkpoint_s": 0.2}
    edges = [len(bundles) * place // KILLS for place in range(KILLS + 1)]
    for start, end in itertools.pairwise(edges):
        with worker(tmp_path, **settings) as process:
            process.wait_ready()
            write(kafka, prefix, bundles[start:end])
            time.sleep(chance.uniform(0.1, 1.2))
            process.kill()
    with worker(tmp_path, **settings) as process:
        process.wait_ready()  # all may be done already, and a signal before its handler is there ends it with another code
        found = records_of(kafka, prefix, 400)
        rows = wait_for_ledger(ledger, 400)
        assert process.stop() == 0
    expected = assembled(log_of(kafka, f"{prefix}.segments"))
    assert len(expected) == 400
    assert same(found, expected)
    assert rows == expected


def test_w1_one_of_two_workers_takes_over(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(4)
    bundles = list(tap.bundles(300, segments=10))
    half = len(bundles) // 2
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as first, worker(tmp_path, **settings) as second:
        first.wait_ready()
        second.wait_ready()
        assert {path.name for path in (tmp_path / "data" / "worker-slots").iterdir()} == {"0", "1", "id"}
        write(kafka, prefix, bundles[:half])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            owners = asyncio.run(group_members(kafka, prefix))
            if sorted(map(len, owners.values())) == [PARTITIONS // 2] * 2:
                break
            time.sleep(0.3)
        assert sorted(map(len, owners.values())) == [PARTITIONS // 2] * 2
        assert len(owners) == 2
        first.kill()
        write(kafka, prefix, bundles[half:])
        found = records_of(kafka, prefix, 300)
        assert second.stop() == 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 300


async def group_members(bootstrap: str, prefix: str) -> dict[str, list[int]]:
    """The partitions of the segments topic of each member, as the group reports them."""
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        (answer,) = await admin.describe_consumer_groups([prefix])
        members = answer.groups[0][5]
        owned: dict[str, list[int]] = {}
        for member in members:
            assignment = ConsumerProtocolMemberAssignment.decode(member[-1]) if member[-1] else None
            for topic, partitions in assignment.assignment if assignment else []:
                if topic == f"{prefix}.segments":
                    owned[member[0]] = list(partitions)
        return owned
    finally:
        await admin.close()


def test_a_graceful_stop_leaves_nothing_to_process_again(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(5)
    write(kafka, prefix, [*tap.bundles(50), *tap.begin(10)])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, checkpoint_s=5.0) as process:
        records_of(kafka, prefix, 50)
        began = time.monotonic()
        assert process.stop() == 0
        assert time.monotonic() - began < 30
    written = len(log_of(kafka, f"{prefix}.records"))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        process.wait_ready()
        time.sleep(1)
        assert process.stop() == 0
        assert process.metric("streamgauge_bundles_total") == 0
    assert len(log_of(kafka, f"{prefix}.records")) == written == 50


def test_the_seconds_of_its_partitions_add_up_to_its_working_time(kafka: str, prefix: str, tmp_path: Path) -> None:
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, checkpoint_s=0.2) as process:
        began = time.monotonic()
        process.wait_ready()
        ready = time.monotonic()
        write(kafka, prefix, list(SyntheticTap(16).bundles(200)))
        records_of(kafka, prefix, 200)
        time.sleep(3)
        worked_s = time.monotonic() - ready
        assert process.stop() == 0
        lived_s = time.monotonic() - began
        name = 'streamgauge_worker_seconds_total{activity="%s"}'
        seconds = {activity: process.metric(name % activity) for activity in Activity}
    assert all(spent > 0 for spent in seconds.values()), seconds
    assert PARTITIONS * worked_s <= sum(seconds.values()) <= PARTITIONS * lived_s
    assert seconds[Activity.DECODING] + seconds[Activity.APPLYING] <= lived_s, "one event loop"


def test_unreadable_messages_become_dead_letters_with_their_origin(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(6, slots=(0,))
    bundles = list(tap.bundles(20))
    pickled = b"\x80\x04\x95cos\nsystem\n(S'false'\ntR."
    write(kafka, prefix, [bundles[0], (0, b"poison"), (0, pickled), (0, b"SG\x63zzzz"), *bundles[1:], (1, b"")])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 20)
        letters = asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= 4))
        assert process.stop() == 0
        dead = 'streamgauge_dead_letters_total{error_class="%s",stage="decode"}'
        swapped = 'streamgauge_dead_letters_total{stage="decode",error_class="%s"}'
        assert process.metric(dead % "version") + process.metric(swapped % "version") == 1
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(letters) == 4
    read = asyncio.run(collect(kafka, prefix))
    story = {letter.value: (letter.source_partition, letter.source_offset, letter.error_class) for letter in read}
    assert story == {
        b"poison": (0, 1, "frame"),
        pickled: (0, 2, "frame"),
        b"SG\x63zzzz": (0, 3, "version"),
        b"": (1, 0, "frame"),
    }
    assert {(letter.source_topic, letter.stage) for letter in read} == {(f"{prefix}.segments", "decode")}
    assert all(letter.version and letter.format_version == "1" for letter in read)


def test_many_unreadable_messages_do_not_block_other_partitions(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(14, slots=(0,))
    write(kafka, prefix, [*[(1, b"poison %d" % number) for number in range(1000)], *tap.bundles(20)])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 20)
        assert len(log_of(kafka, f"{prefix}.deadletter")) < 1000
        letters = asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= 1000))
        assert process.stop() == 0
    assert len(found) == 20
    assert [letter.value for letter in letters] == [b"poison %d" % number for number in range(1000)]


def test_k5_a_record_that_its_topic_refuses_waits_for_the_dead_letters(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Its partition waits with it while the dead letter topic is missing, and the worker does not end."""
    names = topics.Topics(prefix)
    asyncio.run(set_config(kafka, names.records, **{"max.message.bytes": "300"}))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        process.wait_ready()
        asyncio.run(delete_topic(kafka, names.deadletter))
        write(kafka, prefix, list(SyntheticTap(15, slots=(0,)).bundles(3)))
        time.sleep(5)
        assert process.process.poll() is None, process.log
        assert log_of(kafka, names.records) == []
        assert process.metric('streamgauge_dead_letters_total{error_class="refused",stage="record"}') == 0
        asyncio.run(topics.create(kafka, PARTITIONS, prefix))
        letters = asyncio.run(read_until(kafka, names.deadletter, lambda all_: len(all_) >= 3))
        assert process.stop() == 0
        assert process.metric('streamgauge_dead_letters_total{error_class="refused",stage="record"}') == 3
    expected = assembled(log_of(kafka, names.segments))
    assert {letter.value for letter in letters} == set(expected.values())
    assert {(one.stage, one.source_topic) for one in asyncio.run(collect(kafka, prefix))} == {("record", names.records)}


async def collect(bootstrap: str, prefix: str) -> list[dead_letters.DeadLetter]:
    return [letter async for letter in dead_letters.read(bootstrap, topics.Topics(prefix))]


def test_a_returned_dead_letter_counts_once(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(7, slots=(0,))
    good = list(tap.bundles(5, segments=1))
    names = topics.Topics(prefix)
    letters = [
        dead_letters.DeadLetter(0, 0, "decode", "version", names.segments, 0, 9, None, None, None, value)
        for _, value in good
    ]
    asyncio.run(send_back(kafka, names, letters + letters))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 5)
        assert process.stop() == 0
    assert same(found, assembled(log_of(kafka, names.segments)))
    assert len(found) == 5
    foreign = dead_letters.DeadLetter(3, 0, None, None, "payroll", 0, 0, None, None, None, b"x")
    with pytest.raises(dead_letters.NotRetriableError, match="dead letter 3"):
        asyncio.run(send_back(kafka, names, [foreign]))


def test_f5_old_state_that_is_written_late_does_not_win(kafka: str, prefix: str, tmp_path: Path) -> None:
    """A worker that was stopped and lost its partition flushes an entry; the next owner is killed too."""
    tap = SyntheticTap(8)
    bundles = list(tap.bundles(100, segments=10))
    half, settings = len(bundles) // 2, {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        write(kafka, prefix, bundles[: half // 2])
        time.sleep(2)
        write(kafka, prefix, bundles[half // 2 : half])
        time.sleep(2)
        assert process.stop() == 0
    state = log_of(kafka, f"{prefix}.state")
    newest: dict[bytes, Any] = {message.key: message for message in state}
    oldest = {message.key: message for message in reversed(state)}
    stale = [(message.partition, message.key, message.value) for message in oldest.values()]
    assert any(oldest[key].value != newest[key].value for key in newest)
    asyncio.run(write_keyed(kafka, f"{prefix}.state", [*stale, (0, key_of(1, 3), b"\x90"), (0, b"0/3", b"junk")]))
    write(kafka, prefix, bundles[half:])
    with worker(tmp_path, **settings) as process:
        found = records_of(kafka, prefix, 100)
        assert process.stop() == 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 100


async def write_keyed(bootstrap: str, topic: str, messages: list[tuple[int, bytes, bytes]]) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for partition, key, value in messages:
            await producer.send_and_wait(topic, value, key=key, partition=partition)
    finally:
        await producer.stop()


def test_w6_ticks_end_streams_whose_tap_has_ended(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(9)
    write(kafka, prefix, list(tap.begin(12)))
    settings = {"bootstrap": kafka, "prefix": prefix, "tick_s": 1.0, "abandon_after": 2.0}
    with worker(tmp_path, **settings) as process:
        found = records_of(kafka, prefix, 12)
        assert process.stop() == 0
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments"), Limits(abandon_after=2.0)))
    assert len(found) == 12
    assert all(b'"outcome":"abandoned"' in record for records in found.values() for record in records)


def test_a_deleted_beginning_is_counted_and_reported(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(10, slots=(0,))
    bundles = list(tap.bundles(30, segments=6, a_bundle=10))
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    write(kafka, prefix, bundles[:3])
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        time.sleep(1.5)
        assert process.stop() == 0
    write(kafka, prefix, bundles[3:])
    asyncio.run(delete_beginning(kafka, f"{prefix}.segments", 0, 7))
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        time.sleep(3)
        assert process.stop() == 0
        assert process.metric("streamgauge_log_gap_messages_total") == 4
    found = distinct(log_of(kafka, f"{prefix}.records"))
    assert found
    assert all(len(records) == 1 for records in found.values())
    assert any(b'"log_gap"' in record for records in found.values() for record in records)


def test_a_recreated_topic_stops_the_worker(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(11)
    write(kafka, prefix, [*tap.bundles(40), *tap.begin(5)])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        records_of(kafka, prefix, 40)
        assert process.stop() == 0
    asyncio.run(delete_topic(kafka, f"{prefix}.segments"))
    asyncio.run(topics.create(kafka, PARTITIONS, prefix))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        assert process.process.wait(60) == 3
        assert "recreated" in process.log


def test_missing_topics_are_one_sentence(kafka: str, tmp_path: Path) -> None:
    with worker(tmp_path, bootstrap=kafka, prefix="nobody-made-these") as process:
        assert process.process.wait(60) == 3
        (line,) = process.log.splitlines()
        assert "streamgauge topics create" in line


def test_without_a_broker_it_waits_or_exits(tmp_path: Path) -> None:
    with worker(tmp_path, bootstrap="127.0.0.1:1", wait_for_broker=False) as process:
        assert process.process.wait(60) == 3
        assert "no Kafka broker answers" in process.log
    with worker(tmp_path, bootstrap="127.0.0.1:1") as process:
        wait_for(lambda: process.log, "the line that no broker answers")
        time.sleep(2)
        assert process.process.poll() is None
        assert len(process.log.splitlines()) == 1
        assert process.stop() == 0


def test_a_broker_that_is_killed_under_the_worker(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = own_broker()
    prefix = make_topics(broker.bootstrap)
    tap = SyntheticTap(12)
    bundles = list(tap.bundles(200, segments=10))
    half = len(bundles) // 2
    with worker(tmp_path, bootstrap=broker.bootstrap, prefix=prefix, checkpoint_s=0.2) as process:
        process.wait_ready()
        write(broker.bootstrap, prefix, bundles[:half])
        time.sleep(0.5)
        broker.kill()
        time.sleep(5)
        broker.start()
        write(broker.bootstrap, prefix, bundles[half:])
        found = records_of(broker.bootstrap, prefix, 200)
        assert process.process.poll() is None, process.log
        assert process.stop() == 0
        assert len(process.log.splitlines()) < 40, process.log
    assert same(found, assembled(log_of(broker.bootstrap, f"{prefix}.segments")))
    assert len(found) == 200


def test_a_worker_that_was_stopped_for_a_while_continues(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Longer than the session: another one takes over the partitions, and both read to the end."""
    tap = SyntheticTap(13)
    bundles = list(tap.bundles(200, segments=10))
    third = len(bundles) // 3
    settings = {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}
    with worker(tmp_path, **settings) as first, worker(tmp_path, **settings) as second:
        first.wait_ready()
        second.wait_ready()
        write(kafka, prefix, bundles[:third])
        first.process.send_signal(signal.SIGSTOP)
        write(kafka, prefix, bundles[third : 2 * third])
        time.sleep(14)
        first.process.send_signal(signal.SIGCONT)
        write(kafka, prefix, bundles[2 * third :])
        found = records_of(kafka, prefix, 200)
        codes = [first.process.poll() if first.process.poll() is not None else first.stop(), second.stop()]
    assert codes[1] == 0
    assert codes[0] in (0, 3), first.log
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 200
