"""`streamgauge audit` as a user runs it: its forms of output, exit codes, kept runs, and the same bytes each time."""

import contextlib
import csv
import io
import json
import random
import re
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import click
import jsonschema
import msgspec
import pytest

from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period
from streamgauge.audit.result import Amount, Days, Line, Result, Tolerance, encode
from streamgauge.audit.runs import Inputs, Run, Runs
from streamgauge.cli.audit import FILE_OPTIONS, inputs_of
from streamgauge.cli.commands import STREAMGAUGE, parse
from streamgauge.cli.kept_audits import options_again
from streamgauge.cli.ledger_watch import _audit, _shown_audit
from streamgauge.cli.main import main
from streamgauge.ledger import SqliteLedger
from streamgauge.spool.response_counters import NotCaptured, ResponseCounters
from tests.audit.invoices.samples import BY_NAME
from tests.audit.world.bill import Bill
from tests.audit.world.errors import PLANTS, Plan
from tests.audit.world.exports import MAP
from tests.audit.world.records import row, write_ledger
from tests.audit.world.test_world import BY_NAME as EXPORTS
from tests.audit.world.test_world import DAYS, FIRST, a_world, where_of
from tests.audit.world.traffic import later
from tests.running import command

pytestmark = pytest.mark.slow

SCHEMA = Path(__file__).parent.parent.parent / "schemas" / "audit.v1.json"
END = later(FIRST, DAYS)
Audit = Callable[..., tuple[int, str, str]]
EXPORT = EXPORTS["Anthropic analytics"]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A world in a ledger, and its bill in two files."""
    rng = random.Random(5)
    made = Plan(a_world(EXPORT, 5), rng)
    for cause in ("missing_from_invoice", "coverage", "price_changed"):
        PLANTS[cause](made, where_of(EXPORT, rng, 2))
    write_ledger(tmp_path / "ledger.sqlite", made.world.calls)
    write_bill(tmp_path, made.bill(each_call=False))
    (tmp_path / "map.toml").write_text(MAP)
    return made


def write_bill(folder: Path, bill: Bill) -> None:
    for number, write in enumerate(EXPORT.writers):
        (folder / f"{number}.json").write_text(write(bill))


def words(folder: Path, *options: str, invoices: tuple[str, ...] = ("0.json", "1.json")) -> list[str]:
    given = [word for name in invoices for word in ("--invoice", str(folder / name))]
    period = ["--from", FIRST, "--to", END]
    return ["audit", "--data-dir", str(folder), *given, *period, "--map", str(folder / "map.toml"), *options]


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Audit:
    def run(*options: str, invoices: tuple[str, ...] = ("0.json", "1.json")) -> tuple[int, str, str]:
        is_stored = options[:1] in (("list",), ("show",), ("diff",), ("claim",))
        given = (
            ["audit", *options, "--data-dir", str(tmp_path)]
            if is_stored
            else words(tmp_path, *options, invoices=invoices)
        )
        code = main(given)
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_json_is_of_the_published_schema(plan: Plan, audit: Audit) -> None:
    code, output, errors = audit("--output", "json")
    result = json.loads(output)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(result)
    assert (code, errors) == (1, "")
    assert result["period"] == {"from": FIRST, "to": END, "timezone": "UTC"}
    assert result["tolerance"] == {"tokens": 0, "usd": "0.01"}
    assert 0 < float(result["coverage"]["anthropic"]) < 1
    assert [one["cause"] for one in result["causes"]] == ["missing_from_invoice", "price_changed", "coverage"]
    together, own = result["totals"]
    assert (together["provider"], own["provider"]) == (None, "anthropic")
    assert {**own, "provider": None} == together
    sides = [Decimal(together[name]["usd"]) for name in ("billed", "ours", "difference", "explained", "unexplained")]
    assert sides[0] - sides[1] == sides[2] == sides[3]
    assert 0 < Decimal(together["in_dispute"]["usd"]) < sides[2] + 1
    rates = [rate for line in result["lines"] for one in line["explanations"] for rate in one.get("rates", ())]
    assert {rate["kind"] for rate in rates} == {"output"}
    assert {rate["first_seen"] for rate in rates} == {later(FIRST, 2)}
    assert {float(rate["new_usd_per_million"]) / float(rate["old_usd_per_million"]) for rate in rates} == {1.25}


def test_a_table_says_what_is_found(plan: Plan, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, output, _ = audit()
    assert code == 1
    assert output.startswith(f"{FIRST} to {END} (UTC, last day excluded): the bill does not agree with the ledger.\n")
    assert re.search(r"^missing_from_invoice +anthropic +\S+ +-[\d,]+ +-\d+\.\d\d +\d+ +2026-03-", output, re.MULTILINE)
    assert re.search(r"^in dispute, USD +\d+\.\d\d$", output, re.MULTILINE)
    places = [output.index(text) for text in ("\nTokens differ: ", "\ntotal ", "\ncause ", "rounded to cents")]
    assert places == sorted(places)
    assert re.search(
        r"^The ledger has records of (at most )?\d\d\.\d\d % of the tokens that anthropic billed\.$",
        output,
        re.MULTILINE,
    )
    assert re.search(r" missing_from_invoice \(Not billed\): [^:]+ What to do: Nothing", " ".join(output.split()))


def test_tables_fit_the_terminal(plan: Plan, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        tables = audit()[1].partition("\n\n")[2]
        assert width // 2 < max(map(len, tables.splitlines())) <= width


def test_csv_has_every_line_and_plain_numbers(plan: Plan, audit: Audit) -> None:
    _, output, _ = audit("--output", "csv")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert len(rows) == len(json.loads(audit("--output", "json")[1])["lines"])
    (missing,) = (one for one in rows if one["causes"].startswith("missing_from_invoice"))
    assert int(missing["token_difference"]) < 0
    assert re.fullmatch(r"-\d+\.\d+", missing["usd_difference"])


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_responses_that_the_tap_did_not_capture_are_named_beside_what_has_no_record(
    plan: Plan, audit: Audit, tmp_path: Path
) -> None:
    said = "have no record"
    assert said not in audit()[2]
    (tmp_path / "counters").touch()
    with contextlib.closing(ResponseCounters(tmp_path / "counters", "relay-0")) as counters:
        counters.passed("openai", NotCaptured.NOT_LLM, 35)
        assert said not in audit()[2]
        counters.passed("openai", NotCaptured.RECORDER_BEHIND, 3)
        counters.passed("openai", NotCaptured.CRASH, 2)
        assert "of 40 responses" in (stderr := audit()[2])
    assert "5 have no record (3 recorder_behind, 2 crash): some of `coverage` may be theirs" in stderr


def test_html_loads_nothing_and_names_the_causes(plan: Plan, audit: Audit) -> None:
    code, output, _ = audit("--output", "html")
    page = _Page()
    page.feed(output)
    assert code == 1
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(page.tags)
    assert not {"src", "href", "srcset", "style", "onclick"} & {name for name, _ in page.attributes}
    assert "default-src 'none'" in output
    assert "url(" not in output
    assert "@media print" in output
    for cause in ("Not billed", "Billed without a record", "Another price"):
        assert f'scope="rowgroup">{cause}<p>' in output
    assert re.search(r'<data value="-?\d+" title="[a-z0-9 ,-]+">-?[0-9]{1,3},[0-9]{3}</data>', output), (
        "digits are grouped"
    )
    assert output.count("first seen") == 2, "a price change is told once for each tier"


def test_s6_html_shows_names_from_outside_as_text(tmp_path: Path, audit: Audit) -> None:
    write_ledger(tmp_path / "ledger.sqlite", [])
    sample = BY_NAME["Anthropic usage report (API)"]
    (tmp_path / "0.json").write_text(sample.text([{**sample.rows[0], "model": "<script>alert(1)</script>"}]))
    (tmp_path / "map.toml").write_text("")
    _, output, _ = audit("--output", "html", invoices=("0.json",))
    assert "<script" not in output
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in output


def test_a1_the_bytes_do_not_depend_on_time_zone_hash_seed_or_order(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    for form in ("json", "html"):
        _, expected, _ = audit("--output", form)
        assert audit("--output", form, invoices=("1.json", "0.json"))[1] == expected
        for zone, seed in (("Asia/Tokyo", "1"), ("America/New_York", "2")):
            done = command(*words(tmp_path, "--output", form), environment={"TZ": zone, "PYTHONHASHSEED": seed})
            assert (done.returncode, done.stdout) == (1, expected)
        (tmp_path / "ledger.sqlite").unlink()
        calls = [one for one in plan.world.calls if one.seen]
        random.Random(form).shuffle(calls)
        with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
            for call in calls:
                ledger.insert([row(call)])
        assert audit("--output", form)[1] == expected


def test_a_refused_invoice_changes_nothing(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    (tmp_path / "2.json").write_text((tmp_path / "0.json").read_text().replace('"has_more": false', '"has_more": true'))
    before = (tmp_path / "ledger.sqlite").read_bytes()
    code, output, errors = audit("--save", invoices=("0.json", "1.json", "2.json"))
    assert (code, output) == (2, "")
    assert errors.startswith(
        f"streamgauge audit: {tmp_path}/2.json: line 1, field has_more: the page is not the last one"
    )
    assert (tmp_path / "ledger.sqlite").read_bytes() == before
    assert json.loads(audit("list", "--output", "json")[1]) == []


# --- kept runs ------------------------------------------------------------------------------------------------------


def test_runs_are_kept_shown_and_compared(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    assert audit("list")[0] == 0
    _, first, errors = audit("--save", "--output", "json")
    assert errors == "streamgauge audit: kept as run 1\n"
    unseen = [one for one in plan.world.calls if not one.seen]
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([row(call) for call in unseen])  # they arrived late
    assert audit("--save", invoices=("1.json", "0.json"))[2] == "streamgauge audit: kept as run 2\n"
    runs = json.loads(audit("list", "--output", "json")[1])
    assert [(one["run"], one["from"], one["to"], one["agrees"]) for one in runs] == [
        (1, FIRST, END, False), (2, FIRST, END, False)
    ]  # fmt: skip
    assert (runs[0]["invoices"] == runs[1]["invoices"], runs[0]["ledger"] == runs[1]["ledger"]) == (True, False)
    assert audit("show", "1", "--output", "json") == (0, first, "")
    code, output, _ = audit("diff", "1", "2", "--output", "json")
    (change,) = json.loads(output)
    assert code == 1
    assert change["our_tokens_after"] - change["our_tokens_before"] == sum(unseen[0].parts)
    assert change["their_tokens_after"] == change["their_tokens_before"]
    assert "The records of the ledger are not the same in both runs." in audit("diff", "1", "2")[1]
    assert audit("diff", "2", "2") == (
        0, "The records of the ledger are the same in both runs.\nThe invoices are the same in both runs.\n", ""
    )  # fmt: skip


def test_a1_an_invoice_that_was_issued_again_shows(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    audit("--save")
    bill = plan.bill(each_call=False)
    bill.change(bill.rows[10], costs=tuple(2 * cost for cost in bill.rows[10].costs))
    write_bill(tmp_path, bill)
    audit("--save")
    code, output, _ = audit("diff", "1", "2", "--output", "csv")
    (change,) = csv.DictReader(io.StringIO(output))
    assert code == 1
    assert float(change["their_usd_after"]) == pytest.approx(2 * float(change["their_usd_before"]))
    assert change["our_usd_after"] == change["our_usd_before"]


def test_the_list_has_both_verdicts(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    audit("--save")
    audit("--save", invoices=("0.json",))
    runs = json.loads(audit("list", "--output", "json")[1])
    assert [(one["tokens"], one["money"]) for one in runs] == [("differs", "differs"), ("differs", "not_compared")]
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        earlier = Runs(ledger).all()[0]
        result = json.loads(bytes(earlier.result))
        del result["verdicts"]
        Runs(ledger).add(msgspec.structs.replace(earlier, result=msgspec.Raw(json.dumps(result).encode()), inputs=None))
    assert json.loads(audit("list", "--output", "json")[1])[2]["tokens"] is None
    table = audit("list")[1]
    assert "not compared" in table
    assert not re.search("True|False|not_compared", table), "a table has words, not values of a program"


def test_a_kept_run_is_made_again_with_the_same_bytes(
    plan: Plan, tmp_path: Path, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(
        "--save", "--settle-days", "366", "--accept", "coverage", "--accept", "price_changed", "--tolerance-usd", "0.5"
    )
    same = (0, "Run 1, made again, has the same bytes.\n")
    assert audit("show", "1", "--verify")[:2] == same
    (tmp_path / "moved").mkdir()
    for name in ("0.json", "1.json", "map.toml"):
        (tmp_path / name).rename(tmp_path / "moved" / f"new-{name}")
    code, output, errors = audit("show", "1", "--verify")
    assert (code, output) == (2, "")
    assert "0.json of run 1 is not there: name where it is by --invoice, and all others with it" in errors
    monkeypatch.chdir(tmp_path / "moved")
    moved = ("--invoice", "new-1.json", "--invoice", "new-0.json", "--map", "new-map.toml")
    assert audit("show", "1", "--verify", *moved)[:2] == same
    assert json.loads(audit("show", "1", "--verify", *moved, "--output", "json")[1]) == {
        "run": 1, "same": True, "differs": []
    }  # fmt: skip
    assert "leave out --output html" in audit("show", "1", "--verify", *moved, "--output", "html")[2]
    assert "--map is for --verify" in audit("show", "1", *moved[4:])[2]
    Path("new-map.toml").write_text(MAP + "# more\n")
    code, output, _ = audit("show", "1", "--verify", *moved)
    assert (code, output.count("The file of --map is not the same")) == (1, 1)


def test_every_option_that_decides_a_result_is_kept(tmp_path: Path) -> None:
    command = STREAMGAUGE.commands["audit"]
    given = []
    for number, option in enumerate(one for one in command.params if isinstance(one, click.Option)):
        flag = option.opts[0]
        if isinstance(option.type, click.Path) and option.name != "config":
            (tmp_path / f"file {number}").write_text(flag)
            given += [f"{flag}={tmp_path / f'file {number}'}"] * (2 if option.multiple else 1)
        elif option.is_flag:
            given.append(flag)
        elif option.name != "config":
            value = option.type.choices[-1] if isinstance(option.type, click.Choice) else str(number)
            given += [f"{flag}={value}"] * (2 if option.multiple else 1)
    args = parse(["audit", *given])
    kept = msgspec.json.decode(msgspec.json.encode(inputs_of(args)), type=Inputs)
    again = parse(["audit", *options_again(kept, parse(["audit", "show", "1"]), 1)])
    assert vars(again) == {**vars(args), "save": False, "output": "table"}
    assert {*kept.files} == {*FILE_OPTIONS}


def test_a_run_that_cannot_be_made_with_the_same_bytes_says_why(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    audit("--save")
    unseen = [one for one in plan.world.calls if not one.seen]
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        ledger.insert([row(call) for call in unseen])
        before = Runs(ledger).get(1)
        Runs(ledger).add(msgspec.structs.replace(before, inputs=None))
    write_bill(tmp_path, plan.bill(each_call=True))
    code, output, _ = audit("show", "1", "--verify")
    assert code == 1
    assert output.startswith("Run 1, made again, has other bytes.\n")
    assert re.search(r"^No invoice has the bytes of \S+0\.json \(SHA-256 [0-9a-f]{64}\)\.$", output, re.MULTILINE)
    assert "The ledger's records of the period are not the same" in output
    code, output, errors = audit("show", "2", "--verify")
    assert (code, output) == (2, "")
    assert "run 2 was kept by an earlier version, without its options and the names of its files" in errors
    assert audit("show", "2")[0] == 0


def test_a_claim_has_the_streams_of_a_cause(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    _, output, _ = audit("--save", "--output", "json")
    named = {
        stream
        for line in json.loads(output)["lines"]
        for one in line["explanations"]
        if one["cause"] == "missing_from_invoice"
        for stream in one["streams"]
    }
    code, output, errors = audit("claim", "1", "--cause", "missing_from_invoice")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert (code, errors) == (0, "")
    assert {one["stream_id"] for one in rows} == named
    assert {one["response_id"] for one in rows} == {call.response_id for call in plan.world.calls if call.id in named}
    assert sum(int(one["output"]) for one in rows) == sum(
        call.parts[3] for call in plan.world.calls if call.id in named
    )
    assert {one["provider"] for one in rows} == {"anthropic"}
    assert all(Decimal(one["our_usd"]) > 0 for one in rows)
    gone = min(named)
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database, database:
        database.execute("delete from records where stream_id = ?", (gone,))
    code, output, errors = audit("claim", "1", "--cause", "missing_from_invoice")
    assert (code, gone in output) == (1, False)
    assert (
        errors
        == f"streamgauge audit claim: the ledger no longer has 1 of the {len(named)} streams that the run names\n"
    )


def test_a_claim_that_the_run_has_no_stream_for(plan: Plan, audit: Audit) -> None:
    audit("--save")
    for options, says in (
        (
            ("--cause", "tier"),
            "run 1 has no stream for --cause tier: it names streams for ",
        ),
        ((), "--cause is missing: run 1 names streams for "),
        (("--cause", "coverage"), "run 1 names no stream for --cause coverage: the ledger has none of what no tap saw"),
        (("--cause", "missing_from_invoice", "--provider", "openai"), "with this provider and model"),
    ):
        code, output, errors = audit("claim", "1", *options)
        assert (code, output) == (2, "")
        assert says in errors


def test_a_claim_needs_the_map_of_the_run(plan: Plan, tmp_path: Path, audit: Audit) -> None:
    audit("--save")
    (tmp_path / "map.toml").write_text(MAP + "# more\n")
    code, _, errors = audit("claim", "1", "--cause", "missing_from_invoice")
    assert code == 2
    assert "is not the map that run 1 was made with: give that one by --map" in errors
    (tmp_path / "first.toml").write_text(MAP)
    assert audit("claim", "1", "--cause", "missing_from_invoice", "--map", str(tmp_path / "first.toml"))[0] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("claim",), "name a kept run"),
        (("show", "7"), "there is no kept run 7: `streamgauge audit list` shows the numbers"),
        (("show",), "name a kept run"),
        (("diff", "1"), "name two runs"),
        (("diff", "1", "2", "3"), "name two runs"),
    ],
)
def test_a_run_that_is_not_there(plan: Plan, audit: Audit, options: tuple[str, ...], says: str) -> None:
    code, output, errors = audit(*options)
    assert (code, output) == (2, "")
    assert says in errors


def test_runs_of_different_periods_are_not_compared(plan: Plan, audit: Audit) -> None:
    audit("--save")
    audit("--save", "--timezone", "Europe/Berlin")
    assert "are for different periods" in audit("diff", "1", "2")[2]


def test_an_early_result_says_that_it_is_preliminary(plan: Plan, audit: Audit) -> None:
    far = audit("--settle-days", "366", "--output", "json", "--save")
    near = audit("--settle-days", "0", "--output", "json")
    if far[2].startswith("streamgauge audit: this result is preliminary"):
        assert [one["finding"] for one in json.loads(far[1])["findings"]] == ["preliminary"]
        assert json.loads(audit("list", "--output", "json")[1])[0]["preliminary"] is True
    assert (near[0], json.loads(near[1])["findings"]) == (1, [])


# --- wrong usage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tolerance-tokens", "-1"), "--tolerance-tokens -1 is negative"),
        (("--tolerance-usd", "NaN"), "--tolerance-usd is not an amount of dollars"),
        (("--tolerance-usd", "a"), "--tolerance-usd is not an amount of dollars"),
        (("--settle-days", "-1"), "--settle-days -1 is not allowed"),
        (("--timezone", "Mars"), "--timezone Mars is not a time zone"),
        (("--map", "/nowhere/map.toml"), "--map /nowhere/map.toml cannot be read"),
        (("--rates", "/nowhere/rates.toml"), "--rates /nowhere/rates.toml cannot be read"),
        (("--invoice", "/nowhere/bill.json"), "/nowhere/bill.json: the file cannot be read"),
    ],
)
def test_wrong_usage_is_one_sentence(plan: Plan, audit: Audit, options: tuple[str, ...], says: str) -> None:
    code, output, errors = audit(*options)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert says in errors


@pytest.mark.parametrize("missing", ["--invoice", "--from", "--to"])
def test_what_is_required(tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--invoice": "a", "--from": FIRST, "--to": END}
    del given[missing]
    assert main(["audit", "--data-dir", str(tmp_path), *(word for pair in given.items() for word in pair)]) == 2
    assert f"{missing} " in capsys.readouterr().err


def test_a_missing_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--data-dir", str(tmp_path), "--invoice", "a", "--from", FIRST, "--to", END]) == 3
    assert "there is no ledger" in capsys.readouterr().err


def test_a_tolerance_lets_an_audit_agree_only_for_what_no_cause_explains(
    tmp_path: Path, audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    world = a_world(EXPORT, 6)
    plan = Plan(world, random.Random(6))
    write_ledger(tmp_path / "ledger.sqlite", world.calls)
    bill = plan.bill(each_call=False)
    found = bill.rows[20]
    bill.change(found, parts=(*found.parts[:3], found.parts[3] + 7))  # tokens without a price, and without input
    write_bill(tmp_path, bill)
    (tmp_path / "map.toml").write_text(MAP)
    code, output, _ = audit("--output", "json")
    result = json.loads(output)
    assert (code, result["causes"], result["unexplained"]["tokens"]["total"]) == (1, [], 7)
    assert audit("--tolerance-tokens", "7")[0] == 0
    assert audit("--tolerance-tokens", "6")[0] == 1


@pytest.fixture
def true_bill(tmp_path: Path) -> Path:
    """A ledger, and a bill in two files that agrees with it. Returns the file of the ledger."""
    made = Plan(a_world(EXPORT, 5), random.Random(5))
    write_ledger(tmp_path / "ledger.sqlite", made.world.calls)
    write_bill(tmp_path, made.bill(each_call=False))
    (tmp_path / "map.toml").write_text(MAP)
    return tmp_path / "ledger.sqlite"


def change_one(ledger: Path, change: Callable[[bytes], bytes], columns: str = "") -> str:
    """Change the bytes of a record within the period, and columns of its row. Returns its stream id."""
    with contextlib.closing(sqlite3.connect(ledger)) as database, database:
        chosen = (
            "select stream_id, record from records where day = ? and cost_usd_of(record) order by stream_id limit 1"
        )
        database.create_function("cost_usd_of", 1, lambda record: json.loads(record)["cost"] is not None)
        name, record = database.execute(chosen, (later(FIRST, 1),)).fetchone()
        database.execute(f"update records set record = ?{columns} where stream_id = ?", (change(record), name))
    return str(name)


_NO_COST = ", cost_input = null, cost_output = null, price_source = null"


def test_billed_money_without_a_cost_beside_it_does_not_agree(true_bill: Path, audit: Audit) -> None:
    code, output, _ = audit()
    assert (code, "the bill agrees with the ledger" in " ".join(output.split())) == (0, True), output
    change_one(true_bill, lambda record: record[: record.rindex(b',"cost":')] + b',"cost":null}', _NO_COST)
    code, output, _ = audit("--save")
    assert (code, "the bill does not agree with the ledger" in " ".join(output.split())) == (1, True), output
    assert re.search(r"Unexplained money in the lines whose money is compared: 0\.00 USD", output), output
    assert re.search(
        r"Money is not compared: [0-9.]+ USD are billed for 1 line with streams that have no\s+cost\.", output
    )
    assert re.search(r"^  not compared, USD +[0-9.]+$", output, re.MULTILINE), "so that the totals add up"
    assert re.search(r"^money_not_compared +anthropic +\S+ +1 ", output, re.MULTILINE), output
    with SqliteLedger(true_bill) as ledger:
        (run,) = Runs(ledger).all()
    samples = {sample.name: sample.value for sample in _audit(run, msgspec.json.decode(run.result, type=Result), 0)}
    assert samples["streamgauge_audit_agrees"] == 0
    assert "streamgauge_audit_unexplained_usd" not in samples


def test_a_run_that_an_earlier_version_kept_as_agreeing_does_not_agree_if_money_was_not_compared() -> None:
    known, unknown = Amount(None, "1.5"), Amount(None, None)
    line = Line("2026-11-01", "nimbus", "m", None, None, unknown, known, unknown, [], unknown)
    result = Result(
        Days("2026-11-01", "2026-12-01", "UTC"), True, Tolerance(0, "0.01"), {}, [], [line], Amount(None, "0"), []
    )
    run = Run(
        "2026-12-01T00:00:00Z", "2026-11-01", "2026-12-01", "UTC", True, False, "", [], msgspec.Raw(encode(result))
    )
    samples = {sample.name: sample.value for sample in _audit(run, result, 0)}
    assert samples["streamgauge_audit_agrees"] == 0
    assert "streamgauge_audit_unexplained_usd" not in samples
    assert _shown_audit(run, result).agrees is False


def test_a_stored_record_that_is_none_is_named_and_its_columns_count(true_bill: Path, audit: Audit) -> None:
    forged = change_one(true_bill, lambda record: record.replace(b'"timing":{', b'"timing":5,"other":{'))
    code, output, _ = audit("--output", "json")
    (one,) = (one for one in json.loads(output)["findings"] if one["finding"] == "record_unreadable")
    assert (code, one["streams"]) == (0, [forged])


def test_the_time_of_a_stored_record_may_have_any_size(true_bill: Path, audit: Audit) -> None:
    change_one(true_bill, lambda record: re.sub(rb'"end_s":[0-9.]+', b'"end_s":1e308', record))
    assert audit("--timezone", "Europe/Berlin", invoices=("0.json",))[0] == 1  # a difference: streams are read


def test_a_masked_response_id_is_no_id(true_bill: Path) -> None:
    change_one(true_bill, lambda record: re.sub(rb'"response_id":"[^"]*"', b'"response_id":"masked"', record))
    period = Period.of(FIRST, END, "UTC")
    with SqliteLedger(true_bill) as ledger:
        streams = list(Ours(ledger, period, Mapping()).streams(lambda _: True))
    assert "masked" not in {stream.response_id for stream in streams}
