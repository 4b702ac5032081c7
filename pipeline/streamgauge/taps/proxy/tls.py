"""TLS on both sides: trusted authorities, certificates, and the reload of the relay's own certificate.

Contexts are those of `ssl.create_default_context`: TLS 1.2 or newer, and upstreams verified by authority and name.
"""

import ssl
from pathlib import Path

from streamgauge.runtime.certificates import State, load_certificate, reading_authorities, state_of

# Interval at which the certificate's files are checked for changes (seconds). Certificates are renewed days before they
# expire, so this need not be shorter.
CHECK_S = 10.0

_HTTP_1 = ["http/1.1"]


def upstream_context(
    authorities: Path | None, certificate: Path | None, key: Path | None, key_password: Path | None = None
) -> ssl.SSLContext:
    """Returns the context for https upstreams. It trusts the system's authorities (or those of SSL_CERT_FILE) and those of
    the file `authorities`, and shows `certificate` to upstreams that request one. Raises ValueError for unusable files.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(_HTTP_1)
    if authorities is not None:
        with reading_authorities(authorities):
            context.load_verify_locations(cafile=authorities)
    if certificate is not None:
        load_certificate(context, certificate, key, key_password)
    return context


class ServerCertificate:
    """The relay's own certificate. `key` None: the key is in the certificate's file. `key_password`: the file with the
    key's password. Raises ValueError.
    """

    def __init__(self, certificate: Path, key: Path | None, key_password: Path | None = None) -> None:
        self._certificate, self._key, self._key_password = certificate, key, key_password
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
        self._new()  # a trial: a failed load would damage the context that is in use
        load_certificate(self.context, self._certificate, self._key, self._key_password)
        return True

    def _new(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_HTTP_1)
        load_certificate(context, self._certificate, self._key, self._key_password)
        return context

    def _states(self) -> list[State | None]:
        files = (self._certificate, self._key, self._key_password)
        return [state_of(name) for name in files if name is not None]
