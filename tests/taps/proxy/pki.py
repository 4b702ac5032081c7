"""A test authority, certificates that it signed, and clients that trust it."""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme

from streamgauge.taps.proxy.relay_settings import RelaySettings
from tests.taps.proxy.rig import RawUpstream, RunningRelay, settings_for


@dataclass(frozen=True)
class Pki:
    """An authority, and files of certificates that it signed: for 127.0.0.1, for another name, for a client."""

    authority: trustme.CA
    ca: Path
    server: Path
    other: Path
    client: Path

    def settings(self, folder: Path, upstream: RawUpstream, **more: object) -> RelaySettings:
        return settings_for(folder, f"https://127.0.0.1:{upstream.port}", **{"upstream_ca": self.ca, **more})


def write(folder: Path, name: str, signed: trustme.LeafCert) -> Path:
    path = folder / name
    signed.private_key_and_cert_chain_pem.write_to_path(path)
    return path


def make_pki(folder: Path) -> Pki:
    """Creates all certificates and keys as files of that folder."""
    authority = trustme.CA()
    ca = folder / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    server = write(folder, "server.pem", authority.issue_cert("127.0.0.1"))
    other = write(folder, "other.pem", authority.issue_cert("other.example"))
    return Pki(authority, ca, server, other, write(folder, "client.pem", authority.issue_cert("tap@example.com")))


def connect(
    relay: RunningRelay, pki: Pki, authority: trustme.CA | None = None, plain: socket.socket | None = None
) -> ssl.SSLSocket:
    """A client that verifies the relay with that authority, on that connection or a new one."""
    context = ssl.create_default_context()
    (authority or pki.authority).configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = plain or relay.connect()
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
    except OSError:
        plain.close()
        raise
