"""The benchmarks of scale measure each part in a short variant, and compute from it; no figure itself is tested."""

import asyncio
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.scale import MAX_PARTITIONS, WORKER_SHARE, Constants, constants_table, cost_table, limits_of, limits_table
from bench.scale_limits import Shared, Sizes, open_rows, report, share, shared_rows
from bench.scale_streams import bundles_of, many, records_of, stream_of
from bench.worker_recovery import Recovery

from bench import scale, scale_ledger, scale_limits, scale_tap
from streamgauge.core.record import Record
from streamgauge.ledger import row_of
from streamgauge.ledger.partitions import days_of
from tests.bench.sections import written_section
from tests.postgres.server import PostgresServer

DOCS = Path(__file__).parent.parent.parent / "docs"
SMALL = Sizes(workers=2, partitions=4, streams=5, deltas=20, opened=20, rows=2_000, days=8, written=50)
SEGMENTS = {("masked", 300): 2_000.0, ("full", 300): 3_000.0}
FOUND = Constants(
    {"masked": 10.0, "full": 9.0}, 1.0, SEGMENTS, 2_600.0, {"SQLite": 0.1}, {"SQLite": 10_000.0}, {"SQLite": 4_000.0}
)


def test_streams_differ_in_their_texts_and_become_whole_records() -> None:
    assert len(stream_of(30, 1)) == 30
    assert stream_of(30, 1) == stream_of(30, 1) != stream_of(30, 2)
    for capture in ("masked", "full"):
        records = records_of(bundles_of(6, 30, capture))
        assert [(one.outcome, one.integrity.complete, one.capture, one.counts.events) for one in records] == [
            ("completed", True, capture, 30)
        ] * 6


def test_full_capture_takes_more_and_a_share_of_it_less() -> None:
    masked, full, part = (sum(map(len, bundles_of(40, 50, *how))) for how in (("masked",), ("full",), ("full", 0.25)))
    assert masked < part < full
    captures = Counter(one.capture for one in records_of(bundles_of(40, 50, "full", 0.25)))
    assert 0 < captures["full"] < captures["masked"]


def test_many_records_have_ids_of_their_own_with_the_time_of_their_start() -> None:
    day = 20_000 * 86_400 * 10**9
    rows = [row_of(one) for one in many(records_of(bundles_of(2, 10, "masked")), 50, day, 86_400 * 10**9)]
    assert len({row.stream_id for row in rows}) == 50
    assert days_of(row.stream_id for row in rows) == sorted({row.day for row in rows if row.day}) == ["2024-10-04"]
    assert [row.started_us for row in rows] == sorted(row.started_us or 0 for row in rows)


def test_a_real_tap_is_measured_by_its_parts(tmp_path: Path) -> None:
    spent = scale_tap.measure(tmp_path / "tap", streams=3, events=20, capture="masked", pace=200)
    assert sorted(spent) == ["recorder", "relay"]
    assert min(spent.values()) > 0


def test_each_kind_of_ledger_is_measured(tmp_path: Path) -> None:
    known: list[Record] = records_of(bundles_of(3, 20, "masked"))
    rows = [row_of(one) for one in many(known, 120, 20_000 * 86_400 * 10**9, 10**9)]
    for stored in (scale.sqlite, scale.postgresql):
        found = stored(tmp_path, rows)
        assert found is None or min(found) > 0


# --- computing ----------------------------------------------------------------------------------------------------------


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


def test_its_sections_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "measure", lambda *_: FOUND)
    monkeypatch.setattr(scale, "replace_section", lambda path, name, text: pages.append((path, name, text)))
    pages: list[tuple[Path, str, str]] = []
    scale.main([f"--document={tmp_path / 'scale.md'}"])
    assert [name for _, name, _ in pages] == ["scale constants", "scale cost"]
    assert pages[1][2].endswith(limits_table(FOUND))


# --- limits -------------------------------------------------------------------------------------------------------------


def test_a_small_ledger_is_filled_read_and_shortened() -> None:
    server = PostgresServer()
    try:
        found = scale_ledger.measure(server, SMALL.rows, SMALL.days, SMALL.written)
    finally:
        server.remove()
    assert (found.rows, found.days, found.month_rows, found.dropped) == (2_000, 8, 1_000, 4)
    assert found.freed > 0
    assert len(scale_ledger.table_rows(found)) == 9


@pytest.mark.kafka
def test_few_workers_share_the_partitions_of_a_broker(kafka: str, tmp_path: Path) -> None:
    found = asyncio.run(share(kafka, tmp_path, SMALL))
    assert (found.held, found.streams) == ((2, 2), 20)
    assert len(shared_rows(found)) == 4


def test_a_disk_without_space_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free = SimpleNamespace(free=33 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(SystemExit, match=r"too little free space: free some, or give fewer rows with --rows"):
        scale_limits.main(["--check"])
    assert scale_limits.main(["--check", "--rows=1000000"]) == 0
    assert "has 33 GB free; 50,000,000 rows need 36 GB" in capsys.readouterr().out


def test_what_was_measured_and_what_was_not_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        *shared_rows(Shared(10, 64, (6, 7), 6_400, 1_920_000, 12.0, 10.0, 900.0)),
        *open_rows(
            Recovery(0, 2.0, 1.0, 0, 100.0, 90.0, 90.0), Recovery(100_000, 9.0, 8.0, 7, 1_076.5625, 990.0, 1_400.0)
        ),
    ]
    text = report(rows, ["the ledger: no PostgreSQL"])
    assert cells(text, "10 workers on 64 partitions: partitions of one worker") == ["6 to 7", ""]
    assert cells(text, "10 workers on 64 partitions: events of a CPU-second") == ["192,000", "events"]
    assert cells(text, "100,000 open streams in one worker: memory of one stream") == ["10.0", "KiB"]
    assert re.search(r"\n\nMeasured on .+\n\n- Not measured: the ledger: no PostgreSQL$", text)
    calls: list[Any] = []

    def with_broker(*given: object) -> list[list[str]]:
        calls.append(given)
        return rows

    monkeypatch.setattr(scale_limits, "with_broker", with_broker)
    monkeypatch.setattr(scale_limits, "with_database", lambda *_: [])
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(scale_ledger, "check_disk", lambda _: None)
    written_section("scale limits", scale_limits.main, ["--workers=3", "--open=7", "--rows=9"], tmp_path)
    ((_, _, sizes, _),) = calls
    assert json.dumps([sizes.workers, sizes.opened, sizes.rows]) == "[3, 7, 9]"
