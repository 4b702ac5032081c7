"""Which brokers, and how they are met: one frozen value, made once from the settings and handed to every client of Kafka.

TLS is that of `ssl.create_default_context`: 1.2 or newer, the broker verified by authority and host name, with no switch
to turn that off. A protocol is never chosen by what a broker offers: what is not agreed on fails, and nothing falls back
to plain text. Files (authorities, certificate, key, password) are looked at before each new connection, so that what was
renewed or rotated is used from the next one on. No secret is in a repr, a log line or a setting's value.
"""

import logging
import ssl
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from aiokafka.client import AIOKafkaClient  # type: ignore[import-untyped]

from streamgauge.kafka.connections import break_as_expected
from streamgauge.runtime.certificates import State, load_certificate, reading_authorities, state_of

_LOG = logging.getLogger("streamgauge.kafka")

# A password's file is read whole, and by mistake it may be any file (bytes): passwords are far shorter.
_MAX_PASSWORD = 4096
# Under this name aiokafka's client keeps the password, and looks it up for each connection that it opens (0.13 to 0.14).
_WHERE = "_sasl_plain_password"


class Protocol(StrEnum):
    """Kafka's own names (security.protocol)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def login(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class Mechanism(StrEnum):
    """How to log in, by Kafka's own names (sasl.mechanism)."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class Password:
    """A password, or the file that holds one. `now` reads the file anew; where that fails, the last one read stays.

    Raises ValueError for a file that cannot be read or holds none.
    """

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        self._file = file
        self._last = text if file is None else _password_in(file)
        if not self._last:
            raise ValueError("the password is empty")

    def now(self) -> str:
        """The password to log in with."""
        if self._file is not None:
            try:
                self._last = _password_in(self._file)
            except ValueError as fault:
                _LOG.debug("the previous password stays in use: %s", fault)
        assert self._last is not None
        return self._last

    def __repr__(self) -> str:
        return "Password(...)" if self._file is None else f"Password(in {str(self._file)!r})"


def _password_in(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_PASSWORD + 1).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the password in {file} is not UTF-8") from None
    except OSError as fault:
        name, hint = (f" {file}", "") if _is_path(file) else ("", " (path not shown, because it may be the password)")
        raise ValueError(f"the password file{name} cannot be read: {fault.strerror}{hint}") from None
    if not text or "\0" in text or "\n" in text or len(text) > _MAX_PASSWORD:
        raise ValueError(f"the password file {file} does not contain exactly one line with a password")
    return text


def _is_path(file: Path) -> bool:
    """Whether this is a path for certain, and not a password that was given in place of its file."""
    directory = file.parent
    try:
        return file.exists() or (directory.is_dir() and directory not in (Path.cwd(), Path(file.anchor)))
    except OSError:  # its name is too long for one
        return False


@dataclass(frozen=True)
class Login:
    """Who we are to a broker that asks."""

    username: str
    password: Password
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. `authorities` None: the system's (or SSL_CERT_FILE's); `key` None: it lies in the certificate's file."""

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def state(self) -> list[State | None]:
        """What tells one version of the files from the next."""
        return [state_of(file) for file in (self.authorities, self.certificate, self.key) if file is not None]

    def context(self) -> ssl.SSLContext:
        """A context with what the files hold now. Raises ValueError."""
        with reading_authorities(self.authorities):
            context = ssl.create_default_context(cafile=self.authorities)
        if self.certificate is not None:
            load_certificate(context, self.certificate, self.key)
        return context


class FollowingContext(ssl.SSLContext):
    """A client's TLS context that takes its files anew once they have changed. Raises ValueError if they are no good.

    Files that are no good later, half written or removed, are said once, and the former ones are used.
    """

    _files: TlsFiles
    _seen: list[State | None]
    _inner: ssl.SSLContext

    def __new__(cls, files: TlsFiles) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        made._files = files
        made._seen = files.state()
        made._inner = files.context()
        return made

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """One connection's TLS: asyncio and uvloop make each by this."""
        seen = self._files.state()
        if seen != self._seen:
            self._seen = seen
            try:
                self._inner = self._files.context()
            except ValueError as fault:
                _LOG.warning("%s; the previous files stay in use", fault)
        return self._inner.wrap_bio(*given, **named)


@dataclass(frozen=True)
class Brokers:
    """`bootstrap`: HOST:PORT, separated by commas. Without `tls` and `login` a broker is met in plain text.

    Raises ValueError for files that cannot be used.
    """

    bootstrap: str
    tls: TlsFiles | None = None
    login: Login | None = None

    def __post_init__(self) -> None:
        _ = self.context  # files that are no good are told of at the start, not at the first connection

    def __str__(self) -> str:
        return self.bootstrap

    @property
    def protocol(self) -> Protocol:
        if self.login is None:
            return Protocol.PLAINTEXT if self.tls is None else Protocol.SSL
        return Protocol.SASL_PLAINTEXT if self.tls is None else Protocol.SASL_SSL

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        return None if self.tls is None else FollowingContext(self.tls)

    def options(self) -> dict[str, Any]:
        """What every client of aiokafka is made with: where, by which protocol, as whom."""
        break_as_expected()
        return {"bootstrap_servers": self.bootstrap, **self.security()}

    def security(self) -> dict[str, Any]:
        """By which protocol and as whom. The password is a Password, which each connection reads."""
        options: dict[str, Any] = {"security_protocol": self.protocol.value, "ssl_context": self.context}
        if self.login is not None:
            read_passwords_late()
            options |= {
                "sasl_mechanism": self.login.mechanism.value,
                "sasl_plain_username": self.login.username,
                "sasl_plain_password": self.login.password,
            }
        return options


def brokers_at(given: "Brokers | str") -> Brokers:
    """As given; an address alone means plain text."""
    return given if isinstance(given, Brokers) else Brokers(given)


def read_passwords_late() -> None:
    """Let aiokafka's clients take a Password, and read it for each connection that they open.

    They have no way to be told a new one: without this a rotated password would need every client made anew, and Faust's
    cannot be.
    """
    if _WHERE not in vars(AIOKafkaClient):
        setattr(AIOKafkaClient, _WHERE, property(_read, _keep))


def _read(client: Any) -> str | None:
    kept = vars(client).get(_WHERE)
    return kept.now() if isinstance(kept, Password) else kept


def _keep(client: Any, password: Any) -> None:
    vars(client)[_WHERE] = password
