"""F1 to F4: the log has bundles twice, in another order, too late, or not at all; taps restart, and clients' ids repeat.

The worker and the ledger are real. `assembled` gives the records of a log without any fault.
"""

import asyncio
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle
from tests.faults.mock_kafka import MockCluster, mock_cluster
from tests.faults.rig import PARTITIONS, assembled_messages, assert_whole, records_on, tap_rig
from tests.faults.traffic import ask
from tests.integration.synthetic import SyntheticTap, assembled
from tests.integration.test_worker import ledger_of, records_of, same, wait_for_ledger, write
from tests.integration.workers import WorkerProcess, worker
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import read_all, write_all

Messages = list[tuple[int, bytes]]
STREAMS = 100
# A segment waits for an earlier one until 16 later ones have come, or 30 s by its tap's clock: within a window of this many
# bundles of a slot nothing is missing.
WITHIN = 6
# Between two bundles of a slot by the tap's clock (nanoseconds): 16 of them exceed the wait.
SECONDS_APART_NS = 2_000_000_000
FIRST_TOKEN = "streamgauge_time_to_first_token_seconds_count"


def log_of(messages: Messages) -> Iterator[Any]:
    """As a topic's messages would be read."""
    for offset, (partition, value) in enumerate(messages):
        yield SimpleNamespace(partition=partition, offset=offset, timestamp=0, value=value)


def one_slot(seed: int, *, segments: int = 20) -> Messages:
    """Streams of one tap in partition 0, whose clock advances from bundle to bundle."""
    made = []
    for partition, value in SyntheticTap(seed, slots=(0,)).bundles(STREAMS, segments=segments):
        given = decode_bundle(value)
        made.append(
            (
                partition,
                encode_bundle(Bundle(given.instance, 0, given.number, SECONDS_APART_NS * given.number, given.segments)),
            )
        )
    return made


