"""TLS of a ledger's connection to PostgreSQL: which `sslmode` applies, and what a weaker one permits.

libpq's own default, `prefer`, continues in plain text if the server refuses TLS, and verifies no certificate: an attacker
on the way gets the password. So a connection to another host has `verify-full`, unless the operator chose a mode. On this
machine another user may listen at PostgreSQL's port: there the password is not sent in plain text.
"""

import ipaddress
import os
from collections.abc import Mapping
from typing import NamedTuple

import psycopg

# libpq's mode that verifies the server's certificate and its name, and never continues in plain text.
VERIFIED = "verify-full"
# Default of libpq (a constant in its source, and so the same for each installation).
_LIBPQ_DEFAULT = "prefer"
# What an attacker on the way can do with each mode (libpq, "Protection Provided in Different Modes").
_RISKS: Mapping[str, str] = {
    "disable": "sends the password and all records in plain text",
    "allow": "may continue in plain text, and verifies no certificate",
    "prefer": "may continue in plain text, and verifies no certificate",
    "require": "encrypts, but does not verify which server answers",
}
# libpq 16 and later: every way to prove who one is, but the password in plain text.
_NOT_IN_PLAIN_TEXT: Mapping[str, str] = {"require_auth": "!password"} if psycopg.pq.version() >= 160_000 else {}


class TlsMode(NamedTuple):
    """`mode`: the sslmode of the connection, None for libpq's own. `chosen`: whether the operator chose it, or, on this
    machine, which proofs of identity the server may ask for (libpq's require_auth). `warning`: a sentence, without user and
    password, if the mode protects less than `verify-full`; empty otherwise.
    """

    mode: str | None
    chosen: bool
    warning: str

    @property
    def options(self) -> dict[str, str]:
        """The parameter that is added to the ledger's URL."""
        if self.chosen:
            return {}
        return {"sslmode": self.mode} if self.mode is not None else dict(_NOT_IN_PLAIN_TEXT)

    def hint(self, sentence: str) -> str:
        """The remedy after libpq's `sentence`, if the connection failed for a mode that is only our default; else empty."""
        if _NOT_IN_PLAIN_TEXT.items() <= self.options.items() and "cleartext password" in sentence:
            return (
                "; the server asks for the password in plain text: let pg_hba.conf say scram-sha-256, or add the parameter"
                " require_auth=password to the URL"
            )
        if not self.options or not any(word in sentence for word in ("SSL", "certificate")):
            return ""
        return (
            "; a connection to another host verifies the server: give the file of its CA as the URL's parameter sslrootcert,"
            " or choose another sslmode"
        )


def tls_of(url: Mapping[str, object]) -> TlsMode:
    """The mode of a connection with the parameters of the ledger's URL, in this process's environment.

    libpq alone reads a service that the URL names: its host counts as another host, and its sslmode does not count.
    """
    defaults = {item.keyword.decode(): (item.val or b"").decode() for item in psycopg.pq.Conninfo.get_defaults()}
    chosen = str(url.get("sslmode") or os.environ.get("PGSSLMODE") or "")
    if not chosen and defaults["sslmode"] != _LIBPQ_DEFAULT:  # in the file of PGSERVICE
        chosen = defaults["sslmode"]
    others = [host for host in _hosts(url, defaults) if not _is_local(host)]
    if not others:
        chose_proofs = url.get("require_auth") or os.environ.get("PGREQUIREAUTH")
        return TlsMode(chosen or None, bool(chosen or chose_proofs), "")
    if not chosen:
        return TlsMode(VERIFIED, False, "")
    risk = _RISKS.get(chosen)
    sentence = (
        f"the ledger's connection to {others[0]} has sslmode={chosen}, which {risk}; {VERIFIED} verifies the server"
    )
    return TlsMode(chosen, True, sentence if risk else "")


def _hosts(url: Mapping[str, object], defaults: Mapping[str, str]) -> list[str]:
    """The hosts of a connection; an address counts before a name. An empty one is the Unix socket."""
    if "service" in url:
        return [str(url.get("hostaddr") or url.get("host") or "the service's host")]
    for parameters in (url, defaults):
        names = str(parameters.get("host") or "").split(",")
        addresses = str(parameters.get("hostaddr") or "").split(",")
        hosts = [
            address or name for address, name in zip(_padded(addresses, names), _padded(names, addresses), strict=True)
        ]
        if any(hosts):
            return hosts
    return [""]


def _padded(items: list[str], others: list[str]) -> list[str]:
    return items + [""] * (len(others) - len(items))


def _is_local(host: str) -> bool:
    """Whether a connection stays on this machine: a Unix socket (a path, or @NAME), or loopback."""
    if host == "" or host.startswith(("/", "@")) or host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
