"""`streamgauge ledger export`: JSON lines, CSV and Parquet of the chosen records."""

import contextlib
import csv
import io
import json
import stat
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from streamgauge.cli.ledger import EXPORT_COLUMNS as COLUMNS
from streamgauge.cli.ledger import EXPORT_NUMBERS as NUMBERS
from streamgauge.cli.main import main
from streamgauge.ledger import SqliteLedger
from streamgauge.ledger.schema import records
from streamgauge.prices import Prices
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import make_usage
from tests.running import CLEAN, command

pytestmark = pytest.mark.slow

# What the table has beside what an export has: the cost's two sides, and the record, which Parquet has.
NOT_EXPORTED = {"cost_input", "cost_output", "cost_unknown", "record"}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        usage = make_usage(100, 50, input_cached_tokens=60, reasoning_tokens=20)
        ledger.insert([make_row(2, usage=usage, attributes={"agent": "=1+1"}, credential_id="aa"), make_row(1)])
        ledger.insert([make_row(3, response_model="unknown", started_at=None, tenant="b\u00e4r")])
    return tmp_path


def exported(data_dir: Path, *words: str) -> tuple[int, str]:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        return main(("ledger", "export", *words, "--data-dir", str(data_dir))), errors.getvalue()


def test_json_lines_are_the_stored_records(data_dir: Path) -> None:
    done = command("ledger", "export", "-", "--data-dir", str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        assert done.stdout.encode() == b"".join(record + b"\n" for record in ledger.query())
    assert exported(data_dir, str(data_dir / "all.jsonl")) == (0, "")
    assert (data_dir / "all.jsonl").read_text() == done.stdout


def test_every_column_of_the_ledger_is_exported() -> None:
    assert set(records.c.keys()) - NOT_EXPORTED == set(COLUMNS) - {"cost_usd", "list_usd"}
    assert {name for name in COLUMNS if "TEXT" not in str(records.c.get(name, records.c.day).type)} - {
        "attributes"
    } == NUMBERS


def test_s6_csv_has_the_columns_and_no_formula(data_dir: Path) -> None:
    assert exported(data_dir, str(data_dir / "all.csv"), "--output", "csv") == (0, "")
    rows = list(csv.DictReader(io.StringIO((data_dir / "all.csv").read_text(encoding="utf-8"))))
    assert [row["stream_id"] for row in rows] == [stream_id(number) for number in (1, 2, 3)]
    first, second, third = rows
    assert (first["cost_usd"], first["input_uncached"], first["tenant"]) == ("0.000075", "10", "")
    assert (second["input_uncached"], second["input_cached"], second["reasoning"]) == ("40", "60", "20")
    assert (third["cost_usd"], third["started_us"], third["tenant"]) == ("", "", "b\u00e4r")
    assert json.loads(second["attributes"].replace("'", "")) == {"agent": "=1+1"}


def test_parquet_has_types_and_the_record(data_dir: Path) -> None:
    assert exported(data_dir, str(data_dir / "all.parquet"), "--output", "parquet") == (0, "")
    table = pyarrow.parquet.read_table(data_dir / "all.parquet")
    assert table.column_names == [*COLUMNS, "record"]
    lines: list[dict[str, Any]] = table.to_pylist()
    assert [line["stream_id"] for line in lines] == [stream_id(number) for number in (1, 2, 3)]
    assert (lines[0]["input_tokens"], lines[0]["output_audio"]) == (10, None)
    assert Decimal(lines[0]["cost_usd"]) == Decimal("0.000075")
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        assert [line["record"].encode() for line in lines] == list(ledger.query())


def test_filters_choose_and_tenants_are_mapped(data_dir: Path) -> None:
    (data_dir / "tenants.toml").write_text('aa = "search"\n')
    words = (
        "--output",
        "csv",
        "--where",
        "tenant=search",
        "--tenants",
        str(data_dir / "tenants.toml"),
        "--month",
        "2026-03",
    )
    assert exported(data_dir, str(data_dir / "some.csv"), *words) == (0, "")
    (row,) = csv.DictReader(io.StringIO((data_dir / "some.csv").read_text(encoding="utf-8")))
    assert (row["stream_id"], row["tenant"]) == (stream_id(2), "search")


def test_a_file_appears_whole_and_for_its_owner_alone(data_dir: Path) -> None:
    path = data_dir / "all.csv"
    path.write_text("before")
    code, error = exported(data_dir, str(path), "--output", "csv", "--where", "agent=1", "--where", "nothing=1")
    assert code == 2, error
    assert path.read_text() == "before"
    assert exported(data_dir, str(path), "--output", "csv")[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in data_dir.iterdir() if one.name.endswith(".part")] == []


def test_a_planted_file_of_the_unfinished_one_is_not_written_through(data_dir: Path) -> None:
    """Of a directory in which others may write, such as /tmp."""
    path, theirs, wide = data_dir / "all.csv", data_dir / "theirs", data_dir / "some.csv.part"
    theirs.write_text("theirs")
    (data_dir / "all.csv.part").symlink_to(theirs)
    wide.touch()
    wide.chmod(0o666)
    for file in (path, data_dir / "some.csv"):
        assert exported(data_dir, str(file), "--output", "csv")[0] == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert theirs.read_text() == "theirs"
    assert wide.read_text() == ""


def test_a_name_of_any_length_can_be_written(data_dir: Path) -> None:
    path = data_dir / ("n" * 255)
    assert exported(data_dir, str(path))[0] == 0
    assert path.stat().st_size > 0


def test_what_cannot_be_written_is_said(data_dir: Path) -> None:
    code, error = exported(data_dir, str(data_dir / "no" / "all.csv"), "--output", "csv")
    assert (code, "all.csv cannot be written: No such file" in error) == (3, True)
    code, error = exported(data_dir, "-", "--output", "parquet")
    assert (code, "Parquet is written into a file" in error) == (2, True)


def test_a_directory_is_no_file_to_write(data_dir: Path) -> None:
    for name in (".", "/", str(data_dir)):
        code, error = exported(data_dir, name, "--output", "csv")
        assert (code, f"{name} is a directory: give the name of a file in it" in error) == (2, True), error


@pytest.mark.parametrize("output", ["csv", "jsonl"])
def test_a_reader_that_leaves_ends_the_export_quietly(data_dir: Path, output: str) -> None:
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        ledger.insert([make_row(number) for number in range(100, 1_100)])
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge", "ledger", "export", "-", "--output", output, "--data-dir", str(data_dir)],
        env=CLEAN,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait()) == (b"", 0)
    process.stderr.close()
