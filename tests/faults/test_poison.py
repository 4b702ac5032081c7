"""Unreadable messages on a real Kafka: dead letters at a limited rate; good partitions continue; no code in them runs."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError
from confluent_kafka import KafkaError
from confluent_kafka import Producer as Compressing

from streamgauge.kafka import topics
from streamgauge.kafka.dead_letters import TRUNCATED_BYTES
from streamgauge.kafka.shims.header_names import tolerate_header_names
from streamgauge.kafka.topics import Topics
from tests.faults.hostile import Sent, hostile
from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import collect, log_of, records_of, same, write
from tests.integration.workers import WorkerProcess, worker
from tests.kafka.shims.test_header_names import batch
from tests.kafka_broker.administration import delete_topic, set_config
from tests.kafka_broker.fixtures import PARTITIONS
from tests.kafka_broker.reading import read_until
from tests.running import command, resident_memory, start_worker, wait_for, wait_until_ready

pytestmark = pytest.mark.kafka

# By how much a worker's memory may grow (bytes): one frame of 64 MiB at a time, and what the allocator keeps.
MEMORY_BYTES = 192 * 1024 * 1024


async def _put(bootstrap: str, topic: str, messages: list[tuple[int, Sent]]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=2**26)
    await producer.start()
    try:
        for partition, one in messages:
            if one.key is None and one.value is None:
                await producer.send_and_wait(topic, b"", partition=partition)
            else:
                await producer.send_and_wait(topic, one.value, key=one.key, partition=partition)
    finally:
        await producer.stop()


def put(bootstrap: str, prefix: str, messages: list[tuple[int, Sent]]) -> None:
    asyncio.run(_put(bootstrap, Topics(prefix).segments, messages))


async def _put_header(bootstrap: str, topic: str) -> None:
    """A message with a header whose name is not valid UTF-8. No client creates one, so the batch's bytes are changed."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        made = producer.create_batch()
        made.append(timestamp=None, key=b"key", value=b"value", headers=[("~~", b"text")])
        made._build()
        made._buffer = batch([b"\xff\xfe"])
        await (await producer.send_batch(made, topic, partition=0))
    finally:
        await producer.stop()


async def _committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        found = await admin.list_consumer_group_offsets(group)
        return {(place.topic, place.partition): at.offset for place, at in found.items()}
    except GroupCoordinatorNotAvailableError:  # a broker creates it at the first request
        return {}
    finally:
        await admin.close()


def committed(bootstrap: str, prefix: str, partition: int) -> int:
    """The next offset of the segments topic that the group will read."""
    return asyncio.run(_committed(bootstrap, prefix)).get((Topics(prefix).segments, partition), 0)


def keys_of(log: list[Any]) -> set[str]:
    return {message.key.decode() for message in log if message.key is not None and message.key.isascii()}


def dead_by_class(process: WorkerProcess) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in process.metrics.splitlines():
        if line.startswith("streamgauge_dead_letters_total{"):
            found[line.split('error_class="')[1].split('"')[0]] += int(float(line.rsplit(" ", 1)[1]))
    return found


def test_d1_one_unreadable_message_in_a_hundred(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap = SyntheticTap(31)
    sent: list[tuple[int, bytes]] = []
    poison: dict[bytes, tuple[int, int]] = {}
    lengths: Counter[int] = Counter()
    kinds = (b"junk %d", b"SG\x63later %d", b"SG\x01damaged %d")
    for turn, (partition, message) in enumerate(tap.bundles(400, segments=10, a_bundle=8)):
        if turn % 100 == 50:
            bad = kinds[len(poison) % 3] % turn
            poison[bad] = (partition, lengths[partition])
            sent.append((partition, bad))
            lengths[partition] += 1
        sent.append((partition, message))
        lengths[partition] += 1
    write(kafka, prefix, sent)
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 400)
        asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= len(poison)))
        assert process.stop() == 0
        classes = dead_by_class(process)
    letters = asyncio.run(collect(kafka, prefix))
    assert {letter.value: (letter.source_partition, letter.source_offset) for letter in letters} == poison
    assert {(letter.source_topic, letter.stage, letter.format_version) for letter in letters} == {
        (f"{prefix}.segments", "decode", "1")
    }
    assert all(letter.version for letter in letters)
    assert Counter(letter.error_class for letter in letters) == classes
    assert set(classes) == {"frame", "version"}
    assert len(poison) >= 5
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 400
    assert {partition: committed(kafka, prefix, partition) for partition in lengths} == lengths
    done = command("deadletter", "retry", "--all", "--kafka", kafka, "--topic-prefix", prefix)
    assert (done.returncode, done.stdout) == (1, "sent nothing back\n")


