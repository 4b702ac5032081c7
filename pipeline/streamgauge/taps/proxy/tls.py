"""TLS to upstreams: trusted authorities and the client certificate.

The context is that of `ssl.create_default_context`: TLS 1.2 or newer, and upstreams verified by authority and name.
"""

import ssl
from pathlib import Path

from streamgauge.runtime.certificates import HTTP_1, load_certificate, reading_authorities


def upstream_context(
    authorities: Path | None, certificate: Path | None, key: Path | None, key_password: Path | None = None
) -> ssl.SSLContext:
    """Returns the context for https upstreams. It trusts the system's authorities (or those of SSL_CERT_FILE) and those of
    the file `authorities`, and shows `certificate` to upstreams that request one. Raises ValueError for unusable files.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(HTTP_1)
    if authorities is not None:
        with reading_authorities(authorities):
            context.load_verify_locations(cafile=authorities)
    if certificate is not None:
        load_certificate(context, certificate, key, key_password)
    return context
