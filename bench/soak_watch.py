"""Samples memory, descriptors and threads of each process of a tap over time, and judges whether they are flat."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes import children

_PAGE_BYTES = 4096
_MIB = 1024 * 1024
# The first part of a run is the warm-up, in which buffers and caches fill for the first time.
_WARM_UP = 0.5
# Memory is flat if its slope gives at most this growth over the time after the warm-up (bytes): outages of different length
# fill buffers to different heights, and allocators keep memory. In ten minutes at a thousand reads a second this shows a
# leak of 28 bytes a read.
_GROWTH_BYTES = 8 * _MIB
# The same for the number of descriptors: connections to a broker that restarts, files of a checkpoint.
_MORE_DESCRIPTORS = 6
# The pairs of this many points have 125,000 slopes, which takes a tenth of a second. Of a longer run medians of parts count.
_MOST_POINTS = 500


@dataclass(frozen=True)
class Sample:
    """One process at one time. `at_s`: since the start; `memory`: resident, in bytes."""

    at_s: float
    memory: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Verdict:
    """One process after the warm-up. `first`, `last`: medians of memory; `slope`: bytes a minute (Theil-Sen estimator)."""

    name: str
    samples: int
    first: int
    last: int
    slope: float
    descriptors: tuple[int, int]
    threads: tuple[int, int]
    findings: tuple[str, ...]


class Watch:
    """Samples a tap's processes by name. A process that was restarted continues the samples of its name."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples: dict[str, list[Sample]] = defaultdict(list)

    def sample(self, at_s: float) -> None:
        """Samples all processes."""
        names = {self._pid: "supervisor"} | {pid: _name(line) for pid, line in children(self._pid).items()}
        for pid, name in names.items():
            sample = _sample(pid, at_s)
            if sample is not None:
                self._samples[name].append(sample)

    def verdicts(self) -> list[Verdict]:
        return [_judge(name, samples) for name, samples in sorted(self._samples.items())]


def _name(line: str) -> str:
    return "relay" if "taps.proxy" in line else "collector" if "cli.collector" in line else line


def _sample(pid: int, at_s: float) -> Sample | None:
    proc = Path(f"/proc/{pid}")
    try:
        memory = int((proc / "statm").read_text().split()[1]) * _PAGE_BYTES
        descriptors = sum(1 for _ in (proc / "fd").iterdir())
        threads = sum(1 for _ in (proc / "task").iterdir())
    except OSError:  # it has just ended
        return None
    return Sample(at_s, memory, descriptors, threads)


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points, or 0 if there are none.

    Up to 29 % of the points may be arbitrary without a large effect (https://doi.org/10.1080/01621459.1968.10480934).
    """
    width = -(-len(points) // _MOST_POINTS)
    if width > 1:
        parts = [points[at : at + width] for at in range(0, len(points), width)]
        points = [(statistics.median(x for x, _ in part), statistics.median(y for _, y in part)) for part in parts]
    pairs = itertools.combinations(points, 2)
    slopes = [(after - before) / (later - sooner) for (sooner, before), (later, after) in pairs if later > sooner]
    return statistics.median(slopes) if slopes else 0.0


def _judge(name: str, samples: list[Sample]) -> Verdict:
    warm = samples[int(len(samples) * _WARM_UP) :]
    span = warm[-1].at_s - warm[0].at_s
    slope = theil_sen([(sample.at_s, sample.memory) for sample in warm])
    more_descriptors = theil_sen([(sample.at_s, sample.descriptors) for sample in warm]) * span
    first, last = _ends([sample.memory for sample in warm])
    descriptors = _ends([sample.descriptors for sample in warm])
    threads = _ends([sample.threads for sample in warm])
    findings = []
    if slope * span > _GROWTH_BYTES:
        findings.append(f"{name}: memory grew by {slope * 60 / 1024:.0f} KiB a minute, to {last / _MIB:.1f} MiB")
    if more_descriptors > _MORE_DESCRIPTORS:
        findings.append(f"{name}: descriptors grew by {more_descriptors:.0f} in {span:.0f} s, to {descriptors[1]}")
    return Verdict(name, len(samples), first, last, 60 * slope, descriptors, threads, tuple(findings))


def _ends(values: list[int]) -> tuple[int, int]:
    """The medians of the first and of the last quarter."""
    quarter = max(len(values) // 4, 1)
    return round(statistics.median(values[:quarter])), round(statistics.median(values[-quarter:]))


def table(verdicts: list[Verdict]) -> str:
    """The verdicts as a Markdown table."""
    lines = [
        "| process | memory, MiB, first to last | slope, KiB/min | descriptors | threads |",
        "|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        memory = f"{verdict.first / _MIB:.1f} to {verdict.last / _MIB:.1f}"
        slope = f"{verdict.slope / 1024:+.0f}"
        counts = [f"{first} to {last}" for first, last in (verdict.descriptors, verdict.threads)]
        lines.append(f"| {verdict.name} | {memory} | {slope} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines)
