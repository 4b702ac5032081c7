"""How an exchange in a client's process ended: the ending and the fault that an error of the client's library shows.

Errors are told by the names of their classes, so that no library is imported: httpx and httpx2, urllib3 and botocore.
"""

import http.client
import re
import socket
import ssl
import time

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.recorder.exchange_capture import ExchangeCapture

# Base classes of the libraries' timeout errors; one name covers connect, read, write and pool timeouts.
_TIMEOUTS = frozenset(("TimeoutException", "TimeoutError", "ConnectTimeoutError"))

_FAULTS = {
    "ConnectTimeout": TransportFault.CONNECT_TIMEOUT,
    "ReadTimeout": TransportFault.IDLE_TIMEOUT,
    "WriteTimeout": TransportFault.IDLE_TIMEOUT,
    "ConnectTimeoutError": TransportFault.CONNECT_TIMEOUT,
    "ReadTimeoutError": TransportFault.IDLE_TIMEOUT,
}
_CAUSES = {
    http.client.IncompleteRead: TransportFault.CLOSED,
    http.client.RemoteDisconnected: TransportFault.CLOSED,
    socket.gaierror: TransportFault.DNS,
    ssl.SSLCertVerificationError: TransportFault.TLS_CERTIFICATE,
    ssl.SSLError: TransportFault.TLS,
    ConnectionRefusedError: TransportFault.REFUSED,
    ConnectionError: TransportFault.RESET,
}
# How many errors of a chain of causes are checked.
_MAX_CAUSES = 8
# Text of the errors of h11 and urllib3 for a connection that was closed early.
_CLOSED = re.compile(r"disconnected|closed|ended prematurely")


def report_ending(capture: ExchangeCapture, ending: Ending) -> None:
    """Reports that the stream ends now. Only the first report of an end counts."""
    now = time.monotonic_ns()
    capture.end(now, ending, gone_ns=now if ending is Ending.CLIENT else None)


def report_failure(capture: ExchangeCapture, error: BaseException | None) -> None:
    """Reports that the stream ends now, with this error; None: it completed."""
    if error is None:
        report_ending(capture, Ending.COMPLETE)
        return
    ending = ending_of(error)
    now = time.monotonic_ns()
    fault = None if ending is Ending.CLIENT else fault_of(error)
    capture.end(now, ending, fault, gone_ns=now if ending is Ending.CLIENT else None)


def fault_of(error: BaseException) -> TransportFault | None:
    """The fault that an error's class name or its causes show; None if they do not show it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    for name, fault in _FAULTS.items():
        if name in names:
            return fault
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        for kind, fault in _CAUSES.items():
            if isinstance(cause, kind):
                return fault
        cause = (cause.__cause__ or cause.__context__) if cause is not None else None
    if names & {"RemoteProtocolError", "ProtocolError"} and _CLOSED.search(str(error)):
        return TransportFault.CLOSED
    if "RemoteProtocolError" in names:
        return TransportFault.NOT_HTTP
    return TransportFault.UNREACHABLE if "ConnectError" in names else None


def ending_of(error: BaseException) -> Ending:
    """How the exchange ended, from the error."""
    if not isinstance(error, Exception):  # the application closed, cancelled or interrupted it
        return Ending.CLIENT
    timed_out = any(kind.__name__ in _TIMEOUTS for kind in type(error).__mro__)
    return Ending.TIMEOUT if timed_out else Ending.RESET