def first_tokens(process: WorkerProcess) -> float:
    """How many streams the histogram of the time to the first token has, in what a worker printed at its end."""
    lines = [line for line in process.metrics.splitlines() if line.startswith(FIRST_TOKEN)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def read_by_worker(
    kafka: str, folder: Path, messages: Messages, streams: int, **settings: Any
) -> tuple[dict[str, set[bytes]], dict[str, bytes], WorkerProcess]:
    """The records topic and the ledger after a worker has read a log, and the worker, which has ended in order."""
    prefix = make_topics(kafka)
    write(kafka, prefix, messages)
    ledger = folder / "ledger.sqlite"
    with worker(folder, bootstrap=kafka, prefix=prefix, ledger=f"sqlite:////{ledger}", **settings) as process:
        process.wait_ready()
        found = records_of(kafka, prefix, streams)
        wait_for_ledger(ledger, streams)
        assert process.stop() == 0, process.log
    return found, ledger_of(ledger), process


@pytest.mark.kafka
def test_f1_bundles_delivered_one_to_three_times_give_the_same_ledger(kafka: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    once = list(SyntheticTap(60).bundles(STREAMS))
    sent: Messages = []
    for message in once:
        sent.append(message)
        sent += [message] * chance.choice([0, 0, 1]) + chance.sample(sent, 1) * chance.choice([0, 1])
    found, rows, process = read_by_worker(kafka, tmp_path, sent, STREAMS)
    expected = assembled(log_of(once))
    assert same(found, expected)
    assert rows == expected
    assert process.metric("streamgauge_duplicate_bundles_total") == len(sent) - len(once) > 0


def shuffled(messages: Messages, within: int, seed: int) -> Messages:
    """No message is more than `within` places away from its own."""
    chance = random.Random(seed)
    order = sorted(range(len(messages)), key=lambda place: place + chance.uniform(0, within))
    return [messages[place] for place in order]


@pytest.mark.kafka
def test_f2_bundles_in_another_order_give_the_same_ledger(kafka: str, tmp_path: Path) -> None:
    messages = one_slot(61)
    sent = shuffled(messages, WITHIN, 2)
    assert sent != messages
    found, rows, process = read_by_worker(kafka, tmp_path, sent, STREAMS)
    expected = assembled(log_of(messages))
    assert len(expected) == STREAMS
    assert same(found, expected)
    assert rows == expected
    assert process.metric("streamgauge_late_segments_total") == 0


@pytest.mark.kafka
def test_f2_bundles_that_come_after_their_streams_ended_are_late_and_give_no_second_record(
    kafka: str, tmp_path: Path
) -> None:
    """One in twenty bundles comes at the end of the log: its streams have their records, which say what was missing."""
    messages = one_slot(62)
    late = [message for place, message in enumerate(messages) if place % 20 == 7]
    sent = [message for message in messages if message not in late] + late
    found, rows, process = read_by_worker(kafka, tmp_path, sent, STREAMS)
    assert same(found, assembled(log_of(sent)))
    assert {stream: {record} for stream, record in rows.items()} == found
    assert len(found) == STREAMS
    touched = {str_id(segment.stream) for _, value in late for segment in decode_bundle(value).segments}
    lacking = {stream for stream, (record,) in found.items() if json.loads(record)["integrity"]["missing_segments"]}
    assert lacking
    assert lacking <= touched
    assert process.metric("streamgauge_late_segments_total") > 0


def str_id(stream: bytes) -> str:
    return str(UUID(bytes=stream))


@pytest.mark.kafka
def test_f3_lost_bundles_leave_records_that_say_so_and_no_wrong_latency(kafka: str, tmp_path: Path) -> None:
    messages = one_slot(63)
    sent = [message for place, message in enumerate(messages) if place % 10 != 3]
    found, rows, process = read_by_worker(kafka, tmp_path, sent, STREAMS, abandon_after=2.0, tick_s=1.0)
    whole = assembled(log_of(messages))
    assert {stream: {record} for stream, record in rows.items()} == found
    lost = [decode_bundle(value) for place, (_, value) in enumerate(messages) if place % 10 == 3]
    touched = {str_id(segment.stream) for bundle in lost for segment in bundle.segments}
    beginnings = {str_id(one.stream) for bundle in lost for one in bundle.segments if one.number == 0}
    assert beginnings
    assert touched < rows.keys()
    records = {stream: json.loads(record) for stream, record in rows.items()}
    for stream, record in records.items():
        if stream not in touched:
            assert rows[stream] == whole[stream]
        else:
            assert "missing_segments" in record["integrity"]["reasons"] or record["outcome"] == "abandoned"
        if stream in beginnings:
            assert record["timing"]["first_token_s"] is None
    assert 0 < first_tokens(process) == len(records.keys() - touched)


# --- F4 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[MockCluster]:
    with mock_cluster() as cluster:
        cluster.create_topic("streamgauge.segments", PARTITIONS)
        yield cluster


def test_f4_clients_ids_that_repeat_and_a_restarted_tap_that_sends_again(broker: MockCluster, tmp_path: Path) -> None:
    """Every request has the same body and the same ids. The log then has all bundles of both taps once more."""
    asked = 5

    async def run() -> None:
        for _ in range(2):
            async with tap_rig(tmp_path, broker.bootstrap) as rig:
                await asyncio.gather(*(ask(rig.traffic.tapped, 7) for _ in range(asked)))
                await rig.deliver_all()
        records = await records_on(broker.bootstrap, "streamgauge")
        assert_whole(records, 2 * asked)
        assert {record.response_id for record in records} == {"c-7"}
        assert len({record.tap_instance for record in records}) == 2
        log = await read_all(broker.bootstrap, "streamgauge.segments")
        await write_all(broker.bootstrap, "streamgauge.segments", again(log))
        repeated, duplicates = assembled_messages(await read_all(broker.bootstrap, "streamgauge.segments"))
        assert sorted(map(str, repeated)) == sorted(map(str, records))
        assert duplicates == len(log)

    asyncio.run(run())


def again(log: Iterable[Any]) -> Messages:
    return [(message.partition, message.value) for message in log]
