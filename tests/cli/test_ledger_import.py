"""`streamgauge ledger import`: records of files, each stream once."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.cli import ledger
from streamgauge.cli.main import main
from streamgauge.ledger import LedgerUnavailableError, SqliteLedger, open_ledger
from streamgauge.ledger.sqlite import SqliteLedger as Opened
from streamgauge.prices import Prices
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT
from tests.running import command

pytestmark = pytest.mark.slow


def line(number: int, **changes: object) -> bytes:
    """A record as `replay` prints it."""
    return make_row(number, **changes).record.replace(b',"cost":null}', b"}") + b"\n"


def imported(data_dir: Path, *words: str) -> tuple[int, str]:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        return main(("ledger", "import", *words, "--data-dir", str(data_dir))), errors.getvalue()


def stored(data_dir: Path) -> Iterator[dict[str, object]]:
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        yield from map(json.loads, ledger.query())


def test_records_of_replay_get_the_price_of_their_day(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_bytes(line(1) + b"\n" + line(2, response_model="unknown") + line(3, usage=ABSENT).rstrip())
    assert imported(tmp_path, str(file)) == (
        0,
        f"{file}: 3 new records (1 without a price), 0 known, 0 different from the known one, 0 unreadable lines\n",
    )
    costs = [record["cost"] for record in stored(tmp_path)]
    assert costs[1:] == [None, None]
    assert isinstance(costs[0], dict)
    assert costs[0]["usd"] == "0.000075"


def test_a_file_again_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"".join(line(number) for number in range(1_200)))
    assert imported(tmp_path, str(file))[0] == 0
    before = list(stored(tmp_path))
    code, said = imported(tmp_path, str(file), str(file))
    assert (code, said.count("0 new records"), said.count("1200 known")) == (0, 2, 2)
    assert list(stored(tmp_path)) == before


def test_lines_that_are_no_record_are_named_and_the_others_stored(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    bad = b'{"a": 1}\n' * 12
    file.write_bytes(line(1) + bad + line(2) + line(1, outcome="truncated"))
    code, said = imported(tmp_path, str(file))
    assert code == 1
    assert [one for one in said.splitlines() if ": line " in one] == [
        f"{file}: line {number}: not a record of this version" for number in range(2, 12)
    ]
    assert said.endswith(
        f"{file}: 2 new records (0 without a price), 0 known, 1 different from the known one, 12 unreadable lines\n"
    )
    assert len(list(stored(tmp_path))) == 2


def test_a_recording_is_no_file_of_records(tmp_path: Path) -> None:
    recording, one = tmp_path / "recording.sse", tmp_path / "one.jsonl"
    recording.write_bytes(b'data: {"id":"1"}\n\ndata: [DONE]\n\n')
    one.write_bytes(b"no record\n" + line(1))
    code, said = imported(tmp_path, str(recording), str(one))
    assert (code, len(list(stored(tmp_path)))) == (1, 1)
    assert [sentence for sentence in said.splitlines() if "makes records of" in sentence] == [
        f"{recording}: no line is a record: `streamgauge replay` makes records of recordings"
    ]


def test_a_line_without_an_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_MAX_LINE", 10_000)
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"x" * 1_000_000 + b"\n" + line(1))
    code, said = imported(tmp_path, str(file))
    assert (code, "1 new record (" in said, "line 1: " in said, "1 unreadable" in said) == (1, True, True, True)


def test_a_ledger_is_copied_with_its_costs(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        ledger.insert([make_row(1), make_row(2, response_model="unknown")])
    written = command("ledger", "export", "-", "--data-dir", str(tmp_path))
    file = tmp_path / "all.jsonl"
    file.write_text(written.stdout.replace("0.000075", "0.5"), encoding="utf-8")
    (tmp_path / "copy").mkdir()
    url = f"sqlite:///{tmp_path}/copy/ledger.sqlite"
    assert imported(tmp_path, str(file), "--ledger", url)[0] == 0
    with open_ledger(url) as copy:
        assert [json.loads(record)["cost"] and json.loads(record)["cost"]["usd"] for record in copy.query()] == [
            "0.5",
            None,
        ]
        (total,) = copy.totals(["upstream"])
        assert (total.cost_usd, total.without_price) == ("0.5", 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"usd":"0.000075"', b'"usd":0.000075'),
        (b'"usd":"0.000075"', b'"usd":"-1"'),
        (b'"usd":"0.000075"', b'"usd":"75e-6"'),
        (b'"price_date":null', b'"price_date":null,"more":1'),
    ],
)
def test_a_cost_that_no_ledger_adds_is_no_record(tmp_path: Path, before: bytes, after: bytes) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        ledger.insert([make_row(1)])
        (record,) = ledger.query()
    file = tmp_path / "records.jsonl"
    assert before in record
    file.write_bytes(record.replace(before, after))
    (tmp_path / "copy").mkdir()
    assert imported(tmp_path, str(file), "--ledger", f"sqlite:///{tmp_path}/copy/ledger.sqlite")[0] == 1


def test_an_age_for_other_commands_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One settings file is for `up` and for this command."""
    file = tmp_path / "records.jsonl"
    file.write_bytes(line(1))
    assert imported(tmp_path, str(file))[0] == 0
    monkeypatch.setenv("STREAMGAUGE_LEDGER_AGE", "86400")
    file.write_bytes(line(2))
    assert imported(tmp_path, str(file))[0] == 0
    assert len(list(stored(tmp_path))) == 2


