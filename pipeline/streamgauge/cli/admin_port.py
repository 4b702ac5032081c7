"""The admin port of a tap and of a worker: who may use it. For a worker, nothing of taps is imported."""

import os
from collections.abc import Callable
from dataclasses import replace

from streamgauge import __version__
from streamgauge.errors import UsageFault
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.metrics.admin_log import AdminLog
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.runtime.listeners import is_loopback
from streamgauge.settings.declarations import SETTINGS, WORKER_ADMIN, Settings
from streamgauge.settings.exposed_files import exposed_files
from streamgauge.settings.types import ENV_PREFIX

TOKEN_VARIABLE = f"{ENV_PREFIX}ADMIN_TOKEN"


def check_admin(settings: Settings) -> None:
    """Checks what `admin_access` needs, and changes nothing. Raises UsageFault."""
    _checked(settings, os.environ.get(TOKEN_VARIABLE))


def admin_access(settings: Settings, warn: Callable[[str], object]) -> Access:
    """Who may use the admin port. Raises UsageFault, also for a port that other hosts reach without a token.

    Removes the token from the environment, since no child needs it. `warn` takes a sentence about a token without TLS, and
    one about each file of secrets that other users may read or change.
    """
    for sentence in exposed_files(settings):
        warn(sentence)
    token, certificate = _checked(settings, os.environ.pop(TOKEN_VARIABLE, None))
    log = _admin_log(settings)
    if token is not None and certificate is None and not is_loopback(settings.admin.host):
        warn(
            f"the token of the admin port {settings.admin} crosses the network in plain text: give the port a"
            " certificate with --admin-tls-certificate, unless something else encrypts its connections"
        )
    return Access(token, certificate, log)


def _checked(settings: Settings, token_text: str | None) -> tuple[Token | None, ServerCertificate | None]:
    token = _token(settings, token_text)
    if token is not None and settings.admin_open:
        raise UsageFault("--admin-open has no effect with a token: give either")
    if token is None and not settings.admin_open and not is_loopback(settings.admin.host):
        raise UsageFault(
            f"other hosts can reach the admin port {settings.admin}: give a token with --admin-token-file FILE or"
            f" {TOKEN_VARIABLE}, or let every client read metrics and streams with --admin-open"
        )
    for of_key in ("admin_tls_key", "admin_tls_key_password_file"):
        if getattr(settings, of_key) is not None and settings.admin_tls_certificate is None:
            raise UsageFault(f"{SETTINGS[of_key].flag} requires --admin-tls-certificate")
    if settings.admin_tls_certificate is None:
        return token, None
    try:
        key = settings.admin_tls_key, settings.admin_tls_key_password_file
        return token, ServerCertificate(settings.admin_tls_certificate, *key)
    except ValueError as error:
        raise UsageFault(f"--admin-tls-certificate: {error}") from None


def _admin_log(settings: Settings) -> AdminLog | None:
    """The admin log. Raises UsageFault for a file that cannot be written."""
    if settings.admin_log is None:
        return None
    try:
        log = AdminLog(settings.admin_log)
    except OSError as error:
        raise UsageFault(f"--admin-log {settings.admin_log} cannot be written: {error.strerror or error}") from None
    from streamgauge.cli.settings import shown_settings  # it imports all commands, which takes time

    log.started(__version__, {row.setting: row.value for row in shown_settings(settings, "") if row.from_ != "default"})
    return log


def admin_token(settings: Settings) -> Token | None:
    """The token, from its file or the environment, where it is removed. Raises UsageFault."""
    return _token(settings, os.environ.pop(TOKEN_VARIABLE, None))


def _token(settings: Settings, text: str | None) -> Token | None:
    file = settings.admin_token_file
    if text and file is not None:
        raise UsageFault(f"the token is given twice: give either --admin-token-file FILE or {TOKEN_VARIABLE}")
    if not text and file is None:
        return None
    try:
        return Token(text or None, file)
    except ValueError as error:
        raise UsageFault(f"{TOKEN_VARIABLE if file is None else '--admin-token-file'}: {error}") from None


def with_worker_admin_port(settings: Settings) -> Settings:
    """The settings with an admin port that differs from a tap's, if none is set."""
    return settings if "admin" in settings.given else replace(settings, admin=WORKER_ADMIN)
