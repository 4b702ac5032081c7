"""Files of secrets that the settings name, and that other users can read or change.

The key of digests has a check of its own.
"""

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from streamgauge.runtime.ownership import READ, WRITE, mode_of, others_who_may
from streamgauge.settings.declarations import SETTINGS, Settings

# The ends of the names of such settings.
_ENDS = ("_key", "_password_file", "_token_file", "_header_file", "ledger_file")


class Exposed(NamedTuple):
    """`says`: which file, and who can read or change it; `cure`: a command."""

    says: str
    cure: str


def secret_files(settings: Settings, names: Collection[str] = tuple(SETTINGS)) -> Iterator[tuple[str, Path]]:
    """The option and the file of each secret among the settings of these names.

    A certificate's file is one if it holds the private key, too: no file of the key is set.
    """
    for name in names:
        part = name.removesuffix("_certificate")
        holds_key = part != name and getattr(settings, f"{part}_key") is None
        if (name.endswith(_ENDS) or holds_key) and getattr(settings, name):
            yield SETTINGS[name].flag, getattr(settings, name)


def exposed(option: str, file: Path) -> Exposed | None:
    """What is wrong with the mode of a file; None if nothing is, or if it cannot be read, which its reader reports."""
    try:
        status = file.stat()
    except OSError:
        return None
    if (others := others_who_may(status, READ | WRITE)) is None:
        return None
    return Exposed(
        f"{others} can read or change {option} {file} (mode {mode_of(status)})",
        f"chmod 600 {shlex.quote(str(file))} (Kubernetes: defaultMode 0400 of the volume)",
    )


def exposed_files(settings: Settings) -> Iterator[str]:
    """A sentence for each such file."""
    for option, file in secret_files(settings):
        if (fault := exposed(option, file)) is not None:
            yield f"{fault.says}: {fault.cure}"
