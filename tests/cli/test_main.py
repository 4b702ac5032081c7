"""The command line as a user has it: help, versions, wrong usage, and resources that cannot be used. Each error is one
sentence.
"""

import contextlib
import json
import os
import re
import shlex
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from streamgauge import __version__
from streamgauge.cli.commands import COMMANDS, GROUPS, STREAMGAUGE, parse
from streamgauge.cli.main import main
from streamgauge.errors import DONE, FOUND, UNAVAILABLE, USAGE
from tests.each import each
from tests.running import command, here, start, start_up, wait_for

pytestmark = pytest.mark.slow

# A port on which no process listens.
UNREACHABLE = "127.0.0.1:1"
ANYWHERE = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
UP = ("up", "--upstream", f"http://{UNREACHABLE}")


# Everything with its own help: the program, groups and commands; with its examples.
HELPED = {"": STREAMGAUGE.examples, **{path: one.examples for path, one in (GROUPS | COMMANDS).items()}}


Ask = Callable[..., "subprocess.CompletedProcess[str]"]


def refused(
    code: int, says: str, *arguments: str, environment: dict[str, str] | None = None, ask: Ask = command
) -> str:
    """Asserts that a command ends with this exit code and one sentence with these words; nothing on stdout, no
    traceback.
    """
    done = ask(*arguments, environment=environment or {})
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == ""
    return without_time(done.stderr)


