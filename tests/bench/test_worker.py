"""The benchmark of workers runs against a real broker and says what is amiss; how fast they are is for itself to say."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from bench.worker import LOADS, main
from bench.worker_kafka import AmissError, Kafka
from bench.worker_logs import PARTITIONS, TAPS, Load, Log, OpenStreams, made
from bench.worker_readers import Figure, amiss, floor, put
from bench.worker_recovery import Recovery
from bench.worker_table import FLOOR, LEDGER, ONE, PAIR, WORKER, Found, faster, ratio, report

from streamgauge.bundles import decode_bundle
from streamgauge.core.assembler import Assembler
from streamgauge.core.record import Record

MARKED = "before\n<!-- worker: begin -->\nold\n<!-- worker: end -->\nafter\n"
SMALL = [load.part(0.05) for load in LOADS]


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


def test_each_load_is_what_it_is_called() -> None:
    events = {load.name: log.events / len(log.messages) for load in SMALL for log in [made(load, 3)]}
    busy, dialects, strange, quiet, alone = events.values()
    assert min(busy, dialects, strange) > 100
    assert 1 < quiet < 60
    assert alone <= 1


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_envelopes_are_learnt_where_they_can_be(load: Load) -> None:
    """Halfway through its streams: has the assembler learnt what their deltas share?"""
    log = made(load.part(0.2), seed=4)
    _, assemblers = assembled(log._replace(messages=log.messages[: len(log.messages) // 2]))
    for assembler in assemblers.values():
        for key in assembler.changed():
            assembler.dump(key)
    readers = [reader for assembler in assemblers.values() for reader in assembler._streams.values()]
    assert readers
    assert {reader._steady.is_ready for reader in readers} == {load.learnable}


def test_open_streams_go_on_and_end() -> None:
    opened = OpenStreams(20, seed=5)
    messages = [message for _ in range(3) for message in opened.next().messages]
    records, assemblers = assembled(Log(messages, opened.ids, 0))
    assert records == []
    assert sum(assembler.open_streams for assembler in assemblers.values()) == 20
    records, _ = assembled(Log([*messages, *opened.end().messages], opened.ids, 0))
    assert {record.stream_id for record in records} == opened.ids
    assert {(record.outcome, record.integrity.complete) for record in records} == {("completed", True)}


def test_a_ratio_is_of_one_round() -> None:
    found = Found(SMALL)
    for ours, theirs in ((2.0, 1.0), (8.0, 2.0), (6.0, 2.0)):
        found.add("a", WORKER, Figure(ours, 100))
        found.add("b", FLOOR, Figure(theirs, 100))
    assert ratio(found, ("a", WORKER), ("b", FLOOR)) == pytest.approx(1 / 3)
    assert ratio(found, ("a", LEDGER), ("b", FLOOR)) is None
    assert faster(found, "a") is None
    found.add("a", ONE, Figure(1, 100, seconds=3.0))
    found.add("a", PAIR, Figure(1, 100, seconds=2.0))
    assert faster(found, "a") == pytest.approx(1.5)


def test_what_is_amiss_is_told_and_the_rest_goes_on() -> None:
    found = Found(SMALL, others=0.4)
    with amiss("worker, a load", found.faults.append):
        raise AmissError("9 records of 10 streams")
    found.recoveries = [
        Recovery(0, 2.0, 1.0, 0, 80.0, 70.0, 70.0),
        Recovery(10_000, 3.0, 1.5, 900, 130.0, 120.0, 150.0),
    ]
    found.latencies = [0.1] * 98 + [0.4, 1.0]
    text = report(found)
    assert "- Amiss: worker, a load: 9 records of 10 streams." in text
    assert "every stream" not in text.lower()
    assert "others used 40% of it" in text
    assert [*map(str.strip, text[text.index("| 10,000") :].splitlines()[0].split("|")[5:9])] == [
        "1.50",
        "0.50",
        "0.50",
        "0.80",
    ]
    assert "p50 is 0.05 and p99 0.50 of 2 s" in text
    assert "Every stream of every load became one whole record" in report(Found(SMALL))


@pytest.mark.kafka
def test_records_that_do_not_come_are_no_figure(kafka: str) -> None:
    """The bare loop is told to expect one stream more, or less, than there are."""

    async def run(log: Log) -> None:
        async with Kafka(kafka) as broker, floor(broker) as reader:
            await put(log, reader, broker)
            few = made(Load("few", streams=2, deltas=3), 7)
            await put(few._replace(ids=frozenset(list(few.ids)[1:])), reader, broker)

    with pytest.raises(AmissError, match="the bare loop made 48 records of 47"):
        asyncio.run(run(made(Load("few", streams=4, deltas=3), 6)))


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_it_measures_everything_and_writes_its_section(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    path = tmp_path / "performance.md"
    path.write_text(MARKED)
    main(["--quick", f"--document={path}"])
    written = path.read_text()
    assert written.startswith("before\n<!-- worker: begin -->\nEvents a CPU-second")
    assert written.endswith("<!-- worker: end -->\nafter\n")
    assert "Amiss" not in written, written
    rows = {cells[0]: cells[1:] for line in written.splitlines() if (cells := _cells(line))}
    for load in LOADS:
        assert all(float(cell) > 0 for cell in rows[load.name]), written
    assert float(rows["100"][0].replace(",", "")) > 0
    assert "p99" in written
    assert capsys.readouterr().out


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]
