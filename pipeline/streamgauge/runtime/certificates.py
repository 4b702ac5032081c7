"""Loads PEM files into a TLS context. An unusable file gives a sentence; `state_of` shows whether a file has changed."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from streamgauge.runtime.secret_file import read_secret

State = tuple[int, int, int]

# OpenSSL's codes for an invalid certificate (X509_V_ERR_* in x509_vfy.h).
_EXPIRED, _NOT_YET = 10, 9
_OTHER_HOST, _OTHER_ADDRESS = 62, 64
_UNTRUSTED = (2, 18, 19, 20, 21, 27)


class Invalid(StrEnum):
    """Why the certificate of a server is invalid, as a part of a sentence."""

    UNTRUSTED = "is not signed by a trusted CA"
    EXPIRED = "has expired"
    NOT_YET = "is not valid yet"
    OTHER_HOST = "is for another host"
    OTHER = "is not valid"


def why_invalid(fault: ssl.SSLCertVerificationError) -> Invalid:
    """The meaning of a failed verification."""
    match fault.verify_code:
        case code if code in _UNTRUSTED:
            return Invalid.UNTRUSTED
        case code if code == _EXPIRED:
            return Invalid.EXPIRED
        case code if code == _NOT_YET:
            return Invalid.NOT_YET
        case code if code in (_OTHER_HOST, _OTHER_ADDRESS):
            return Invalid.OTHER_HOST
    return Invalid.OTHER


def state_of(path: Path) -> State | None:
    """A value that changes with each version of a file (mtime in ns, size, inode); None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def reading_authorities(file: Path | str | None) -> Iterator[None]:
    """A context in which the caller reads authorities from `file`. Errors become a ValueError with a sentence."""
    try:
        yield
    except (ssl.SSLError, OSError) as fault:
        raise ValueError(f"the CA file {file} cannot be used: {_why(fault)}") from None


def load_certificate(
    context: ssl.SSLContext, certificate: Path | str, key: Path | str | None, password: Path | None = None
) -> None:
    """Load the certificate that `context` presents. `key` None: the key is in the same file. Raises ValueError.

    `password`: the file with the key's password, which is read now if the key has one.
    """
    try:
        context.load_cert_chain(
            certificate, key, password=_no_password if password is None else lambda: read_secret(password)
        )
    except (ssl.SSLError, OSError) as fault:
        files = str(certificate) if key is None else f"{certificate} with the key {key}"
        hint = "" if password is None else f"; if the key is right, check its password in {password}"
        raise ValueError(f"the certificate {files} cannot be used: {_why(fault)}{hint}") from None


def _no_password() -> str:
    """Fail for an encrypted key. Without this function OpenSSL would ask for the password at the terminal."""
    raise ValueError(
        "the private key of a certificate is encrypted: give its password with the option ...-key-password-file,"
        " or a key without a password"
    )


def _why(fault: OSError) -> str:
    if isinstance(fault, ssl.SSLError):
        return fault.reason.lower().replace("_", " ") if fault.reason else "it contains no such PEM block"
    return fault.strerror or str(fault)
