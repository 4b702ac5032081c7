"""`config show` prints each setting with its source and no secret; `config check` reports every fault of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamgauge.errors import DONE, USAGE
from streamgauge.ledger import open_ledger
from streamgauge.runtime.redaction import SECRET, without_password
from streamgauge.settings.declarations import SETTINGS
from tests.running import here

URL = "postgresql://user:CANARY@db/ledger?sslmode=require&password=CANARY"


def shown(*words: str, **environment: str) -> dict[str, tuple[Any, str]]:
    """What `config show` prints: setting -> value, source."""
    done = here("config", "show", *words, "--output", "json", environment=environment)
    assert done.returncode == DONE, done.stderr
    return {row["setting"]: (row["value"], row["from"]) for row in json.loads(done.stdout)}


def test_each_value_has_its_source(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('spool_age = 7\nworkers = 2\nupstream = ["a=http://a", "b=http://b"]\n')
    words = ("tap", "--config", str(file), "--workers", "3", "--kafka", "b:1")
    rows = shown(*words, STREAMGAUGE_LISTEN=":80", STREAMGAUGE_WORKERS="4")
    assert rows["workers"] == (3, "--workers")
    assert rows["listen"] == ("127.0.0.1:80", "STREAMGAUGE_LISTEN")
    assert rows["spool_age"] == (7.0, str(file))
    assert rows["upstream"] == (["a=http://a", "b=http://b"], str(file))
    assert rows["spool_bytes"] == (1024**3, "default")
    assert rows["tls_key"] == (None, "default")
    assert list(rows) == [name for name, one in SETTINGS.items() if "tap" in one.commands]


def test_a_tokenizer_is_shown_as_it_is_written() -> None:
    rows = shown(STREAMGAUGE_TOKENIZER="vendor/Own-7B=/m/tokenizer.json,b=/m/b.json")
    assert rows["tokenizer"] == (["own-7b=/m/tokenizer.json", "b=/m/b.json"], "STREAMGAUGE_TOKENIZER")


def test_a_default_is_that_of_the_command_and_a_missing_setting_is_named() -> None:
    rows = shown("worker")
    assert rows["admin"] == ("127.0.0.1:9465", "default")
    assert rows["kafka"] == (None, "not set: required")
    assert list(shown()) == list(SETTINGS)
    assert "pcap" in shown("tap", "packets")


def test_no_secret_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(URL)
    hidden = f"postgresql://user:{SECRET}@db/ledger?{SECRET}"
    assert shown("up", STREAMGAUGE_LEDGER=URL)["ledger"] == ([hidden], "STREAMGAUGE_LEDGER")
    assert shown("up", STREAMGAUGE_LEDGER_FILE=str(file))["ledger"] == ([hidden], f"STREAMGAUGE_LEDGER_FILE: {file}")
    rows = shown("worker", STREAMGAUGE_KAFKA_PASSWORD="CANARY")
    assert rows["kafka_password"] == (SECRET, "STREAMGAUGE_KAFKA_PASSWORD")
    assert "kafka_password" not in shown("up", STREAMGAUGE_KAFKA_PASSWORD="CANARY")
    done = here("config", "show", "up", environment={"STREAMGAUGE_LEDGER": URL})
    assert "CANARY" not in done.stdout + done.stderr
    assert hidden in done.stdout


def test_a_command_uses_the_ledger_that_a_file_names(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"
    open_ledger(url).close()
    file = tmp_path / "secret"
    file.write_text(url)
    environment = {"STREAMGAUGE_LEDGER_FILE": str(file), "STREAMGAUGE_DATA_DIR": str(tmp_path / "none")}
    assert here("ledger", "query", environment=environment).returncode == DONE
    file.unlink()
    done = here("ledger", "query", environment=environment)
    assert done.returncode == USAGE
    assert f"the URL file {file} cannot be read: No such file" in done.stderr
    assert here("rules", "generate", environment=environment).returncode == DONE, "it uses no ledger"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:////home/a@b:c/ledger", "sqlite:////home/a@b:c/ledger"),
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://u:CANARY@h1,h2/db", "postgresql://u:***@h1,h2/db"),
        ("postgresql://u:CAN@ARY@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:CAN/ARY@h/db", "postgresql://u:***@h/db"),
        ("postgresql://h/db?password=CANARY@x", "postgresql://***@x"),
        ("CANARY", "***"),
    ],
)
def test_a_url_without_its_password(url: str, says: str) -> None:
    assert without_password(url) == says


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tapp",), "'tapp' is no command with settings; did you mean tap?"),
        (("up", "--interface", "lo"), "--interface is not an option of `up`"),
        (("up", "--workers", "0"), "--workers (STREAMGAUGE_WORKERS): give a whole number"),
    ],
)
def test_wrong_usage_is_one_sentence(words: tuple[str, ...], says: str) -> None:
    done = here("config", "show", *words)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert says in done.stderr


def test_check_reports_every_fault_of_every_file_in_one_go(tmp_path: Path) -> None:
    good, bad, none = (tmp_path / name for name in ("good.toml", "bad.toml", "none.toml"))
    good.write_text('workers = 2\nledger_file = "/no/such"\n')
    bad.write_text('workrs = 2\ncapture = "mask"\n')
    # The environment is not the file's: its faults are not reported.
    environment = {"STREAMGAUGE_WORKERS": "bad", "STREAMGAUGE_CONFIG": str(none)}
    assert here("config", "check", str(good), environment=environment).returncode == DONE
    done = here("config", "check", str(good), str(bad), str(none), environment=environment)
    assert done.returncode == USAGE
    assert done.stdout.splitlines() == [
        f"the settings file {good} has no fault",
        f"workrs in the settings file {bad}: there is no such setting; did you mean workers?",
        f"capture in the settings file {bad}: give masked or full; did you mean masked?",
        f"the settings file {none} does not exist",
    ]
    done = here("config", "check", str(good), str(bad), "--output", "json")
    assert [(row["file"], len(row["faults"])) for row in json.loads(done.stdout)] == [(str(good), 0), (str(bad), 2)]
