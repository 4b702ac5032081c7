"""The client's side of an exchange, as the exchange sees it."""

import asyncio
from enum import Enum, auto
from typing import Protocol

from streamgauge.taps.proxy.request import RefusedError
from streamgauge.taps.proxy.upstream import OwnConnections
from streamgauge.taps.proxy.wire import Wire


class ConnectionFate(Enum):
    """What becomes of the client's connection."""

    KEEP = auto()  # the next request may come
    CLOSE = auto()  # what is written goes out, then FIN
    RESET = auto()  # what is written goes out, then RST
    GONE = auto()  # there is none any more
    ANSWERED = auto()  # an answer of ours was written


class ClientSide(Protocol):
    """The client's side of an exchange."""

    transport: asyncio.Transport
    wire: Wire
    own: OwnConnections
    blocked_ns: int | None  # since when it takes no more, None if it does

    def exchange_over(self, after: ConnectionFate) -> None: ...

    def answer(self, refused: RefusedError) -> None: ...

    def settle_reading(self) -> None: ...
