"""`doctor` as a user runs it: its lines, its JSON, its exit codes, and no secret or traceback in them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.errors import DONE, FOUND, USAGE
from tests.doctor.test_upstreams import answer, plain
from tests.running import CLEAN, here
from tests.taps.proxy.rig import RawUpstream


def options(folder: Path, *more: str) -> list[str]:
    places = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(folder / "data")]
    return [*places, "--spool-bytes", str(1024**2), *more]


def test_an_installation_that_works_is_0_and_each_check_has_a_line(tmp_path: Path) -> None:
    with RawUpstream(plain(answer())) as upstream:
        done = here("doctor", "up", *options(tmp_path, "--upstream", f"a={upstream.url}"))
    assert (done.returncode, done.stderr) == (DONE, ""), done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "ok    settings   the settings fit each other, and each file that they name can be used"
    assert lines[1] == "ok    upstreams  upstream a: reached, answers with 404"
    assert [line.split()[0] for line in lines] == ["ok"] * 4 + ["warn"] + ["ok"] * 5 + ["up:"]
    assert lines[-1] == "up: 9 ok, 1 warn, 0 fail"
    assert not (tmp_path / "data").exists(), "nothing is made"


def test_a_failure_is_1_and_stands_with_its_cure_in_text_and_json(tmp_path: Path) -> None:
    words = ["doctor", "up", *options(tmp_path, "--upstream", "a=http://127.0.0.1:1")]
    done = here(*words)
    says = "upstream a: 127.0.0.1:1 refuses connections"
    assert done.returncode == FOUND
    assert f"fail  upstreams  {says}; cure: check that it runs, and its port\n" in done.stdout
    done = here(*words, "--output", "json")
    assert done.returncode == FOUND
    found = json.loads(done.stdout)
    assert (found["command"], found["counts"]["fail"]) == ("up", 1)
    [failure] = [one for one in found["findings"] if one["level"] == "fail"]
    assert failure == {
        "check": "upstreams",
        "level": "fail",
        "says": says,
        "cure": "check that it runs, and its port",
    }


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--tls-key", "/k"], "--tls-key requires --tls-certificate"),
        (
            ["--tls-certificate", "/no/such"],
            "--tls-certificate: the certificate /no/such cannot be used: No such file",
        ),
        (["--tenants", "/no/such"], "--tenants /no/such cannot be read: No such file"),
        (["--budgets", "/no/such"], "/no/such"),
        (["--prices", "/no/such"], "/no/such"),
    ],
)
def test_settings_that_do_not_fit_are_failures(more: list[str], says: str, tmp_path: Path) -> None:
    done = here("doctor", "up", *options(tmp_path, "--upstream", "doctor=http://127.0.0.1:1", *more))
    assert done.returncode == FOUND
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fail  settings")]
    assert says in line
    assert line.endswith("; cure: correct it; `streamgauge config show up` shows where each value comes from")


def test_a_worker_without_a_broker_fails_and_has_its_own_checks(tmp_path: Path) -> None:
    done = here("doctor", "worker", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    assert done.returncode == FOUND
    assert "--kafka HOST:PORT is missing: give one or more brokers; cure: " in done.stdout
    assert "--listen" not in done.stdout


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ([], "up"),
        (["--kafka", "127.0.0.1:1"], "worker"),
        (["--kafka", "127.0.0.1:1", "--upstream", "a=http://127.0.0.1:1"], "tap"),
    ],
)
def test_without_a_word_the_settings_decide(settings: list[str], command: str, tmp_path: Path) -> None:
    done = here("doctor", *options(tmp_path, *settings), "--output", "json")
    assert json.loads(done.stdout)["command"] == command


def test_no_secret_is_shown(tmp_path: Path) -> None:
    secrets = {
        "STREAMGAUGE_KAFKA_PASSWORD": "CANARY",
        "STREAMGAUGE_LEDGER": "postgresql://user:CANARY@127.0.0.1:1/db?password=CANARY",
    }
    login = ["--kafka", "127.0.0.1:1", "--kafka-security", "SASL_PLAINTEXT", "--kafka-username", "u"]
    prometheus = ["--prometheus", "http://user:CANARY@127.0.0.1:1"]
    for output in ("text", "json"):
        words = ["--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--output", output]
        done = here("doctor", "worker", *login, *prometheus, *words, environment=secrets)
        assert done.returncode == FOUND
        assert "CANARY" not in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--check-timeout", "0"],
        ["--workers", "0"],
        ["--interface", "lo"],
        ["sideways"],
        ["--output", "csv"],
        ["--serve", "x"],
    ],
)
def test_wrong_usage_is_2(words: list[str]) -> None:
    done = here("doctor", *words)
    assert (done.returncode, done.stdout) == (USAGE, "")


def test_the_doctor_of_a_tap_imports_no_database_and_no_prices() -> None:
    code = (
        "import sys; from streamgauge.cli.main import main; main(['doctor', 'tap', '--kafka', '127.0.0.1:1']);"
        "print([name for name in ('sqlalchemy', 'genai_prices', 'faust', 'psycopg') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=CLEAN)
    assert done.stdout.splitlines()[-1] == "[]"
