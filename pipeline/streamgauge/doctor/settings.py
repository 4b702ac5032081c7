"""The settings: whether they fit each other, and the files of secrets and certificates that they name."""

import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.doctor.contract import Finding, Installation, fail, failure_of, in_thread, ok, warn
from streamgauge.doctor.upstreams import WARN_DAYS
from streamgauge.errors import MissingExtra, StreamgaugeError
from streamgauge.runtime.certificates import Invalid, load_certificate, why_invalid
from streamgauge.runtime.redaction import redacted_text
from streamgauge.settings.declarations import SETTINGS
from streamgauge.settings.exposed_files import exposed, secret_files


async def check_settings(installation: Installation) -> Sequence[Finding]:
    """A failure for each attempt to use the settings that fails."""
    findings = []
    for attempt in installation.attempts:
        try:
            await in_thread(attempt)
        except MissingExtra as error:
            findings.append(failure_of(error))
        except StreamgaugeError as error:
            cure = f"correct it; `streamgauge config show {installation.command}` shows where each value comes from"
            findings.append(fail(redacted_text(str(error)), cure))
    if installation.command != "worker" and not installation.settings.upstream:
        cure = "give --upstream NAME=URL, unless this tap is an agent (--agent)"
        findings.append(warn("no upstream is given: nothing is relayed", cure))
    return findings or [ok("the settings fit each other, and each file that they name can be used")]


async def check_secrets(installation: Installation) -> Sequence[Finding]:
    """One finding for each file that others can read or change; else one for all. Nothing if the settings name none."""
    names = [name for name, setting in SETTINGS.items() if installation.command in setting.commands]
    files = list(secret_files(installation.settings, names))
    findings = await in_thread(lambda: [warn(*fault) for file in files if (fault := exposed(*file)) is not None])
    return findings or ([ok("no other user can read the files of secrets")] if files else [])


# Messages that the two sides of a handshake exchange in memory, at most: four are needed.
_ROUNDS = 10
_CERTIFICATE = "_certificate"
# The one certificate that is read at the start alone.
_OF_UPSTREAMS = SETTINGS["upstream_certificate"].flag
_RESTART = "renew it, and restart the tap: it loads the file when it starts"
_BY_TIME = (Invalid.EXPIRED, Invalid.NOT_YET)


async def check_certificates(installation: Installation) -> Sequence[Finding]:
    """One finding for each certificate that can be read; the check of the settings reports the others."""
    return [
        finding
        for certificate in _certificates(installation)
        if (finding := await in_thread(_on_expiry, *certificate)) is not None
    ]


def _certificates(installation: Installation) -> Iterator[tuple[str, Path, Path | None, Path | None]]:
    """The option of each certificate that the command uses, the certificate, its key, and the file of the key's password."""
    settings = installation.settings
    for name, setting in SETTINGS.items():
        if name.endswith(_CERTIFICATE) and installation.command in setting.commands and getattr(settings, name):
            key = f"{name.removesuffix(_CERTIFICATE)}_key"
            password = getattr(settings, f"{key}_password_file", None)
            yield setting.flag, getattr(settings, name), getattr(settings, key), password


def _on_expiry(option: str, certificate: Path, key: Path | None, password: Path | None) -> Finding | None:
    cure = _RESTART if option == _OF_UPSTREAMS else "renew it: a running process loads the new file"
    try:
        ends_s = expiry_s(certificate, key, password)
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


def expiry_s(certificate: Path, key: Path | None, password: Path | None) -> float:
    """The expiry of the certificate in a file (seconds since 1970).

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
            if side is ours and (presented := ours.getpeercert()):
                return ssl.cert_time_to_seconds(str(presented["notAfter"]))
    raise ValueError("the handshake does not end")
