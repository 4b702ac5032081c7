"""A line for each finished stream, on the terminal of `up`.

The collector makes the lines, from its new records, and writes them to the terminal itself. A terminal that takes nothing (it
was stopped by Ctrl-S, or has gone) delays no record: the lines are dropped, and the next one says how many.
"""

import os
import select
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from streamgauge.cli.shown_records import (
    NOTHING,
    dollars,
    duration,
    ending,
    model_of,
    short_id,
    tokens,
    tokens_a_second,
)
from streamgauge.cli.tables import member
from streamgauge.core.record import Record
from streamgauge.core.safe_values import escaped
from streamgauge.metrics.observe import StreamCost

# Lines of one batch of records: more are not read, and a terminal takes them slowly.
MOST_LINES = 20
# The terminal's width where it is not known, and the narrowest that is filled (columns).
_WIDTH, _NARROWEST = 80, 60
_NAMES = ("started", "stream", "model", "outcome", "ttft", "in+out", "tok/s", "cost")
# Characters of each column but model and outcome, which share the rest: the model gets the larger part, up to their most.
_WIDTHS = {"started": 9, "stream": 8, "ttft": 7, "in+out": 9, "tok/s": 5, "cost": 7}
_MOST_MODEL, _MOST_OUTCOME = 40, 28
_RIGHT = frozenset({"ttft", "in+out", "tok/s", "cost"})


class _Shown(NamedTuple):
    """The texts of a line, in the order of _NAMES."""

    started: str
    stream: str
    model: str
    outcome: str
    ttft: str
    tokens: str
    rate: str
    cost: str


class StreamLines:
    """Writes lines to the terminal `fd`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._has_head = False
        self._dropped = 0
        self._is_gone = False

    def show(self, records: Sequence[tuple[Record, StreamCost | None]]) -> None:
        """Writes a line for each record, MOST_LINES at most. Raises nothing, and does not wait."""
        if self._is_gone or not records:
            return
        try:
            _, writable, _ = select.select([], [self._fd], [], 0)
            if not writable:
                self._dropped += len(records)
                return
            text = "".join(f"{line}\n" for line in self._lines(records))
            os.write(self._fd, text.encode())
        except (OSError, ValueError):
            self._is_gone = True

    def _lines(self, records: Sequence[tuple[Record, StreamCost | None]]) -> Iterator[str]:
        width = self._width()
        if not self._has_head:
            self._has_head = True
            yield "ttft: time to the first token, reasoning included"
            yield _line(_NAMES, width)
        if self._dropped:
            yield f"{self._dropped} streams were not shown: the terminal took no output"
            self._dropped = 0
        for record, cost in records[:MOST_LINES]:
            yield _line(_shown(record, cost), width)
        if len(records) > MOST_LINES:
            yield f"and {len(records) - MOST_LINES} more streams: see `streamgauge ledger query --newest`"

    def _width(self) -> int:
        try:
            return max(os.get_terminal_size(self._fd).columns or _WIDTH, _NARROWEST)
        except OSError:
            return _WIDTH


def _shown(record: Record, cost: StreamCost | None) -> _Shown:
    known = msgspec.to_builtins(record)
    rate = tokens_a_second(known)
    usd = None if cost is None or cost.unknown is not None else f"{cost.total:.12f}"
    return _Shown(
        f"{known['started_at'][11:19]}Z" if known["started_at"] else NOTHING,
        short_id(known["stream_id"]),
        escaped(model_of(known) or NOTHING),
        escaped(ending(known)),
        duration(member(known, "timing", "first_token_s")),
        tokens(known["usage"]),
        NOTHING if rate is None else f"{rate:.0f}",
        dollars(usd),
    )


def _line(texts: Sequence[str], width: int) -> str:
    """The texts in columns."""
    rest = width - sum(_WIDTHS.values()) - (len(_NAMES) - 1)
    model = min(rest * 3 // 5, _MOST_MODEL)
    widths = _WIDTHS | {"model": model, "outcome": min(rest - model, _MOST_OUTCOME)}
    cells = []
    for name, text in zip(_NAMES, texts, strict=True):
        size = widths[name]
        cut = text if len(text) <= size else f"{text[: size - 1]}\u2026"
        cells.append(cut.rjust(size) if name in _RIGHT else cut.ljust(size))
    return " ".join(cells).rstrip()
