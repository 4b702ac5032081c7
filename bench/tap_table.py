"""What `bench.tap` found, as tables. A ratio is the median of the rounds' ratios; a time the median of the rounds'."""

import statistics
from collections.abc import Callable, Sequence

from bench.document import table
from bench.tap_loads import GAP_TIMES, ONE_CORE, PACED, TLS_LOADS, Figure, Found, paced_name

DIRECT = "direct"
# What the name of a peer ends with that has TLS to its upstream.
TLS = ", TLS upstream"
# A machine of which others use more than this is no place for figures: caches and cores are shared.
BUSY = 0.1
_PACED = [paced_name(streams) for streams, _ in PACED]
# What a peer that was not measured so gets.
_NONE = ""


def report(found: Found, peers: Sequence[str]) -> str:
    """The whole section. `peers`: those that ran, the first of them is what the others are compared with; and the first of
    those with TLS to the upstream is what these are compared with.
    """
    plain, tls = [name for name in peers if not name.endswith(TLS)], [name for name in peers if name.endswith(TLS)]
    said = _sentences(found, [name for name in peers if name.startswith("streamgauge")])
    return "\n\n".join([*_without_tls(found, plain), *_with_tls(found, tls), *said])


def _without_tls(found: Found, peers: Sequence[str]) -> list[str]:
    if not peers:
        return []
    reference, ours = peers[0], [name for name in peers if name.startswith("streamgauge")]
    return [
        f"CPU: what a CPU-second of all its processes carries, {reference} = 1.",
        table(_cost(found, peers, reference)),
        "The same round by round: the least and the most.",
        table(_spread(found, ours, reference)),
        "Time: what it adds to the upstream asked directly, in ms.",
        table(_times(found, peers)),
        f"Where the CPU of `streamgauge tap` goes, as parts of what {reference} takes for the same load.",
        table(_parts(found, ours, reference)),
    ]


def _with_tls(found: Found, peers: Sequence[str]) -> list[str]:
    if not peers:
        return []
    reference = peers[0]
    rows = [
        [
            "proxy",
            *(f"{load}, {reference.removesuffix(TLS)} with TLS = 1" for load in TLS_LOADS),
            *(f"{load}, itself without TLS = 1" for load in TLS_LOADS),
            *(f"event, {paced_name(ONE_CORE)}, {part}" for part in ("p50", "p99")),
            "peak, MiB",
        ]
    ]
    for peer in peers:
        to_reference = [_cell(ratio(found, load, peer, reference)) for load in TLS_LOADS]
        to_itself = [_cell(ratio(found, load, peer, peer.removesuffix(TLS))) for load in TLS_LOADS]
        late = [_added(found, paced_name(ONE_CORE), peer, of) for of in (lambda f: f.late_p50, lambda f: f.late_p99)]
        rows.append([peer, *to_reference, *to_itself, *late, _cell(found.memory.get(peer), 0)])
    return [
        "TLS to the upstream, which each proxy verifies; clients speak plain HTTP. CPU: what a CPU-second carries. Time: what"
        " it adds to the upstream without TLS asked directly, in ms.",
        table(rows),
        *_for_https(found, peers),
    ]


def _for_https(found: Found, peers: Sequence[str]) -> list[str]:
    """What users of https upstreams get, in a sentence; nothing where there is no figure of ours or none to compare with."""
    reference, *others = peers
    parts = []
    for load, where in zip(TLS_LOADS, ("in a burst", f"at {ONE_CORE} paced streams"), strict=True):
        ratios = [(peer, ratio(found, load, peer, reference)) for peer in others if peer.startswith("streamgauge")]
        each = [f"{value:.2f} ({_capture(peer)})" for peer, value in ratios if value is not None]
        if each:
            parts.append(f"{where} {' and '.join(each)}")
    if not parts:
        return []
    return [
        "With an https upstream, a CPU-second of `streamgauge tap` carries, of what one of"
        f" {reference.removesuffix(TLS)} carries with such an upstream: {'; '.join(parts)}."
    ]


def _capture(peer: str) -> str:
    """How much one of ours captures, by its name."""
    return peer.removeprefix("streamgauge, ").removesuffix(TLS)


def _median(found: Found, load: str, peer: str, of: Callable[[Figure], float]) -> float | None:
    figures = found.figures.get((load, peer))
    return statistics.median(of(figure) for figure in figures) if figures else None


def _pairs(found: Found, load: str, peer: str, to: str) -> list[tuple[Figure, Figure]]:
    """Two peers' figures of each turn of a load in which both have one."""
    others = {other.turn: other for other in found.figures.get((load, to), [])}
    return [(one, others[one.turn]) for one in found.figures.get((load, peer), []) if one.turn in others]


