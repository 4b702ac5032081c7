"""Each invalid setting is one sentence that names its source: the flag, the variable or the file."""

import re
from pathlib import Path

import pytest

from streamgauge.errors import UsageFault
from streamgauge.settings.declarations import SETTINGS
from streamgauge.settings.sources import OTHER_VARIABLES, faults_of_file, load

PACKAGE = Path(__file__).parents[2] / "pipeline" / "streamgauge"

FILES: dict[str, tuple[bytes, str]] = {
    "no TOML": (b"listen = ", "the settings file FILE is not valid TOML: "),
    "no UTF-8": (b'kafka = "\xff\xfe"', "the settings file FILE is not valid TOML: "),
    "no such setting": (b"colour = 1", "colour in the settings file FILE: there is no such setting$"),
    "a table": (
        b"[tap]\nworkers = 2",
        r"tap in the settings file FILE: the file has no tables: write its settings without the line \[tap\]$",
    ),
    "a flag's name": (
        b'data-dir = "x"',
        "data-dir in the settings file FILE: there is no such setting; did you mean data_dir",
    ),
    "a table for upstreams": (
        b'[upstream]\nopenai = "https://x"',
        "upstream in the settings file FILE: write NAME=URL",
    ),
    "a number for an address": (b"listen = 8080", "listen in the settings file FILE: '8080' is not an address"),
    "a list for a path": (b"data_dir = [1]", "data_dir in the settings file FILE: "),
    "a word for a number": (b'workers = "some"', "workers in the settings file FILE: "),
}


@pytest.mark.parametrize("case", FILES)
def test_f13_an_invalid_file_is_one_sentence_that_names_it(case: str, tmp_path: Path) -> None:
    content, says = FILES[case]
    file = tmp_path / "settings.toml"
    file.write_bytes(content)
    with pytest.raises(UsageFault, match=says.replace("FILE", re.escape(str(file)))) as refused:
        load({}, file)
    assert "\n" not in str(refused.value)


def test_a_flag_or_a_variable_before_the_file_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("workers = 2\n")
    with pytest.raises(UsageFault, match=r"^--workers \(STREAMGAUGE_WORKERS\): "):
        load({"workers": "some"}, file)
    monkeypatch.setenv("STREAMGAUGE_WORKERS", "some")
    with pytest.raises(UsageFault, match=r"^--workers \(STREAMGAUGE_WORKERS\): "):
        load({}, file)


def test_a_missing_file_or_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=f"the settings file {tmp_path}/none.toml does not exist"):
        load({}, tmp_path / "none.toml")
    with pytest.raises(UsageFault, match=f"the settings file {tmp_path} is not a regular file"):
        load({}, tmp_path)


# --- unknown names, and the nearest right one ------------------------------------------------------------------------

UNKNOWN_VARIABLES = {
    "STREAMGAUGE_SPOOL_BYTE": "; did you mean STREAMGAUGE_SPOOL_BYTES?",
    "STREAMGAUGE_KAFKA_PASSWORDFILE": "; did you mean STREAMGAUGE_KAFKA_PASSWORD_FILE?",
    "streamgauge_lisen": "; did you mean STREAMGAUGE_LISTEN?",
    "STREAMGAUGE_COLOUR": "",
    "STREAMGAUGE_PORT": "",
}


@pytest.mark.parametrize("name", UNKNOWN_VARIABLES)
def test_an_unknown_variable_is_refused_with_the_nearest_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "CANARY")
    with pytest.raises(UsageFault) as refused:
        load({})
    says = f"{name} in the environment: there is no such setting{UNKNOWN_VARIABLES[name]}"
    assert str(refused.value) == says


