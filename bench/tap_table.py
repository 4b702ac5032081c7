"""The results of `bench.tap` as tables. Ratios and times are medians of the rounds."""

import statistics
from collections.abc import Callable, Sequence

from bench.document import table
from bench.tap_loads import DENSE, GAP_TIMES, ONE_CORE, PACED, TLS_LOADS, Figure, Results, paced_name

DIRECT = "direct"
# The end of the name of a peer with TLS to its upstream.
TLS = ", TLS upstream"
# The end of the name of a tap that has the code of another working tree (`--before`).
BEFORE = ", before"
# If other programs use more of the machine than this, figures are not reliable: caches and cores are shared.
BUSY = 0.1
_PACED = [paced_name(streams) for streams, _ in PACED]
# The cell of a figure that was not measured.
_NONE = ""


def report(results: Results, peers: Sequence[str]) -> str:
    """The whole section. `peers`: those that ran. The first one is the reference of the others; so is the first one with
    TLS to the upstream for those with TLS.
    """
    plain, tls = [name for name in peers if not name.endswith(TLS)], [name for name in peers if name.endswith(TLS)]
    sentences = _sentences(results, [name for name in peers if name.startswith("streamgauge")])
    return "\n\n".join([*_without_tls(results, plain), *_with_tls(results, tls), *sentences])


def _without_tls(results: Results, peers: Sequence[str]) -> list[str]:
    if not peers:
        return []
    reference, ours = peers[0], [name for name in peers if name.startswith("streamgauge")]
    return [
        f"CPU: what a CPU-second of all its processes carries, {reference} = 1.",
        table(_cost(results, peers, reference)),
        "The same round by round: the least and the most.",
        table(_spread(results, ours, reference)),
        "Time: what it adds to the upstream asked directly, in ms.",
        table(_times(results, peers)),
        f"Where the CPU of `streamgauge tap` goes, as parts of what {reference} takes for the same load.",
        table(_parts(results, ours, reference)),
    ]


def _with_tls(results: Results, peers: Sequence[str]) -> list[str]:
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
        to_reference = [_cell(ratio(results, load, peer, reference)) for load in TLS_LOADS]
        to_itself = [_cell(ratio(results, load, peer, peer.removesuffix(TLS))) for load in TLS_LOADS]
        late = [_added(results, paced_name(ONE_CORE), peer, of) for of in (lambda f: f.late_p50, lambda f: f.late_p99)]
        rows.append([peer, *to_reference, *to_itself, *late, _cell(results.memory.get(peer), 0)])
    return [
        "TLS to the upstream, which each proxy verifies; clients speak plain HTTP. CPU: what a CPU-second carries. Time: what"
        " it adds to the upstream without TLS asked directly, in ms.",
        table(rows),
        *_for_https(results, peers),
    ]


def _for_https(results: Results, peers: Sequence[str]) -> list[str]:
    """A sentence for users of https upstreams; none without figures of a tap and of the reference."""
    reference, *others = peers
    parts = []
    for load, where in zip(TLS_LOADS, ("in a burst", f"at {ONE_CORE} paced streams"), strict=True):
        ratios = [(peer, ratio(results, load, peer, reference)) for peer in others if peer.startswith("streamgauge")]
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
    """The capture mode in the name of a tap."""
    return peer.removeprefix("streamgauge, ").removesuffix(TLS)


def _median(results: Results, load: str, peer: str, of: Callable[[Figure], float]) -> float | None:
    figures = results.figures.get((load, peer))
    return statistics.median(of(figure) for figure in figures) if figures else None


def _pairs(results: Results, load: str, peer: str, to: str) -> list[tuple[Figure, Figure]]:
    """The figures of two peers for the turns of a load in which both have one."""
    others = {other.turn: other for other in results.figures.get((load, to), [])}
    return [(one, others[one.turn]) for one in results.figures.get((load, peer), []) if one.turn in others]


def _ratio(results: Results, load: str, of: tuple[str, Callable[[Figure], float]], to: str) -> float | None:
    """The median over turns of a peer's figure, divided by the total of the reference."""
    peer, figure_of = of
    pairs = _pairs(results, load, peer, to)
    return statistics.median(figure_of(one) / other.total for one, other in pairs) if pairs else None


def ratio(results: Results, load: str, peer: str, reference: str) -> float | None:
    """The load that a CPU-second of `peer` carries, as a share of the reference's."""
    cost = _ratio(results, load, (peer, lambda figure: figure.total), reference)
    return None if cost is None else 1 / cost


