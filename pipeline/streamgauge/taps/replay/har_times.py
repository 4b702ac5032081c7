"""The times of an HTTP Archive: milliseconds by phase, and in some the arrival of pieces. Only measured times are used.

startedDateTime + blocked + dns + connect + send + wait: the head has arrived; + receive: the end. -1 means "does not
apply". Without a positive `wait` nothing was measured: tools that do not measure write -1 or zeros.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate

from streamgauge.taps.replay.contract import Times
from streamgauge.taps.replay.members import mapping, number, since, text, wall

# When a page began, in seconds since 1970.
Page = float

# Phases before the request's last byte, in order; ssl is a part of connect.
_BEFORE_SENT = ("blocked", "dns", "connect", "send")
# Tools whose `send` ends with the client's last byte, and whose `connect` may lie anywhere:
# mitmproxy/addons/savehar.py.
_RELAYS = ("mitmproxy",)


def times_of(entry: Mapping[object, object], creator: str) -> Times:
    """The times of one entry, in the meaning of the tool named `creator`."""
    started = wall(_moment(entry.get("startedDateTime")))
    timings = mapping(entry.get("timings"))
    wait = number(timings.get("wait"))
    if wait is None or wait <= 0:
        return Times(started)
    phases = [max(number(timings.get(name)) or 0.0, 0.0) for name in _BEFORE_SENT]
    is_relay = creator.startswith(_RELAYS)
    if is_relay:
        phases = phases[-1:]
    *_, connected, sent = (0.0, *accumulate(phases))
    receive = number(timings.get("receive"))
    return Times(
        started_ns=started,
        connected_ns=None if is_relay or not (number(timings.get("connect")) or 0) > 0 else _ns(connected),
        sent_ns=None if is_relay else _ns(sent),
        head_ns=_ns(sent + wait),
        end_ns=None if receive is None or receive < 0 else _ns(sent + wait + receive),
    )


def pages_of(pages: Sequence[object]) -> dict[str, Page]:
    """When each page began, by its id."""
    known = ((text(page.get("id")), _moment(page.get("startedDateTime"))) for page in map(mapping, pages))
    return {name: began for name, began in known if name is not None and began is not None}


def stamps_of(entry: Mapping[object, object], pages: Mapping[str, Page], body_bytes: int) -> list[tuple[int, int]]:
    """Sizes of the body's pieces, and when they arrived (nanoseconds since the request began). Empty if unknown.

    `_chunks` of chrome-har and WebPageTest: milliseconds since the page began, and bytes. They are used only if they are in
    order and add up to this body: for a compressed one they count the bytes on the wire.
    """
    chunks, page = entry.get("_chunks"), pages.get(text(entry.get("pageref")) or "")
    began = _moment(entry.get("startedDateTime"))
    if not isinstance(chunks, list) or page is None or began is None or not body_bytes:
        return []
    sizes = [number(mapping(chunk).get("bytes")) for chunk in chunks]
    times = [number(mapping(chunk).get("ts")) for chunk in chunks]
    stamps = [None if at is None else since(page + at / 1000, began) for at in times]
    pieces = [
        (int(size), stamp) for size, stamp in zip(sizes, stamps, strict=True) if size is not None and stamp is not None
    ]
    in_order = all(
        size > 0 and before[1] <= stamp for before, (size, stamp) in zip([(0, 0), *pieces], pieces, strict=False)
    )
    whole = len(pieces) == len(chunks) and sum(size for size, _ in pieces) == body_bytes
    return pieces if in_order and whole else []


def _moment(value: object) -> float | None:
    """ISO 8601 with a zone, as seconds since 1970; None without a zone, since the time is then unknown."""
    try:
        moment = datetime.fromisoformat(text(value) or "")
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _ns(milliseconds: float) -> int | None:
    return since(milliseconds / 1000, 0.0)
