"""The relay's own answers: only where no byte of an upstream's answer has gone to the client."""

from http import HTTPStatus

import msgspec

from streamgauge.core.capture.segments import TransportFault
from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.request import RefusedError

# Tells these errors from a provider's own.
ERROR_TYPE = "streamgauge_relay_error"


def unreachable(upstream: str, why: str, fault: TransportFault | None = None) -> RefusedError:
    """No connection, or one that ended before an answer. `why` is a phrase of ours."""
    message = f"The upstream {upstream} could not be reached: {why}. Try again, or check its URL and the network."
    if fault is TransportFault.CONNECT_TIMEOUT:
        return RefusedError(Refusal.UPSTREAM_TIMEOUT, message)
    return RefusedError(Refusal.UPSTREAM_UNREACHABLE, message)


def invalid(upstream: str, why: str) -> RefusedError:
    """The upstream's answer is no HTTP/1 that can be passed on."""
    message = (
        f"The upstream {upstream} sent an invalid HTTP/1 response ({why}). Check that its URL is that of an HTTP API."
    )
    return RefusedError(Refusal.UPSTREAM_INVALID, message)


def silent(upstream: str, seconds: float) -> RefusedError:
    """Nothing came in time."""
    message = (
        f"The upstream {upstream} sent no response within {seconds:g} s. Try again, or check its URL and the network."
    )
    return RefusedError(Refusal.UPSTREAM_TIMEOUT, message)


def write_answer(refused: RefusedError, head_only: bool = False) -> bytes:
    """The whole answer; the connection is closed after it. `head_only`: for a HEAD request."""
    error = {"message": refused.message, "type": ERROR_TYPE, "code": refused.code}
    body = msgspec.json.encode({"error": error})
    head = (
        f"HTTP/1.1 {int(refused.status)} {HTTPStatus(refused.status).phrase}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        "Access-Control-Allow-Origin: *\r\n\r\n"  # else a browser tells its page that the fetch failed, and no more
    )
    return head.encode() + (b"" if head_only else body)
