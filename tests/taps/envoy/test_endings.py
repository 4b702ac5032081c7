"""What an entry of the access log says of an exchange's end, by Envoy's documents. tests/integration/test_envoy.py has the
flags that a real Envoy writes there: DC, UC, UPE, UF, UT, SI.
"""

import pytest

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.taps.envoy.endings import Flag, LoggedEnding, ending_of
from streamgauge.taps.envoy.messages import LogEntry

REFUSED = "delayed connect error: Connection refused"
# Flags, whether the upstream's first and last byte came, whether Envoy reported the last one: the ending.
CASES = {
    "whole": ((), True, True, True, LoggedEnding(Ending.COMPLETE, None, False)),
    "whole by the log alone": ((), True, True, False, LoggedEnding(Ending.COMPLETE, None, False)),
    "Envoy's own refusal": ((), False, False, True, LoggedEnding(Ending.COMPLETE, None, False)),
    "client left": ((Flag.DC,), True, False, False, LoggedEnding(Ending.CLIENT, None, False)),
    "client left before the head": ((Flag.DC,), False, False, False, LoggedEnding(Ending.CLIENT, None, False)),
    "client left after the end": ((Flag.DC,), True, True, True, LoggedEnding(Ending.CLIENT, None, False)),
    "client reset": ((Flag.DR,), True, False, False, LoggedEnding(Ending.CLIENT, None, False)),
    "upstream closed": ((Flag.UC,), True, False, False, LoggedEnding(Ending.RESET, None, False)),
    "upstream broke off": ((Flag.UPE,), True, False, False, LoggedEnding(Ending.RESET, None, False)),
    "upstream closed before its head": ((Flag.UC,), False, False, True, LoggedEnding(Ending.RESET, None, True)),
    "refused": ((Flag.UF,), False, False, True, LoggedEnding(Ending.RESET, TransportFault.REFUSED, True)),
    "no host": ((Flag.UH,), False, False, True, LoggedEnding(Ending.RESET, TransportFault.UNREACHABLE, True)),
    "name": ((Flag.DF,), False, False, True, LoggedEnding(Ending.RESET, TransportFault.DNS, True)),
    "no answer in time": ((Flag.UT,), False, False, True, LoggedEnding(Ending.TIMEOUT, None, True)),
    "no end in time": ((Flag.UT,), True, False, False, LoggedEnding(Ending.TIMEOUT, None, False)),
    "silent": ((Flag.SI,), True, False, False, LoggedEnding(Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT, False)),
    "nothing is said": ((), True, False, False, LoggedEnding(Ending.CUT, None, False)),
}


@pytest.mark.parametrize("case", CASES)
def test_endings(case: str) -> None:
    flags, first, last, whole, expected = CASES[case]
    failure = REFUSED if case == "refused" else ""
    entry = LogEntry("id", 0, 1 if first else None, 2 if last else None, 3, frozenset(map(int, flags)), "", failure)
    assert ending_of(entry, whole=whole) == expected


@pytest.mark.parametrize(
    ("failure", "details", "fault"),
    [
        ("", "upstream_reset_before_response_started{connection_timeout}", TransportFault.CONNECT_TIMEOUT),
        ("TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:TLS_error_end", "",
         TransportFault.TLS_CERTIFICATE),
        ("TLS_error:|268435703:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end", "", TransportFault.TLS),
        ("something new", "", None),
    ],
)  # fmt: skip
def test_faults_of_a_connection(failure: str, details: str, fault: TransportFault | None) -> None:
    entry = LogEntry("id", 0, None, None, 3, frozenset((int(Flag.UF),)), details, failure)
    ended = ending_of(entry, whole=True)
    assert (ended.fault, ended.headless) == (fault, True)
    assert ended.ending is (fault.ending if fault else Ending.RESET)
