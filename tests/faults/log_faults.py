"""Shared by tests of a faulty log: logs in one partition, workers that read or refuse them, topics that are recreated."""

import asyncio
import json
from pathlib import Path
from typing import Any

from aiokafka.admin import NewPartitions
from aiokafka.errors import GroupCoordinatorNotAvailableError
from confluent_kafka.admin import AdminClient

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import encode_record
from streamgauge.kafka import topics
from tests.integration.synthetic import SyntheticTap
from tests.integration.test_worker import write
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.administration import admin, delete_topic
from tests.kafka_broker.fixtures import PARTITIONS
from tests.running import wait_for

# The exit code of a worker that needs an operator.
EXIT = 3
# What is logged of a thread that did nothing for three seconds (by Faust), and of a worker that was not ready for ten.
OF_A_SLOW_MACHINE = ("Thread keepalive is not responding", "the worker has not been ready for")


def settings_of(kafka: str, prefix: str) -> dict[str, Any]:
    return {"bootstrap": kafka, "prefix": prefix, "checkpoint_s": 0.2}


def one_partition(seed: int, streams: int = 30) -> list[tuple[int, bytes]]:
    """Streams of one tap in partition 0, in some twenty messages."""
    return list(SyntheticTap(seed, slots=(0,)).bundles(streams, segments=6, a_bundle=10))


def with_farewell(messages: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Then the tap ends: its open streams have their records."""
    last = decode_bundle(messages[-1][1])
    farewell = Bundle(last.instance, last.slot, last.number + 1, last.tap_ns, farewell=True)
    return [*messages, (messages[-1][0], encode_bundle(farewell))]


def with_gap(messages: list[tuple[int, bytes]], read: int, begins: int) -> dict[str, bytes]:
    """The records that a worker must produce if it had read this many messages when the beginning of the log was
    deleted.
    """
    assembler = Assembler()
    found = []
    for offset, (_, value) in enumerate(messages):
        if offset == read:
            assembler.mark_gap()
        if not read <= offset < begins:
            found += assembler.apply(offset, 0, decode_bundle(value))
    return {record.stream_id: encode_record(record) for record in found}


def incomplete(records: dict[str, bytes]) -> set[str]:
    return {stream for stream, record in records.items() if b'"complete":false' in record}


def wait_until_committed(kafka: str, prefix: str, offset: int, partition: int = 0) -> None:
    async def committed() -> int:
        async with admin(kafka) as client:
            try:
                found = await client.list_consumer_group_offsets(prefix)
            except GroupCoordinatorNotAvailableError:  # a broker creates it at the first request
                return -1
        places = {(place.topic, place.partition): at.offset for place, at in found.items()}
        return places.get((f"{prefix}.segments", partition), -1)

    wait_for(lambda: asyncio.run(committed()) >= offset, f"commit of {offset}")


def read_some(kafka: str, prefix: str, folder: Path, messages: list[tuple[int, bytes]]) -> None:
    """Runs a worker that reads them and ends."""
    write(kafka, prefix, messages)
    with worker(folder, **settings_of(kafka, prefix)) as process:
        wait_until_committed(kafka, prefix, len(messages))
        assert process.stop() == 0


def recreate_topic(kafka: str, prefix: str, name: str, partitions: int = PARTITIONS) -> None:
    """Deletes a topic and creates it again, empty."""
    asyncio.run(delete_topic(kafka, f"{prefix}.{name}"))
    wait_for(lambda: f"{prefix}.{name}" in asyncio.run(topics.create(kafka, partitions, prefix)).created, "topic", 30)


def errors(process: WorkerProcess) -> list[str]:
    """The sentences that a worker logged as errors, except for those that only say that the machine is slow."""
    lines = [json.loads(line) for line in process.log.splitlines() if line.startswith("{")]
    messages = [line["message"] for line in lines if line["level"] == "error"]
    return [message for message in messages if not any(words in message for words in OF_A_SLOW_MACHINE)]


def refuses(kafka: str, prefix: str, folder: Path, *words: str) -> None:
    """Asserts that a worker that is started now ends with one sentence with these words."""
    with worker(folder, **settings_of(kafka, prefix)) as process:
        assert process.process.wait(60) == EXIT, process.log
        [sentence] = errors(process)
        assert all(word in sentence for word in words), sentence


def forget_state(kafka: str, prefix: str) -> None:
    """As the sentence advises if the prefix is to stay: no state, no offsets."""
    recreate_topic(kafka, prefix, "state")
    forget_offsets(kafka, prefix)


def forget_offsets(kafka: str, prefix: str) -> None:
    """As `kafka-consumer-groups --delete` does; members that have ended must time out first."""
    client = AdminClient({"bootstrap.servers": kafka})

    def deleted() -> bool:
        failed = client.delete_consumer_groups([prefix])[prefix].exception(timeout=10)
        assert failed is None or "NON_EMPTY_GROUP" in str(failed), failed
        return failed is None

    wait_for(deleted, "group without members")


async def add_partitions(bootstrap: str, count: int, *names: str) -> None:
    """Returns when the broker reports them: the controller confirms them before."""
    async with admin(bootstrap) as client:
        await client.create_partitions({name: NewPartitions(total_count=count) for name in names})
        for _ in range(300):
            if all(len(topic["partitions"]) == count for topic in await client.describe_topics(list(names))):
                return
            await asyncio.sleep(0.1)
    raise TimeoutError(f"{', '.join(names)}: not {count} partitions yet")
