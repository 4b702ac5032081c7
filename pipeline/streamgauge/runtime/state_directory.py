"""The default data directory: below the user's state directory, as the platform has it."""

import os
import pwd
import sys
from pathlib import Path

from streamgauge.errors import UsageFault

_NAME = "streamgauge"


def default_data_dir() -> Path:
    """XDG_STATE_HOME/streamgauge, else ~/.local/state/streamgauge; on macOS it is in ~/Library/Application Support.

    A variable whose path is not absolute counts as not set (XDG Base Directory Specification).
    Raises UsageFault if the user has no home directory.
    """
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():
        return state / _NAME
    return _home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / _NAME


def _home() -> Path:
    home = Path(os.environ.get("HOME", ""))
    if home.is_absolute():
        return home
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UsageFault("this user has no home directory: set HOME, or give --data-dir") from None
