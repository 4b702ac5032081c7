"""TLS on both sides: what the relay trusts, what it shows, and its own certificate taken anew when its file changes.

Contexts are those of `ssl.create_default_context`: TLS 1.2 or newer, and upstreams verified by authority and name.
"""

import ssl
from pathlib import Path

# How often it is looked whether a certificate's file has changed (seconds): renewals come days before the end.
LOOK_S = 10.0

_HTTP_1 = ["http/1.1"]


def upstream_context(authorities: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """What https upstreams are met with: the system's authorities (or those of SSL_CERT_FILE) and `authorities` besides;
    and a certificate of ours for whoever asks for one. Raises ValueError.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(_HTTP_1)
    if authorities is not None:
        try:
            context.load_verify_locations(cafile=authorities)
        except (ssl.SSLError, OSError) as fault:
            raise ValueError(f"the authorities in {authorities} cannot be used: {_why(fault)}") from None
    if certificate is not None:
        _load(context, certificate, key)
    return context


class OwnCertificate:
    """The certificate that clients see. `key` None: it lies in the certificate's file. Raises ValueError."""

    def __init__(self, certificate: str, key: str | None) -> None:
        self._certificate, self._key = certificate, key
        self._seen = self._look()
        self.context = self._new()

    def renew(self) -> bool:
        """Takes the files anew if they have changed; says whether. Raises ValueError if they cannot be used: then the
        former certificate stays, until they change again.
        """
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        self._new()  # half a renewal would spoil the context that is in use
        _load(self.context, self._certificate, self._key)
        return True

    def _new(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_HTTP_1)
        _load(context, self._certificate, self._key)
        return context

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state(Path(name)) for name in (self._certificate, self._key) if name is not None]


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _load(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError) as fault:
        files = certificate if key is None else f"{certificate} with the key {key}"
        raise ValueError(f"the certificate {files} cannot be used: {_why(fault)}") from None


def _no_password() -> str:
    """OpenSSL would ask the terminal."""
    raise ValueError("a certificate's key is locked with a password: give one that is not")


def _why(fault: OSError) -> str:
    if isinstance(fault, ssl.SSLError):
        return (fault.reason or "no PEM of that kind").lower().replace("_", " ")
    return fault.strerror or str(fault)