def _ratio(found: Found, load: str, of: tuple[str, Callable[[Figure], float]], to: str) -> float | None:
    """The median of what `of` says of a peer over what the reference takes in all, in the same turn."""
    peer, take = of
    pairs = _pairs(found, load, peer, to)
    return statistics.median(take(one) / other.total for one, other in pairs) if pairs else None


def ratio(found: Found, load: str, peer: str, reference: str) -> float | None:
    """What a CPU-second of `peer` carries, as a share of the reference's."""
    cost = _ratio(found, load, (peer, lambda figure: figure.total), reference)
    return None if cost is None else 1 / cost


def _cell(value: float | None, digits: int = 2) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"


def _cost(found: Found, peers: Sequence[str], reference: str) -> list[list[str]]:
    loads = ["burst", *_PACED]
    rows = [
        ["proxy", "burst, streams", *(f"{name}, events" for name in _PACED), "events a read in a burst", "peak, MiB"]
    ]
    for peer in peers:
        ratios = [_cell(ratio(found, load, peer, reference)) for load in loads]
        together = _cell(_median(found, "burst", peer, lambda figure: figure.events_a_read), 0)
        rows.append([peer, *ratios, together, _cell(found.memory.get(peer), 0)])
    return rows


def _spread(found: Found, ours: Sequence[str], reference: str) -> list[list[str]]:
    loads = ["burst", *_PACED]
    rows = [["proxy", *loads, "rounds"]]
    for peer in ours:
        cells, rounds = [], 0
        for load in loads:
            each = [other.total / one.total for one, other in _pairs(found, load, peer, reference)]
            cells.append(f"{min(each):.2f} to {max(each):.2f}" if each else _NONE)
            rounds = len(each) or rounds
        rows.append([peer, *cells, str(rounds)])
    return rows


def _added(found: Found, load: str, peer: str, of: Callable[[Figure], float]) -> str:
    pairs = _pairs(found, load, peer, DIRECT)
    return _cell(statistics.median(of(one) - of(other) for one, other in pairs)) if pairs else _NONE


def _times(found: Found, peers: Sequence[str]) -> list[list[str]]:
    title = [f"event, {name}, {part}" for name in _PACED for part in ("p50", "p99")]
    rows = [["proxy", "first byte, p50", "first byte, p99", *title]]
    for peer in peers:
        first = [_added(found, "sequential", peer, of) for of in (lambda f: f.first_p50, lambda f: f.first_p99)]
        late = [_added(found, load, peer, of) for load in _PACED for of in (lambda f: f.late_p50, lambda f: f.late_p99)]
        rows.append([peer, *first, *late])
    return rows


def _parts(found: Found, ours: Sequence[str], reference: str) -> list[list[str]]:
    loads = ["burst", *_PACED]
    rows = [["capture", "process", *loads]]
    for peer in ours:
        for part in ("relay", "recorder", "shipper"):
            shares = [_ratio(found, load, (peer, lambda f, part=part: f.cpu[part]), reference) for load in loads]  # type: ignore[misc]
            rows.append([_capture(peer), part, *map(_cell, shares)])
    return rows


def _sentences(found: Found, ours: Sequence[str]) -> list[str]:
    """What else was seen."""
    said = []
    streams = _median(found, "burst", DIRECT, lambda figure: figure.a_second)
    events = _median(found, _PACED[-1], DIRECT, lambda figure: figure.late_p99)
    if streams is not None and events is not None:
        said.append(
            f"The load's own ceiling, client and upstream on their one core without a proxy: {streams:,.0f} streams a second "
            f"in a burst; at {PACED[-1][0]} paced streams 99 % of the events are read within {events:.2f} ms."
        )
    for peer in (DIRECT, *ours):
        widest = [figure.widest for figure in found.figures.get((paced_name(ONE_CORE), peer), [])]
        if widest:
            kept = sum(one <= GAP_TIMES for one in widest)
            said.append(
                f"{ONE_CORE} paced streams on one core, {peer}: the widest gap of any stream was "
                f"{statistics.median(widest):.2f} times its pace in the median round; "
                f"{kept} of {len(widest)} rounds had none above {GAP_TIMES:g}."
            )
    if found.others > BUSY:
        said.append(f"The machine was not quiet: others used {found.others:.0%} of it. Measure again.")
    said += [f"Not measured: {peer}: {why}." for peer, why in found.missing.items()]
    said += [f"Amiss: {what}." for what in found.faults]
    if ours and not found.faults:
        said.append("No read was lost: behind each load all that was seen was delivered.")
    return ["\n".join(f"- {one}" for one in said)]
