"""Which data directory an application's taps mean: where the agent's recorder listens, and where reads are counted."""

import os
from pathlib import Path

import platformdirs

# As the command line reads it: an empty variable is none.
DATA_DIR_VARIABLE = "STREAMGAUGE_DATA_DIR"
# `commands.tapping` leads DATA_DIR/run to a directory with a path that is short enough for a socket.
_RUN = "run"
_SOCKET = "recorder.sock"


def data_dir_of(given: Path | str | None) -> Path:
    """The directory that is named, else the environment's, else the command line's default; absolute."""
    named = given or os.environ.get(DATA_DIR_VARIABLE)
    return Path(named or platformdirs.user_state_dir("streamgauge", appauthor=False)).absolute()


def recorder_socket(data_dir: Path) -> str:
    """The path of the recorder's socket, as short as it gets."""
    return os.path.join(os.path.realpath(data_dir / _RUN), _SOCKET)  # noqa: PTH118 - no Path keeps it short