def test_d2_all_partitions_but_one_are_unreadable(kafka: str, prefix: str, tmp_path: Path) -> None:
    flood = 300
    tap = SyntheticTap(32, slots=(0,))
    bad = [(partition, b"poison %d" % number) for number in range(flood) for partition in range(1, PARTITIONS)]
    write(kafka, prefix, [*bad, *tap.bundles(30)])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 30)
        before = len(log_of(kafka, f"{prefix}.deadletter"))
        letters = asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= len(bad)))
        assert process.process.poll() is None
        assert process.stop() == 0
        assert dead_by_class(process) == {"frame": len(bad)}
        lines = [line for line in process.log.splitlines() if '"warning"' in line or '"error"' in line]
        assert lines and all("messages so far could not be read" in line for line in lines), lines
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 30
    assert before < len(bad), "the good partition waited for the unreadable messages of the others"
    assert sorted(letter.value for letter in letters) == sorted(value for _, value in bad)


def test_d2_the_partition_waits_while_the_dead_letter_topic_is_missing(kafka: str, prefix: str, tmp_path: Path) -> None:
    tap, good = SyntheticTap(33, slots=(0,)), SyntheticTap(34, slots=(1,))
    bundles = list(tap.bundles(10))
    ledger = f"sqlite:////{tmp_path / 'ledger.sqlite'}"
    with start_worker(kafka, prefix, tmp_path / "data", "--ledger", ledger) as process:
        wait_until_ready(process)
        asyncio.run(delete_topic(kafka, f"{prefix}.deadletter"))
        half = len(bundles) // 2
        write(kafka, prefix, [*bundles[:half], (0, b"poison"), *bundles[half:], *good.bundles(10)])
        wait_for(lambda: process.metrics().get("streamgauge_dead_letters_waiting") == 1, "waiting partition")
        assert len(records_of(kafka, prefix, len(good.ids))) >= len(good.ids)
        wait_for(lambda: committed(kafka, prefix, 0) == half, "offset before the poison")
        assert process.get("/health/live")[0] == 200
        asyncio.run(topics.create(kafka, PARTITIONS, prefix))
        found = records_of(kafka, prefix, 20)
        wait_for(lambda: committed(kafka, prefix, 0) == len(bundles) + 1, "the offset after all")
        wait_for(lambda: process.metrics()["streamgauge_dead_letters_waiting"] == 0, "nothing waiting")
        assert process.stop() == 0
        log = process.log
    why = "the topic does not exist: run `streamgauge topics create`"
    assert log.count(f"dead letters cannot be written to {prefix}.deadletter ({why})") == 1, log
    assert len(re.findall("dead letters can be written to .* again", log)) == 1, log
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    (letter,) = asyncio.run(collect(kafka, prefix))
    assert (letter.value, letter.source_partition, letter.source_offset) == (b"poison", 0, half)


