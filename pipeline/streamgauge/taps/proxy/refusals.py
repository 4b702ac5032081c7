"""The relay's own responses: their bytes, and their counts and lines in the log.

A response is sent only while no byte of the upstream's final response has gone to the client. After that the relay resets the
connection, which is counted and logged in the same way.
"""

import time
from collections.abc import Callable
from http import HTTPStatus

import msgspec

from streamgauge.core.capture.segments import TransportFault
from streamgauge.spool.read_counters import Counters, Refusal
from streamgauge.taps.proxy.request import RefusedError

# Distinguishes these errors from those of a provider.
ERROR_TYPE = "streamgauge_relay_error"

# Fields that a status requires: a 401 names the credential that is wanted (RFC 9110, 11.6.1), here by the field of a client's
# token, and a 426 the protocol (RFC 9110, 15.5.22).
_FIELDS = {
    Refusal.CLIENT_UNAUTHORIZED: 'WWW-Authenticate: X-Streamgauge-Token realm="streamgauge"\r\n',
    Refusal.UPGRADE_REFUSED: "Connection: Upgrade\r\nUpgrade: HTTP/1.1\r\n",
}
# At most one line per code within this time (seconds): a client that repeats a wrong request must not fill the log.
LINE_S = 60.0


def unreachable(upstream: str, why: str, fault: TransportFault | None = None) -> RefusedError:
    """For a connection that failed, or ended before a response. `why`: a phrase from the relay's code."""
    message = f"The upstream {upstream} could not be reached: {why}. Try again, or check its URL and the network."
    if fault is TransportFault.CONNECT_TIMEOUT:
        return RefusedError(Refusal.UPSTREAM_TIMEOUT, message)
    return RefusedError(Refusal.UPSTREAM_UNREACHABLE, message)


def invalid(upstream: str, why: str) -> RefusedError:
    """For a response that is not HTTP/1, or cannot be forwarded. `why`: a ResponseFault."""
    message = (
        f"The upstream {upstream} sent an invalid HTTP/1 response ({why}). Check that its URL is that of an HTTP API."
    )
    return RefusedError(Refusal.UPSTREAM_INVALID, message)


def silent(upstream: str, seconds: float) -> RefusedError:
    """For an upstream that sent no response within `seconds`."""
    message = (
        f"The upstream {upstream} sent no response within {seconds:g} s. Try again, or check its URL and the network."
    )
    return RefusedError(Refusal.UPSTREAM_TIMEOUT, message)


def error_response(refused: RefusedError, head_only: bool = False) -> bytes:
    """Returns the bytes of the response, which announces that the connection closes. `head_only`: for a HEAD request.

    It has no Access-Control-Allow-Origin: a web page that a user visits could read it, and learn what runs here.
    """
    error = {"message": refused.message, "type": ERROR_TYPE, "code": refused.code}
    body = msgspec.json.encode({"error": error})
    more = _FIELDS.get(refused.code, "")
    head = (
        f"HTTP/1.1 {int(refused.status)} {HTTPStatus(refused.status).phrase}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + (b"" if head_only else body)


class Refusals:
    """The refusals of one relay. `log` writes a line for the operator; `now` returns seconds."""

    def __init__(
        self, counters: Counters, log: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._counters, self._log, self._now = counters, log, now
        self._logged_at: dict[Refusal, float] = {}
        self._suppressed: dict[Refusal, int] = {}

    def add(self, refused: RefusedError, *, reset: bool = False) -> None:
        """Counts a refusal, and logs it unless its code was logged within LINE_S. The line has no byte of the request.

        `reset`: the client had a part of the response, so the relay could only reset its connection.
        """
        code = refused.code
        self._counters.refused(code)
        now, logged_at = self._now(), self._logged_at.get(code)
        if logged_at is not None and now - logged_at < LINE_S:
            self._suppressed[code] = self._suppressed.get(code, 0) + 1
            return
        self._logged_at[code] = now
        suppressed = self._suppressed.pop(code, 0)
        more = f" ({suppressed} more with this code since the last such line)" if suppressed else ""
        did = f"reset a response ({code.value})" if reset else f"answered a request with {code.status} {code.value}"
        self._log(f"{did}: {refused.message}{more}")
