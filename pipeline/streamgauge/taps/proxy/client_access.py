"""Which clients may use the proxy: those with a token of its own, or with a certificate of its authority.

A token comes as `X-Streamgauge-Token: TOKEN`, or as `Proxy-Authorization: Bearer TOKEN`. Neither field goes to an upstream.
Authorization stays the client's credential for the upstream. Certificates are verified in the TLS handshake, before a
request can come.
"""

import asyncio
import hashlib
import os
import re
import shlex
from pathlib import Path

import msgspec

from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.runtime.certificates import State, state_of
from streamgauge.runtime.ownership import READ, WRITE, mode_of, others_who_may
from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.request import TOKEN_HEADER, RefusedError, Request

# The least length of a token: 16 characters of `openssl rand -hex` are 64 bits, too many to guess over a network.
MIN_TOKEN = 16
# The most that is read of the file (bytes): some 10,000 tokens.
MAX_FILE = 1024 * 1024

_PRINTABLE = re.compile("[!-~]+")
# A client's name may become its tenant.
_NAME = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")
_BEARER = b"bearer "
# Kinds of names in a certificate (subjectAltName).
_NAMED = ("URI", "DNS", "email")


class ClientTokens:
    """The tokens of clients, from a TOML file with lines `name = "token"`, or `name = ["new token", "old token"]`.

    Raises ValueError with a sentence, which quotes no token, for a file that cannot be read or used, or that other users may
    read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = state_of(file)
        self._names = _read(file)

    def renew(self) -> bool:
        """Reads the file again if it has changed, and returns whether it had. Raises ValueError if it cannot be used: then
        the former tokens stay valid.
        """
        seen: State | None = state_of(self._file)
        if seen == self._seen:
            return False
        self._seen = seen
        self._names = _read(self._file)
        return True

    def name_of(self, token: bytes) -> str | None:
        """The name of the client with this token; None if there is none. The time it takes does not depend on how much of a
        token is right, since it looks up a digest, nor on the number of clients.
        """
        return self._names.get(_digest(token))


def client_tokens(file: Path | None) -> ClientTokens | None:
    """The tokens in the file of --client-token-file; None without one. Raises ValueError."""
    return None if file is None else ClientTokens(file)


class ClientAccess:
    """Decides about each request. `tokens` None: none is required. `by_certificate`: the handshake requires a certificate."""

    def __init__(self, tokens: ClientTokens | None, *, by_certificate: bool) -> None:
        self._tokens, self._by_certificate = tokens, by_certificate

    def admit(self, request: Request, transport: asyncio.BaseTransport) -> None:
        """Sets the request's `client_name`: that of its token, else that of the certificate. Raises RefusedError if a token
        is required, and the request has no valid one.
        """
        if self._tokens is not None:
            request.client_name = self._tokens.name_of(_token(request))
            if request.client_name is None:
                raise RefusedError(
                    Refusal.CLIENT_UNAUTHORIZED,
                    "This proxy requires a token of its own, besides the upstream's key: send a valid one as"
                    " X-Streamgauge-Token: TOKEN, or as Proxy-Authorization: Bearer TOKEN.",
                )
        elif self._by_certificate:
            request.client_name = certificate_name(transport.get_extra_info("peercert"))


def certificate_name(certificate: object) -> str | None:
    """The name in a client's certificate, as Python's `getpeercert` returns it: its first URI, DNS name or e-mail address,
    else its common name; None if it has none that may name a client.
    """
    if not isinstance(certificate, dict):
        return None
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in _NAMED]
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return next((name for name in (*names, *common) if _NAME.fullmatch(name)), None)


def _token(request: Request) -> bytes:
    """The token of a request; empty if it has none, or several."""
    own = request.values(TOKEN_HEADER)
    tokens = own or [
        value.strip(b" \t")[len(_BEARER) :]
        for value in request.values(b"proxy-authorization")
        if value.strip(b" \t")[: len(_BEARER)].lower() == _BEARER
    ]
    return tokens[0].strip(b" \t") if len(tokens) == 1 else b""


def _read(file: Path) -> dict[bytes, str]:
    """The names of clients, by the digest of each token."""
    try:
        with file.open("rb") as opened:
            status, text = os.fstat(opened.fileno()), opened.read(MAX_FILE + 1)
    except OSError as fault:
        raise ValueError(f"{file} cannot be read: {fault.strerror}") from None
    if others := others_who_may(status, READ | WRITE):
        raise ValueError(
            f"{others} can read or change {file} (mode {mode_of(status)}): chmod 600 {shlex.quote(str(file))}"
        )
    if len(text) > MAX_FILE:
        raise ValueError(f"{file} has more than {MAX_FILE} bytes")
    try:
        clients = msgspec.convert(parse_toml(text), dict[str, str | list[str]])
    except (NotTomlError, msgspec.ValidationError):  # their texts may quote a token
        raise ValueError(f'{file} must contain lines of the form name = "token" or name = ["token", "token"]') from None
    names = [
        (token, name) for name, tokens in clients.items() for token in ([tokens] if isinstance(tokens, str) else tokens)
    ]
    if not names:
        raise ValueError(f"{file} holds no token")
    for token, name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{file}: a client's name may have 128 letters, digits and _.:/@+- at most")
        if len(token) < MIN_TOKEN or not _PRINTABLE.fullmatch(token):
            raise ValueError(
                f"{file}: a token of {name} is not one of at least {MIN_TOKEN} letters, digits and signs, without blanks:"
                " make one with `openssl rand -hex 32`"
            )
    if len({token for token, _ in names}) != len(names):
        raise ValueError(f"{file}: two entries have the same token")
    return {_digest(token.encode()): name for token, name in names}


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
