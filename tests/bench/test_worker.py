"""The benchmark of workers runs against a real broker and reports problems; the speed itself is not tested."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaTimeoutError
from bench.worker import LOADS, main
from bench.worker_kafka import Kafka, Records, UnexpectedError
from bench.worker_latency import Latencies
from bench.worker_logs import PARTITIONS, TAPS, Load, Log, OpenStreams, made
from bench.worker_readers import Figure, fault_reported, floor, put, shared
from bench.worker_recovery import Recovery, TakeOver, until_held
from bench.worker_table import BARE_PAIR, FLOOR, LEDGER, LONG, ONE, PAIR, WORKER, Results, faster, ratio, report

from bench import worker_kafka, worker_recovery
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.core.record import Record
from streamgauge.metrics import table
from tests.bench.sections import written_section

SMALL = [load.part(0.05) for load in LOADS]
COMPLETE = "Every stream of every load has one complete record"
NONE = Recovery(0, 2.0, 1.0, 0, 80.0, 70.0, 70.0)
OPEN = Recovery(10_000, 3.0, 1.5, 900, 130.0, 120.0, 150.0)


def cells_of(text: str, title: str) -> list[str]:
    """The cells of the first line in the table after this title."""
    lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    return next(cells[1:] for cells in lines if cells[:1] == [title])


def assembled(log: Log) -> tuple[list[Record], dict[int, Assembler]]:
    assemblers: dict[int, Assembler] = {}
    records = []
    for offset, message in enumerate(log.messages):
        assembler = assemblers.setdefault(message.partition, Assembler())
        records += assembler.apply(offset, offset, decode_bundle(message.value))
    return records, assemblers


@pytest.mark.parametrize("load", SMALL, ids=lambda load: load.name)
def test_a_log_holds_whole_streams_for_every_partition(load: Load) -> None:
    log = made(load, seed=1)
    records, assemblers = assembled(log)
    assert {record.stream_id for record in records} == log.ids
    assert len(records) == len(log.ids) == TAPS * load.streams
    assert sum(record.counts.events for record in records) == log.events
    assert {record.outcome for record in records} == {"completed"}
    assert all(record.integrity.complete for record in records)
    assert sorted(assemblers) == list(range(PARTITIONS))
    assert made(load, seed=1) == log
    assert made(load, seed=2).ids.isdisjoint(log.ids)
    assert made(replace(load, name="another"), seed=1).ids.isdisjoint(log.ids)


def test_each_load_has_the_message_size_that_its_name_says() -> None:
    events = {load.name: log.events / len(log.messages) for load in SMALL for log in [made(load, 3)]}
    busy, dialects, strange, quiet, alone = events.values()
    assert min(busy, dialects, strange) > 100
    assert 1 < quiet < 60
    assert alone <= 1


def test_open_streams_continue_and_end() -> None:
    opened = OpenStreams(20, seed=5)
    messages = [message for _ in range(3) for message in opened.next().messages]
    records, assemblers = assembled(Log(messages, opened.ids, 0))
    assert records == []
    assert sum(assembler.open_streams for assembler in assemblers.values()) == 20
    records, _ = assembled(Log([*messages, *opened.end().messages], opened.ids, 0))
    assert {record.stream_id for record in records} == opened.ids
    assert {(record.outcome, record.integrity.complete) for record in records} == {("completed", True)}


def test_a_ratio_is_of_one_round() -> None:
    results = Results(SMALL)
    for number, (ours, theirs) in enumerate(((2.0, 1.0), (8.0, 2.0), (6.0, 2.0)), 1):
        results.add("a", WORKER, Figure(ours, 100, 1.0, number))
        results.add("b", FLOOR, Figure(theirs, 100, 1.0, number))
    results.add("a", WORKER, Figure(1.0, 100, 1.0, 4))  # the other round of 4 and 5 failed
    results.add("b", FLOOR, Figure(10.0, 100, 1.0, 5))
    assert ratio(results, ("a", WORKER), ("b", FLOOR)) == pytest.approx(1 / 3)
    assert ratio(results, ("a", LEDGER), ("b", FLOOR)) is None
    assert faster(results, "a") is None
    results.add("a", ONE, Figure(1, 100, seconds=9.0, number=1))
    results.add("a", ONE, Figure(1, 100, seconds=3.0, number=2))
    results.add("a", PAIR, Figure(1, 100, seconds=2.0, number=2))
    assert faster(results, "a") == pytest.approx(1.5)


def test_two_workers_have_a_load_of_their_own() -> None:
    """The size of a message is that of the loads in the first table."""
    assert LONG not in [load.name for load in LOADS]
    results = Results(SMALL, messages={LOADS[0].name: 400.0, LONG: 900.0})
    results.add(LONG, ONE, Figure(1, 100, seconds=3.0))
    results.add(LONG, PAIR, Figure(1, 100, seconds=2.0))
    text = report(results)
    assert cells_of(text, LOADS[0].name)[0] == "400"
    assert cells_of(text, LONG) == ["1.50", "1.00", "", ""]
    results.add(LONG, FLOOR, Figure(1, 100, seconds=3.2))
    results.add(LONG, BARE_PAIR, Figure(2, 100, seconds=2.0))
    text = report(results)
    assert cells_of(text, LONG) == ["1.50", "1.00", "1.60", "0.50"]


def test_few_rounds_are_called_few() -> None:
    results = Results(SMALL)
    for number in range(2):
        results.add("a load", FLOOR, Figure(1, 100, 1.0, number))
    assert "the median of 2 to 2 rounds" in report(results)
    assert "too few" in report(results)
    results.add("a load", FLOOR, Figure(1, 100, 1.0, 3))
    assert "too few" not in report(results)


def test_work_is_not_shared_if_one_reader_did_much_less() -> None:
    assert shared([1.0, 2.0], [4.0, 4.0]) == [3.0, 2.0]
    assert shared([1.0], [4.0]) == [3.0]
    with pytest.raises(UnexpectedError, match=r"not shared: CPU seconds 3\.0, 0\.5"):
        shared([1.0, 2.0], [4.0, 2.5])


def test_after_any_failure_the_measured_figures_are_kept() -> None:
    faults: list[str] = []
    for fault in (KafkaTimeoutError(), EOFError("half a line"), ValueError("no number"), OSError("gone")):
        with fault_reported("a part", faults.append):
            raise fault
    assert faults == ["a part: KafkaTimeoutError", "a part: half a line", "a part: no number", "a part: gone"]


def test_problems_are_reported_and_the_rest_continues() -> None:
    results = Results(SMALL, others=0.4)
    with fault_reported("worker, a load", results.faults.append):
        raise UnexpectedError("9 records of 10 streams")
    results.add("a load", FLOOR, Figure(1, 100, 1.0))
    results.recoveries = [OPEN, NONE]
    results.latencies = Latencies([0.1] * 98 + [0.4, 1.0], [0.2] * 98 + [0.5, 1.2])
    text = report(results)
    assert "- Fault: worker, a load: 9 records of 10 streams." in text
    assert COMPLETE not in text
    assert "others used 40% of it" in text
    assert cells_of(text, "10,000")[2:] == ["1.50", "1.50", "0.50", "0.50", "0.80"]
    assert "in its topic p50 is 0.05 and p99 0.50 of 2 s; in the ledger p50 is 0.10 and p99 0.60 of 2 s" in text


def test_records_are_called_complete_only_if_there_are_figures_of_them() -> None:
    figures = {("a load", FLOOR): [Figure(1, 100, 1.0)]}
    assert COMPLETE in report(Results(SMALL, figures=figures, recoveries=[NONE, OPEN]))
    assert COMPLETE not in report(Results(SMALL))
    assert COMPLETE not in report(Results(SMALL, figures=figures, recoveries=[NONE]))
    assert COMPLETE not in report(Results(SMALL, recoveries=[NONE, OPEN]))


def test_a_recovery_is_compared_with_one_without_open_streams() -> None:
    text = report(Results(SMALL, recoveries=[OPEN]))
    assert cells_of(text, "10,000")[1:] == ["0.30", "", "", "", "", ""]


def test_a_takeover_is_compared_with_one_without_open_streams() -> None:
    text = report(Results(SMALL, taken=[TakeOver(0, 10.0), TakeOver(10_000, 12.0)]))
    taken = text[text.index("taken over from") :]
    assert cells_of(taken, "0") == ["0.50", "1.00"]
    assert cells_of(taken, "10,000") == ["0.60", "1.20"]
    assert cells_of(report(Results(SMALL, taken=[TakeOver(10_000, 12.0)])), "10,000") == ["0.60", ""]


def test_a_takeover_ends_with_all_partitions_and_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them as before, none during the rebalance, and all of them with the open streams: not finished yet."""
    monkeypatch.setattr(worker_recovery, "_CHECK_S", 0.0)
    pages = [
        {table.WORKER_PARTITIONS.name: held, table.OPEN_STREAMS.name: streams}
        for held, streams in ((4, 50), (0, 100), (8, 50), (8, 100))
    ]
    unread = iter(pages)
    asyncio.run(until_held(SimpleNamespace(metrics=lambda: next(unread)), 8, 100))  # type: ignore[arg-type]
    assert list(unread) == []
    monkeypatch.setattr(worker_recovery, "PATIENCE_S", 0.1)
    with pytest.raises(UnexpectedError, match="the worker does not have 8 partitions with 100 open streams"):
        asyncio.run(until_held(SimpleNamespace(metrics=lambda: pages[0]), 8, 100))  # type: ignore[arg-type]


