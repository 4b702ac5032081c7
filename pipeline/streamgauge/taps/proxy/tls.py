"""TLS on both sides: what the relay trusts, what it shows, and its own certificate taken anew when its file changes.

Contexts are those of `ssl.create_default_context`: TLS 1.2 or newer, and upstreams verified by authority and name.
"""

import ssl
from pathlib import Path

from streamgauge.runtime.certificates import State, load_certificate, reading_authorities, state_of

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
        with reading_authorities(authorities):
            context.load_verify_locations(cafile=authorities)
    if certificate is not None:
        load_certificate(context, certificate, key)
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
        load_certificate(self.context, self._certificate, self._key)
        return True

    def _new(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_HTTP_1)
        load_certificate(context, self._certificate, self._key)
        return context

    def _look(self) -> list[State | None]:
        return [state_of(Path(name)) for name in (self._certificate, self._key) if name is not None]
