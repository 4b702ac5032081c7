"""Which data directory an application's taps mean: where the agent's recorder listens, and where reads are counted."""

import logging
import os
import tomllib
from pathlib import Path

import platformdirs

_LOG = logging.getLogger("streamgauge")

# As the command line reads them: an empty variable is none.
DATA_DIR_VARIABLE = "STREAMGAUGE_DATA_DIR"
CONFIG_VARIABLE = "STREAMGAUGE_CONFIG"
# `commands.tapping` leads DATA_DIR/run to a directory with a path that is short enough for a socket.
_RUN = "run"
_SOCKET = "recorder.sock"


def data_dir_of(given: Path | str | None) -> Path:
    """The directory that is named, else the environment's, else the settings file's that the environment names, else the
    command line's default; absolute.

    Raises nothing: a settings file that cannot be read is logged as a warning.
    """
    named = given or os.environ.get(DATA_DIR_VARIABLE) or _settings_file_data_dir()
    return Path(named or platformdirs.user_state_dir("streamgauge", appauthor=False)).absolute()


def _settings_file_data_dir() -> str | None:
    name = os.environ.get(CONFIG_VARIABLE)
    if not name:
        return None
    try:
        found = tomllib.loads(Path(name).read_text(encoding="utf-8")).get("data_dir")
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        _LOG.warning(
            "the settings file %s cannot be read (%s): the default data directory is used instead", name, error
        )
        return None
    return found if isinstance(found, str) else None


def recorder_socket(data_dir: Path) -> str:
    """The path of the recorder's socket, as short as it gets."""
    return os.path.join(os.path.realpath(data_dir / _RUN), _SOCKET)  # noqa: PTH118 - no Path keeps it short
