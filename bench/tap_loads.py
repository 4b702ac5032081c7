"""What `bench.tap` puts on each peer, and what it reads off it."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.load.client import Result, burst, paced, sequential
from bench.peers.peer import Peer

# A burst: streams in all, and at a time. What a relay may hold for its recorder (32 MiB) has room for all of it: whatever
# is dropped then is a fault.
BURST_STREAMS, BURST_AT_ONCE = 400, 50
BURST_EVENTS = 200
# Paced loads: streams side by side, and events a second of each. The last is 16,000 events a second, which leaves more
# than half of a core idle under nginx.
PACED = ((50, 50), (200, 40), (800, 20))
# The one that must show no gap above GAP_TIMES its pace on one core.
ONE_CORE, GAP_TIMES = 200, 2.0
# What is put on the peers with TLS to the upstream: all loads would take two minutes of the quarter of an hour.
TLS_LOADS = ("burst", f"paced {ONE_CORE}")


@dataclass(frozen=True)
class Load:
    """One load: how to put it on a port, and of what its cost is counted: streams or events."""

    name: str
    put: Callable[[int, bool], Result]
    counts: Callable[[Result], int]


@dataclass(frozen=True)
class Figure:
    """One load on one peer, once. CPU seconds by part for each unit of the load; times in ms; `widest` in paces.

    `turn`: of the load in the whole run, another for each round and place in the round. Only figures of one turn are
    compared.
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
        """CPU seconds a unit, over all of a peer's processes."""
        return sum(self.cpu.values())


@dataclass(frozen=True)
class Sizes:
    """How much of each load: bursts a round, seconds of paced streams, requests in sequence; and what part of the streams,
    where it is only to be seen that it works.
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
    """All of them, in the order in which they are put: first what is spoilt by connections that others left open."""
    found = [Load("sequential", lambda port, llm: sequential(port, sizes.requests, captured=llm), _streams)]
    found += [Load("burst", _burst(sizes), _streams)] * sizes.bursts
    for streams, rate in PACED:
        events = max(1, round(rate * sizes.seconds))
        put = _paced(sizes.part(streams), events, 1 / rate)
        found.append(Load(paced_name(streams), put, lambda result: result.events))
    return found


def _streams(result: Result) -> int:
    return result.streams


def _burst(sizes: Sizes) -> Callable[[int, bool], Result]:
    streams, at_once = sizes.part(BURST_STREAMS), sizes.part(BURST_AT_ONCE)
    return lambda port, captured: burst(port, at_once, streams, BURST_EVENTS, captured=captured)


def _paced(streams: int, events: int, pace_s: float) -> Callable[[int, bool], Result]:
    return lambda port, captured: paced(port, streams, events, pace_s, captured=captured)


def measure(load: Load, peer: Peer) -> Figure:
    """Put a load on a peer, and wait until its work is done to the end. Raises BrokenError, TooSlowError."""
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
    """Nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


@dataclass
class Found:
    """What a run found: figures by load and peer, round by round, and what was amiss."""

    figures: dict[tuple[str, str], list[Figure]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    others: float = 0.0  # what part of the machine was somebody else's

    def add(self, load: str, peer: str, figure: Figure, turn: int) -> None:
        self.figures.setdefault((load, peer), []).append(replace(figure, turn=turn))

    def lack(self, what: str, why: str) -> None:
        """Somebody is not here, or not for this load."""
        print(f"not measured: {what}: {why}", file=sys.stderr)
        self.missing[what] = why

    def fault(self, what: str) -> None:
        """Something to be said beside the figures, once."""
        if what not in self.faults:
            print(f"amiss: {what}", file=sys.stderr)
            self.faults.append(what)


def now() -> float:
    return time.monotonic()
