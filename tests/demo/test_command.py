"""`streamgauge demo` as a user runs it: at its realistic pace, with its own `up`."""

import json
import signal
import sys
from pathlib import Path

import pytest

from streamgauge.cli.demo import admin_address
from streamgauge.cli.main import main
from streamgauge.errors import DONE, INTERRUPTED, UNAVAILABLE, USAGE
from streamgauge.ledger import open_ledger
from streamgauge.runtime.listeners import Address
from streamgauge.settings.declarations import Settings
from streamgauge_demo.scenarios import SCENARIOS
from tests.running import command, here, start, wait_for

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, DONE)])
def test_a_demo_that_is_interrupted_does_not_end_as_expected(number: int, code: int, tmp_path: Path) -> None:
    with start("demo", ["--data-dir", str(tmp_path / "data")], tmp_path / "data") as running:
        wait_for(lambda: "metrics at" in running.log, "address")
        assert running.stop(number) == code


def test_it_ends_by_itself_as_expected_and_joins_no_ledger_of_the_environment(tmp_path: Path) -> None:
    """The settings of other commands are those of an installation."""
    production, data = tmp_path / "production.sqlite", tmp_path / "data"
    environment = {
        "STREAMGAUGE_LEDGER": f"sqlite:///{production}",
        "STREAMGAUGE_BUDGETS": str(tmp_path / "no budgets"),
        "STREAMGAUGE_TLS_CERTIFICATE": str(tmp_path / "no certificate"),
    }
    done = command("demo", "--data-dir", str(data), environment=environment)
    assert done.returncode == DONE, done.stderr
    assert "`streamgauge demo --serve` plays until Ctrl-C" in done.stderr.splitlines()[-1]
    count = len(SCENARIOS)
    assert f"{count} requests, {count} records; {count} of {count} scenarios as expected." in done.stdout, done.stdout
    assert not production.exists()
    with open_ledger(f"sqlite:///{data / 'ledger.sqlite'}", create=False) as ledger:
        records = [json.loads(record) for record in ledger.query(len(SCENARIOS))]
    assert any(record["cost"] and record["cost"]["usd"] for record in records), "the demo shows no cost"


def test_a_directory_of_the_environment_that_has_a_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()
    done = here("demo", environment={"STREAMGAUGE_DATA_DIR": str(tmp_path)})
    assert done.returncode == USAGE
    assert "has a ledger, to which the demo would add simulated streams: give --data-dir DIR" in done.stderr
    assert (tmp_path / "ledger.sqlite").stat().st_size == 0


def test_serving_ends_with_0_on_sigterm(tmp_path: Path) -> None:
    flags = ["--serve", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with start("demo", flags, tmp_path / "data") as running:
        wait_for(lambda: "metrics at" in running.log, "address")
        assert running.process.poll() is None
        assert running.stop(signal.SIGTERM) == 0


def test_the_page_of_serve_is_where_top_looks_for_it() -> None:
    assert str(admin_address(Settings(), serve=True)) == "127.0.0.1:9464"
    assert admin_address(Settings(), serve=False).port == 0
    given = Settings(admin=Address(host="127.0.0.1", port=9000), given={"admin": "--admin"})
    assert {admin_address(given, serve=serve).port for serve in (True, False)} == {9000}


@pytest.mark.parametrize("missing", [("openai",), ("anthropic",), ("anthropic", "openai")])
def test_without_a_client_the_extra_is_named(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["demo"]) == UNAVAILABLE
    said = capsys.readouterr().err
    assert said == "streamgauge demo: this command requires the extra `demo`: run pip install 'streamgauge[demo]'\n"
