"""`streamgauge top`: its words, what it prints once, and its exit codes. Its parts are in tests/top."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.cli.main import main
from streamgauge.errors import DONE, UNAVAILABLE, USAGE
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.runtime.certificates import ServerCertificate
from tests.integration.provider import provider
from tests.integration.test_up import ask
from tests.live.serving import Served, serving
from tests.live.shown import SILENT, busy_process, id_of
from tests.running import here, start_up
from tests.taps.proxy.pki import make_pki
from tests.top.answers import finish, named

TOKEN = "0123456789abcdef-secret"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(busy_process()) as one:
        yield one


def run(*words: str) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(("top", *words))
    return code, printed.getvalue(), errors.getvalue()


def address(served: Served) -> str:
    return served.url.removeprefix("http://")


def test_once_prints_streams_and_totals(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in (("80", 80), ("200", 200), (None, 160)):
        monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS", raising=False)
        code, printed, errors = run(address(served), "--once")
        assert (code, errors) == (DONE, "")
        assert width - 20 < max(map(len, printed.splitlines())) <= width
        assert "\x1b" not in printed
        words = " ".join(printed.split())
        assert "3 open, 1 silent. 41 finished since " in words
        assert "37 completed, 4 upstream_reset" in words
        assert "Budget of tenant river: 450.50 of 500.00 USD (90%)" in words
        [silent] = [line for line in printed.splitlines() if " silent  " in line]
        assert silent.startswith(id_of(SILENT)[-8:])
        assert "39.8 s" in silent
        assert "SECRET" not in printed


def test_filter_and_sort(served: Served) -> None:
    code, printed, _ = run(address(served), "--filter", "outcome=upstream_reset", "--sort", "first-token")
    lines = [line for line in printed.splitlines() if line.startswith("000000")]
    assert (code, len(lines)) == (DONE, 4)
    assert all("upstream_reset" in line for line in lines)
    assert ["315 ms" in lines[0], "126 ms" in lines[-1]] == [True, True]
    code, _, errors = run(address(served), "--sort", "colour")
    assert code == USAGE
    assert "'worst', 'newest'" in errors


def test_json_is_the_answer_of_the_process(served: Served) -> None:
    code, printed, _ = run(address(served), "--output", "json")
    assert code == DONE
    assert json.loads(printed)["open"]["total"] == 3


def test_several_addresses_are_one_view() -> None:
    one, two = named("worker", 0), named("worker", 1)
    finish(one, 1, 2)
    finish(two, 3)
    with serving(one) as first, serving(two) as second:
        words = (address(first), address(second), address(first), "127.0.0.1:1")
        code, printed, errors = run(*words)
        assert (code, errors) == (DONE, "")
        assert printed.startswith("3 addresses: 2 workers")
        assert "3 finished since " in printed
        assert "nothing answers at 127.0.0.1:1" in printed
        assert printed.count(f":{address(second).rpartition(':')[2]}") >= 2
        code, printed, _ = run(*words, "--output", "json")
        answers = json.loads(printed)
        assert [(one["address"], one["problem"] is None) for one in answers] == [
            (address(first), True), (address(second), True), ("127.0.0.1:1", False),
        ]  # fmt: skip
        assert answers[0]["answer"]["hour"]["streams"] == 2


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("127.0.0.1:1",), UNAVAILABLE, "nothing answers at 127.0.0.1:1"),
        (("127.0.0.1:1", "127.0.0.1:2"), UNAVAILABLE, "nothing answers at 127.0.0.1:2"),
        (("127.0.0.1:1", "--output", "json"), UNAVAILABLE, "nothing answers at 127.0.0.1:1"),
        (("nowhere",), USAGE, "HOST:PORT"),
        (("127.0.0.1:1", "--admin-ca", "/nowhere.pem"), USAGE, "--admin-ca has no effect without TLS"),
        (("--interval", "0"), USAGE, "--interval is out of range: give 0.2 to 86400 seconds"),
        (("--interval", "nan"), USAGE, "--interval is out of range: give 0.2 to 86400 seconds"),
        (("--interval", "inf"), USAGE, "--interval is out of range: give 0.2 to 86400 seconds"),
    ],
)
def test_what_is_wrong_is_one_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    found, printed, errors = run(*words)
    assert (found, printed) == (code, "")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_a_port_with_a_token_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pki, file = make_pki(tmp_path), tmp_path / "token"
    file.write_text(TOKEN)
    access = Access(Token(TOKEN), ServerCertificate(pki.server, None))
    monkeypatch.delenv("STREAMGAUGE_ADMIN_TOKEN", raising=False)
    with serving(busy_process(), access) as served:
        authority = ("--admin-ca", str(pki.ca))
        code, printed, errors = run(served.url, *authority, "--admin-token-file", str(file))
        assert (code, errors) == (DONE, "")
        assert "3 open" in printed
        monkeypatch.setenv("STREAMGAUGE_ADMIN_TOKEN", TOKEN)
        assert run(served.url, *authority)[0] == DONE
        assert run(served.url)[0] == UNAVAILABLE


@pytest.mark.slow
def test_with_real_traffic(tmp_path: Path) -> None:
    """A real `up`: the picture of its streams, that of the port for clients, and after a restart the hour before it."""
    with provider() as small:
        with start_up({"small": small.url}, tmp_path / "data") as up:
            admin = up.admin.removeprefix("http://")
            empty = here("top", admin, environment={"COLUMNS": "80"}).stdout
            assert "No stream has finished in the last hour by the ledger; up runs since" in " ".join(empty.split())
            assert "The next request through a tap shows here." in empty
            for _ in range(3):
                ask(up)
            up.wait_for_records(3)
            picture = here("top", admin, environment={"COLUMNS": "80"}).stdout
            assert "3 finished " in picture
            record = up.records()[0]
            [line] = [line for line in picture.splitlines() if line.startswith(record["stream_id"][-8:])]
            assert line.split()[1:4] == ["small", record["response_model"], "completed"]
            wrong = here("top", up.url.removeprefix("http://"))
            assert (wrong.returncode, wrong.stdout) == (UNAVAILABLE, "")
            assert "is the port for clients: give the admin port" in wrong.stderr
        with start_up({"small": small.url}, tmp_path / "data") as up:
            again = here("top", up.admin.removeprefix("http://")).stdout
            assert "3 finished in the last hour, 100.0 % completed: 3 completed" in again
        with start_up(small.url, tmp_path / "single") as up:
            wrong = here("top", up.url.removeprefix("http://"))
            assert wrong.returncode == UNAVAILABLE
            assert wrong.stderr.count("\n") == 1
            assert "{" not in wrong.stderr
            assert "give the admin port" in wrong.stderr
