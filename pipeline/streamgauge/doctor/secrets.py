"""Files with secrets that the settings name: other users cannot read them. The key of digests has a check of its own."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.config import SETTINGS
from streamgauge.doctor.findings import Finding, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.threads import in_thread
from streamgauge.runtime.ownership import READ, WRITE, mode_of, others_who_may

# The ends of the names of such settings.
_ENDS = ("_key", "_password_file", "_token_file", "_header_file", "ledger_file")


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding for each file that others can read or change; else one for all. Nothing if the settings name none."""
    files = list(_named(installation))
    found = await in_thread(lambda: [finding for one in files if (finding := _of(*one)) is not None])
    return found or ([ok("no other user can read the files of secrets")] if files else [])


def _named(installation: Installation) -> Iterator[tuple[str, Path]]:
    for name, setting in SETTINGS.items():
        if installation.command in setting.commands and name.endswith(_ENDS) and getattr(installation.settings, name):
            yield setting.flag, getattr(installation.settings, name)


def _of(option: str, file: Path) -> Finding | None:
    try:
        found = file.stat()
    except OSError:
        return None  # the check of the settings says why it cannot be used
    if (others := others_who_may(found, READ | WRITE)) is None:
        return None
    cure = f"chmod 600 {shlex.quote(str(file))} (Kubernetes: defaultMode 0400 of the volume)"
    return warn(f"{others} can read or change {option} {file} (mode {mode_of(found)})", cure)
