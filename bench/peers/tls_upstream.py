"""The load's upstream with TLS, and an authority that is made for one run: each peer verifies the upstream by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from bench.peers.peer import Origin, upstream

# What the upstream's certificate is for. nginx and haproxy are told the name; ours verifies the address of its URL.
UPSTREAM_NAME, UPSTREAM_ADDRESS = "upstream.test", "127.0.0.1"


@contextmanager
def tls_upstream(directory: Path, *names: str) -> Iterator[Origin]:
    """Started, with its files in `directory`. `names`: what its certificate is for, if not for the two above."""
    authority, ca, certificate = trustme.CA(), directory / "ca.pem", directory / "upstream.pem"
    authority.cert_pem.write_to_path(ca)
    issued = authority.issue_cert(*(names or (UPSTREAM_NAME, UPSTREAM_ADDRESS)))
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    with upstream(certificate) as peer:
        yield Origin(peer.port, ca)
