"""Files with secrets that the settings name: other users cannot read them. The key of digests has a check of its own."""

from collections.abc import Sequence

from streamgauge.doctor.findings import Finding, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.threads import in_thread
from streamgauge.settings.declarations import SETTINGS
from streamgauge.settings.exposed_files import exposed, secret_files


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding for each file that others can read or change; else one for all. Nothing if the settings name none."""
    names = [name for name, setting in SETTINGS.items() if installation.command in setting.commands]
    files = list(secret_files(installation.settings, names))
    found = await in_thread(lambda: [warn(*fault) for one in files if (fault := exposed(*one)) is not None])
    return found or ([ok("no other user can read the files of secrets")] if files else [])
