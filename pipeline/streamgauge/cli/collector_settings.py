"""The settings that a supervisor gives its collector."""

from dataclasses import dataclass, field
from typing import Literal

from streamgauge.settings.declarations import Settings


@dataclass(frozen=True)
class CollectorSettings:
    """The supervisor's settings. `to`: where the data goes; `process`: the name on the page; `socket`: the path on which taps
    report; `admin_fds`: the listening sockets of the admin port; `restarted`: an earlier collector of this supervisor has
    ended, and taps may run; `terminal_fd`: where a line for each finished stream goes, None: no lines; `secrets`: variables
    of the supervisor's environment that hold a secret, which the environment of no child shows; `files`: the contents of
    files of the settings when the tap started (`settings_files.py`).
    """

    settings: Settings
    to: Literal["ledger", "kafka"]
    process: str
    socket: str
    admin_fds: tuple[int, ...]
    restarted: bool = False
    terminal_fd: int | None = None
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
