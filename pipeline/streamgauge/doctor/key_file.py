"""The installation's key. Installations that share the key file give one API key the same credential_id."""

import hashlib
import os
from collections.abc import Sequence

from streamgauge.doctor.findings import Finding, fail, failure_of, ok
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.threads import in_thread

# Characters of the fingerprint: enough to tell keys apart.
_SHOWN = 16


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding, with the key's fingerprint."""
    return [await in_thread(_key, installation)]


def _key(installation: Installation) -> Finding:
    path = installation.settings.data_dir / "key"
    if not os.path.lexists(path):
        return ok(
            f"there is no key at {path} yet: the first start makes one; to have the credential_ids of another installation,"
            " copy its key file there before (mode 0600)"
        )
    try:
        key = installation.read_key(installation.settings.data_dir)
    except ValueError as error:
        return failure_of(error)
    except OSError as error:
        return fail(f"the key {path} cannot be read ({error.strerror or error})", "check its owner and mode")
    return ok(
        f"the key has the fingerprint {fingerprint(key)}: installations with the same fingerprint give an API key the same"
        " credential_id"
    )


def fingerprint(key: bytes) -> str:
    """Tells keys apart without telling the key, which is 32 random bytes."""
    return hashlib.sha256(b"streamgauge key fingerprint\0" + key).hexdigest()[:_SHOWN]
