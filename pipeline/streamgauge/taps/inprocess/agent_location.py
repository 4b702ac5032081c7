"""Finds the data directory of an application's taps: it holds the recorder's socket and the counters of reads."""

import logging
import os
from pathlib import Path

from streamgauge.core.toml_text import parse_toml
from streamgauge.runtime.data_directory import default_data_dir

_LOG = logging.getLogger("streamgauge")

# The variables of the command line; an empty value counts as not set.
DATA_DIR_VARIABLE = "STREAMGAUGE_DATA_DIR"
CONFIG_VARIABLE = "STREAMGAUGE_CONFIG"
# `runtime.socket_directory` makes DATA_DIR/run a link to a directory whose path is short enough for a socket.
_RUN = "run"
_SOCKET = "recorder.sock"


def data_dir_of(argument: Path | str | None) -> Path:
    """The data directory, absolute: `argument`, else STREAMGAUGE_DATA_DIR, else `data_dir` of the settings file that
    STREAMGAUGE_CONFIG names, else the command line's default.

    Never raises: a settings file that cannot be read is logged as a warning.
    """
    named = argument or os.environ.get(DATA_DIR_VARIABLE) or _settings_file_data_dir()
    return Path(named or default_data_dir()).absolute()


def _settings_file_data_dir() -> str | None:
    name = os.environ.get(CONFIG_VARIABLE)
    if not name:
        return None
    try:
        data_dir = parse_toml(Path(name).read_bytes()).get("data_dir")
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        _LOG.warning(
            "the settings file %s cannot be read (%s): the default data directory is used instead", name, error
        )
        return None
    return data_dir if isinstance(data_dir, str) else None


def recorder_socket(data_dir: Path) -> str:
    """The path of the recorder's socket, with links resolved so that it is short."""
    return os.path.join(os.path.realpath(data_dir / _RUN), _SOCKET)  # noqa: PTH118 - no Path keeps it short
