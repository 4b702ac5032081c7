"""The client's side of an exchange, as the exchange sees it."""

import asyncio
from enum import Enum, auto
from typing import Protocol

from streamgauge.taps.proxy.request import RefusedError
from streamgauge.taps.proxy.upstream import OwnConnections
from streamgauge.taps.proxy.wire import Wire


class ConnectionFate(Enum):
    """What happens to the client's connection after an exchange."""

    KEEP = auto()  # it stays open for the next request
    CLOSE = auto()  # what is written goes out, then FIN
    RESET = auto()  # what is written goes out, then RST
    GONE = auto()  # it has ended, or the relay is cutting it
    ANSWERED = auto()  # the relay's own response was written, and ends it


class ClientSide(Protocol):
    """The client's side of an exchange."""

    transport: asyncio.Transport
    wire: Wire
    own: OwnConnections
    blocked_ns: int | None  # since when the client takes no more (monotonic ns); None if it does

    def exchange_over(self, after: ConnectionFate) -> None: ...

    def answer(self, refused: RefusedError) -> None: ...

    def settle_reading(self) -> None: ...
