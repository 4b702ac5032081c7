"""What a command prints when it fails by a fault of ours, also with STREAMGAUGE_DEBUG=1: places in the code, no password."""

import pytest

from streamgauge.cli import topics
from streamgauge.errors import BUG, UNAVAILABLE
from tests.running import here

SECRET = "canary-40419-x"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError(f"connection to postgresql://gauge:{SECRET}@db/streamgauge failed"), BUG),
        (RuntimeError(f"https://api.example/v1?key={SECRET} is odd\n-----BEGIN PRIVATE KEY-----\n{SECRET}"), BUG),
        (OSError(5, "Input/output error", f"https://user:{SECRET}@host/x"), UNAVAILABLE),
    ],
)
def test_a_traceback_shows_no_password(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(topics, "run", fail)
    for environment in ({}, {"STREAMGAUGE_DEBUG": "1"}):
        done = here("topics", "describe", "--kafka", "127.0.0.1:1", environment=environment)
        assert done.returncode == code
        assert SECRET not in done.stdout + done.stderr
        assert ("Traceback" in done.stderr) == bool(environment)
        assert ("in fail\n" in done.stderr) == bool(environment)
