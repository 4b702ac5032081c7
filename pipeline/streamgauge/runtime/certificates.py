"""Loads PEM files into a TLS context, and a server's own certificate again when its files change.

An unusable file gives a sentence; `state_of` shows whether a file has changed.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from streamgauge.runtime.secret import read_secret

# Interval at which the files of a server's certificate are checked for changes (seconds). Certificates are renewed days
# before they expire, so this need not be shorter.
CHECK_S = 10.0

# The only protocol inside TLS that this program speaks (ALPN).
HTTP_1 = ["http/1.1"]

State = tuple[int, int, int]

# OpenSSL's codes for an invalid certificate (X509_V_ERR_* in x509_vfy.h).
_EXPIRED, _NOT_YET = 10, 9
_OTHER_HOST, _OTHER_ADDRESS = 62, 64
_UNTRUSTED = (2, 18, 19, 20, 21, 27)


class Invalid(StrEnum):
    """Reasons why the certificate of a server is invalid, as parts of a sentence."""

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
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


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


class ServerCertificate:
    """The certificate that a server shows to its clients. `key` None: it is in the certificate's file. `key_password`: the
    file with the key's password. `client_ca`: the file of the authorities whose certificates clients must present; None: they
    need none. Raises ValueError.

    `context`: for the next connections; with a `client_ca` another one after each change.
    """

    def __init__(
        self, certificate: Path, key: Path | None, key_password: Path | None = None, client_ca: Path | None = None
    ) -> None:
        self._certificate, self._key, self._key_password = certificate, key, key_password
        self._client_ca = client_ca
        self._seen = self._states()
        self.context = self._new()

    def renew(self) -> bool:
        """Loads the files again if they have changed, and returns whether they had. Raises ValueError if they cannot be used:
        then the former certificate stays, and the files are loaded again after their next change.
        """
        seen = self._states()
        if seen == self._seen:
            return False
        self._seen = seen
        context = self._new()  # a failed load would damage the context that is in use
        if self._client_ca is not None:
            self.context = context  # in the other one, authorities that were removed from the file would stay
        else:
            load_certificate(self.context, self._certificate, self._key, self._key_password)
        return True

    def _new(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(HTTP_1)
        load_certificate(context, self._certificate, self._key, self._key_password)
        if self._client_ca is not None:
            with reading_authorities(self._client_ca):
                context.load_verify_locations(cafile=self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _states(self) -> list[State | None]:
        files = (self._certificate, self._key, self._key_password, self._client_ca)
        return [state_of(name) for name in files if name is not None]


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
