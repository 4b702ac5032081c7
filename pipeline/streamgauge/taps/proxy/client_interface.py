"""The client's side of an exchange, as the exchange sees it."""

import asyncio
from enum import Enum, auto
from typing import Protocol

from streamgauge.taps.proxy.request import RefusedError
from streamgauge.taps.proxy.upstream import UpstreamPool
from streamgauge.taps.proxy.wire import Wire


class NextState(Enum):
    """The state of the client's connection after an exchange."""

    KEEP_ALIVE = auto()  # it stays open for the next request
    CLOSE = auto()  # the written bytes go out, then FIN
    RESET = auto()  # the written bytes go out, then RST
    GONE = auto()  # the client has closed it, or the relay is cutting it
    ERROR_SENT = auto()  # the relay's own error response was written, and ends it


class ClientSide(Protocol):
    """The client's side of an exchange."""

    transport: asyncio.Transport
    wire: Wire
    pool: UpstreamPool
    address: str  # for which its connection counts (limits.py)
    blocked_ns: int | None  # since when the client's socket accepts no more data (monotonic ns); None if it does

    def head_passed_on(self, took_ns: int) -> None:
        """Called once, when the head of the response was written to the client, `took_ns` after it had been read."""

    def exchange_over(self, next_state: NextState) -> None:
        """Called once, when the exchange has ended, and its response was written, or the client has disconnected."""

    def send_error(self, refused: RefusedError, counted: bool = False) -> None:
        """Writes the relay's own error response, and closes the connection after it. `counted`: the response is counted as
        captured, or as not captured.
        """

    def response_refused(self, refused: RefusedError) -> None:
        """Counts and logs a response that the relay stopped forwarding."""

    def update_reading(self) -> None:
        """Pauses or resumes reading from the client, as `Exchange.body_must_wait` requires."""