def without_time(output: str) -> str:
    """What a command wrote last, if its log has times: as other commands write it."""
    if output.startswith("{"):
        return f"streamgauge {json.loads(output)['message']}\n"
    return re.sub(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ streamgauge: ", "streamgauge ", output)


def refused_in_one_sentence(code: int, says: str, *arguments: str, ask: Ask = command) -> None:
    output = refused(code, says, *arguments, ask=ask)
    assert output.startswith(f"streamgauge {arguments[0]}: ")
    assert len(output.splitlines()) == 1


@pytest.fixture
def taken() -> Iterator[str]:
    """An address on which a socket listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def junk(tmp_path: Path) -> Path:
    """A file of no known format."""
    path = tmp_path / "junk"
    path.write_bytes(bytes(range(256)) * 80)
    return path


# --- help -----------------------------------------------------------------------------------------------------------


@each(HELPED)
def test_every_command_has_help_with_examples(name: str) -> None:
    result = here(*name.split(), "--help")
    assert result.returncode == DONE
    assert "example" in result.stdout
    assert f"streamgauge {name}".strip() in result.stdout.partition("example")[2]
    assert result.stderr == ""


@each(HELPED)
def test_examples_in_help_parse(name: str) -> None:
    lines = (line.strip() for line in HELPED[name].splitlines())
    examples = [line for line in lines if line.startswith("streamgauge ")]
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" | ")[0].partition(" > ")[0].partition("   ")[0])
        assert parse(words[1:]).module


def test_version_and_help_as_processes() -> None:
    assert command("--help").stdout.startswith("Usage: streamgauge")
    assert command("--version").stdout == f"streamgauge {__version__}\n"


# --- slips ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("tops",), "No such command 'tops': choose from up, tap, "),
        (("tops",), "did you mean top?"),
        (("up", "--upstraem", "x"), "No such option: --upstraem; did you mean --upstream?"),
        (("up", "--up", "http://x"), "No such option: --up"),
        (("up", "--kafka", "b:1"), "No such option: --kafka; it is an option of `tap`, `tap packets`, "),
        (("up", "--zzz"), "No such option: --zzz; see `streamgauge up --help`"),
        (("worker", "--kafka-password", "x"), "No such option: --kafka-password; did you mean --kafka-password-file?"),
        (("--data-dir", "x", "up"), "--data-dir; write it after the command, as in `streamgauge up --data-dir`"),
        (("up", "x"), "No such command 'x': choose from packets, envoy, or leave it out"),
        (
            ("audit", "--invoice", "x", __file__),
            f"{__file__} is a file without an option: write the option before each file",
        ),
        (("up", "--data-dir", "x", "packets"), "Write --data-dir after `up packets`, or leave out `packets`"),
        (("up", "--agent", "packets"), "--agent is no option of `up packets`: leave out --agent or `packets`"),
        (("audit", "--invoice", "x", "list"), "--invoice is no option of `audit list`: leave out --invoice or `list`"),
        (("worker", "x"), "Unexpected argument 'x': leave it out, or see `streamgauge worker --help`"),
        (("up", "--config="), "Invalid value for '--config': the path is empty"),
        (("replay", ""), "Invalid value for 'FILE|DIR': the path is empty"),
        (("deadletter", "show"), "Missing argument 'NUMBER'"),
        (("replay", "x", "--dialect", "klingon"), "Invalid value for '--dialect': 'klingon' is not one of 'auto', "),
        (("replay", "x", "--output", "csv"), "Invalid value for '--output': 'csv' is not one of 'table', 'json'"),
        (("ledger", "query", "--limit", "some"), "Invalid value for '--limit': 'some' is not a valid integer"),
        (
            ("ledger", "query", "--newest=yes"),
            "streamgauge ledger query: error: Option '--newest' does not take a value",
        ),
        (("topics", "delete"), "No such command 'delete': choose from create, describe"),
    ],
)
def test_wrong_usage_prints_the_usage(arguments: tuple[str, ...], says: str) -> None:
    output = refused(USAGE, says, *arguments, ask=here)
    assert output.startswith("Usage: streamgauge")
    assert len(output.splitlines()) == 2


def test_a_path_that_is_not_utf_8_is_printed_with_escapes() -> None:
    done = command("config", "check", os.fsdecode(b"/nowhere/\xff"))
    assert (done.returncode, done.stderr) == (USAGE, "")
    assert done.stdout == "the settings file /nowhere/\\udcff does not exist\n"


@pytest.mark.parametrize(("words", "says"), [(("show",), "name a kept run"), (("diff", "1"), "name two runs")])
def test_a_missing_number_of_a_run_is_wrong_usage_without_a_ledger_too(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    refused(USAGE, f"streamgauge audit {words[0]}: {says}", "audit", *words, "--data-dir", str(tmp_path), ask=here)


NEEDED = {"deadletter show": ["1"]}


@each(product(["--no-such-option", "--no-such-option=x"], COMMANDS))
def test_an_unknown_option_prints_the_usage_of_its_command(
    case: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    unknown, name = case
    assert main([*name.split(), *NEEDED.get(name, []), unknown]) == USAGE
    usage, sentence = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"Usage: streamgauge {name} [OPTIONS]")
    assert sentence.startswith(f"streamgauge {name}: error: No such option: --no-such-option")


@each(
    [
        (("tap", "--upstream", "http://x"), "--kafka HOST:PORT is missing"),
        (("tap",), "--kafka HOST:PORT is missing"),
        (("worker",), "--kafka HOST:PORT is missing"),
        (("replay",), "nothing to replay: name files or directories, or a broker with --kafka"),
        (("topics", "create"), "--kafka HOST:PORT is missing"),
        (("topics", "describe"), "--kafka HOST:PORT is missing"),
        (("topics", "create", "--kafka", UNREACHABLE, "--partitions", "3"), "power of two"),
        (("topics", "create", "--kafka", UNREACHABLE, "--topic-prefix", "a/b"), "'a/b' is not a topic prefix"),
        (("up",), "--upstream NAME=URL is missing"),
        (("tap", "--kafka", UNREACHABLE), "--upstream NAME=URL is missing"),
        (("up", "--upstream", "openai"), "write NAME=URL"),
        (("up", "--capture", "fulll"), "--capture (STREAMGAUGE_CAPTURE): give masked or full; did you mean full?"),
        (("up", "--upstream", "a=http://x", "--upstream", "a=http://y"), "two upstreams have the same name"),
        ((*UP, "--listen", "8080"), "write HOST:PORT"),
        ((*UP, "--config", "/nowhere/settings.toml"), "the settings file /nowhere/settings.toml does not exist"),
        ((*UP, "--tenants", "/nowhere/tenants.toml"), "--tenants /nowhere/tenants.toml cannot be read"),
        ((*UP, *ANYWHERE, "--ledger", "mysql://user:secret@db/x"), "sqlite:///FILE"),
        (("ledger", "query", "--ledger", "mysql://user:secret@db/x"), "sqlite:///FILE or postgresql://HOST/DATABASE"),
        (("ledger", "query", "--ledger", "postgresql://user:x@secret@db/x"), "write an @ of a password as %40"),
        (
            ("ledger", "query", "--ledger", "postgresql://user:secret"),
            "no number: write postgresql://HOST:PORT/DATABASE, ",
        ),
        ((*UP, *ANYWHERE, "--ledger", "sqlite:///a", "--ledger", "sqlite:///b"), "records are stored in one ledger"),
        ((*UP, *ANYWHERE, "--prices", "/nowhere/prices.toml"), "the price file /nowhere/prices.toml cannot be read"),
        (("ledger", "query", "--ledger", "sqlite://"), "sqlite:///FILE"),
        (("ledger", "query", "--ledger", "ledger.sqlite"), "sqlite:///FILE"),
        (("ledger", "query", "--limit", "-1"), "--limit"),
        (("ledger", "query", "--by", "colour"), "--by colour is not a key: use one or more of day, model"),
        (("ledger", "query", "--by", ""), "--by '' is not a key"),
        (("ledger", "query", "--by", "day,day"), "--by day,day contains a key twice"),
        (
            ("ledger", "query", "--since", "yesterday"),
            "--since yesterday is not a time: write a date of --timezone such as 2026-",
        ),
        (
            ("ledger", "query", "--until", "2026-11-31"),
            "--until 2026-11-31 is not a time: write a date of --timezone such as",
        ),
        (
            ("ledger", "query", "--since", "2026-11-02", "--until", "2026-11-01"),
            "--until 2026-11-01 must be later than --since 2026-11-02",
        ),
        (
            ("ledger", "query", "--where", "colour=red"),
            "--where colour=...: colour is not a key: use one of day, model",
        ),
        (("ledger", "query", "--where", "tenant"), "--where tenant has no value: write KEY=VALUE"),
        (("ledger", "query", "--where", "attempt=two"), "--where attempt=...: the value must be a whole number"),
        (("audit",), "--invoice FILE is missing"),
        (("replay", "/nowhere/recording.sse"), "there is no file /nowhere/recording.sse"),
        (("up", "--agent", "--upstream", "a=http://x"), "--agent and --upstream exclude each other"),
        (
            ("tap", "--agent", "--upstream", "a=http://x", "--kafka", UNREACHABLE),
            "--agent and --upstream exclude each other: give one of them",
        ),
        (
            (*UP, "--tls-certificate", "/nowhere/tls.pem"),
            "--tls-certificate: the certificate /nowhere/tls.pem cannot be",
        ),
        (
            (*UP, "--upstream-ca", "/nowhere/ca.pem"),
            "--upstream-ca, --upstream-certificate: the CA file /nowhere/ca",
        ),
        (
            (*UP, "--upstream-certificate", "/nowhere/c.pem"),
            "the certificate /nowhere/c.pem cannot be used: No such file",
        ),
    ]
)
def test_wrong_usage_is_one_sentence(case: tuple[tuple[str, ...], str], tmp_path: Path) -> None:
    arguments, says = case
    output = refused(USAGE, says, *arguments, environment={"STREAMGAUGE_DATA_DIR": str(tmp_path / "data")}, ask=here)
    assert len(output.splitlines()) == 1
    assert output.startswith(f"streamgauge {arguments[0]}: ")
    assert "secret" not in output


PASSWORD = "CANARY"
WITH_PASSWORD = (
    ("http://user:CANARY@h",),  # a command
    ("up", "http://user:CANARY@h"),
    ("up", "--upstraem", "CANARY"),
    ("up", "--upstraem=CANARY"),
    ("topics", "describe", "--kafka", UNREACHABLE, "--kafka-password", "CANARY"),
    ("topics", "describe", "--kafka", UNREACHABLE, "--kafka-password=CANARY"),
    ("up", "--capture", "http://user:CANARY@h"),
    ("up", "--upstream", "http://user:CANARY/pw@h"),
    ("up", "--upstream", "a=http:/user:CANARY@h"),
    ("tap", "--upstream", "http://x", "--kafka", "user:CANARY@h:9092"),
    ("up", "--config", "http://user:CANARY@h/settings.toml"),
    (*UP, "--tenants", "user:CANARY@h"),
    (*UP, "--tenants", "http://h/?key=CANARY"),
    (*UP, "--tls-certificate", "-----BEGIN CERTIFICATE-----\nCANARY"),
    ("ledger", "query", "--limit", "user:CANARY@h"),
    ("ledger", "query", "--by", "user:CANARY@h"),
    ("ledger", "query", "--since", "user:CANARY@h"),
    ("ledger", "query", "--until", "http://h/?key=CANARY"),
    ("ledger", "query", "--where", "user:CANARY@h"),
    ("ledger", "query", "--where", "user:CANARY@h=x"),
    ("ledger", "query", "--where", "tenants=CANARY"),
    ("ledger", "query", "--where", "attempt=CANARY"),
    ("ledger", "query", "--ledger", "postgresql://user:CANARY@h/x"),
    ("ledger", "query", "--ledger", "postgresql://user:CANARY@127.0.0.1:1/x"),
    ("ledger", "query", "--ledger", "postgresql://user:x@CANARY@127.0.0.1:1/x"),
    ("ledger", "query", "--ledger", "sqlite://user:CANARY@h/x"),
    ("ledger", "query", "--ledger", "sqlite:///postgresql://user:CANARY@h/x"),
    ("ledger", "query", "--data-dir", "user:CANARY@h"),
    ("replay", "http://user:CANARY@h/recording.sse"),
    ("replay", "http://h/recording.sse?key=CANARY"),
    ("topics", "describe", "--kafka", UNREACHABLE, "--kafka-security", "SSL", "--kafka-ca", "user:CANARY@h"),
    ("topics", "describe", "--kafka", UNREACHABLE, "--kafka-security", "SASL_SSL", "--kafka-username", "u",
     "--kafka-password-file", "CANARY"),
    ("tap", "packets", "--kafka", UNREACHABLE, "--pcap", "user:CANARY@h"),
)  # fmt: skip


@each(WITH_PASSWORD, " ".join)
def test_no_error_quotes_a_password(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At each place where a user may give a URL with a password by mistake, and where a password may be given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMGAUGE_DATA_DIR", str(tmp_path / "data"))
    assert main(arguments) in (USAGE, UNAVAILABLE)
    output = capsys.readouterr()
    assert output.err
    assert PASSWORD not in output.out + output.err


def test_invalid_settings_name_their_source(tmp_path: Path) -> None:
    output = refused(USAGE, "--workers (STREAMGAUGE_WORKERS): ", *UP, environment={"STREAMGAUGE_WORKERS": "many"})
    assert len(output.splitlines()) == 1


def test_a_settings_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("listen = 1")
    refused(USAGE, "'1' is not an address", *UP, environment={"STREAMGAUGE_CONFIG": str(tmp_path / "settings.toml")})


def test_invalid_tenants(tmp_path: Path) -> None:
    (tmp_path / "tenants.toml").write_text("a = 1")
    places = ("--tenants", str(tmp_path / "tenants.toml"), "--data-dir", str(tmp_path / "data"))
    refused_in_one_sentence(USAGE, "credential_id =", *UP, *ANYWHERE, *places)


# --- services that are unavailable ----------------------------------------------------------------------------------


def test_a_listen_address_in_use(taken: str, tmp_path: Path) -> None:
    places = ("--listen", taken, "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path))
    refused_in_one_sentence(UNAVAILABLE, f"{taken} is in use: choose another with --listen", *UP, *places)


def test_an_admin_address_in_use(taken: str, tmp_path: Path) -> None:
    places = ("--admin", taken, "--data-dir", str(tmp_path))
    says = f"{taken} is in use: choose another with --admin"
    refused_in_one_sentence(UNAVAILABLE, says, *UP, *places, "--listen", "127.0.0.1:0")
    refused_in_one_sentence(UNAVAILABLE, says, "worker", "--kafka", UNREACHABLE, *places)


def test_an_address_of_another_host(tmp_path: Path) -> None:
    places = ("--listen", "192.0.2.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path))
    refused_in_one_sentence(UNAVAILABLE, "192.0.2.1:0 cannot be used", *UP, *places)


def test_t9_a_data_directory_in_use(tmp_path: Path) -> None:
    """A second command on it is refused with one sentence, and the first one is not disturbed."""
    agent = ("up", "--agent", *ANYWHERE[2:])
    tap = ("tap", "--kafka", UNREACHABLE, "--upstream", f"http://{UNREACHABLE}", *ANYWHERE)
    with start_up(f"http://{UNREACHABLE}", tmp_path / "data") as up:
        says = f"another process uses the data directory {up.data_dir}"
        sockets = (up.data_dir / "run").readlink()
        for second in ((*UP, *ANYWHERE), tap, agent):
            refused_in_one_sentence(UNAVAILABLE, says, *second, "--data-dir", str(up.data_dir))
            assert up.get("/health/ready")[0] == 200
        assert (up.data_dir / "run").readlink() == sockets
        assert (sockets / "recorder.sock").exists()
        assert up.stop() == DONE


@pytest.mark.parametrize("name", ["up", "worker", "tap"])
def test_a_data_directory_that_is_a_file_or_cannot_be_created(name: str, junk: Path) -> None:
    given = {
        "up": (*UP, *ANYWHERE),
        "tap": ("tap", "--upstream", f"http://{UNREACHABLE}", *ANYWHERE, "--kafka", UNREACHABLE),
        "worker": ("worker", "--kafka", UNREACHABLE, "--admin", "127.0.0.1:0"),
    }[name]
    for place in (junk, junk / "data", Path("/proc/streamgauge")):
        says = f"the data directory {place} cannot be used"
        refused_in_one_sentence(UNAVAILABLE, says, *given, "--data-dir", str(place))


def test_a_data_directory_with_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "counters").mkdir()
    says = f"the data directory {tmp_path} cannot be used (Is a directory)"
    refused_in_one_sentence(UNAVAILABLE, says, *UP, *ANYWHERE, "--data-dir", str(tmp_path))


@pytest.mark.parametrize("key", [b"", b"short"])
def test_an_invalid_key(key: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "key").chmod(0o600)
    refused_in_one_sentence(UNAVAILABLE, "does not have 32 bytes", *UP, *ANYWHERE, "--data-dir", str(tmp_path))


def test_s7_a_key_that_others_may_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o644)
    says = f"every user of this host can read or change the key {tmp_path}/key (mode 0644): chmod 600 "
    refused_in_one_sentence(UNAVAILABLE, says, *UP, *ANYWHERE, "--data-dir", str(tmp_path))


@pytest.mark.parametrize("name", ["up", "tap", "worker"])
def test_s7_a_data_directory_that_every_user_may_change(name: str, tmp_path: Path) -> None:
    given = {
        "up": (*UP, *ANYWHERE),
        "tap": ("tap", "--upstream", f"http://{UNREACHABLE}", *ANYWHERE, "--kafka", UNREACHABLE),
        "worker": ("worker", "--kafka", UNREACHABLE, "--admin", "127.0.0.1:0"),
    }[name]
    place = tmp_path / "data"
    place.mkdir()
    place.chmod(0o777)
    says = f"every user of this host can change the data directory {place} (mode 0777)"
    output = refused(UNAVAILABLE, says, *given, "--data-dir", str(place))
    assert len(output.splitlines()) == 1
    assert output.endswith(f": chmod 700 {place}\n")
    assert list(place.iterdir()) == []


def test_a_data_directory_that_others_may_add_to_is_used_with_a_warning(tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    place.chmod(0o1777)
    with start_up(f"http://{UNREACHABLE}", place) as up:
        warning, *_ = up.log.splitlines()
        said = f"streamgauge: every user of this host can change the data directory {place} (mode 1777)"
        assert warning.partition(" ")[2].startswith(said)
        assert warning.endswith("name a directory inside it with --data-dir, which is then created for this user only")
        assert up.stop() == DONE


def test_temporary_files_in_too_long_a_path(tmp_path: Path) -> None:
    place = tmp_path / ("x" * 100)
    place.mkdir()
    refused(UNAVAILABLE, "set TMPDIR", *UP, *ANYWHERE, "--data-dir", str(tmp_path), environment={"TMPDIR": str(place)})
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("action", ["create", "describe"])
def test_a_broker_that_is_not_reachable(action: str) -> None:
    expected = f"no Kafka broker answers at {UNREACHABLE}"
    refused_in_one_sentence(UNAVAILABLE, expected, "topics", action, "--kafka", UNREACHABLE)


def test_a_missing_ledger_is_not_created(tmp_path: Path) -> None:
    place = tmp_path / "data"
    for given in (("--data-dir", str(place)), ("--ledger", f"sqlite:///{place}/x.sqlite")):
        refused_in_one_sentence(UNAVAILABLE, "there is no ledger", "ledger", "query", *given, ask=here)
    assert not place.exists()


def test_no_program_that_a_test_starts_uses_the_users_own_data_directory() -> None:
    ledger = f"{os.environ['XDG_STATE_HOME']}/streamgauge/ledger.sqlite"
    refused_in_one_sentence(UNAVAILABLE, f"there is no ledger {ledger}: ", "ledger", "query")


def test_a_database_server_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    place = ("--ledger", "postgresql://user:secret@127.0.0.1:1/records")
    refused_in_one_sentence(UNAVAILABLE, "postgresql://127.0.0.1:1/records cannot be opened", "ledger", "query", *place)
    given = (*UP, *ANYWHERE, *place, "--data-dir", str(tmp_path))
    refused_in_one_sentence(UNAVAILABLE, "check the database and the URL, or choose another with --ledger", *given)


def test_a_file_that_is_not_a_ledger(junk: Path, tmp_path: Path) -> None:
    place = ("--ledger", f"sqlite:///{junk}")
    before = junk.read_bytes()
    refused_in_one_sentence(UNAVAILABLE, "check that it is a ledger", "ledger", "query", *place, ask=here)
    for given in ((*UP, *ANYWHERE), ("worker", "--kafka", UNREACHABLE, "--admin", "127.0.0.1:0")):
        refused_in_one_sentence(
            UNAVAILABLE, "choose another with --ledger", *given, *place, "--data-dir", str(tmp_path)
        )
    assert junk.read_bytes() == before


def test_a_database_of_another_program_is_not_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE records(a)")
        database.commit()
    place = ("--ledger", f"sqlite:///{path}")
    refused_in_one_sentence(UNAVAILABLE, "check that it is a ledger", "ledger", "query", *place, ask=here)


def test_a_state_that_cannot_be_read(junk: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.sqlite"
    junk.rename(state)
    refused_in_one_sentence(UNAVAILABLE, f"{state} cannot be used", *UP, *ANYWHERE, "--data-dir", str(tmp_path))


def test_a_state_with_other_content(tmp_path: Path) -> None:
    state = tmp_path / "state.sqlite"
    with contextlib.closing(sqlite3.connect(state)) as database:
        database.execute("CREATE TABLE state(key INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        database.execute("INSERT INTO state VALUES (1, x'00')")
        database.commit()
    refused_in_one_sentence(UNAVAILABLE, f"{state} cannot be used", *UP, *ANYWHERE, "--data-dir", str(tmp_path))


def test_an_unreadable_spool_does_not_stop_the_command(junk: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    junk.rename(data_dir / "spool.sqlite")
    with start_up(f"http://{UNREACHABLE}", data_dir) as up:
        assert up.stop() == DONE
    assert (data_dir / "spool.sqlite.damaged-1").exists()


# --- recordings -----------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_a_recording_has_no_record(junk: Path) -> None:
    says = f"{junk}: it is no recording: it has no line of server-sent events"
    refused_in_one_sentence(FOUND, says, "replay", str(junk), "--output", "jsonl", ask=here)


def test_f13_no_directory_is_created_for_a_ledger(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/slip/ledger.sqlite"
    for name in (("worker", "--kafka", UNREACHABLE), UP):
        says = f"the ledger {tmp_path}/slip/ledger.sqlite cannot be opened: No such file or directory: create its directory"
        refused(UNAVAILABLE, says, *name, *ANYWHERE[2:], "--ledger", ledger, "--data-dir", str(tmp_path / "data"))
    assert not (tmp_path / "slip").exists()


def test_an_agent_ignores_upstreams_of_the_environment_and_logs_it(tmp_path: Path) -> None:
    flags = ["--agent", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with start("up", flags, tmp_path / "data", {"STREAMGAUGE_UPSTREAM": "a=http://x"}) as up:
        wait_for(lambda: "metrics at" in up.log, "start")
        assert "the upstreams from the environment or the settings file are ignored" in up.log
        assert up.stop() == DONE


def test_a_directory_without_recordings(tmp_path: Path) -> None:
    says = f"the directory {tmp_path} contains no recording"
    refused_in_one_sentence(USAGE, says, "replay", str(tmp_path), ask=here)


def test_a_recording_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "socket.sse"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        refused_in_one_sentence(UNAVAILABLE, f"{path} cannot be read", "replay", str(path), ask=here)


def test_without_a_command_it_shows_the_help() -> None:
    for words, shown in (((), "COMMAND"), (("ledger",), "COMMAND")):
        done = here(*words)
        assert (done.returncode, done.stderr) == (USAGE, "")
        assert done.stdout == here(*words, "--help").stdout
        assert shown in done.stdout


def test_a_port_above_the_last_one_is_said_to_be_that() -> None:
    done = here(*UP, "--listen", "127.0.0.1:80850")
    assert done.returncode == USAGE
    assert "its port is above 65535" in done.stderr
