"""Broker addresses and how to connect to them: one frozen value, made from the settings and given to every Kafka client.

TLS uses `ssl.create_default_context`: version 1.2 or newer, and the broker's CA and host name are always verified. The
settings alone choose the protocol. If the broker does not support it, the connection fails; nothing falls back to plain
text. Each new connection checks the files (CA, certificate, key, password), so that it uses renewed or rotated ones. No
secret is in a repr, a log line or a setting's value.
"""

import logging
import ssl
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from streamgauge.kafka.shims.connections import patch_connections
from streamgauge.kafka.shims.passwords import read_passwords_late
from streamgauge.runtime.certificates import State, load_certificate, reading_authorities, state_of
from streamgauge.runtime.secret import Secret

_LOG = logging.getLogger("streamgauge.kafka")


class Protocol(StrEnum):
    """Kafka's own names (security.protocol)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def login(self) -> bool:
        """Whether the client logs in by SASL."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class Mechanism(StrEnum):
    """SASL mechanisms, by Kafka's own names (sasl.mechanism)."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class Password(Secret):
    """The password of a SASL login."""

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        super().__init__("password", text, file)


@dataclass(frozen=True)
class Login:
    """The SASL user, password and mechanism."""

    username: str
    password: Password
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. `authorities` None: the CAs of the system (or SSL_CERT_FILE). `key` None: it is in the certificate file.

    `key_password`: the file with the key's password; None for a key without one.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: Path | None = None

    def state(self) -> list[State | None]:
        """The present version of each file; a changed file has a different state."""
        files = (self.authorities, self.certificate, self.key, self.key_password)
        return [state_of(file) for file in files if file is not None]

    def context(self) -> ssl.SSLContext:
        """A TLS context from the present contents of the files. Raises ValueError if they cannot be used."""
        with reading_authorities(self.authorities):
            context = ssl.create_default_context(cafile=self.authorities)
        if self.certificate is not None:
            load_certificate(context, self.certificate, self.key, self.key_password)
        return context


class FollowingContext(ssl.SSLContext):
    """A client's TLS context that loads its files again when they have changed.

    Raises ValueError at creation if the files cannot be used. If changed files cannot be used later, for example because
    they are half written or removed, it logs that once and keeps the previous ones.
    """

    def __new__(cls, _files: TlsFiles) -> Self:
        """A context of a TLS client."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, files: TlsFiles) -> None:
        """Loads the files once. Raises ValueError if they cannot be used."""
        self._files = files
        self._seen = files.state()
        self._inner = files.context()

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Create the TLS object of one connection; asyncio and uvloop call this for each connection."""
        seen = self._files.state()
        if seen != self._seen:
            self._seen = seen
            try:
                self._inner = self._files.context()
            except ValueError as fault:
                _LOG.warning("%s; the previous files stay in use", fault)
        return self._inner.wrap_bio(*arguments, **options)


@dataclass(frozen=True)
class Brokers:
    """`bootstrap`: HOST:PORT, separated by commas. Without `tls` and `login`, connections are in plain text.

    Raises ValueError for files that cannot be used.
    """

    bootstrap: str
    tls: TlsFiles | None = None
    login: Login | None = None

    def __post_init__(self) -> None:
        _ = self.context  # load the files now, so that bad ones are reported at the start

    def __str__(self) -> str:
        return self.bootstrap

    @property
    def protocol(self) -> Protocol:
        """The protocol that follows from `tls` and `login`."""
        if self.login is None:
            return Protocol.PLAINTEXT if self.tls is None else Protocol.SSL
        return Protocol.SASL_PLAINTEXT if self.tls is None else Protocol.SASL_SSL

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of all connections; None without TLS. Raises ValueError if its files cannot be used."""
        return None if self.tls is None else FollowingContext(self.tls)

    def options(self) -> dict[str, Any]:
        """The arguments of every aiokafka client: the addresses, and the arguments of `security`."""
        return {"bootstrap_servers": self.bootstrap, **self.security()}

    def security(self) -> dict[str, Any]:
        """The arguments for protocol, TLS and log-in. The password is a Password, which each new connection reads."""
        patch_connections()
        options: dict[str, Any] = {"security_protocol": self.protocol.value, "ssl_context": self.context}
        if self.login is not None:
            read_passwords_late()
            options |= {
                "sasl_mechanism": self.login.mechanism.value,
                "sasl_plain_username": self.login.username,
                "sasl_plain_password": self.login.password,
            }
        return options


def brokers_at(brokers: "Brokers | str") -> Brokers:
    """Return Brokers unchanged; turn an address into Brokers with plain text connections."""
    return brokers if isinstance(brokers, Brokers) else Brokers(brokers)
