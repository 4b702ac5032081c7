"""What the benchmarks compute of their figures, and how they see that a figure is of complete streams."""

import asyncio
import json
import os
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from bench.first_token import Load, Timed, off, rows
from bench.measure import Others
from bench.peers.streamgauge import faults_of
from bench.scale import MAX_PARTITIONS, WORKER_SHARE, Constants, constants_table, cost_table, limits_of, limits_table
from bench.tap_loads import Figure as TapFigure
from bench.tap_loads import Results as TapResults
from bench.tap_table import DIRECT
from bench.tap_table import ratio as tap_ratio
from bench.tap_table import report as tap_report
from bench.worker import LOADS
from bench.worker_kafka import Records, UnexpectedError
from bench.worker_latency import Latencies
from bench.worker_readers import Figure, fault_reported, shared
from bench.worker_recovery import Recovery, TakeOver, until_held
from bench.worker_table import FLOOR, LEDGER, ONE, PAIR, WORKER, Results, faster, ratio, report

from bench import measure, scale_limits, worker_kafka, worker_recovery
from streamgauge.core.record import Record
from streamgauge.metrics import table
from streamgauge.spool.read_counters import Balance

DOCS = Path(__file__).parents[2] / "docs"
LOAD = Load(3, 2, 0.01)
SMALL = [load.part(0.05) for load in LOADS]
COMPLETE = "Every stream of every load has one complete record"


NONE = Recovery(0, 2.0, 1.0, 0, 80.0, 70.0, 70.0)


OPEN = Recovery(10_000, 3.0, 1.5, 900, 130.0, 120.0, 150.0)
SEGMENTS = {("masked", 300): 2_000.0, ("full", 300): 3_000.0}
FOUND = Constants(
    {"masked": 10.0, "full": 9.0}, 1.0, SEGMENTS, 2_600.0, {"SQLite": 0.1}, {"SQLite": 10_000.0}, {"SQLite": 4_000.0}
)


# --- first token


def exported(a_record: Record, trace: str, first_token_s: float | None) -> Record:
    timing = msgspec.structs.replace(a_record.timing, first_token_s=first_token_s)
    return msgspec.structs.replace(a_record, trace_id=trace, timing=timing)


def test_the_error_is_the_clients_time_minus_the_records(a_record: Record) -> None:
    records = [exported(a_record, trace, at_s) for trace, at_s in (("b", 0.0112), ("a", 0.012), ("c", None))]
    assert off({"a": 12_500_000, "b": 11_000_000}, records) == pytest.approx([0.5, -0.2])


def test_a_stream_without_a_record_of_its_first_token_has_no_figure(a_record: Record) -> None:
    for records in ([], [exported(a_record, "b", 0.01)], [exported(a_record, "a", None)]):
        with pytest.raises(SystemExit, match="stream a has no record"):
            off({"a": 1}, records)


def test_a_records_time_may_be_early_or_late(a_record: Record) -> None:
    records = [exported(a_record, trace, at_s) for trace, at_s in (("a", 0.0103), ("b", 0.0199), ("c", 0.0296))]
    titles, row = rows([Timed(LOAD, 0.25, {"a": 10_000_000, "b": 20_000_000, "c": 30_000_000})], records)
    assert len(titles) == len(row)
    assert row == ["3", "100", "20.00", "0.25", "0.10", "0.40", "1.50", "0.40"]


# --- taps


def test_lost_reads_are_reported() -> None:
    assert faults_of(Balance(seen=5, delivered=5, waiting=0, dropped={})) == []
    lost = Balance(seen=9, delivered=5, waiting=1, dropped={"recorder_behind": 2})
    assert faults_of(lost) == ["2 reads dropped: recorder_behind", "1 reads still wait", "the balance is 1 reads off"]


def test_a_ratio_of_taps_is_of_one_round() -> None:
    """A peer may have no figure in a round: the ratio is of rounds in which both have one."""
    results = TapResults()
    for turn, (ours, theirs) in enumerate(((2.0, None), (8.0, 1.0), (None, 2.0), (9.0, 3.0), (40.0, 10.0))):
        if ours is not None:
            results.add(
                "burst", "ours", TapFigure({"relay": ours / 2, "collector": ours / 2}, 1, 1, first_p50=ours), turn
            )
        if theirs is not None:
            results.add("burst", "theirs", TapFigure({"proxy": theirs}, 1, 1), turn)
            results.add("sequential", DIRECT, TapFigure({"upstream": 1.0}, 1, 1, first_p50=theirs), turn)
        if ours is not None:
            results.add("sequential", "ours", TapFigure({"relay": 1.0}, 1, 1, first_p50=ours), turn)
    assert tap_ratio(results, "burst", "ours", "theirs") == pytest.approx(1 / 4)
    assert tap_ratio(results, "paced 50", "ours", "theirs") is None
    times = tap_report(results, ["ours"]).partition("\nTime: ")[2].partition("\nWhere ")[0]
    assert re.search(r"\| ours +\| +7\.00 ", times)


