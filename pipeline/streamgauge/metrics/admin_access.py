"""Who may use the admin port, and how: the token that requests need, and the certificate of its TLS.

A client sends the token as `Authorization: Bearer TOKEN`, as Prometheus does. A browser asks for a user name and a password
(HTTP Basic): the password is the token, and any user name does. There is no cookie, and no token in a URL, which logs and
histories would keep. Other sites may make a browser send its login: they cannot read the answer, and the port takes no
commands.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path

from streamgauge.metrics.admin_log import AdminLog
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.runtime.secret import Secret

# The least length of a token: 16 characters of `openssl rand -hex` are 64 bits, too many to guess over a network.
MIN_TOKEN = 16

# Of a 401: browsers then ask for the token. Several challenges in one header confuse them, so Bearer is not among them.
CHALLENGE = 'Basic realm="streamgauge", charset="UTF-8"'

_PRINTABLE = re.compile("[!-~]+")


class Token(Secret):
    """The token of the admin port: at least MIN_TOKEN printable characters of ASCII. A changed file is used at once."""

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        super().__init__("token", text, file)

    def accepts(self, authorization: str) -> bool:
        """Whether an Authorization header has the token. The time it takes does not depend on how much of it is right."""
        return hmac.compare_digest(_digest(_credential(authorization)), _digest(self.now().encode()))

    def _checked(self, text: str) -> str:
        if len(text) < MIN_TOKEN or not _PRINTABLE.fullmatch(text):
            raise ValueError(
                f"the token is not one of at least {MIN_TOKEN} letters, digits and signs, without blanks: make one with"
                " `openssl rand -hex 32`"
            )
        return text


@dataclass(frozen=True)
class Access:
    """`token` None: every client that reaches the port may read it. `certificate` None: without TLS. `log` None: the admin
    log is not kept.
    """

    token: Token | None = None
    certificate: ServerCertificate | None = None
    log: AdminLog | None = None

    @property
    def scheme(self) -> str:
        """The scheme of the port's URLs."""
        return "http" if self.certificate is None else "https"


# Neither a token nor TLS.
OPEN = Access()


def _credential(authorization: str) -> bytes:
    """What a Bearer header holds, or the password of a Basic one; empty for any other."""
    scheme, _, value = authorization.strip().partition(" ")
    given = value.strip().encode(errors="surrogateescape")  # the header's own bytes
    if scheme.lower() == "bearer":
        return given
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(given, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _digest(value: bytes) -> bytes:
    """Of one length: a comparison of the values themselves would show the token's length."""
    return hashlib.sha256(value).digest()
