"""The certificates that this installation presents itself: when they expire."""

import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.doctor.findings import Finding, fail, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.threads import in_thread
from streamgauge.doctor.upstreams import WARN_DAYS
from streamgauge.runtime.certificates import Invalid, load_certificate, why_invalid
from streamgauge.settings.declarations import SETTINGS

# Messages that the two sides of a handshake exchange in memory, at most: four are needed.
_ROUNDS = 10
_CERTIFICATE = "_certificate"
# The one certificate that is read at the start alone.
_OF_UPSTREAMS = SETTINGS["upstream_certificate"].flag
_RESTART = "renew it, and restart the tap: it loads the file when it starts"
_BY_TIME = (Invalid.EXPIRED, Invalid.NOT_YET)


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding for each certificate that can be read; the check of the settings reports the others."""
    return [finding for one in _named(installation) if (finding := await in_thread(_of, *one)) is not None]


def _named(installation: Installation) -> Iterator[tuple[str, Path, Path | None, Path | None]]:
    """The option of each certificate that the command uses, the certificate, its key, and the file of the key's password."""
    settings = installation.settings
    for name, setting in SETTINGS.items():
        if name.endswith(_CERTIFICATE) and installation.command in setting.commands and getattr(settings, name):
            key = f"{name.removesuffix(_CERTIFICATE)}_key"
            password = getattr(settings, f"{key}_password_file", None)
            yield setting.flag, getattr(settings, name), getattr(settings, key), password


def _of(option: str, certificate: Path, key: Path | None, password: Path | None) -> Finding | None:
    cure = _RESTART if option == _OF_UPSTREAMS else "renew it: a running process loads the new file"
    try:
        ends_s = ends_s_of(certificate, key, password)
    except ssl.SSLCertVerificationError as fault:
        why = why_invalid(fault)
        # Such as a certificate that is for clients only, which the handshake does not accept from a server.
        return fail(f"{option} {certificate}: the certificate {why}", cure) if why in _BY_TIME else None
    except (ValueError, OSError):
        return None
    days = (ends_s - time.time()) / 86_400
    if days < WARN_DAYS:
        return warn(f"{option} {certificate}: the certificate expires in {days:.0f} days", cure)
    return ok(f"{option} {certificate}: the certificate is valid for {days:.0f} days")


def ends_s_of(certificate: Path, key: Path | None, password: Path | None) -> float:
    """When the certificate of a file expires (seconds since 1970).

    Python reads the fields of a certificate only after a handshake that verified it, so this makes one in memory, with a
    client that trusts this certificate alone. Raises ValueError, OSError, or ssl.SSLCertVerificationError if it is expired.
    """
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(server, certificate, key, password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cafile=certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_ROUNDS):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if side is ours and (found := ours.getpeercert()):
                return ssl.cert_time_to_seconds(str(found["notAfter"]))
    raise ValueError("the handshake does not end")
