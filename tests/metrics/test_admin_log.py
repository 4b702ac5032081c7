"""The admin log: what was read and refused, bounded, and without secrets."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli.admin_port import admin_access
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.metrics.admin_log import LINES_PER_S, MAX_KINDS, REPEAT_S, WITHOUT_TOKEN, AdminLog, Refusals
from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.prometheus import Metrics
from streamgauge.settings.sources import load
from tests.metrics.test_http_server import ask, say, serving

TOKEN = "t0ken-0123456789abcdef"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "admin.log"


def test_reads_and_refusals_have_their_lines_and_no_secret(file: Path) -> None:
    log = AdminLog(file)

    async def test(server: AdminServer) -> None:
        right, wrong = f"Authorization: Bearer {TOKEN}\r\n", "Authorization: Bearer canary-0123456789\r\n"
        for path in ("/streams/1", "/metrics", "/health/live"):
            await ask(server.address, path, extra=right)
        await ask(server.address, "/streams", extra=wrong)
        await ask(server.address, f"/streams?token={TOKEN}")
        await ask(server.address, "/", host="canary.example", extra=right)
        await say(server.address, b"canary\r\n\r\n")

    serving(test, access=Access(Token(TOKEN), log=log))
    log.close()
    seen = [(line["event"], line.get("path"), line["status"], line.get("reason")) for line in lines(file)]
    assert seen == [
        ("read", "/streams/1", 404, None),
        ("refused", "/streams", 401, "token"),
        ("refused", "/", 403, "host"),
        ("refused", "", 400, "malformed"),
        ("refused", "/streams", 401, "token"),
    ]
    assert {line["address"] for line in lines(file)} == {"127.0.0.1"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines(file))
    assert TOKEN not in file.read_text()
    assert "canary" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_counted_is_written_when_the_port_closes(file: Path) -> None:
    async def test(server: AdminServer) -> None:
        for _ in range(4):
            assert (await ask(server.address, "/streams")).status == 404

    serving(test, access=Access(log=AdminLog(file)))
    assert [(line["path"], line["status"], line["token"], line["count"]) for line in lines(file)] == [
        ("/streams", 404, False, 1),
        ("/streams", 404, False, 3),
    ]


def test_what_is_counted_is_written_after_a_minute_with_any_request_to_the_port(file: Path) -> None:
    """Else the log holds 1 guess of a client that guessed a thousand times and stopped, until the process ends."""
    clock = Clock()
    log = AdminLog(file, clock)

    def counts() -> list[tuple[int, int]]:
        return [(line["status"], line["count"]) for line in lines(file)]

    async def test(server: AdminServer) -> None:
        for _ in range(5):
            assert (await ask(server.address, "/streams")).status == 401
        clock.now += REPEAT_S - 1
        await ask(server.address, "/health/live")
        assert counts() == [(401, 1)]
        clock.now += 1
        await ask(server.address, "/health/live")
        assert counts() == [(401, 1), (401, 4)]

    serving(test, access=Access(Token(TOKEN), log=log))
    assert counts() == [(401, 1), (401, 4)]


def test_equal_requests_are_counted_and_no_count_is_lost(file: Path) -> None:
    clock = Clock()
    log = AdminLog(file, clock)
    for _ in range(5):
        log.read("192.0.2.1", "/streams", 200, token=True)
    clock.now += REPEAT_S
    log.read("192.0.2.1", "/streams", 200, token=True)
    log.read("192.0.2.1", "/streams", 200, token=True)
    log.read("192.0.2.2", "/streams", 200, token=True)
    log.close()
    assert [(line["address"], line["count"]) for line in lines(file)] == [
        ("192.0.2.1", 1),
        ("192.0.2.1", 5),
        ("192.0.2.2", 1),
        ("192.0.2.1", 1),
    ]


def test_a_client_with_many_paths_cannot_fill_the_disk(file: Path) -> None:
    clock = Clock()
    log = AdminLog(file, clock)
    asked = 3 * MAX_KINDS
    for number in range(asked):
        log.read("192.0.2.1", f"/streams/{number}" + "x" * 5_000, 200, token=False)
    assert len(lines(file)) == LINES_PER_S
    clock.now += 1
    log.read("192.0.2.9", "/", 200, token=False)
    assert lines(file)[-1]["not_written"] == asked - LINES_PER_S
    assert file.stat().st_size < 400 * (LINES_PER_S + 1)
    clock.now += 1
    for number, written in ((asked - 1, 0), (asked - MAX_KINDS, 1)):
        before = len(lines(file))
        log.read("192.0.2.1", f"/streams/{number}" + "x" * 5_000, 200, token=False)
        assert len(lines(file)) == before + written, "the oldest kinds are forgotten, and counted no longer"
    log.close()


def test_invented_paths_and_refused_requests_hide_no_read(file: Path) -> None:
    """A reader could ask for many pages that do not exist, or from many addresses without the token, in the same second."""
    log = AdminLog(file, Clock())
    for number in range(10 * LINES_PER_S):
        log.read("192.0.2.1", f"/{number}", 404, token=True)
        log.read("192.0.2.1", f"/streams/{number}", 400, token=True)
        log.refused(f"192.0.2.{number}", "/streams", 401, "token")
    log.read("192.0.2.1", "/streams", 200, token=True)
    assert [(line["path"], line["status"]) for line in lines(file) if line["event"] == "read"] == [
        ("/0", 404),
        ("/streams/0", 400),
        ("/streams", 200),
    ]
    log.close()
    assert sum(line["count"] for line in lines(file) if line["event"] == "read") == 20 * LINES_PER_S + 1


def test_a_path_shows_no_control_characters(file: Path) -> None:
    log = AdminLog(file)
    log.refused("192.0.2.1", "/\x1b]0;x\x07\u202e\n%s", 401, "token")
    log.close()
    (line,) = lines(file)
    assert line["path"] == r"/\u001b]0;x\u0007\u202e\u000a%s"


def test_a_file_that_was_moved_away_is_made_again(file: Path) -> None:
    log = AdminLog(file)
    log.read("192.0.2.1", "/1", 200, token=False)
    file.rename(file.with_suffix(".1"))
    log.read("192.0.2.1", "/2", 200, token=False)
    log.close()
    assert [line["path"] for line in lines(file)] == ["/2"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_start_has_the_settings_that_were_given_without_secrets(file: Path) -> None:
    given = {"admin_log": str(file), "ledger": "postgresql://gauge:canary@db/x?password=canary", "stall_seconds": "7"}
    access = admin_access(load(given, commands=["worker"]), lambda _: None)
    assert access.log is not None
    access.log.close()
    (line,) = lines(file)
    assert (line["event"], line["settings"]["stall_seconds"]) == ("started", 7.0)
    assert line["settings"]["ledger"] == ["postgresql://gauge:***@db/x?***"]
    assert "canary" not in file.read_text()


def test_an_exposed_file_of_a_secret_is_warned_of_at_the_start(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    for secret in (token, password):
        secret.write_text(TOKEN)
        secret.chmod(0o644)
    said: list[str] = []
    settings = load({"admin_token_file": str(token), "kafka_password_file": str(password)}, commands=["worker"])
    admin_access(settings, said.append)
    assert len(said) == 2
    for option, secret in (("--admin-token-file", token), ("--kafka-password-file", password)):
        [sentence] = [one for one in said if option in one]
        assert f"{option} {secret} (mode 0644): chmod 600 {secret} " in sentence
        secret.chmod(0o600)
    said.clear()
    admin_access(settings, said.append)
    assert said == []


def test_refusals_are_logged_at_most_once_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(Metrics(), None, clock)
    for _ in range(3):
        for _ in range(100):
            refusals.add(WITHOUT_TOKEN, "192.0.2.7", "/metrics")
        clock.now += REPEAT_S
    assert caplog.messages == [
        "the admin port rejected a request without its token (401)",
        "the admin port rejected 100 more requests without its token (401), the last one from 192.0.2.7",
        "the admin port rejected 100 more requests without its token (401), the last one from 192.0.2.7",
    ]
