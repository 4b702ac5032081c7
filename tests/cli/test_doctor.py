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
    levels = dict(line.split()[1::-1] for line in lines[:-1])
    assert {name for name, level in levels.items() if level == "warn"} == {"buffering", "clock"}, (
        "no other host is asked"
    )
    assert lines[-1] == "up: 9 ok, 2 warn, 0 fail"
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
        (["--tls-client-ca", "/c"], "--tls-client-ca requires --tls-certificate"),
        (
            ["--tenant-source", "client,header"],
            "--tenant-source client requires --client-token-file or --tls-client-ca",
        ),
        (["--client-token-file", "/no/such"], "--client-token-file: /no/such cannot be read"),
        (["--tenant-header", "x-streamgauge-token"], "X-Streamgauge-Token holds the token of a client"),
        (["--attribute", "a=X-Streamgauge-Token"], "X-Streamgauge-Token holds the token of a client"),
        (
            ["--tls-certificate", "/no/such"],
            "--tls-certificate: the certificate /no/such cannot be used: No such file",
        ),
        (["--tenants", "/no/such"], "--tenants /no/such cannot be read: No such file"),
        (["--budgets", "/no/such"], "/no/such"),
        (["--admin", "0.0.0.0:0"], "other hosts can reach the admin port 0.0.0.0:0: give a token"),
        (["--admin-token-file", "/no/such"], "--admin-token-file: "),
        (["--admin-tls-certificate", "/no/such"], "--admin-tls-certificate: the certificate /no/such cannot be used"),
        (["--admin-tls-key", "/k"], "--admin-tls-key requires --admin-tls-certificate"),
        (["--metric-attribute", "team"], "--metric-attribute team requires --attribute team=HEADER"),
        (["--prices", "/no/such"], "/no/such"),
    ],
)
def test_settings_that_do_not_fit_are_failures(more: list[str], says: str, tmp_path: Path) -> None:
    doctor = ["--upstream", "doctor=http://127.0.0.1:1", "--serve", "127.0.0.1:0"]
    done = here("doctor", "up", *options(tmp_path, *doctor, *more))
    assert done.returncode == FOUND
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fail  settings")]
    assert says in line
    assert line.endswith("; cure: correct it; `streamgauge config show up` shows where each value comes from")


@pytest.mark.parametrize("command", ["tap", "worker"])
def test_what_each_command_reads_at_its_start_is_tried(command: str, tmp_path: Path) -> None:
    more = ["--kafka", "127.0.0.1:1", "--admin", "0.0.0.0:0", "--tenants", "/no/such"]
    done = here("doctor", command, "--data-dir", str(tmp_path / "data"), *more)
    assert done.returncode == FOUND
    lines = [line for line in done.stdout.splitlines() if line.startswith("fail  settings")]
    assert [any(words in line for line in lines) for words in ("other hosts can reach", "--tenants /no/such")] == [
        True
    ] * 2


def test_a_token_of_the_environment_is_enough(tmp_path: Path) -> None:
    words = ["doctor", "worker", "--kafka", "127.0.0.1:1", "--admin", "0.0.0.0:0", "--data-dir", str(tmp_path / "data")]
    done = here(*words, environment={"STREAMGAUGE_ADMIN_TOKEN": "0123456789abcdef" * 2})
    assert "ok    settings" in done.stdout


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
    upstream = ["--upstream", "doctor=http://127.0.0.1:1", "--serve", "127.0.0.1:0"]
    through = ["--through", "http://user:CANARY@127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    for output in ("text", "json"):
        done = here("doctor", "up", *upstream, *through, "--data-dir", str(tmp_path / "data"), "--output", output)
        assert "must lead to the doctor's stream" in done.stdout
        assert "CANARY" not in done.stdout + done.stderr
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
        ["--through", "http://127.0.0.1:port"],
        ["--prometheus", "http://[::1"],
    ],
)
def test_wrong_usage_is_2(words: list[str]) -> None:
    done = here("doctor", *words)
    assert (done.returncode, done.stdout) == (USAGE, "")


@pytest.mark.slow
def test_the_doctor_of_a_tap_imports_no_database_and_no_prices() -> None:
    code = (
        "import sys; from streamgauge.cli.main import main; main(['doctor', 'tap', '--kafka', '127.0.0.1:1']);"
        "print([name for name in ('sqlalchemy', 'genai_prices', 'faust', 'psycopg') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=CLEAN)
    assert done.stdout.splitlines()[-1] == "[]"