def test_the_spread_of_rounds_is_reported() -> None:
    results = TapResults()
    for turn, (theirs, ours) in enumerate([(2.0, 4.0), (3.0, 2.0), (1.0, 1.0)]):
        results.add("paced 800", "theirs", TapFigure({"proxy": theirs}, 1, 1), turn)
        results.add(
            "paced 800",
            "streamgauge, full",
            TapFigure({"relay": ours, "collector": 0.0, "supervisor": 0.0}, 1, 1),
            turn,
        )
    spread = (
        tap_report(results, ["theirs", "streamgauge, full"]).partition("round by round")[2].partition("\nTime: ")[0]
    )
    assert re.search(r"\| streamgauge, full \| +\| +\| +\| +\| 0\.50 to 1\.50 \| 3 +\|", spread)


def test_the_usage_of_others_excludes_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 s on 2 cores these processes took 12 CPU seconds, and other processes 5."""
    spent = {"machine": 1000.0, "own": 70.0, "clock": 300.0}
    monkeypatch.setattr(measure, "busy_seconds", lambda: spent["machine"])
    monkeypatch.setattr(Others, "_own", staticmethod(lambda: spent["own"]))
    monkeypatch.setattr(time, "monotonic", lambda: spent["clock"])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    others = Others()
    assert others.share() == 0  # no time has passed
    spent |= {"machine": 1012.0, "own": 82.0, "clock": 310.0}
    assert others.share() == 0
    spent["machine"] += 5
    assert others.share() == pytest.approx(0.25)


# --- workers


def cells_of(text: str, title: str) -> list[str]:
    """The cells of the first line in the table after this title."""
    lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    return next(cells[1:] for cells in lines if cells[:1] == [title])


def test_a_ratio_of_workers_is_of_one_round() -> None:
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


def test_work_is_not_shared_if_one_reader_did_much_less() -> None:
    assert shared([1.0, 2.0], [4.0, 4.0]) == [3.0, 2.0]
    assert shared([1.0], [4.0]) == [3.0]
    with pytest.raises(UnexpectedError, match=r"not shared: CPU seconds 3\.0, 0\.5"):
        shared([1.0, 2.0], [4.0, 2.5])


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


# --- scale


def cells(text: str, title: str) -> list[str]:
    lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
    return next(line[1:] for line in lines if line and line[0].startswith(title))


def test_the_cost_of_a_day_is_computed_from_the_constants() -> None:
    text = cost_table(FOUND)
    assert cells(text, "streams a second") == ["11.6; 35", "11,574.1; 34,722"]
    assert cells(text, "cores of taps, masked, used to 60%") == ["0.58", "579"]
    assert cells(text, "partitions") == ["1", f"more than {MAX_PARTITIONS}"]
    assert cells(text, "Kafka, segments a day, masked") == ["2 GB", "2 TB"]
    assert cells(text, "Kafka, segments a day, full, --full-share 0.1") == ["2.1 GB", "2.1 TB"]
    assert cells(text, "Kafka, disk of 3 replicas, masked") == ["72.6 GB", "72.6 TB"]
    assert cells(text, "ledger, SQLite") == ["4 GB", "4 TB"]
    assert cells(constants_table(FOUND), "Kafka, segments, full, 300 events") == [
        "3,000", "bytes", "`python -m bench.scale`",
    ]  # fmt: skip


def test_what_a_worker_carries_is_that_of_the_performance_page() -> None:
    worker = (DOCS / "performance.md").read_text().partition("<!-- worker: begin -->")[2]
    first = next(line for line in worker.splitlines() if line.startswith("| bundles of busy taps"))
    assert float(first.split("|")[-2]) == WORKER_SHARE
    assert (DOCS / "scale.md").read_text().count(f"{WORKER_SHARE}") >= 2, (
        "the page names it where it says how it is used"
    )


def test_the_first_limit_is_the_first_line() -> None:
    limits = dict(limits_of(FOUND))
    assert list(limits.values()) == sorted(limits.values())
    assert limits["one core of a tap, masked"] == pytest.approx(86_400 / 3 * 0.6 * 100)
    assert limits["one writer of a ledger in SQLite"] == pytest.approx(86_400 / 3 * 0.6 * 10_000)
    assert "PostgreSQL" not in limits_table(FOUND), "what was not measured has no line"


def test_a_disk_without_space_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free = SimpleNamespace(free=33 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(SystemExit, match=r"too little free space: free some, or give fewer rows with --rows"):
        scale_limits.main(["--check"])
    assert scale_limits.main(["--check", "--rows=1000000"]) == 0
    assert "has 33 GB free; 50,000,000 rows need 36 GB" in capsys.readouterr().out
