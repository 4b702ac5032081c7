"""Access to the admin port: the token that requests need, and the certificate of its TLS.

A client sends the token as `Authorization: Bearer TOKEN`, as Prometheus does. A browser asks for a user name and a password
(HTTP Basic): the password is the token, and any user name does. There is no cookie, and no token in a URL, which logs and
histories would keep. Other sites may make a browser send its login: they cannot read the answer, and the port takes no
commands.

Guesses of the token are slowed down by the address of the client. The answer to a wrong token is delayed by DELAY_S, and
while MAX_WAITING such answers of an address are delayed, further tokens from it are refused without being compared. So an
address has at most MAX_WAITING guesses a second. IPv6 addresses of one /64 count as one, since a host has all of them. A
client with the right token is refused only while another client at the same address guesses. While very many addresses guess,
only addresses from which the right token came before are served.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from streamgauge.metrics.admin_log import AdminLog
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.runtime.secret import Secret

# The least length of a token: 16 characters of `openssl rand -hex` are 64 bits, too many to guess over a network.
MIN_TOKEN = 16

# Of a 401: browsers then ask for the token. Several challenges in one header confuse them, so Bearer is not among them.
CHALLENGE = 'Basic realm="streamgauge", charset="UTF-8"'

# How long the answer to a wrong token is delayed (seconds).
DELAY_S = 1.0
# The most delayed answers of an address: more than the scrapers of a host that have an old token after a rotation.
MAX_WAITING = 8
# The same of all addresses together, so that a client with many addresses uses no memory.
MAX_ALL = 256
# The latest addresses with the right token that are known: scrapers and operators.
MAX_KNOWN = 64

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


class TokenGuesses:
    """The wrong tokens of the last DELAY_S, and the latest addresses with the right token."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()
        self._known: dict[str, None] = {}  # the latest one last

    def may_try(self, address: str) -> bool:
        """Whether a token from this address is compared."""
        host = _host_of(address)
        return self._waiting.get(host, 0) < MAX_WAITING and (self._waiting.total() < MAX_ALL or host in self._known)

    def was_right(self, address: str) -> None:
        """Note that the right token came from this address."""
        host = _host_of(address)
        self._known.pop(host, None)
        self._known[host] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    async def delay(self, address: str) -> None:
        """Delay the answer to a wrong token."""
        host = _host_of(address)
        self._waiting[host] += 1
        try:
            await asyncio.sleep(DELAY_S)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]


@dataclass(frozen=True)
class Access:
    """The access rules of an admin port.

    `token` None: every client that reaches the port may read it. `certificate` None: without TLS. `log` None: without an
    admin log.
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
    """The token of a Bearer header, or the password of a Basic header; empty for any other."""
    scheme, _, value = authorization.strip().partition(" ")
    credential = value.strip().encode(errors="surrogateescape")  # the header's own bytes
    if scheme.lower() == "bearer":
        return credential
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(credential, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _digest(value: bytes) -> bytes:
    """The digest to compare: it has one length, so that a comparison does not show the token's."""
    return hashlib.sha256(value).digest()


def _host_of(address: str) -> str:
    try:
        host = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the connection is gone
        return ""
    return address if host.version == 4 else str(ipaddress.ip_network((host, 64), strict=False))
