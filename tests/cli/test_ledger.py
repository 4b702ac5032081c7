"""`streamgauge ledger query` on a real ledger file: records unchanged, totals, and while another process writes."""

import contextlib
import csv
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from streamgauge.cli.commands import COMMANDS
from streamgauge.cli.main import main
from streamgauge.core.record import Error
from streamgauge.errors import UNAVAILABLE, USAGE
from streamgauge.ledger import KEYS, SqliteLedger, open_ledger
from streamgauge.prices import Prices
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import ABSENT, make_timing, make_usage
from tests.running import command, here

pytestmark = pytest.mark.slow


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(number) for number in (3, 1, 2)])
        ledger.insert([make_row(4, outcome="truncated", usage=make_usage(None, None), tenant="caf\u00e9")])
    return tmp_path


def queried(data_dir: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What the command prints. It runs in this process, which is half a second faster, unless an environment is given."""
    words = ("ledger", "query", "--data-dir", str(data_dir), *arguments)
    if environment is not None:
        done = command(*words, environment=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        assert (main(words), errors.getvalue()) == (0, "")
    return printed.getvalue()


def ids(output: str) -> list[str]:
    return [json.loads(line)["stream_id"] for line in output.splitlines()]


def test_every_record_unchanged_oldest_first(data_dir: Path) -> None:
    output = queried(data_dir, "--output", "jsonl")
    assert ids(output) == [stream_id(number) for number in (1, 2, 3, 4)]
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        assert output.encode() == b"".join(line + b"\n" for line in ledger.query())


def test_json_is_one_document_of_records_or_of_totals(data_dir: Path) -> None:
    records = json.loads(queried(data_dir, "--output", "json", "--newest"))
    assert [record["stream_id"] for record in records] == [stream_id(number) for number in (4, 3, 2, 1)]
    totals = json.loads(queried(data_dir, "--output", "json", "--by", "outcome"))
    assert [(total["outcome"], total["streams"], total["input_tokens"]) for total in totals] == [
        ("completed", 3, 30),
        ("truncated", 1, None),
    ]
    assert json.loads(queried(data_dir, "--output", "json", "--limit", "0")) == []


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (2, 2), (100, 4)])
def test_limit_cuts(data_dir: Path, limit: int, count: int) -> None:
    output = queried(data_dir, "--output", "jsonl", "--limit", str(limit))
    assert ids(output) == [stream_id(number) for number in (1, 2, 3, 4)][:count]


def test_json_is_utf8_whatever_the_locale(data_dir: Path) -> None:
    environment = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    output = queried(data_dir, "--output", "jsonl", environment=environment)
    assert json.loads(output.splitlines()[-1])["tenant"] == "caf\u00e9"


def test_totals_as_a_table_as_csv_and_as_json(data_dir: Path) -> None:
    by = ("--by", "outcome,day")
    sums = ["input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens"]
    kinds = [
        "input_uncached",
        "input_cached",
        "input_cache_write",
        "input_audio",
        "output_text",
        "reasoning",
        "output_audio",
    ]
    added = ["without_usage", "unknown_share", *kinds, "cost_usd", "with_cost", "without_price", "longest_wait_s"]
    added += ["first_started_at", "last_started_at"]
    names = ["outcome", "day", "streams", "with_usage", *sums, *added]
    nothing = [None] * 3
    expected = [
        [
            "completed",
            "2026-03-01",
            3,
            3,
            30,
            15,
            45,
            None,
            None,
            0,
            "0.0000",
            30,
            *nothing,
            15,
            *nothing,
            0,
            3,
            0.2,
            at(1),
            at(3),
        ],
        [
            "truncated",
            "2026-03-01",
            1,
            0,
            *[None] * 5,
            1,
            "1.0000",
            None,
            *nothing,
            None,
            *nothing,
            0,
            0,
            0.2,
            at(4),
            at(4),
        ],
    ]
    lines = [json.loads(line) for line in queried(data_dir, *by, "--output", "jsonl").splitlines()]
    assert [list(line) for line in lines] == [names] * 2
    assert [list(line.values()) for line in lines] == expected
    head, *rows = csv.reader(io.StringIO(queried(data_dir, *by, "--output", "csv")))
    assert head == names
    assert rows == [["" if value is None else str(value) for value in row] for row in expected]
    head, *lines = [line.split() for line in queried(data_dir, *by).splitlines()]
    assert head == [
        "outcome", "day", "streams", "input_tokens", "output_tokens", "cost_usd", "without_price", "without_usage",
        "longest_wait",
    ]  # fmt: skip
    assert lines[:2] == [
        ["completed", "2026-03-01", "3", "30", "15", "-", "3", "-", "200", "ms"],
        ["truncated", "2026-03-01", "1", "-", "-", "-", "-", "1", "200", "ms"],
    ]
    assert lines[3] == ["total", "4", "30", "15", "-", "3", "1", "200", "ms"]
    assert "First record 2026-03-01T00:00:01Z, last 2026-03-01T00:00:04Z." in queried(data_dir, *by)
    first = queried(data_dir, *by, "--limit", "1")
    assert "truncated" not in first
    assert "total" in first
    assert "The total is that of all 2 lines." in first


def at(second: int) -> str:
    """The start of the record of a stream."""
    return f"2026-03-01T00:00:{second:02}.000000Z"


def test_retries_and_legs(tmp_path: Path) -> None:
    tries = {"request_digest": "d" * 32, "outcome": "http_error", "usage": make_usage(None, None, source="absent")}
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert(
            [make_row(1, **tries, attempt=1), make_row(2, request_digest="d" * 32, attempt=2, response_id="r")]
        )
        ledger.insert([make_row(3, response_id="r", resumed_from="4")])
    lines = queried(tmp_path, "--by", "request_digest,attempt", "--output", "jsonl").splitlines()
    assert [list(json.loads(line).values())[:9] for line in lines] == [
        ["d" * 32, 1, 1, 0, None, None, None, None, None],
        ["d" * 32, 2, 1, 1, 10, 5, 15, None, None],
        [None, None, 1, 0, None, None, None, None, None],
    ]
    assert [json.loads(line)["without_usage"] for line in lines] == [1, 0, 0], "the leg's usage counts with its origin"
    day = queried(tmp_path, "--by", "day", "--output", "csv").splitlines()
    assert day[1:] == [f"2026-03-01,3,1,10,5,15,,,1,0.3333,10,,,,5,,,,0,1,0.2,{at(1)},{at(3)}"]


@pytest.fixture
def two_months(tmp_path: Path) -> Path:
    """Two teams and two taps; a stream of October that was resumed in November, and a record without a start."""
    broken = {"request_digest": "d" * 32, "last_event_id": "17", "outcome": "truncated", "tenant": "search"}
    cached = make_usage(100, 50, input_cached_tokens=60, reasoning_tokens=20)
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert(
            [
                make_row(1, started_at="2026-10-31T23:59:59.999999Z", usage=make_usage(41, None), **broken),
                make_row(
                    2,
                    started_at="2026-11-01T00:00:00Z",
                    usage=make_usage(None, 20),
                    **{**broken, "resumed_from": "17", "outcome": "completed"},
                ),
                make_row(3, started_at="2026-11-02T00:00:00Z", tenant="search", tap="httpx", usage=cached),
                make_row(4, started_at="2026-11-02T00:00:01Z", tenant="search", tap="asgi", usage=cached),
                make_row(5, started_at="2026-11-30T23:59:59.999999Z", tenant="chat", attempt=2),
                make_row(6, started_at="2026-12-01T00:00:00Z", tenant="chat"),
                make_row(7, started_at=None),
            ]
        )
    return tmp_path


BERLIN = ("--timezone", "Europe/Berlin")
NOVEMBER = ("--since", "2026-11-01", "--until", "2026-12-01")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), (1, 2, 3, 4, 5, 6, 7)),
        (("--newest",), (6, 5, 4, 3, 2, 1, 7)),
        (("--newest", "--limit", "2"), (6, 5)),
        (NOVEMBER, (2, 3, 4, 5)),
        ((*NOVEMBER, "--newest", "--limit", "1"), (5,)),
        (("--since", "2026-12-01T01:00:00+01:00"), (6,)),
        (("--until", "2026-10-31T23:59:59.999999Z"), ()),
        (("--until", "2026-11-01 00:00:00Z"), (1,)),
        (("--where", "tenant=search", "--where", "tap=httpx"), (3,)),
        (("--where", "tap=httpx", "--where", "tap=asgi"), (3, 4)),
        (("--where", "tenant="), (7,)),
        (("--where", "attempt=2"), (5,)),
        (("--where", "outcome=truncated", *NOVEMBER), ()),
        (("--month", "2026-11"), (2, 3, 4, 5)),
        (("--month", "2026-11", *BERLIN), (1, 2, 3, 4)),
        (("--since", "2026-12-01", *BERLIN), (5, 6)),
        (("--where", "month=2026-12", *BERLIN), (5, 6)),
        (("--where", "trace_id=t"), ()),
    ],
)
def test_records_are_chosen(two_months: Path, arguments: tuple[str, ...], found: tuple[int, ...]) -> None:
    output = queried(two_months, *arguments, "--output", "jsonl")
    assert ids(output) == [stream_id(number) for number in found]
    rows = list(csv.DictReader(io.StringIO(queried(two_months, *arguments, "--output", "csv"))))
    assert [row["started_at"] for row in rows] == [json.loads(line)["started_at"] or "" for line in output.splitlines()]
    if "--limit" not in arguments:
        totals = queried(two_months, *arguments, "--by", "upstream", "--output", "jsonl").splitlines()
        assert sum(json.loads(line)["streams"] for line in totals) == len(found)


def test_tokens_of_a_month_by_team(two_months: Path) -> None:
    by_team = queried(
        two_months, "--by", "tenant", *NOVEMBER, "--where", "tap=httpx", "--where", "tap=proxy", "--output", "csv"
    )
    assert by_team.splitlines() == [
        "tenant,streams,with_usage,input_tokens,output_tokens,total_tokens,input_cached_tokens,reasoning_tokens,"
        "without_usage,unknown_share,input_uncached,input_cached,input_cache_write,input_audio,output_text,reasoning,"
        "output_audio,cost_usd,with_cost,without_price,longest_wait_s,first_started_at,last_started_at",
        "chat,1,1,10,5,15,,,0,0.0000,10,,,,5,,,,0,1,0.2,2026-11-30T23:59:59.999999Z,2026-11-30T23:59:59.999999Z",
        "search,2,1,100,50,150,60,20,0,0.0000,40,60,,,30,20,,,0,1,0.2,2026-11-01T00:00:00.000000Z,"
        "2026-11-02T00:00:00.000000Z",
    ]
    month = queried(two_months, "--by", "tenant", "--month", "2026-11", "--where", "tap=httpx", "--where", "tap=proxy",
                    "--output", "csv")  # fmt: skip
    assert month == by_team
    newest = queried(two_months, "--by", "day", "--newest", "--limit", "2", "--output", "jsonl")
    assert [json.loads(line)["day"] for line in newest.splitlines()] == ["2026-12-01", "2026-11-30"]
    october = queried(two_months, "--by", "day", "--until", "2026-11-01", "--output", "csv").splitlines()
    assert october[1:] == [
        "2026-10-31,1,1,41,20,61,,,0,0.0000,41,,,,20,,,,0,1,0.2,2026-10-31T23:59:59.999999Z,2026-10-31T23:59:59.999999Z"
    ], "a resumed stream counts in the month of its first record"


def test_the_help_names_every_key() -> None:
    listed = COMMANDS["ledger query"].examples.partition("Keys for --by and --where: ")[2].partition(".")[0]
    assert listed.replace("\n", " ").split(", ") == list(KEYS)


def test_a_csv_of_records(data_dir: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(queried(data_dir, "--output", "csv"))))
    assert [row["outcome"] for row in rows] == ["completed"] * 3 + ["truncated"]


def test_s6_csv_holds_no_formula_and_the_other_outputs_are_unchanged(tmp_path: Path) -> None:
    """Clients choose models and tenants, and an operator may open the CSV in a spreadsheet."""
    model, tenant = "=cmd|' /C calc'!A0", "x;=1+1"
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(1, request_model=model, response_model=model, tenant=tenant)])
    [record] = csv.DictReader(io.StringIO(queried(tmp_path, "--output", "csv")))
    assert record["model"] == f"'{model}"
    [total] = csv.DictReader(io.StringIO(queried(tmp_path, "--by", "model,tenant", "--output", "csv")))
    assert (total["model"], total["tenant"]) == (f"'{model}", "x;'=1+1")
    assert total["streams"] == "1"
    [line] = queried(tmp_path, "--by", "model,tenant", "--output", "jsonl").splitlines()
    assert json.loads(line)["model"] == model
    assert model in queried(tmp_path, "--by", "model,tenant")
    assert model in queried(tmp_path)


def test_an_empty_ledger(tmp_path: Path) -> None:
    SqliteLedger(tmp_path / "ledger.sqlite").close()
    assert queried(tmp_path, "--output", "jsonl") == ""
    assert queried(tmp_path, "--by", "day", "--output", "jsonl") == ""
    assert len(queried(tmp_path).splitlines()) == 1


def test_a_writer_does_not_block_readers(data_dir: Path) -> None:
    with contextlib.closing(sqlite3.connect(data_dir / "ledger.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM records")
        assert len(ids(queried(data_dir, "--output", "jsonl"))) == 4
        writer.execute("ROLLBACK")


def test_a_ledger_is_found_by_its_url(data_dir: Path) -> None:
    named = command("ledger", "query", "--ledger", f"sqlite:///{data_dir}/ledger.sqlite", "--output", "jsonl")
    assert named.stdout == queried(data_dir, "--output", "jsonl")


def test_attributes_are_keys(data_dir: Path) -> None:
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        ledger.insert([make_row(5, attributes={"agent": "planner"}), make_row(6, attributes={"agent": "=1+1"})])
    totals = json.loads(queried(data_dir, "--output", "json", "--by", "agent,outcome"))
    assert [(total["agent"], total["outcome"], total["streams"]) for total in totals] == [
        ("=1+1", "completed", 1),
        ("planner", "completed", 1),
        (None, "completed", 3),
        (None, "truncated", 1),
    ]
    assert ids(queried(data_dir, "--output", "jsonl", "--where", "agent=planner")) == [stream_id(5)]
    assert ids(queried(data_dir, "--output", "jsonl", "--where", "agent=", "--where", "outcome=truncated")) == [
        stream_id(4)
    ]


@pytest.mark.parametrize("words", [("--by", "agent"), ("--where", "agent=x"), ("--by", "day,agent")])
def test_a_name_that_no_record_has_as_an_attribute_is_no_key(data_dir: Path, words: tuple[str, str]) -> None:
    done = command("ledger", "query", "--data-dir", str(data_dir), *words)
    assert done.returncode == 2
    assert "agent is not a key" in done.stderr


@pytest.mark.parametrize("words", [("query", "--by", "session"), ("export", "-", "--where", "session=x")])
def test_a_database_that_is_away_is_no_wrong_usage(words: tuple[str, ...]) -> None:
    """Whether records have the attribute is not known then."""
    done = here("ledger", *words, "--ledger", "postgresql://user@127.0.0.1:1/db")
    assert (done.returncode, "not a key" in done.stderr) == (UNAVAILABLE, False), done.stderr
    assert "the ledger" in done.stderr


def test_without_a_ledger_there_is_no_attribute(tmp_path: Path) -> None:
    for words in (["--by", "session"], ["--since", "some day"]):
        assert here("ledger", "query", *words, "--data-dir", str(tmp_path)).returncode == USAGE
    assert here("ledger", "query", "--data-dir", str(tmp_path)).returncode == UNAVAILABLE


def test_a_query_opens_its_ledger_once(data_dir: Path) -> None:
    with SqliteLedger(data_dir / "ledger.sqlite") as ledger:
        ledger.insert([make_row(5, attributes={"agent": "planner"})])
    with mock.patch("streamgauge.cli.ledgers.open_ledger", wraps=open_ledger) as opened:
        queried(data_dir, "--by", "agent", "--where", "agent=planner")
    assert opened.call_count == 1


def test_months_of_a_time_zone(two_months: Path) -> None:
    lines = queried(two_months, "--by", "month", *BERLIN, "--output", "jsonl").splitlines()
    assert [(json.loads(line)["month"], json.loads(line)["streams"]) for line in lines] == [
        ("2026-11", 4),
        ("2026-12", 2),
        (None, 1),
    ]


def test_tenants_are_mapped_by_a_file(tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.toml"
    tenants.write_text('aa = "search"\n')
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([make_row(1, credential_id="aa"), make_row(2, credential_id="aa", tenant="own"), make_row(3)])
    by = ("--by", "tenant", "--output", "json", "--tenants", str(tenants))
    assert [(one["tenant"], one["streams"]) for one in json.loads(queried(tmp_path, *by))] == [
        ("own", 1),
        ("search", 1),
        (None, 1),
    ]
    chosen = queried(tmp_path, "--where", "tenant=search", "--tenants", str(tenants), "--output", "jsonl")
    assert ids(chosen) == [stream_id(1)]


def test_several_ledgers_in_one_query(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.sqlite" for name in "ab"]
    for number, name in enumerate("ab"):
        with SqliteLedger(tmp_path / f"{name}.sqlite") as ledger:
            ledger.insert([make_row(10 - number), make_row(number, attributes={"agent": name} if number else {})])
    several = [word for url in urls for word in ("--ledger", url)]
    assert ids(queried(tmp_path, *several, "--output", "jsonl")) == [stream_id(number) for number in (0, 1, 9, 10)]
    by = json.loads(queried(tmp_path, *several, "--by", "agent", "--output", "json"))
    assert [(one["agent"], one["streams"], one["input_tokens"]) for one in by] == [("b", 1, 10), (None, 3, 30)]


def test_a_missing_one_of_several_is_named(data_dir: Path) -> None:
    words = (
        "ledger",
        "query",
        "--ledger",
        f"sqlite:///{data_dir}/ledger.sqlite",
        "--ledger",
        f"sqlite:///{data_dir}/b.sqlite",
    )
    done = command(*words)
    assert done.returncode == 3
    assert "there is no ledger" in done.stderr
    assert "b.sqlite" in done.stderr


def test_a_session_has_calls_tokens_and_its_longest_wait(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert(
            [
                make_row(1, attributes={"session": "s"}, timing=make_timing(first_token_s=3.25)),
                make_row(2, attributes={"session": "s"}, timing=make_timing(first_token_s=None, end_s=1.5)),
            ]
        )
    (line,) = json.loads(queried(tmp_path, "--by", "session", "--output", "json"))
    assert (line["session"], line["streams"], line["total_tokens"], line["longest_wait_s"]) == ("s", 2, 30, 3.25)


def test_cost_is_a_decimal_string_beside_the_streams_without_a_price(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        of = {"host": "api.openai.com"}
        rows = [make_row(1, **of), make_row(2, **of), make_row(3, **of, response_model="unknown")]
        ledger.insert([*rows, make_row(4, **of, usage=ABSENT), make_row(5, host="10.0.0.5")])
    (line,) = json.loads(queried(tmp_path, "--by", "month", "--output", "json"))
    assert (line["cost_usd"], line["with_cost"], line["without_price"], line["without_usage"]) == ("0.00015", 2, 2, 1)
    reasons = json.loads(queried(tmp_path, "--by", "cost_unknown", "--output", "json"))
    assert {one["cost_unknown"]: one["streams"] for one in reasons} == {
        None: 2, "no_model": 1, "no_usage": 1, "no_seller": 1
    }  # fmt: skip
    assert "0.00015" in queried(tmp_path, "--by", "month", "--output", "csv")
    records = list(csv.DictReader(io.StringIO(queried(tmp_path, "--output", "csv"))))
    assert [record["cost_usd"] for record in records] == ["0.000075", "0.000075", "", "", ""]


def test_a_table_says_of_how_many_streams_a_partial_cost_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite", prices=Prices()) as ledger:
        ledger.insert([make_row(1, host="api.openai.com"), make_row(2, host="10.0.0.5")])
    sentence = "The cost is that of 1 of 2 streams.\n"
    for words, is_said in (
        (("--by", "month"), True),
        (("--by", "month", "--where", "upstream_host=api.openai.com"), False),
        (("--by", "month", "--where", "upstream_host=10.0.0.5"), False),
        (("--by", "month", "--output", "csv"), False),
        (("--by", "month", "--output", "json"), False),
    ):
        assert main(["ledger", "query", *words, "--data-dir", str(tmp_path)]) == 0
        printed = capsys.readouterr()
        assert (sentence in printed.out, printed.err) == (is_said, "")


def test_a_report_is_a_page_of_totals_alone(data_dir: Path) -> None:
    page = queried(data_dir, "--by", "tenant", "--month", "2026-03", "--where", "model!=<x>", "--output", "html")
    assert "<h1>Usage by tenant</h1>" in page
    assert "Month 2026-03, time zone UTC." in page
    assert "Only model!=&lt;x&gt;." in page
    done = here("ledger", "query", "--data-dir", str(data_dir), "--output", "html")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "say by which keys" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--month", "2026-13"), "--month 2026-13 is not a month"),
        (("--month", "2026-11", "--since", "2026-11-01"), "excludes --since and --until"),
        (("--timezone", "Mars/Base"), "is not a time zone"),
        (("--timezone", "../etc"), "is not a time zone"),
        (("--tenants", "/nowhere/tenants.toml"), "cannot be read"),
    ],
)
def test_wrong_options_are_refused(data_dir: Path, words: tuple[str, ...], why: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        assert main(("ledger", "query", "--data-dir", str(data_dir), *words)) == 2
    assert why in errors.getvalue()


def test_no_database_library_is_imported_before_a_ledger_is_opened() -> None:
    program = (
        "import sys, streamgauge.ledger, streamgauge.prices, streamgauge.cli.ledger, streamgauge.cli.ledgers;"
        "print(sorted({'sqlalchemy', 'psycopg', 'genai_prices', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_table_tells_failures_apart_and_has_their_ids(tmp_path: Path) -> None:
    refused = Error("before_stream", "invalid_request_error", "invalid_api_key", 401)
    broken = Error("before_stream", "server_error", None, 500)
    away = Error("transport", None, "dns", None)
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        rows = [
            make_row(number, outcome="http_error", status_code=error.status, error=error)
            for number, error in enumerate((refused, broken, away), 1)
        ]
        ledger.insert(rows)
    lines = [line.split() for line in queried(tmp_path).splitlines()]
    assert lines[0][0] == "stream"
    assert [line[0] for line in lines[1:]] == [row.stream_id for row in rows]
    assert [words in " ".join(line) for words, line in zip(
        ("401 invalid_api_key", "500 server_error", " dns "), lines[1:], strict=True
    )] == [True] * 3  # fmt: skip


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--slowest", "2"), (3, 1)),
        (("--slowest", "9", "--where", "tenant=a"), (1, 2)),
        (("--where", "ttft>1"), (1, 3)),
        (("--where", "ttft>1", "--where", "outcome!=truncated"), (1,)),
        (("--where", "status>=500"), (2,)),
        (("--where", f"stream_id={stream_id(2)}"), (2,)),
    ],
)
def test_slow_failed_and_single_streams_are_found(
    tmp_path: Path, words: tuple[str, ...], found: tuple[int, ...]
) -> None:
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([
            make_row(1, tenant="a", timing=make_timing(first_token_s=2.0)),
            make_row(2, tenant="a", timing=make_timing(first_token_s=0.5), status_code=503),
            make_row(3, tenant="b", timing=make_timing(first_token_s=3.0), outcome="truncated"),
        ])  # fmt: skip
    assert ids(queried(tmp_path, *words, "--output", "jsonl")) == [stream_id(number) for number in found]
    assert len(queried(tmp_path, *words).splitlines()) == 1 + len(found)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--slowest", "0"), "give 1 to 1000"),
        (("--slowest", "1001"), "give 1 to 1000"),
        (("--slowest", "5", "--newest"), "--slowest excludes"),
        (("--slowest", "5", "--limit", "2"), "--slowest excludes"),
        (("--slowest", "5", "--by", "day"), "--slowest excludes"),
    ],
)
def test_slowest_has_its_own_number_and_order(data_dir: Path, words: tuple[str, ...], why: str) -> None:
    done = here("ledger", "query", "--data-dir", str(data_dir), *words)
    assert (done.returncode, why in done.stderr) == (USAGE, True), done.stderr


def test_a_terminal_gets_short_ids_and_is_told_which_columns_have_no_place(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgauge.cli.ledger.line_width", lambda: 60)
    done = here("ledger", "query", "--data-dir", str(data_dir))
    assert max(map(len, done.stdout.splitlines())) <= 60
    assert done.stdout.splitlines()[1].split()[0] == stream_id(1)[-8:]
    assert done.stderr.startswith("Not shown in 60 columns: upstream, tenant, in+out, cost, duration.")


def test_a_relative_path_that_looks_absolute_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("ledger", "query"), ("ledger", "import", "-")):
        done = here(*words, "--ledger", "sqlite:///etc/passwd")
        assert (done.returncode, done.stdout) == (2, "")
        assert "write sqlite:////etc/passwd for /etc/passwd" in done.stderr
        assert f"sqlite:///{tmp_path}/etc/passwd for {tmp_path}/etc/passwd" in done.stderr
    (tmp_path / "etc").mkdir()
    assert f"there is no ledger {tmp_path}/etc/x" in here("ledger", "query", "--ledger", "sqlite:///etc/x").stderr
    assert f"there is no ledger {tmp_path}/x" in here("ledger", "query", "--ledger", "sqlite:///x").stderr