@pytest.mark.parametrize(
    "name", ["streamgauge_listen", "STREAMGAUGE_listen", "streamgauge_admin_token", "streamgauge_config"]
)
def test_a_variable_in_another_case_is_refused_with_the_right_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a secret was ignored: the admin port had no token."""
    monkeypatch.setenv(name, "CANARY")
    with pytest.raises(UsageFault) as refused:
        load({})
    says = f"{name} in the environment: the names of variables are in upper case: write {name.upper()}"
    assert str(refused.value) == says


def test_variables_that_are_no_settings_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "STREAMGAUGE_DEBUG": "1",
        "STREAMGAUGE_TAP_NAME": "app",
        "STREAMGAUGE_KAFKA_PASSWORD": "p",
        # As Kubernetes sets them next to services named streamgauge, streamgauge-worker and streamgauge-tap.
        "STREAMGAUGE_SERVICE_HOST": "10.0.0.1",
        "STREAMGAUGE_WORKER_SERVICE_PORT": "9465",
        "STREAMGAUGE_WORKER_SERVICE_PORT_METRICS": "9465",
        "STREAMGAUGE_PORT": "tcp://10.0.0.1:9464",
        "STREAMGAUGE_TAP_PORT": "tcp://10.0.0.1:8080",
        "STREAMGAUGE_TAP_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "STREAMGAUGE_TAP_PORT_8080_TCP_ADDR": "10.0.0.1",
        "STREAMGAUGE_EMPTY": "",
    }.items():
        monkeypatch.setenv(name, value)
    assert load({}).given == {}


def test_every_variable_that_the_program_reads_is_known() -> None:
    known = {setting.variable for setting in SETTINGS.values()} | OTHER_VARIABLES
    read = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"[\"'](STREAMGAUGE_[A-Z_]*[A-Z])[\"']", path.read_text())
    }
    assert {"STREAMGAUGE_CONFIG", "STREAMGAUGE_DATA_DIR", "STREAMGAUGE_TAP_NAME"} <= read <= known


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"capture": "mask"}, "give masked or full; did you mean masked?"),
        ({"kafka_mechanism": "scram-sha-255"}, "did you mean SCRAM-SHA-256?"),
        ({"spool_policy": "oldest"}, "did you mean drop-oldest?"),
        ({"strip_attributes": "ture"}, "give true or false; did you mean true?"),
        ({"otel_names": "zzz"}, "or latest$"),
    ],
)
def test_a_wrong_word_is_refused_with_the_nearest_right_one(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageFault, match=says.replace("?", r"\?")):
        load(given)


# --- settings of other commands --------------------------------------------------------------------------------------


def test_what_no_command_takes_has_no_effect_and_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('workers = 3\nledger_age = 86400\nspool_policy = "drop-oldest"\n')
    monkeypatch.setenv("STREAMGAUGE_LEDGER", "postgresql://prod/ledger")
    every = load({}, file)
    assert (every.workers, every.ledger_age, every.ledger) == (3, 86400, ("postgresql://prod/ledger",))
    up = load({}, file, ["up"])
    assert (up.workers, up.ledger_age, up.spool_policy) == (1, 86400, "drop-oldest")
    assert up.given.keys() == {"ledger_age", "spool_policy", "ledger"}
    assert load({}, file, ["ledger import"]).given == {"ledger": "STREAMGAUGE_LEDGER"}
    demo = load({}, file, ["demo"])
    assert (demo.ledger, demo.ledger_age, demo.given) == ((), None, {})
    assert load({}, file, ["doctor", "up", "tap"]).given == every.given, "those of several commands"


def test_a_malformed_value_of_another_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_WORKERS", "some")
    with pytest.raises(UsageFault, match="--workers"):
        load({}, commands=["up"])


# --- secrets from files ----------------------------------------------------------------------------------------------

URL = "postgresql://user:CANARY@db/ledger"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "ledger-url"
    file.write_text(f"{URL}\n")
    return file


def test_a_secret_is_read_from_its_file_without_the_line_break(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_LEDGER_FILE", str(secret))
    settings = load({}, commands=["worker"])
    assert settings.ledger == (URL,)
    assert settings.given["ledger"] == f"STREAMGAUGE_LEDGER_FILE: {secret}"
    assert "CANARY" not in repr(settings)
    assert load({}, commands=["tap"]).ledger == (), "no other command reads it"


def test_a_file_of_a_secret_counts_in_the_place_where_it_is_given(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'ledger_file = "{secret}"\n')
    assert load({}, file, ["up"]).ledger == (URL,)
    monkeypatch.setenv("STREAMGAUGE_LEDGER", "sqlite:///e")
    assert load({}, file, ["up"]).ledger == ("sqlite:///e",)
    assert load({"ledger_file": str(secret)}, file, ["up"]).ledger == (URL,)
    assert load({"ledger": "sqlite:///a"}, file, ["up"]).ledger == ("sqlite:///a",)


def test_a_secret_that_is_given_twice_in_one_place_is_refused(secret: Path) -> None:
    with pytest.raises(UsageFault, match=r"^--ledger \(STREAMGAUGE_LEDGER\) is given twice: --ledger-file ") as refused:
        load({"ledger": URL, "ledger_file": str(secret)}, commands=["up"])
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "a\nb\n", "\0", "x" * 5000, None])
def test_a_file_of_a_secret_that_cannot_be_used_is_one_sentence(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageFault, match=r"^--ledger-file \(STREAMGAUGE_LEDGER_FILE\): the URL file ") as refused:
        load({"ledger_file": str(file)}, commands=["up"])
    assert "\n" not in str(refused.value)


def test_every_fault_of_a_file_is_found_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('colour = 1\nspool_byte = 2\nworkers = 99\nkafka = "x"\nledger_file = "/no/such"\n')
    monkeypatch.setenv("STREAMGAUGE_WORKERS", "bad")
    found = faults_of_file(file)
    assert [fault.partition(" in ")[0] for fault in found] == ["colour", "spool_byte", "kafka", "workers"]
    assert "did you mean spool_bytes?" in found[1]
    file.write_text("workers = 3\n")
    assert faults_of_file(file) == []
    file.write_text("workers = ")
    assert len(faults_of_file(file)) == 1
