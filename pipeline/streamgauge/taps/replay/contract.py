"""The types that pass between the readers of recordings and their callers."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from streamgauge.core.capture.segments import Bundle, Ending, TransportFault

# A header: a name in lower case, and a value.
Header = tuple[str, str]


class BrokenRecording(ValueError):
    """A file is damaged, or not of its apparent format. The text is one sentence: where the damage is, and what to do."""


class BrokenExchange(ValueError):
    """One exchange of a file cannot be read; others can. The text is the reason."""


class Readable(Protocol):
    """A file: only `read` is needed."""

    def read(self, size: int, /) -> bytes:
        """`size` bytes; fewer only at the end of the file."""


class Times(msgspec.Struct, frozen=True):
    """The times in a recording. None: not recorded.

    `started_ns`: UTC wall clock, when the request began. The others are nanoseconds since then. `connected_ns`: the
    upstream's connection was made for this request; `sent_ns`: the request's last byte was sent; `head_ns`: the response's
    head had arrived; `end_ns`: the exchange had ended.
    """

    started_ns: int | None = None
    connected_ns: int | None = None
    sent_ns: int | None = None
    head_ns: int | None = None
    end_ns: int | None = None


class RecordedExchange(msgspec.Struct, frozen=True):
    """One request and its response, as a recording holds them.

    `host`: of the upstream; `target`: the path with its query. `request_body`: None if it was not recorded;
    `request_bytes`: its size, which may be known even then. `status`: None if no head arrived. `body`: without transfer
    framing, in the content coding that its header names, None if it was not recorded. `stamps`: sizes of its pieces and
    when they arrived, in nanoseconds since the request began; the sizes add up to the body, or the list is empty if the
    recording has no stamps.
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
    """Counts of one file besides its records. `broken_exchanges`: those that cannot be read; `first_broken`: where and why,
    for the first.
    """

    exchanges: int | None = None  # exchanges read; None: the file does not consist of exchanges
    not_llm: int = 0  # not LLM traffic
    without_body: int = 0  # the response's body was not recorded
    broken_exchanges: int = 0
    first_broken: str = ""
    unreadable_rows: int = 0  # of a spool or a topic
    rows_removed: int = 0  # of a spool that was emptied while it was read
    may_be_body: bool | None = None  # of a raw body without a named dialect: whether it begins like one

    def count_broken(self, where: str, why: BrokenExchange) -> None:
        """Counts an exchange that cannot be read."""
        self.broken_exchanges += 1
        self.first_broken = self.first_broken or f"{where}: {why}"


class Logged(NamedTuple):
    """A bundle with its offset in the log and the log's time (ms): the input of an assembler."""

    offset: int
    log_ms: int
    bundle: Bundle


Log = Iterator[Logged]
