"""Two upstreams: a hostile one, which answers in some form and then sends a response without a request, and a good one."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.taps.proxy.rig import RawRecorder, RawUpstream, RunningRelay, receive_request, settings_for

FORGED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{"by": "hostile"}'
HOSTILE, GOOD = b"hostile", b"good"
# When the hostile upstream sends the forged response: in the same write, just after it, or once the client's next request
# is with the good upstream (or would be).
MOMENTS = ("together", "at once", "late")
_SOON_S, _LATE_S, _LINGER_S = 0.01, 0.25, 0.25


class Case(NamedTuple):
    """A form of a response, by its number, and a moment for the forged one after it."""

    number: int
    form: bytes
    moment: str


class Upstreams:
    """The handlers of both upstreams. A request's path is the number of its case."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = {case.number: case for case in cases}
        self._arrived = {case.number: threading.Event() for case in cases}

    def hostile(self, one: socket.socket) -> None:
        """Answers one request in the form of its case, then sends the forged response."""
        case = self._cases[_number(receive_request(one))]
        one.sendall(case.form + FORGED if case.moment == "together" else case.form)
        if case.moment != "together":
            if case.moment == "late":
                self._arrived[case.number].wait(_LATE_S)
            else:
                time.sleep(_SOON_S)
            one.sendall(FORGED)
        one.settimeout(_LINGER_S)
        with contextlib.suppress(OSError):
            while one.recv(65536):
                pass
        one.close()

    def good(self, one: socket.socket) -> None:
        """Answers each request with the number of its case."""
        while request := receive_request(one):
            number = _number(request)
            self._arrived[number].set()
            time.sleep(_SOON_S)
            body = b'{"by": "good", "case": %d}' % number
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def answer_of(case: Case) -> bytes:
    """The good upstream's body for a case."""
    return b'{"by": "good", "case": %d}' % case.number


def _number(request: bytes) -> int:
    path = request.split(b" ", 2)[1]
    return int(path.strip(b"/"))


@contextlib.contextmanager
def relay_between(folder: Path, cases: Sequence[Case]) -> Iterator[RunningRelay]:
    """A relay with the hostile upstream as u0 and the good one as u1."""
    upstreams = Upstreams(cases)
    with (
        RawUpstream(upstreams.hostile) as hostile,
        RawUpstream(upstreams.good) as good,
        RawRecorder(folder / "recorder.sock"),
        RunningRelay(settings_for(folder, hostile.url, good.url)) as relay,
    ):
        yield relay
