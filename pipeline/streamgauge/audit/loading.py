"""The second pass over the ledger: the streams of the cells that differ, and of those nearby, within a limit."""

from collections.abc import Container, Iterable, Mapping

from streamgauge.audit.amounts import ZERO
from streamgauge.audit.cells import Cell, Folding
from streamgauge.audit.moves import place_order
from streamgauge.audit.ours import Ours, Place
from streamgauge.audit.period import DayOf, Period, day_after
from streamgauge.audit.request_rows import Billed, RequestRows
from streamgauge.audit.theirs import Theirs

# Streams that are held for the search (some 150 MB). The cells with the fewest come first; the others are compared, and
# explained by causes that need no single stream.
MAX_STREAMS = 300_000


def load_streams(
    cells: Mapping[Place, Cell], ours: Ours, folding: Folding, shifts: Mapping[str, int | None], period: Period
) -> list[Place]:
    """Read the streams of the cells that differ, and of those nearby, into the cells; return their places.

    `shifts`: the offset from UTC of the days of a provider, where they are shifted: its streams count by these days.
    """
    wanted = _wanted(cells)
    days_of = {provider: DayOf("UTC", offset) for provider, offset in shifts.items() if offset is not None}
    days: set[str] = set()  # none: all days
    if all(place.day for place in wanted):
        days = {day for place in wanted for day in _days_around(place, days_of)}
    if not wanted:
        return []
    providers = {place.provider for place in wanted}
    for stream in ours.streams(lambda place: place.provider in providers, days):
        place = folding.place(stream.place)
        if place.provider in days_of:
            place = place._replace(day=days_of[place.provider](stream.start_us))
        is_compared = place.day or period.has(stream.place.day)
        if is_compared and place in wanted:
            tokens = folding.tokens(place.provider, stream.tokens)
            cells[place].streams.append(stream._replace(place=place, tokens=tokens))
    for place in wanted:
        cells[place].is_read = True
    return list(wanted)


def load_requests(
    cells: Mapping[Place, Cell], theirs: Theirs, folding: Folding, places: Iterable[Place]
) -> Mapping[str, RequestRows]:
    """The rows for single requests in the cells at `places`, by provider, from another reading of the invoices."""
    wanted = {place for place in places if cells[place].shape.has_request_ids}
    providers = {place.provider for place in wanted}
    found: dict[str, RequestRows] = {}
    if not wanted:
        return found
    for place, line in theirs.lines(lambda place: place.provider in providers and folding.place(place) in wanted):
        if line.request_id is not None and line.tokens is not None:
            rows = found.get(line.provider)
            if rows is None:
                rows = found[line.provider] = RequestRows()
            billed = Billed(folding.tokens(line.provider, line.tokens), line.usd)
            rows.add(line.request_id, line.digest, folding.place(place), billed)
    for provider, rows in found.items():
        streams = (one for place in wanted if place.provider == provider for one in cells[place].streams)
        rows.begin({one.response_id for one in streams if one.response_id})
    return found


def _wanted(cells: Mapping[Place, Cell]) -> dict[Place, None]:
    """The places of the cells that are read, those with the fewest streams first."""
    tiers: dict[Place, list[Place]] = {}
    for place in sorted(cells, key=place_order):
        tiers.setdefault(place._replace(tier=None), []).append(place)
    wanted: dict[Place, None] = {}
    room = MAX_STREAMS
    for cell in sorted(filter(_has_rest, cells.values()), key=lambda one: (one.ours.streams, place_order(one.place))):
        for place in _nearby(cell.place, tiers):
            if place in cells and place not in wanted and cells[place].ours.streams <= room:
                room -= cells[place].ours.streams
                wanted[place] = None
    return wanted


def _has_rest(cell: Cell) -> bool:
    """Whether a difference is left that a cause has to be found for."""
    money = cell.usd_rest
    return cell.rest != ZERO or (money is not None and abs(money) > cell.theirs.slack)


def _nearby(place: Place, tiers: Mapping[Place, list[Place]]) -> Iterable[Place]:
    """A cell itself, and those that its streams may be billed in, or come from."""
    yield place
    if place.day:
        yield place._replace(day=day_after(place.day, -1))
        yield place._replace(day=day_after(place.day, 1))
    yield from tiers[place._replace(tier=None)]


def _days_around(place: Place, shifted: Container[str]) -> list[str]:
    """The days on which the streams of a cell may have begun: in another time zone also the days beside it."""
    return [day_after(place.day, days) for days in ((-1, 0, 1) if place.provider in shifted else (0,))]