def _cell(value: float | None, digits: int = 2) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"


def _cost(results: Results, peers: Sequence[str], reference: str) -> list[list[str]]:
    loads = ["burst", DENSE, *_PACED]
    rows = [
        [
            "proxy",
            "burst, streams",
            f"{DENSE}, streams",
            *(f"{name}, events" for name in _PACED),
            "events a read in a burst",
            "peak, MiB",
        ]
    ]
    for peer in peers:
        ratios = [_cell(ratio(results, load, peer, reference)) for load in loads]
        together = _cell(_median(results, "burst", peer, lambda figure: figure.events_a_read), 0)
        rows.append([peer, *ratios, together, _cell(results.memory.get(peer), 0)])
    return rows


def _spread(results: Results, ours: Sequence[str], reference: str) -> list[list[str]]:
    loads = ["burst", DENSE, *_PACED]
    rows = [["proxy", *loads, "rounds"]]
    for peer in ours:
        cells, rounds = [], 0
        for load in loads:
            each = [other.total / one.total for one, other in _pairs(results, load, peer, reference)]
            cells.append(f"{min(each):.2f} to {max(each):.2f}" if each else _NONE)
            rounds = len(each) or rounds
        rows.append([peer, *cells, str(rounds)])
    return rows


def _added(results: Results, load: str, peer: str, of: Callable[[Figure], float]) -> str:
    pairs = _pairs(results, load, peer, DIRECT)
    return _cell(statistics.median(of(one) - of(other) for one, other in pairs)) if pairs else _NONE


def _times(results: Results, peers: Sequence[str]) -> list[list[str]]:
    title = [f"event, {name}, {part}" for name in _PACED for part in ("p50", "p99")]
    rows = [["proxy", "first byte, p50", "first byte, p99", *title]]
    for peer in peers:
        first = [_added(results, "sequential", peer, of) for of in (lambda f: f.first_p50, lambda f: f.first_p99)]
        late = [
            _added(results, load, peer, of) for load in _PACED for of in (lambda f: f.late_p50, lambda f: f.late_p99)
        ]
        rows.append([peer, *first, *late])
    return rows


def _parts(results: Results, ours: Sequence[str], reference: str) -> list[list[str]]:
    loads = ["burst", DENSE, *_PACED]
    rows = [["capture", "process", *loads]]
    for peer in ours:
        for part in () if peer.endswith(BEFORE) else ("relay", "collector"):
            shares = [_ratio(results, load, (peer, _cpu_of(part)), reference) for load in loads]
            rows.append([_capture(peer), part, *map(_cell, shares)])
    return rows


def _cpu_of(part: str) -> Callable[[Figure], float]:
    return lambda figure: figure.cpu[part]


def _sentences(results: Results, ours: Sequence[str]) -> list[str]:
    """The other results, as a list."""
    sentences = []
    streams = _median(results, "burst", DIRECT, lambda figure: figure.a_second)
    events = _median(results, _PACED[-1], DIRECT, lambda figure: figure.late_p99)
    if streams is not None and events is not None:
        sentences.append(
            f"The load's own ceiling, client and upstream on their one core without a proxy: {streams:,.0f} streams a second "
            f"in a burst; at {PACED[-1][0]} paced streams 99 % of the events are read within {events:.2f} ms."
        )
    for peer in (DIRECT, *ours):
        widest = [figure.widest for figure in results.figures.get((paced_name(ONE_CORE), peer), [])]
        if widest:
            within = sum(gap <= GAP_TIMES for gap in widest)
            sentences.append(
                f"{ONE_CORE} paced streams on one core, {peer}: the widest gap of any stream was "
                f"{statistics.median(widest):.2f} times its pace in the median round; "
                f"{within} of {len(widest)} rounds had none above {GAP_TIMES:g}."
            )
    if results.others > BUSY:
        sentences.append(f"The machine was not quiet: others used {results.others:.0%} of it. Measure again.")
    sentences += [f"Not measured: {peer}: {reason}." for peer, reason in results.missing.items()]
    sentences += [f"Fault: {fault}." for fault in results.faults]
    if ours and not results.faults:
        sentences.append("No read was lost: after each load all reads seen were delivered.")
    return ["\n".join(f"- {sentence}" for sentence in sentences)]
