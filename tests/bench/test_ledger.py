"""The benchmark of the ledger measures every way and writes its section; how fast they are is not tested."""

from pathlib import Path

from bench import ledger
from tests.bench.sections import written_section


def test_every_way_is_measured_and_written(tmp_path: Path) -> None:
    section = written_section("ledger", ledger.main, ["--batches=1", "--rounds=1"], tmp_path)
    head, _, *rows = section.splitlines()
    assert all(name in head for name in ledger.WAYS)
    assert [row.split("|")[1].strip() for row in rows] == [str(size) for size in ledger.SIZES]
    assert all(row.split("|")[2].strip() == "1.00" for row in rows)
