"""Where the default data directory is."""

import os
import pwd
import sys
from pathlib import Path

import pytest

from streamgauge.errors import UsageFault
from streamgauge.runtime.state_directory import default_data_dir

HOME_OF_USER = Path(pwd.getpwuid(os.getuid()).pw_dir)


@pytest.mark.parametrize(
    ("state", "home", "platform", "expected"),
    [
        ("/s", "/h", "linux", Path("/s/streamgauge")),
        ("/s", "/h", "darwin", Path("/s/streamgauge")),
        ("", "/h", "linux", Path("/h/.local/state/streamgauge")),
        ("relative", "/h", "linux", Path("/h/.local/state/streamgauge")),
        ("", "/h", "darwin", Path("/h/Library/Application Support/streamgauge")),
        ("", "relative", "linux", HOME_OF_USER / ".local/state/streamgauge"),
    ],
)
def test_the_directory_is_that_of_the_platform(
    state: str, home: str, platform: str, expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_data_dir() == expected


def test_a_user_without_a_home_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    with pytest.raises(UsageFault, match="set HOME, or give --data-dir"):
        default_data_dir()
