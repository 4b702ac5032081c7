"""What passes between the readers of recordings and those who use them."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from streamgauge.core.capture.segments import Bundle, Ending, TransportFault

# A name and a value; names in lower case.
Header = tuple[str, str]


class BrokenRecording(ValueError):
    """A file that is not what it begins as. Its text is one sentence: where it breaks, and what to do."""


class BrokenExchange(ValueError):
    """One exchange of a file cannot be read, the others can. Its text says what is wrong with it."""


class Times(msgspec.Struct, frozen=True):
    """What a recording tells of time. None: it does not tell.

    `started_ns`: UTC wall clock, when the request began. The others are nanoseconds since then: the upstream's connection
    was made for this request, its last byte went out, the response's head was there, the exchange was over.
    """

    started_ns: int | None = None
    connected_ns: int | None = None
    sent_ns: int | None = None
    head_ns: int | None = None
    end_ns: int | None = None


class RecordedExchange(msgspec.Struct, frozen=True):
    """One request and its response, as a recording holds them.

    `host`: of the upstream; `target`: the path with its query. `request_body`: None if it was not recorded;
    `request_bytes` is its size, where that is known all the same. `status`: None if no head ever came. `body`: after
    transfer framing, in the content coding that its header names, None if it was not recorded; `stamps`: sizes of its
    pieces and when they arrived, nanoseconds since the request began, together as long as the body, or nothing where the
    recording does not tell.
    """

    method: str
    target: str
    host: str | None = None
    request_headers: list[Header] = []
    request_body: bytes | None = None
    request_bytes: int | None = None
    status: int | None = None
    headers: list[Header] = []
    body: bytes | None = b""
    stamps: list[tuple[int, int]] = []
    times: Times = Times()
    ending: Ending = Ending.COMPLETE
    fault: TransportFault | None = None


class Tally(msgspec.Struct):
    """What was seen in one file beside its records. `broken_exchanges` could not be read; `first_broken` says why."""

    exchanges: int | None = None  # that could be read; None: the file is not made of them
    left_alone: int = 0  # no LLM's
    without_body: int = 0  # the response's body was not recorded
    broken_exchanges: int = 0
    first_broken: str = ""
    unreadable_rows: int = 0  # of a spool or a topic
    rows_gone: int = 0  # of a spool that was emptied while it was read

    def broke(self, place: str, why: BrokenExchange) -> None:
        """One exchange could not be read."""
        self.broken_exchanges += 1
        self.first_broken = self.first_broken or f"{place}: {why}"


class Logged(NamedTuple):
    """A bundle, where it lies in its log, and the log's time (ms): what an assembler takes."""

    offset: int
    log_ms: int
    bundle: Bundle


Log = Iterator[Logged]
