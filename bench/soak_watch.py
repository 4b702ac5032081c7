"""What a soak looks at: memory, descriptors and threads of each process of a tap, over time; and whether they are flat."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes import children

_PAGE_BYTES = 4096
_MIB = 1024 * 1024
# Of a run the first half is warming up: buffers fill for the first time, and so do caches.
_WARM_UP = 0.5
# Flat means: by the slope, over what follows the warm-up no more than this (bytes): outages of different length fill buffers
# to different heights, and allocators keep what they were given. In ten minutes at a thousand reads a second this shows a
# leak of 28 bytes a read.
_GROWTH_BYTES = 8 * _MIB
# Connections to a broker that comes and goes, files of a checkpoint: by what the slope of descriptors may add up to.
_MORE_DESCRIPTORS = 6
# All pairs of so many points are 125,000 slopes, a tenth of a second. A longer run is told by medians of its parts.
_MOST_POINTS = 500


@dataclass(frozen=True)
class Sample:
    """One process at one moment (seconds since the start; bytes)."""

    at_s: float
    memory: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Verdict:
    """One process behind the warm-up: medians at its beginning and its end; `slope`: bytes a minute, by Theil and Sen."""

    name: str
    samples: int
    first: int
    last: int
    slope: float
    descriptors: tuple[int, int]
    threads: tuple[int, int]
    findings: tuple[str, ...]


class Watch:
    """Samples a tap's processes, by what they are; a process that was started again goes on under its name."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples: dict[str, list[Sample]] = defaultdict(list)

    def look(self, at_s: float) -> None:
        """Sample all of them."""
        names = {self._pid: "parent"} | {pid: _name(line) for pid, line in children(self._pid).items()}
        for pid, name in names.items():
            sample = _sample(pid, at_s)
            if sample is not None:
                self._samples[name].append(sample)

    def verdicts(self) -> list[Verdict]:
        return [_judge(name, samples) for name, samples in sorted(self._samples.items())]


def _name(line: str) -> str:
    return "relay" if "taps.proxy" in line else "recorder" if "streamgauge.recorder" in line else line


def _sample(pid: int, at_s: float) -> Sample | None:
    place = Path(f"/proc/{pid}")
    try:
        memory = int((place / "statm").read_text().split()[1]) * _PAGE_BYTES
        descriptors = sum(1 for _ in (place / "fd").iterdir())
        threads = sum(1 for _ in (place / "task").iterdir())
    except OSError:  # it has just ended
        return None
    return Sample(at_s, memory, descriptors, threads)


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points; 0 where there are none.

    Up to 29 % of the points may lie anywhere without deciding it (https://doi.org/10.1080/01621459.1968.10480934).
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
    slope = theil_sen([(one.at_s, one.memory) for one in warm])
    more = theil_sen([(one.at_s, one.descriptors) for one in warm]) * span
    first, last = _ends([one.memory for one in warm])
    descriptors, threads = _ends([one.descriptors for one in warm]), _ends([one.threads for one in warm])
    findings = []
    if slope * span > _GROWTH_BYTES:
        findings.append(f"{name}: memory grew by {slope * 60 / 1024:.0f} KiB a minute, to {last / _MIB:.1f} MiB")
    if more > _MORE_DESCRIPTORS:
        findings.append(f"{name}: descriptors grew by {more:.0f} in {span:.0f} s, to {descriptors[1]}")
    return Verdict(name, len(samples), first, last, 60 * slope, descriptors, threads, tuple(findings))


def _ends(values: list[int]) -> tuple[int, int]:
    """The medians of the first and of the last quarter."""
    quarter = max(len(values) // 4, 1)
    return round(statistics.median(values[:quarter])), round(statistics.median(values[-quarter:]))


def table(verdicts: list[Verdict]) -> str:
    """Markdown."""
    lines = [
        "| process | memory, MiB, first to last | slope, KiB/min | descriptors | threads |",
        "|---|---|---|---|---|",
    ]
    for one in verdicts:
        memory = f"{one.first / _MIB:.1f} to {one.last / _MIB:.1f}"
        slope = f"{one.slope / 1024:+.0f}"
        counts = [f"{first} to {last}" for first, last in (one.descriptors, one.threads)]
        lines.append(f"| {one.name} | {memory} | {slope} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines)
