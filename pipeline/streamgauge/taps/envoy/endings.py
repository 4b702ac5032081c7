"""How an exchange ended, by its entry in Envoy's access log. Pure.

The flags are described at
https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage#response-flags
"""

from enum import IntEnum
from typing import NamedTuple

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.taps.envoy.messages import LogEntry


class Flag(IntEnum):
    """Fields of ResponseFlags (envoy/data/accesslog/v3/accesslog.proto), by their short names in access logs."""

    UH = 2  # no healthy upstream
    UT = 3  # the route's time limit
    LR = 4  # Envoy reset the upstream's stream
    UR = 5  # the upstream reset its stream
    UF = 6  # no connection to the upstream
    UC = 7  # the upstream's connection ended
    DC = 15  # the client's connection ended
    SI = 17  # nothing came for the stream's idle timeout
    DPE = 19  # the client broke the protocol
    UMSDR = 20  # the upstream's maximal duration of a stream
    DT = 23  # the maximal duration of a request
    UPE = 24  # the upstream broke the protocol
    DF = 27  # the upstream's name was not found
    DR = 28  # the client reset its stream


_CLIENT = frozenset((Flag.DC, Flag.DPE, Flag.DR))
_TIMEOUT = frozenset((Flag.UT, Flag.SI, Flag.UMSDR, Flag.DT))
_UPSTREAM = frozenset((Flag.UH, Flag.LR, Flag.UR, Flag.UF, Flag.UC, Flag.UPE, Flag.DF))
# Texts of `upstream_transport_failure_reason` and of the details, which are for people: an unknown one tells no fault.
_TEXTS = (
    ("CERTIFICATE_VERIFY_FAILED", TransportFault.TLS_CERTIFICATE),
    ("TLS_error", TransportFault.TLS),
    ("TLS error", TransportFault.TLS),
    ("connection refused", TransportFault.REFUSED),
    ("no route to host", TransportFault.UNREACHABLE),
    ("network is unreachable", TransportFault.UNREACHABLE),
    ("connection_timeout", TransportFault.CONNECT_TIMEOUT),
    ("connection timeout", TransportFault.CONNECT_TIMEOUT),
)


class LoggedEnding(NamedTuple):
    """`headless`: the upstream sent no head; a response that Envoy reported then is its own."""

    ending: Ending
    fault: TransportFault | None
    headless: bool


def ending_of(entry: LogEntry, *, whole: bool) -> LoggedEnding:
    """How the exchange of an entry ended. `whole`: Envoy reported the response's last byte.

    CUT if the entry does not show it.
    """
    flags = entry.flags
    failed = bool(flags & (_UPSTREAM | _TIMEOUT))
    headless = failed and entry.first_rx_ns is None
    if flags & _CLIENT:
        return LoggedEnding(Ending.CLIENT, None, headless)
    if entry.last_rx_ns is not None or (whole and not headless):
        return LoggedEnding(Ending.COMPLETE, None, headless=False)
    if Flag.SI in flags:
        return LoggedEnding(Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT, headless)
    if flags & _TIMEOUT:
        return LoggedEnding(Ending.TIMEOUT, None, headless)
    if flags & _UPSTREAM:
        fault = _fault(entry)
        return LoggedEnding(fault.ending if fault else Ending.RESET, fault, headless)
    return LoggedEnding(Ending.CUT, None, headless)


def _fault(entry: LogEntry) -> TransportFault | None:
    """What failed between Envoy and the upstream. Envoy does not tell a reset from a connection that was closed early."""
    if Flag.DF in entry.flags:
        return TransportFault.DNS
    if Flag.UH in entry.flags:
        return TransportFault.UNREACHABLE
    if Flag.UF not in entry.flags:
        return None
    text = f"{entry.failure} {entry.details}".lower()
    return next((fault for part, fault in _TEXTS if part.lower() in text), None)
