"""What `bench.worker` found, as tables and sentences. A ratio is the median of the rounds' ratios."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from bench.document import table
from bench.worker_latency import Latencies
from bench.worker_logs import Load
from bench.worker_readers import Figure
from bench.worker_recovery import Recovery, TakeOver

# Who reads, in the tables' order.
FLOOR, WORKER, LEDGER = "bare loop", "worker", "worker, ledger"
# One that is free to use all cores, and a pair that is compared with it.
ONE, PAIR = "one worker", "two workers"
# Two of the bare loop, beside one: what a second process brings on this machine, with this broker.
BARE_PAIR = "two bare loops"
# Their load: more of the first one.
LONG = "busy taps, eight times as long"
# What the design asks for. A crash is over within the session timeout and ten seconds more, and a static member that comes
# back waits for no session, but whoever takes over from it does; 10,000 open streams take so much memory (MiB); a record is
# in the ledger so soon behind its stream's terminal (seconds, p99); two workers carry so much more.
RECOVERY_S, MEMORY_MIB, LATENCY_S, SCALE = 10.0, 100.0, 2.0, 1.8
TAKE_OVER_S = 10.0 + RECOVERY_S
# A median of fewer rounds than this is none.
ROUNDS = 3
# A recovery's memory: before the kill, after it, and as all streams have ended.
_PEAKS = attrgetter("peak_mib"), attrgetter("ready_mib"), attrgetter("ended_mib")
# A machine of which others use more than this is no place for figures: caches and cores are shared.
BUSY = 0.1


@dataclass
class Found:
    """What a run found; figures by load and reader, round by round."""

    loads: list[Load]
    messages: dict[str, float] = field(default_factory=dict)  # events a message
    figures: dict[tuple[str, str], list[Figure]] = field(default_factory=dict)
    recoveries: list[Recovery] = field(default_factory=list)
    taken: list[TakeOver] = field(default_factory=list)
    latencies: Latencies | None = None
    faults: list[str] = field(default_factory=list)
    others: float = 0.0  # what part of the machine was somebody else's

    def add(self, load: str, reader: str, figure: Figure) -> None:
        self.figures.setdefault((load, reader), []).append(figure)


def report(found: Found) -> str:
    """The whole section."""
    parts = [
        f"Events a CPU-second: {FLOOR} = 1.00 in each line.",
        table(_speed(found)),
        f"Two workers beside one (aim {SCALE}), on a log that lies there whole: on two cores, which the broker shares.",
        table(_scale(found)),
        "Killed with streams open, and started again.",
        table(_recovery(found)),
        "One of two workers killed for good with streams open, and taken over from.",
        table(_taken(found)),
        _sentences(found),
    ]
    return "\n\n".join(part for part in parts if part)


def ratio(found: Found, of: tuple[str, str], to: tuple[str, str]) -> float | None:
    """What a CPU-second of one (load, reader) carries, as a share of another's in the same round."""
    pairs = _pairs(found, of, to)
    if not pairs:
        return None
    return statistics.median((one.events / one.cpu_s) / (other.events / other.cpu_s) for one, other in pairs)


def faster(found: Found, load: str, one: str = ONE, pair: str = PAIR) -> float | None:
    """How much sooner two are done with a load than one."""
    ratios = [alone.seconds / both.seconds for alone, both in _pairs(found, (load, one), (load, pair))]
    return statistics.median(ratios) if ratios else None


def _pairs(found: Found, of: tuple[str, str], to: tuple[str, str]) -> list[tuple[Figure, Figure]]:
    """Two figures of each round in which neither is amiss."""
    others = {other.number: other for other in found.figures.get(to, [])}
    return [(one, others[one.number]) for one in found.figures.get(of, []) if one.number in others]


def _cell(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _speed(found: Found) -> list[list[str]]:
    rows = [["load", "events a message", "its bare loop, first line = 1.00", FLOOR, WORKER, LEDGER]]
    first = (found.loads[0].name, FLOOR)
    for load in found.loads:
        bare = (load.name, FLOOR)
        shares = [ratio(found, (load.name, reader), bare) for reader in (FLOOR, WORKER, LEDGER)]
        rows.append(
            [
                load.name,
                _cell(found.messages.get(load.name), 0),
                _cell(ratio(found, bare, first)),
                *map(_cell, shares),
            ]
        )
    return rows


def _scale(found: Found) -> list[list[str]]:
    kinds = (("worker", ONE, PAIR), ("bare loop", FLOOR, BARE_PAIR))
    rows = [["load"]]
    for what, *_ in kinds:
        rows[0] += [f"two {what}s, events a second; one = 1.00", "the same, a CPU-second"]
    for load in [name for name, reader in found.figures if reader == PAIR]:
        row = [load]
        for _, one, pair in kinds:
            row += [_cell(faster(found, load, one, pair)), _cell(ratio(found, (load, pair), (load, one)))]
        rows.append(row)
    return rows


def _recovery(found: Found) -> list[list[str]]:
    head = ["open streams", "changelog, entries", f"ready, of {RECOVERY_S:.0f} s", "nothing open = 1.00", "CPU, same"]
    rows = [[*head, f"memory, of {MEMORY_MIB:.0f} MiB", "after the restart", "all ended at once"]]
    none = next((one for one in found.recoveries if not one.streams), None)
    for one in found.recoveries:
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


def _taken(found: Found) -> list[list[str]]:
    rows = [["open streams", f"the other has all, of {TAKE_OVER_S:.0f} s", "nothing open = 1.00"]]
    none = next((one for one in found.taken if not one.streams), None)
    for one in found.taken:
        rows.append(
            [f"{one.streams:,}", _cell(one.held_s / TAKE_OVER_S), _cell(one.held_s / none.held_s if none else None)]
        )
    return rows


def _sentences(found: Found) -> str:
    said = []
    if found.latencies:
        said.append(
            f"From the terminal on the wire to the record, {len(found.latencies.topic):,} streams through tap, broker and "
            f"worker: in its topic {_latency(found.latencies.topic)}; in the ledger {_latency(found.latencies.ledger)}."
        )
    rounds = [len(figures) for figures in found.figures.values()]
    if rounds:
        said.append(f"A ratio is the median of {min(rounds)} to {max(rounds)} rounds.")
    if rounds and min(rounds) < ROUNDS:
        said.append(f"Fewer than {ROUNDS} rounds are too few: measure again.")
    if found.others > BUSY:
        said.append(f"The machine was not quiet: others used {found.others:.0%} of it. Measure again.")
    said += [f"Amiss: {what}." for what in found.faults]
    if not found.faults and found.figures and any(one.streams for one in found.recoveries):
        said.append("Every stream of every load became one whole record, those that were open at a SIGKILL too.")
    return "\n".join(f"- {one}" for one in said)


def _latency(ordered: Sequence[float]) -> str:
    p50, p99 = (_rank(ordered, part) / LATENCY_S for part in (0.5, 0.99))
    return f"p50 is {p50:.2f} and p99 {p99:.2f} of {LATENCY_S:.0f} s"


def _rank(ordered: Sequence[float], part: float) -> float:
    """Nearest rank."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