def test_stdin(tmp_path: Path) -> None:
    done = command("ledger", "import", "-", "--data-dir", str(tmp_path), stdin=(line(1) + line(2)).decode())
    assert (done.returncode, done.stderr.partition(":")[0]) == (0, "stdin")
    assert [record["stream_id"] for record in stored(tmp_path)] == [stream_id(1), stream_id(2)]


def test_own_prices(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\nmodel = "*"\nfrom = 2026-01-01\ninput = 1\noutput = 1\n')
    file = tmp_path / "records.jsonl"
    file.write_bytes(line(1))
    assert imported(tmp_path, str(file), "--prices", str(prices))[0] == 0
    (record,) = stored(tmp_path)
    own = {"price_source": "prices.toml: *", "price_date": "2026-01-01"}
    assert record["cost"] == {"usd": "0.000015", **own, "list_usd": "0.000015"}
    prices.write_text("[[price]]\n")
    code, said = imported(tmp_path, str(file), "--prices", str(prices))
    assert (code, "price 1: model must be text" in said) == (2, True)


def test_what_is_missing_or_given_twice_is_said(tmp_path: Path) -> None:
    code, said = imported(tmp_path, str(tmp_path / "no.jsonl"))
    assert (code, "no.jsonl cannot be read: No such file" in said) == (2, True)
    code, said = imported(tmp_path)
    assert (code, "give one or more files" in said) == (2, True)
    two = ("--ledger", f"sqlite:///{tmp_path}/a.sqlite", "--ledger", f"sqlite:///{tmp_path}/b.sqlite")
    code, said = imported(tmp_path, "-", *two)
    assert (code, "records are stored in one ledger" in said) == (2, True)


def test_a_ledger_that_fails_says_that_the_file_may_be_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LedgerUnavailableError("the ledger is full")

    monkeypatch.setattr(Opened, "insert", fail)
    file = tmp_path / "records.jsonl"
    file.write_bytes(line(1))
    code, said = imported(tmp_path, str(file))
    assert (code, "records that are stored are not stored twice" in said) == (3, True)


@pytest.mark.parametrize("cost", ['"usd":"9999999"', '"usd":"1e3"', '"usd":1'])
def test_a_line_with_a_bad_cost_is_refused_and_the_sentence_names_the_cost(tmp_path: Path, cost: str) -> None:
    file = tmp_path / "records.jsonl"
    priced = line(1).rstrip()[:-1] + b',"cost":{%s,"price_source":"x","price_date":null}}\n' % cost.encode()
    file.write_bytes(priced + line(2))
    code, said = imported(tmp_path, str(file))
    assert (code, f"{file}: line 1: the cost is not one that a ledger adds\n" in said) == (1, True), said
    assert len(list(stored(tmp_path))) == 1


def test_one_record_and_one_line_are_no_plural() -> None:
    imported = ledger._Imported("file")
    imported.new = imported.unreadable = 1
    assert ": 1 new record (0 without a price), " in imported.sentence
    assert imported.sentence.endswith(", 1 unreadable line")
