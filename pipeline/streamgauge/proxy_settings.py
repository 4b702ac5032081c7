"""The settings of the proxy alone: its upstreams' TLS, its clients, and their limits. `config.py` has all others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.setting_types import FILE, declared, seconds, switch, whole

# The commands with a proxy.
RELAYS = ("up", "tap")
_UPSTREAMS, _CLIENTS, _CAPTURE = "Upstreams", "Clients", "Capture"


def pem_file(content: str, commands: tuple[str, ...], section: str, **more: Any) -> Any:
    """A field for the path of a PEM file with this content."""
    return declared(FILE, None, f"PEM file of {content}", commands, section, **more)


def key_password_file(key: str, commands: tuple[str, ...], section: str) -> Any:
    """A field for the path of a file with the password of a private key."""
    about = f"file that contains the password of {key}, read when the key is loaded"
    return declared(FILE, None, about, commands, section)


@dataclass(frozen=True, kw_only=True)
class ProxySettings:
    """The settings that only the relays of the proxy use. Each relay gets all of them."""

    connect_timeout: float = declared(seconds(), 10.0, "time limit for connecting to an upstream", RELAYS, _UPSTREAMS)
    upstream_ca: Path | None = pem_file("CAs to trust for https upstreams, besides the system's", RELAYS, _UPSTREAMS)
    upstream_certificate: Path | None = pem_file("a client certificate for https upstreams", RELAYS, _UPSTREAMS)
    upstream_key: Path | None = pem_file(
        "the private key of --upstream-certificate", RELAYS, _UPSTREAMS, default_text="that file"
    )
    upstream_key_password_file: Path | None = key_password_file("--upstream-key", RELAYS, _UPSTREAMS)
    tls_certificate: Path | None = pem_file(
        "the certificate with which clients are served over TLS; reloaded when it changes", RELAYS, _CLIENTS
    )
    tls_key: Path | None = pem_file("the private key of --tls-certificate", RELAYS, _CLIENTS, default_text="that file")
    tls_key_password_file: Path | None = key_password_file("--tls-key", RELAYS, _CLIENTS)
    tls_client_ca: Path | None = pem_file(
        "the CAs whose certificates clients must present in TLS; a client without one is refused", RELAYS, _CLIENTS
    )
    client_token_file: Path | None = declared(
        FILE,
        None,
        'TOML file of the tokens that clients must send, by lines name = "token"; read again when it changes',
        RELAYS,
        _CLIENTS,
    )
    strip_attributes: bool = declared(
        switch(), False, "do not pass the headers of --attribute on to upstreams", RELAYS, _CAPTURE
    )
    # A request's head is held in memory, so its limit is bounded, too; a limit below 4 KiB would refuse usual clients.
    # The default is more than nginx allows (32 KiB): long cookies and trace headers fit, a flood does not.
    max_request_head: int = declared(
        whole(4 * 1024, 1024**2, unit="bytes"),
        64 * 1024,
        "largest headers of a request; larger ones are answered with 431",
        RELAYS,
        _CLIENTS,
    )
    # A body is passed on as it arrives and takes no memory (1 TiB is far more than a prompt).
    max_request_body: int | None = declared(
        whole(1, 1024**4, unit="bytes"),
        None,
        "largest body of a request; larger ones are answered with 413",
        RELAYS,
        _CLIENTS,
        default_text="no limit",
    )
    # A million is the most that the memory and descriptors of one host can serve. The default takes 40 MiB when its
    # connections are idle, and some GiB at the very worst (docs/security.md: what one connection may hold). It fits into
    # 20,000 descriptors.
    max_connections: int = declared(
        whole(1, 1_000_000), 6_000, "most client connections at a time; further ones wait", RELAYS, _CLIENTS
    )
    max_connections_per_address: int | None = declared(
        whole(1, 1_000_000),
        None,
        "most client connections from one address; further ones are closed",
        RELAYS,
        _CLIENTS,
        default_text="3/4 of --max-connections",
    )
