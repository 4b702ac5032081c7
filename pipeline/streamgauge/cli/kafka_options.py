"""Makes the `Brokers` value with which every Kafka client is created, from the settings.

A password comes from the environment (STREAMGAUGE_KAFKA_PASSWORD) or from a file, never from a flag: every user of the host
can read command lines.
"""

import os
from pathlib import Path

from streamgauge.errors import UsageFault
from streamgauge.kafka.security import Brokers, Login, Mechanism, Password, Protocol, TlsFiles
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.types import ENV_PREFIX

PASSWORD_VARIABLE = f"{ENV_PREFIX}KAFKA_PASSWORD"

# Settings of TLS and of the login.
_TLS = ("kafka_ca", "kafka_certificate", "kafka_key", "kafka_key_password_file")
_LOGIN = ("kafka_username", "kafka_password_file", "kafka_mechanism")


def brokers_of(settings: Settings) -> Brokers:
    """The brokers with their security settings. Raises UsageFault. Removes the password from the environment, since no
    child needs it.
    """
    if not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: give one or more brokers")
    password = os.environ.pop(PASSWORD_VARIABLE, None) or None
    protocol = Protocol(settings.kafka_security)
    _check(settings, protocol, password is not None)
    try:
        files = settings.kafka_ca, settings.kafka_certificate, settings.kafka_key, settings.kafka_key_password_file
        tls = TlsFiles(*files) if protocol.tls else None
        login = _login(settings, password) if protocol.login else None
        return Brokers(settings.kafka, tls, login)
    except ValueError as fault:
        raise UsageFault(f"--kafka-security {protocol}: {fault}") from None


def _login(settings: Settings, password: str | None) -> Login:
    file: Path | None = settings.kafka_password_file
    if not settings.kafka_username:
        raise ValueError("--kafka-username is missing: give the user name for the login")
    if (file is None) == (password is None):
        problem = "is missing: give" if file is None else "is given twice: give either"
        raise ValueError(f"the password {problem} --kafka-password-file FILE or {PASSWORD_VARIABLE} in the environment")
    mechanism = Mechanism(settings.kafka_mechanism)
    return Login(settings.kafka_username, Password(password, file), mechanism)


def _check(settings: Settings, protocol: Protocol, has_password: bool) -> None:
    """Rejects options that would have no effect: an operator who names a CA does not want plain text. Raises UsageFault."""
    tls = [SETTINGS[name].flag for name in _TLS if name in settings.given]
    login = [SETTINGS[name].flag for name in _LOGIN if name in settings.given]
    login += [PASSWORD_VARIABLE] if has_password else []
    if "kafka_security" not in settings.given and (tls or login):
        raise UsageFault(f"{(tls + login)[0]} requires --kafka-security (SSL, SASL_SSL or SASL_PLAINTEXT)")
    for flags, fits, other in ((tls, protocol.tls, "SSL or SASL_SSL"), (login, protocol.login, "SASL_SSL")):
        if flags and not fits:
            raise UsageFault(f"{flags[0]} has no effect with --kafka-security {protocol}: it requires {other}")
    for of_key in ("kafka_key", "kafka_key_password_file"):
        if getattr(settings, of_key) is not None and settings.kafka_certificate is None:
            raise UsageFault(f"{SETTINGS[of_key].flag} requires --kafka-certificate")
