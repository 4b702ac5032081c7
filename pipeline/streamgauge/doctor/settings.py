"""Settings that do not fit each other, and files that they name."""

from collections.abc import Sequence

from streamgauge.doctor.findings import Finding, fail, failure_of, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.threads import in_thread
from streamgauge.errors import MissingExtra, StreamgaugeError
from streamgauge.runtime.redaction import redacted_text


async def find(installation: Installation) -> Sequence[Finding]:
    """A failure for each attempt to use the settings that fails."""
    found = []
    for attempt in installation.attempts:
        try:
            await in_thread(attempt)
        except MissingExtra as error:
            found.append(failure_of(error))
        except StreamgaugeError as error:
            cure = f"correct it; `streamgauge config show {installation.command}` shows where each value comes from"
            found.append(fail(redacted_text(str(error)), cure))
    if installation.command != "worker" and not installation.settings.upstream:
        cure = "give --upstream NAME=URL, unless this tap is an agent (--agent)"
        found.append(warn("no upstream is given: nothing is relayed", cure))
    return found or [ok("the settings fit each other, and each file that they name can be used")]
