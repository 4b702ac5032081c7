"""Admin ports, and what they answer: the streams of a process, and one stream."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgauge.core.safe_values import escaped
from streamgauge.errors import Unavailable, UsageFault
from streamgauge.metrics.admin_access import Token
from streamgauge.metrics.http_server import AdminAddressError, split_address
from streamgauge.runtime.certificates import reading_authorities
from streamgauge.runtime.redaction import redacted_value
from streamgauge.top.streams import SHORT_ID

# How long one answer may take (seconds): the process itself gives up after 5.
TIMEOUT_S = 10.0
# The longest answer that is read (bytes): 200 open streams are 200 KB.
MAX_BYTES = 16 * 1024 * 1024
# Members that every answer of /streams has: another program's JSON lacks them.
MEMBERS = frozenset((
    "process", "version", "now", "since", "partitions", "unready", "missed_bundles", "open", "hour", "rate_limits", "budgets",
    "audit", "worst",
))  # fmt: skip
# Likewise of /streams/ID.
STREAM_MEMBERS = frozenset({"stream", "steps", "record"})

# The type of the relay's own errors (`taps/proxy/refusals.py`): the address is that of its port for clients.
_RELAY_ERROR = "streamgauge_relay_error"
# What to do about an address that is no admin port's.
GIVE = "give the admin port of a running process (--admin; 127.0.0.1:9464, of a worker 127.0.0.1:9465 by default)"

Json = Mapping[str, Any]


class NothingThere(Unavailable):
    """No connection to the port could be made, or it broke: the process may have ended, or the address is wrong."""


class NoSuchStreamError(Exception):
    """The process keeps no such stream. The text is its sentence."""


@dataclass(frozen=True)
class AdminPort:
    """The admin port that is asked. `address`: HOST:PORT, as a text to show; `tls` None: without TLS."""

    address: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    token: Token | None

    def streams(self, rows: int, sort: str = "silent", *, own: bool = False) -> str:
        """The answer of /streams, as JSON text. Raises Unavailable. The arguments are as in docs/reference/streams.md."""
        status, text = self._get(f"/streams?limit={rows}&sort={sort}{'&own=1' if own else ''}")
        if status != http.client.OK:
            raise self._refused(status, text)
        return text

    def stream(self, stream_id: str) -> Json:
        """The answer of /streams/ID. Raises Unavailable, and NoSuchStreamError."""
        status, text = self._get(f"/streams/{stream_id}")
        if status == http.client.NOT_FOUND:
            sentence = _sentence(_error_of(text))
            looked = "ledger" in sentence  # the process has looked for it there
            raise NoSuchStreamError(
                sentence if looked else f"{sentence}; run streamgauge ledger show {stream_id[-SHORT_ID:]}"
            )
        if status != http.client.OK:
            raise self._refused(status, text)
        return self._answer(text, STREAM_MEMBERS)

    def answer(self, text: str) -> Json:
        """An answer of /streams. Raises Unavailable for the answer of another program."""
        return self._answer(text, MEMBERS)

    def _answer(self, text: str, members: frozenset[str]) -> Json:
        try:
            answer = _shown_as_text(json.loads(text))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not answer.keys() >= members:
            raise Unavailable(f"the port {self.address} belongs to another program: {GIVE}")
        return answer

    def _get(self, target: str) -> tuple[int, str]:
        connection = self._connection()
        try:
            connection.request("GET", target, headers=self._headers)
            with connection.getresponse() as answer:
                return answer.status, answer.read(MAX_BYTES).decode()
        except (http.client.HTTPException, UnicodeError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            wanted = "https" if self.tls is not None else "http"
            raise Unavailable(
                f"the port {self.address} does not speak {wanted} ({escaped(str(reason))}): {GIVE}"
            ) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise NothingThere(f"nothing answers at {self.address} ({reason})") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=self.tls)

    @property
    def _headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token.now()}"}

    def _refused(self, status: int, text: str) -> Unavailable:
        error = _error_of(text)
        if isinstance(error, dict) and error.get("type") == _RELAY_ERROR:
            return Unavailable(f"{self.address} is the port for clients: {GIVE}")
        if not isinstance(error, str) or error.startswith("<"):
            return Unavailable(f"{self.address} answered {status}, and not as an admin port does: {GIVE}")
        cures = {http.client.UNAUTHORIZED: " (--admin-token-file FILE)", http.client.NOT_FOUND: f": {GIVE}"}
        return Unavailable(f"{self.address} answered {status}: {_sentence(error)}{cures.get(status, '')}")


def port_at(address: str, authorities: Path | None, token: Token | None) -> AdminPort:
    """The port at HOST:PORT or https://HOST:PORT. `authorities`: a file of CAs to trust, for https. Raises UsageFault."""
    scheme, _, host_and_port = address.removesuffix("/").rpartition("://")
    if scheme not in ("", "http", "https"):
        raise UsageFault(f"{redacted_value(address)!r} is not an admin address: write HOST:PORT or https://HOST:PORT")
    try:
        host, port = split_address(host_and_port)
    except AdminAddressError as error:
        raise UsageFault(str(error)) from None
    if scheme != "https":
        return AdminPort(escaped(host_and_port), host, port, None, token)
    try:
        with reading_authorities(authorities):
            context = ssl.create_default_context(cafile=authorities)
    except ValueError as error:
        raise UsageFault(f"--admin-ca: {error}") from None
    return AdminPort(escaped(host_and_port), host, port, context, token)


def _shown_as_text(value: Any) -> Any:
    """The value with texts that the terminal shows and does not obey."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list):
        return [_shown_as_text(item) for item in value]
    if isinstance(value, dict):
        return {escaped(name): _shown_as_text(item) for name, item in value.items()}
    return value


def _error_of(text: str) -> object:
    """The member `error` of a body in JSON; another body as it is."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
    return body.get("error") if isinstance(body, dict) else body


def _sentence(error: object) -> str:
    """The sentence of an error, cut to what fits a line or two."""
    return escaped(str(error).strip()[:200])
