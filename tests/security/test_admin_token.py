"""The token of the admin port is in no log, metric, page, error or file of a run, and in no child's environment."""

import base64
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.provider import Provider, provider
from tests.integration.test_up import ask
from tests.processes import children
from tests.running import Running, command, start, wait_for
from tests.running import start_tap as running_tap

pytestmark = pytest.mark.slow

TOKEN = "canary-40417-x-0123456789"
WRONG = "canary-40418-x-0123456789"
PATHS = ("/metrics", "/", "/streams", "/nothing")


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


def answer_of(running: Running, path: str, token: str | None) -> tuple[int, str]:
    """Status, and the whole answer with its headers."""
    request = urllib.request.Request(running.admin + path)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, str(answer.headers) + answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, str(error.headers) + error.read().decode()


def places(folder: Path) -> Iterator[bytes]:
    yield from (path.read_bytes() for path in folder.rglob("*") if path.is_file())


def of_children(running: Running) -> Iterator[bytes]:
    """Environment and command line of each child."""
    found = children(running.process.pid)
    assert len(found) >= 2
    for pid in found:
        yield Path(f"/proc/{pid}/environ").read_bytes()
        yield Path(f"/proc/{pid}/cmdline").read_bytes()


def assert_in_none(contents: Iterator[bytes]) -> None:
    for content in contents:
        for secret in (TOKEN, WRONG):
            assert secret.encode() not in content
            assert base64.b64encode(f":{secret}".encode()) not in content


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="environments of other processes are in /proc on Linux"
)
def test_the_token_is_nowhere_but_in_the_request(small: Provider, tmp_path: Path) -> None:
    environment = {"STREAMGAUGE_ADMIN_TOKEN": TOKEN, "STREAMGAUGE_DEBUG": "1"}
    with running_tap("up", {"small": small.url}, tmp_path / "data", environment=environment) as running:
        ask(running)
        running.wait_for_records(1)
        assert [answer_of(running, path, WRONG)[0] for path in PATHS] == [401] * 4
        answers = [answer_of(running, path, token) for path in PATHS for token in (None, WRONG, TOKEN)]
        assert [status for status, _ in answers] == [401, 401, 200, 401, 401, 200, 401, 401, 200, 401, 401, 404]
        assert_in_none(text.encode() for _, text in answers)
        assert_in_none(of_children(running))
        assert_in_none(iter([running.log.encode(), Path(f"/proc/{running.process.pid}/cmdline").read_bytes()]))
        assert_in_none(places(tmp_path))
        assert running.stop() == 0
    assert_in_none(places(tmp_path))


def test_a_rotated_token_is_used_without_a_restart(small: Provider, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with running_tap("up", {"small": small.url}, tmp_path / "data", "--admin-token-file", str(file)) as running:
        assert answer_of(running, "/metrics", TOKEN)[0] == 200
        file.write_text(WRONG)
        assert [answer_of(running, "/metrics", token)[0] for token in (TOKEN, WRONG)] == [401, 200]
        assert answer_of(running, "/health/ready", None)[0] == 200
        assert running.stop() == 0
        assert_in_none(iter([running.log.encode()]))


def test_a_refusal_does_not_quote_the_token(tmp_path: Path) -> None:
    """A token that is too short, one in place of its file, and one beside --admin-open."""
    up = ("up", "--upstream", "http://127.0.0.1:1", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    for options, environment in (
        ((), {"STREAMGAUGE_ADMIN_TOKEN": "canary-40417-x"}),
        (("--admin-token-file", TOKEN), {}),
        (("--admin-open",), {"STREAMGAUGE_ADMIN_TOKEN": TOKEN}),
    ):
        done = command(*up, "--admin", "127.0.0.1:0", *options, environment={**environment, "STREAMGAUGE_DEBUG": "1"})
        assert done.returncode == 2
        assert "token" in done.stderr
        assert "canary" not in done.stdout + done.stderr


def test_a_worker_without_a_broker_keeps_its_token_to_itself(tmp_path: Path) -> None:
    flags = ["--kafka", "127.0.0.1:1", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with start("worker", flags, tmp_path / "data", {"STREAMGAUGE_ADMIN_TOKEN": TOKEN}) as worker:
        wait_for(lambda: worker.log or worker.process.poll() is not None, "a line")
    assert_in_none(iter([worker.log.encode()]))
    assert os.environ.get("STREAMGAUGE_ADMIN_TOKEN") is None