class Topic:
    """A records topic with one partition that is read message by message, like by a consumer."""

    def __init__(self, *values: bytes) -> None:
        self._values, self._read = list(values), 0

    async def getmany(self, timeout_ms: int) -> dict[int, list[SimpleNamespace]]:
        await asyncio.sleep(0)
        read, self._read = self._values[self._read : self._read + 1], self._read + 1
        return {0: [SimpleNamespace(value=value, timestamp=1_000) for value in read]}

    def assignment(self) -> set[int]:
        return {0}

    async def position(self, partition: int) -> int:
        return min(self._read, len(self._values))

    async def end_offsets(self, partitions: set[int]) -> dict[int, int]:
        return {0: len(self._values)}


def record(stream: str, *, complete: bool = True, model: str = "m") -> bytes:
    fields = {"stream_id": stream, "outcome": "completed", "model": model, "integrity": {"complete": complete}}
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ((record("a"), record("b")), None),
        ((record("a"), record("a"), record("b")), "stream a has two records"),
        ((record("a"), record("b"), record("a")), "stream a has two records"),
        ((record("a"), record("b", complete=False)), "1 of 2 records are not complete"),
        ((record("a"), record("b"), record("a", model="n")), "stream a has two records"),
        ((record("a"),), "1 records of 2 streams, 0 of others"),
        ((record("a"), record("b"), record("c")), "1 records more"),
        ((record("a"), record("c")), "1 records of 2 streams, 1 of others"),
    ],
)
def test_each_stream_must_have_one_complete_record_and_no_other(
    topic: tuple[bytes, ...], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_kafka, "PATIENCE_S", 0.2)

    async def read() -> list[str]:
        records = Records(Topic(*topic))
        arrived = await records.until(frozenset("ab"))
        await records.no_more()
        return [record.stream for record in arrived]

    if fault is None:
        assert asyncio.run(read()) == ["a", "b"]
    else:
        with pytest.raises(UnexpectedError, match=fault):
            asyncio.run(read())


