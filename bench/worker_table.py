"""The results of `bench.worker` as tables and sentences. A ratio is the median of the rounds' ratios."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from bench.document import table
from bench.worker_latency import Latencies
from bench.worker_logs import Load
from bench.worker_readers import Figure
from bench.worker_recovery import Recovery, TakeOver

# The readers, in the order of the tables.
FLOOR, WORKER, LEDGER = "bare loop", "worker", "worker, ledger"
# One worker and two, each on all cores.
ONE, PAIR = "one worker", "two workers"
# Two bare loops: the gain of a second process on this machine, with this broker.
BARE_PAIR = "two bare loops"
# The load of these: longer streams of the first load.
LONG = "busy taps, eight times as long"
# The aims. A restarted static member is ready after RECOVERY_S. Another worker that takes over waits for the session to
# expire first (10 s). 10,000 open streams take at most MEMORY_MIB. A record is in the ledger LATENCY_S after its stream's
# terminal (p99). Two workers carry SCALE times as much as one.
RECOVERY_S, MEMORY_MIB, LATENCY_S, SCALE = 10.0, 100.0, 2.0, 1.8
TAKE_OVER_S = 10.0 + RECOVERY_S
# The least number of rounds for a median.
ROUNDS = 3
# The memory of a recovery: before the kill, after the restart, and after all streams have ended.
_PEAKS = attrgetter("peak_mib"), attrgetter("ready_mib"), attrgetter("ended_mib")
# If other programs use more of the machine than this, figures are not reliable: caches and cores are shared.
BUSY = 0.1


@dataclass
class Results:
    """The results of a run. `figures`: by load and reader, in the order of rounds; `messages`: events in a message."""

    loads: list[Load]
    messages: dict[str, float] = field(default_factory=dict)
    figures: dict[tuple[str, str], list[Figure]] = field(default_factory=dict)
    recoveries: list[Recovery] = field(default_factory=list)
    taken: list[TakeOver] = field(default_factory=list)
    latencies: Latencies | None = None
    faults: list[str] = field(default_factory=list)
    others: float = 0.0  # the share of the machine that other programs used

    def add(self, load: str, reader: str, figure: Figure) -> None:
        self.figures.setdefault((load, reader), []).append(figure)


def report(results: Results) -> str:
    """The whole section."""
    parts = [
        f"Events a CPU-second: {FLOOR} = 1.00 in each line.",
        table(_speed(results)),
        f"Two workers beside one (aim {SCALE}), on a log written before it is read: two cores, which the broker shares.",
        table(_scale(results)),
        "Killed with streams open, and started again.",
        table(_recovery(results)),
        "One of two workers killed for good with streams open, and taken over from.",
        table(_taken(results)),
        _sentences(results),
    ]
    return "\n\n".join(part for part in parts if part)


def ratio(results: Results, of: tuple[str, str], to: tuple[str, str]) -> float | None:
    """The events that a CPU-second of one (load, reader) carries, as a share of another's in the same round."""
    pairs = _pairs(results, of, to)
    if not pairs:
        return None
    return statistics.median((one.events / one.cpu_s) / (other.events / other.cpu_s) for one, other in pairs)


def faster(results: Results, load: str, one: str = ONE, pair: str = PAIR) -> float | None:
    """The time of one reader for a load, divided by the time of two."""
    ratios = [alone.seconds / both.seconds for alone, both in _pairs(results, (load, one), (load, pair))]
    return statistics.median(ratios) if ratios else None


def _pairs(results: Results, of: tuple[str, str], to: tuple[str, str]) -> list[tuple[Figure, Figure]]:
    """The figures of each round in which both (load, reader) have one."""
    others = {other.number: other for other in results.figures.get(to, [])}
    return [(one, others[one.number]) for one in results.figures.get(of, []) if one.number in others]


def _cell(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _speed(results: Results) -> list[list[str]]:
    rows = [["load", "events a message", "its bare loop, first line = 1.00", FLOOR, WORKER, LEDGER]]
    first = (results.loads[0].name, FLOOR)
    for load in results.loads:
        bare = (load.name, FLOOR)
        shares = [ratio(results, (load.name, reader), bare) for reader in (FLOOR, WORKER, LEDGER)]
        rows.append(
            [
                load.name,
                _cell(results.messages.get(load.name), 0),
                _cell(ratio(results, bare, first)),
                *map(_cell, shares),
            ]
        )
    return rows


def _scale(results: Results) -> list[list[str]]:
    kinds = (("worker", ONE, PAIR), ("bare loop", FLOOR, BARE_PAIR))
    rows = [["load"]]
    for what, *_ in kinds:
        rows[0] += [f"two {what}s, events a second; one = 1.00", "the same, a CPU-second"]
    for load in [name for name, reader in results.figures if reader == PAIR]:
        row = [load]
        for _, one, pair in kinds:
            row += [_cell(faster(results, load, one, pair)), _cell(ratio(results, (load, pair), (load, one)))]
        rows.append(row)
    return rows


def _recovery(results: Results) -> list[list[str]]:
    head = ["open streams", "changelog, entries", f"ready, of {RECOVERY_S:.0f} s", "nothing open = 1.00", "CPU, same"]
    rows = [[*head, f"memory, of {MEMORY_MIB:.0f} MiB", "after the restart", "all ended at once"]]
    none = next((one for one in results.recoveries if not one.streams), None)
    for one in results.recoveries:
        rows.append(
            [
                f"{one.streams:,}",
                f"{one.entries:,}",
                _cell(one.ready_s / RECOVERY_S),
                _cell(one.ready_s / none.ready_s if none else None),
                _cell(one.cpu_s / none.cpu_s if none else None),
                *(_cell((of(one) - of(none)) / MEMORY_MIB if none else None) if one.streams else "" for of in _PEAKS),
            ]
        )
    return rows


def _taken(results: Results) -> list[list[str]]:
    rows = [["open streams", f"the other has all, of {TAKE_OVER_S:.0f} s", "nothing open = 1.00"]]
    none = next((one for one in results.taken if not one.streams), None)
    for one in results.taken:
        rows.append(
            [f"{one.streams:,}", _cell(one.held_s / TAKE_OVER_S), _cell(one.held_s / none.held_s if none else None)]
        )
    return rows


def _sentences(results: Results) -> str:
    sentences = []
    if results.latencies:
        sentences.append(
            f"From the terminal on the wire to the record, {len(results.latencies.topic):,} streams through tap, broker and "
            f"worker: in its topic {_latency(results.latencies.topic)}; in the ledger {_latency(results.latencies.ledger)}."
        )
    rounds = [len(figures) for figures in results.figures.values()]
    if rounds:
        sentences.append(f"A ratio is the median of {min(rounds)} to {max(rounds)} rounds.")
    if rounds and min(rounds) < ROUNDS:
        sentences.append(f"Fewer than {ROUNDS} rounds are too few: measure again.")
    if results.others > BUSY:
        sentences.append(f"The machine was not quiet: others used {results.others:.0%} of it. Measure again.")
    sentences += [f"Fault: {fault}." for fault in results.faults]
    if not results.faults and results.figures and any(one.streams for one in results.recoveries):
        sentences.append("Every stream of every load has one complete record, those that were open at a SIGKILL too.")
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _latency(ordered: Sequence[float]) -> str:
    p50, p99 = (_rank(ordered, part) / LATENCY_S for part in (0.5, 0.99))
    return f"p50 is {p50:.2f} and p99 {p99:.2f} of {LATENCY_S:.0f} s"


def _rank(ordered: Sequence[float], part: float) -> float:
    """The nearest rank."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