def test_d2_stopping_worker_leaves_the_unreadable_message_unacknowledged(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    bundles = list(SyntheticTap(35, slots=(0,)).bundles(10))
    write(kafka, prefix, [*bundles, (0, b"poison")])
    settings = {"bootstrap": kafka, "prefix": prefix}
    with worker(tmp_path, **settings) as process:
        process.wait_ready()
        records_of(kafka, prefix, 10)
        wait_for(lambda: committed(kafka, prefix, 0) == len(bundles) + 1, "the offset after all")
        asyncio.run(delete_topic(kafka, f"{prefix}.deadletter"))
        write(kafka, prefix, [(0, b"poison again")])
        wait_for(lambda: "dead letters cannot be written to" in process.log, "sentence")
        assert process.stop() == 0
        assert "--drain-timeout has passed" not in process.log
    assert committed(kafka, prefix, 0) == len(bundles) + 1
    asyncio.run(topics.create(kafka, PARTITIONS, prefix))
    with worker(tmp_path, **settings) as process:
        (letter,) = asyncio.run(read_until(kafka, f"{prefix}.deadletter", bool))
        assert process.stop() == 0
    assert letter.value == b"poison again"


def test_s5_a_hostile_producer(kafka: str, prefix: str, tmp_path: Path) -> None:
    """A topic with a higher limit than ours accepts keys and values of 10 MB."""
    canary = tmp_path / "somebody-ran-it"
    names = Topics(prefix)
    asyncio.run(set_config(kafka, names.segments, max_message_bytes=str(2**25), message_timestamp_type="LogAppendTime"))
    huge = [Sent(b"k" * 10_000_000, b"v"), Sent(None, b"v" * 10_000_000), Sent(b"k" * 9_000_000, None)]
    sent = [*hostile(canary), *huge]
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        process.wait_ready()
        memory = resident_memory(process.process.pid)
        put(kafka, prefix, [(turn % 2, one) for turn, one in enumerate(sent)])
        poison = [one for one in sent if not one.readable]
        letters = asyncio.run(read_until(kafka, names.deadletter, lambda all_: len(all_) >= len(poison), 90))
        assert resident_memory(process.process.pid) < memory + MEMORY_BYTES
        good = SyntheticTap(36)
        write(kafka, prefix, list(good.bundles(20)))
        found = records_of(kafka, prefix, 20)
        assert set(good.ids) <= found.keys()
        assert process.stop() == 0
        assert '"error"' not in process.log
    assert not canary.exists()
    assert len(letters) == len(poison)
    dead_letters = asyncio.run(collect(kafka, prefix))
    cut = [dead_letter for dead_letter in dead_letters if dead_letter.whole is not None]
    assert sorted(one.whole for one in cut if one.whole) == [(0, 10_000_000), (9_000_000, 0), (10_000_000, 1)]
    assert all(len(one.key or b"") + len(one.value or b"") <= 2 * TRUNCATED_BYTES for one in cut)
    whole = Counter((dead_letter.key, dead_letter.value) for dead_letter in dead_letters if dead_letter.whole is None)
    assert whole == Counter(
        (one.key, one.value or (b"" if one.key is None else one.value)) for one in poison if one not in huge
    )
    assert same(found, assembled(log_of(kafka, names.segments)))


def test_s5_a_header_whose_name_is_no_text(kafka: str, prefix: str, tmp_path: Path) -> None:
    """aiokafka's decoder raises, and a worker that could not skip the message would end at each start."""
    bundles = list(SyntheticTap(38, slots=(0,)).bundles(10))
    half = len(bundles) // 2
    write(kafka, prefix, bundles[:half])
    asyncio.run(_put_header(kafka, f"{prefix}.segments"))
    write(kafka, prefix, bundles[half:])
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        found = records_of(kafka, prefix, 10)
        assert process.stop() == 0
    (letter,) = asyncio.run(collect(kafka, prefix))
    assert (letter.value, letter.source_offset, letter.error_class) == (b"value", half, "frame")
    tolerate_header_names()
    assert same(found, assembled(log_of(kafka, f"{prefix}.segments")))
    assert len(found) == 10


def test_s5_no_serializer_of_fausts_is_used(kafka: str, prefix: str, tmp_path: Path) -> None:
    """For any topic: there are pickles in the records and state topics as well, and none is loaded."""
    canary = tmp_path / "somebody-ran-it"
    names = Topics(prefix)
    pickles = [one for one in hostile(canary) if one.value and b"touch" in one.value]
    assert len(pickles) >= 10
    for topic in (names.segments, names.records, names.state):
        asyncio.run(
            _put(kafka, topic, [(0, pickle) for pickle in pickles if pickle.key is not None or topic != names.state])
        )
    ledger = tmp_path / "ledger.sqlite"
    good = SyntheticTap(37)
    write(kafka, prefix, list(good.bundles(10)))
    with worker(tmp_path, bootstrap=kafka, prefix=prefix, ledger=f"sqlite:////{ledger}") as process:
        letters = asyncio.run(read_until(kafka, names.deadletter, lambda all_: len(all_) >= 2 * len(pickles)))
        wait_for(lambda: set(good.ids) <= keys_of(log_of(kafka, names.records)), "records")
        assert process.stop() == 0
    assert not canary.exists()
    assert Counter(dict(letter.headers)["stage"] for letter in letters) == {
        b"decode": len(pickles),
        b"ledger": len(pickles),
    }


CODECS = ("gzip", "snappy", "lz4", "zstd")


def produce(bootstrap: str, topic: str, value: bytes, codec: str) -> KafkaError | None:
    """With librdkafka, which supports every codec; gives the broker's response."""
    errors: list[KafkaError | None] = []
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "message.max.bytes": 10**9}
    producer = Compressing({**settings, "batch.size": 10**9})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    (error,) = errors
    return error


def test_s5_broker_stores_compressed_batches_uncompressed(kafka: str, prefix: str, tmp_path: Path) -> None:
    """Otherwise a batch of some KiB could be gigabytes in a worker, and one with an unsupported codec would end it."""
    topic = Topics(prefix).segments
    for codec in CODECS:
        assert produce(kafka, topic, b"in " + codec.encode() + bytes(100_000), codec) is None
        error = produce(kafka, topic, bytes(50_000_000), codec)
        assert error is not None
        assert error.name() == "MSG_SIZE_TOO_LARGE"
    with worker(tmp_path, bootstrap=kafka, prefix=prefix) as process:
        letters = asyncio.run(read_until(kafka, f"{prefix}.deadletter", lambda all_: len(all_) >= len(CODECS)))
        assert process.stop() == 0
    assert [letter.value[:9].rstrip(b"\0") for letter in letters] == [b"in " + codec.encode() for codec in CODECS]
