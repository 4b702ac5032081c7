"""The notes of `replay` on a file besides its records: what was ignored, what is missing, what is damaged."""

from collections.abc import Iterator
from typing import NamedTuple

from streamgauge.core.record import Record
from streamgauge.taps.replay.contract import Tally


class Note(NamedTuple):
    """One sentence. `is_fault`: something in the file has no record because it is damaged."""

    text: str
    is_fault: bool = False


class Found(NamedTuple):
    """Counts of a file's streams. `without_event`: records of event streams in which no event was found."""

    records: int
    without_event: int
    not_llm: int
    open_streams: int


NO_RECORDING = (
    "it is no recording: it has no line of server-sent events, no JSON of a model's response and no format that `replay`"
    " knows; --dialect NAME reads it as that format nevertheless"
)


def is_nothing(record: Record, may_be_body: bool) -> bool:
    """Whether the record of a file of no other format shows that it holds nothing of a response. `may_be_body`: whether the
    file begins like one. JSON that is whole must be a model's response, or an error; JSON that is cut off may have been one.
    """
    if record.streaming is False and record.outcome == "completed":
        return record.dialect is None and record.error is None
    return not may_be_body and not record.counts.events


def notes_on(tally: Tally, found: Found, *, broken: bool) -> Iterator[Note]:
    """The notes on a file. `broken`: it could not be read to its end."""
    if tally.exchanges is not None:
        yield from _on_exchanges(tally, tally.exchanges, found.not_llm, broken=broken)
    elif not any(found) and not broken:
        yield Note("it contains no stream; a spool holds only what is not delivered yet")
    if found.without_event:
        what = _count(found.without_event, "stream", "streams")
        yield Note(f"no event was found in {what}: check that the file is a recording of server-sent events")
    if tally.unreadable_rows:
        yield Note(
            f"{_count(tally.unreadable_rows, 'row is', 'rows are')} damaged, or not a bundle of this version", True
        )
    if tally.rows_removed:
        yield Note(
            f"{_count(tally.rows_removed, 'row was', 'rows were')} delivered and removed while the file was read"
        )
    if found.open_streams:
        what = _count(found.open_streams, "stream has not ended yet and has", "streams have not ended yet and have")
        yield Note(f"{what} no record")


def _on_exchanges(tally: Tally, exchanges: int, not_llm: int, *, broken: bool) -> Iterator[Note]:
    ignored = tally.not_llm + not_llm
    if exchanges == ignored and not tally.broken_exchanges and not broken:
        others = f" ({_count(ignored, 'other exchange was', 'other exchanges were')} ignored)" if ignored else ""
        yield Note(f"it contains no LLM exchange{others}")
    elif ignored:
        yield Note(f"{_count(ignored, 'other exchange was', 'other exchanges were')} ignored: not LLM traffic")
    if tally.without_body:
        one, many = "response was recorded without its body", "responses were recorded without their bodies"
        yield Note(f"{_count(tally.without_body, one, many)}: incomplete")
    if tally.broken_exchanges:
        what = _count(tally.broken_exchanges, "exchange that cannot be read has", "exchanges that cannot be read have")
        yield Note(f"{what} no record, the first at {tally.first_broken}", True)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
