"""The settings that protect the admin port. `config.py` has its address."""

from dataclasses import dataclass
from pathlib import Path

from streamgauge.setting_types import FILE, declared, switch

# The commands that have an admin port.
_SERVING = ("up", "tap", "up packets", "tap packets", "worker", "demo")


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    """Who may use the admin port, and its TLS."""

    admin_token_file: Path | None = declared(
        FILE,
        None,
        "file that contains the token of --admin, read for each request; or set the variable STREAMGAUGE_ADMIN_TOKEN",
        (*_SERVING, "top"),
        "Operation",
    )
    admin_tls_certificate: Path | None = declared(
        FILE,
        None,
        "PEM file of the certificate with which --admin is served over TLS; reloaded when it changes",
        _SERVING,
        "Operation",
    )
    admin_tls_key: Path | None = declared(
        FILE,
        None,
        "PEM file of the private key of --admin-tls-certificate",
        _SERVING,
        "Operation",
        default_text="that file",
    )
    admin_tls_key_password_file: Path | None = declared(
        FILE,
        None,
        "file that contains the password of --admin-tls-key, read when the key is loaded",
        _SERVING,
        "Operation",
    )
    admin_log: Path | None = declared(
        FILE,
        None,
        "file to which lines of JSON are appended: who read what at --admin, what it refused, and the settings at each start",
        _SERVING,
        "Operation",
    )
    admin_open: bool = declared(
        switch(),
        False,
        "serve --admin to other hosts without a token: every client that reaches it reads metrics and streams",
        _SERVING,
        "Operation",
    )
    admin_ca: Path | None = declared(
        FILE, None, "PEM file of CAs to trust for an https address", ("top",), "Operation", default_text="the system's"
    )
