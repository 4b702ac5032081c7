"""The loads of `bench.tap`, and the figures that it measures."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.load.client import Result, burst, paced, sequential
from bench.peers.peer import Peer

# A burst: all streams, and concurrent ones. The relay's buffer for its collector (32 MiB) has room for all of it, so a
# dropped read is a fault.
BURST_STREAMS, BURST_AT_ONCE = 400, 50
BURST_EVENTS = 200
# A dense burst: the same streams, whose events come in writes of this many, as from fast models and gateways that buffer.
DENSE, DENSE_AT_ONCE = "dense burst", 100
# Paced loads: concurrent streams, and events a second of each. The last has 16,000 events a second, with which nginx leaves
# more than half of a core idle.
PACED = ((50, 50), (200, 40), (800, 20))
# The load whose gaps on one core must not exceed GAP_TIMES its pace.
ONE_CORE, GAP_TIMES = 200, 2.0
# The loads of peers with TLS to the upstream: all loads would take two minutes of the quarter of an hour.
TLS_LOADS = ("burst", f"paced {ONE_CORE}")


@dataclass(frozen=True)
class Load:
    """One load. `put` runs it on a port. `counts`: the units of its cost, which are streams or events."""

    name: str
    put: Callable[[int, bool], Result]
    counts: Callable[[Result], int]


@dataclass(frozen=True)
class Figure:
    """One load on one peer, once. `cpu`: seconds for each unit of the load, by part; times in ms; `widest` in paces.

    `turn`: the position of the load in the whole run. Only figures of the same turn are compared.
    """

    cpu: dict[str, float]
    events_a_read: float
    a_second: float
    late_p50: float = 0.0
    late_p99: float = 0.0
    first_p50: float = 0.0
    first_p99: float = 0.0
    widest: float = 0.0
    turn: int = 0

    @property
    def total(self) -> float:
        """CPU seconds for a unit, of all processes of the peer."""
        return sum(self.cpu.values())


@dataclass(frozen=True)
class Sizes:
    """How much of each load. `bursts`: in a round; `seconds`: of paced streams; `requests`: in sequence; `share`: of the
    streams, below 1 in tests.
    """

    bursts: int = 2
    seconds: float = 6.0
    requests: int = 400
    share: float = 1.0

    def part(self, streams: int) -> int:
        return max(1, round(streams * self.share))


def paced_name(streams: int) -> str:
    return f"paced {streams}"


def loads(sizes: Sizes) -> list[Load]:
    """All loads in their order: first the one that open connections of the others would disturb."""
    results = [Load("sequential", lambda port, llm: sequential(port, sizes.requests, captured=llm), _streams)]
    results += [Load("burst", _burst(sizes), _streams)] * sizes.bursts
    results += [Load(DENSE, _burst(sizes, DENSE_AT_ONCE), _streams)] * sizes.bursts
    for streams, rate in PACED:
        events = max(1, round(rate * sizes.seconds))
        put = _paced(sizes.part(streams), events, 1 / rate)
        results.append(Load(paced_name(streams), put, lambda result: result.events))
    return results


def _streams(result: Result) -> int:
    return result.streams


def _burst(sizes: Sizes, a_write: int = 1) -> Callable[[int, bool], Result]:
    streams, at_once = sizes.part(BURST_STREAMS), sizes.part(BURST_AT_ONCE)
    return lambda port, captured: burst(port, at_once, streams, BURST_EVENTS, captured=captured, at_once=a_write)


def _paced(streams: int, events: int, pace_s: float) -> Callable[[int, bool], Result]:
    return lambda port, captured: paced(port, streams, events, pace_s, captured=captured)


def measure(load: Load, peer: Peer) -> Figure:
    """Runs a load on a peer, and waits until all its work is done. Raises BrokenError, TooSlowError."""
    before = peer.cpu()
    result = load.put(peer.port, peer.captured)
    peer.settle()
    units = load.counts(result)
    rate = next((rate for streams, rate in PACED if load.name == paced_name(streams)), 0)
    return Figure(
        cpu={part: (used - before[part]) / units for part, used in peer.cpu().items()},
        events_a_read=result.events / max(result.reads, 1),
        a_second=units / result.seconds if result.seconds else 0.0,
        late_p50=percentile(result.late, 0.5) / 1e6,
        late_p99=percentile(result.late, 0.99) / 1e6,
        first_p50=percentile(result.first, 0.5) / 1e6,
        first_p99=percentile(result.first, 0.99) / 1e6,
        widest=max(result.widest, default=0) / 1e9 * rate,
    )


def percentile(values: Sequence[float], part: float) -> float:
    """The nearest rank, or 0 if there are no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


@dataclass
class Results:
    """The results of a run: figures by load and peer, in the order of rounds, and what went wrong."""

    figures: dict[tuple[str, str], list[Figure]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    others: float = 0.0  # the share of the machine that other programs used

    def add(self, load: str, peer: str, figure: Figure, turn: int) -> None:
        self.figures.setdefault((load, peer), []).append(replace(figure, turn=turn))

    def add_missing(self, what: str, why: str) -> None:
        """Reports that a peer is not available, or not for this load."""
        print(f"not measured: {what}: {why}", file=sys.stderr)
        self.missing[what] = why

    def add_fault(self, what: str) -> None:
        """Reports a fault, once."""
        if what not in self.faults:
            print(f"fault: {what}", file=sys.stderr)
            self.faults.append(what)


def now() -> float:
    return time.monotonic()