@pytest.mark.kafka
@pytest.mark.parametrize("count", [1, 2])
def test_missing_records_give_no_figure(kafka: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bare loop expects one stream less, or more, than there are."""
    few = made(Load("few", streams=2, deltas=3), 7)

    async def run(ids: frozenset[str]) -> None:
        async with Kafka(kafka) as broker, floor(broker, count) as reader:
            await put(made(Load("few", streams=4, deltas=3), 6), reader, broker)
            monkeypatch.setattr(worker_kafka, "PATIENCE_S", 3.0)
            await put(few._replace(ids=ids), reader, broker)

    with pytest.raises(UnexpectedError, match="the bare loop made 48 records of 47"):
        asyncio.run(run(frozenset(list(few.ids)[1:])))
    with pytest.raises(UnexpectedError, match="the bare loop does not continue"):
        asyncio.run(run(few.ids | {"one more"}))


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_it_measures_everything_and_writes_its_section(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    written = written_section("worker", main, ["--quick"], tmp_path)
    assert written.startswith("Events a CPU-second")
    assert "Fault" not in written, written
    for load in LOADS:
        assert all(float(cell) > 0 for cell in cells_of(written, load.name)), written
    pairs = written[written.index("Two workers beside one") :]
    assert [float(cell) > 0 for cell in cells_of(pairs, LONG)] == [True] * 4, written
    assert float(cells_of(written, "100")[0].replace(",", "")) > 0
    assert 0 < float(cells_of(written[written.index("taken over from") :], "100")[0]) < 1
    assert COMPLETE in written
    assert "p99" in written
    assert capsys.readouterr().out
