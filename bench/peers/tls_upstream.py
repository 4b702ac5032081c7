"""The load's upstream with TLS, and a certificate authority for one run, by which each peer verifies the upstream."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from bench.peers.peer import Origin, upstream

# The names in the upstream's certificate. nginx and haproxy verify the name, the tap verifies the address in its URL.
UPSTREAM_NAME, UPSTREAM_ADDRESS = "upstream.test", "127.0.0.1"


@contextmanager
def tls_upstream(directory: Path, *names: str) -> Iterator[Origin]:
    """Runs it, with its files in `directory`. `names`: those in its certificate, by default the two above."""
    authority, ca, certificate = trustme.CA(), directory / "ca.pem", directory / "upstream.pem"
    authority.cert_pem.write_to_path(ca)
    issued = authority.issue_cert(*(names or (UPSTREAM_NAME, UPSTREAM_ADDRESS)))
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    with upstream(certificate) as peer:
        yield Origin(peer.port, ca)
