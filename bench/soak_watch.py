"""What a soak looks at: memory, descriptors and threads of each process of a tap, over time; and whether they are flat."""

import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.processes import children

_PAGE_BYTES = 4096
_MIB = 1024 * 1024
# Of a run the first part is warming up: buffers fill for the first time, and so do caches.
_WARM_UP = 0.25
# Flat means: from the median at the beginning of what follows to the one at its end no more than this (bytes), or this part
# of it: outages of different length fill buffers to different heights, and allocators keep what they were given. In ten
# minutes at a thousand reads a second this shows a leak of 13 bytes a read; the slope beside it shows a smaller one.
_GROWTH_BYTES = 8 * _MIB
_GROWTH_PART = 0.05
# Connections to a broker that comes and goes, files of a checkpoint: what a process may have open more at one look.
_MORE_DESCRIPTORS = 6


@dataclass(frozen=True)
class Sample:
    """One process at one moment (seconds since the start; bytes)."""

    at_s: float
    memory: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Verdict:
    """One process over the run. `slope`: bytes a minute after the warm-up, by least squares."""

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
    return "relay" if "taps.proxy" in line else "recorder" if "taps.recording" in line else line


def _sample(pid: int, at_s: float) -> Sample | None:
    place = Path(f"/proc/{pid}")
    try:
        memory = int((place / "statm").read_text().split()[1]) * _PAGE_BYTES
        descriptors = sum(1 for _ in (place / "fd").iterdir())
        threads = sum(1 for _ in (place / "task").iterdir())
    except OSError:  # it has just ended
        return None
    return Sample(at_s, memory, descriptors, threads)


def _judge(name: str, samples: list[Sample]) -> Verdict:
    warm = samples[int(len(samples) * _WARM_UP) :]
    quarter = max(len(samples) // 4, 1)
    first = round(statistics.median(one.memory for one in warm[:quarter]))
    last = round(statistics.median(one.memory for one in warm[-quarter:]))
    slope = 60 * statistics.linear_regression([one.at_s for one in warm], [one.memory for one in warm]).slope
    descriptors = _ends([one.descriptors for one in warm], quarter)
    threads = _ends([one.threads for one in warm], quarter)
    findings = []
    if last - first > max(_GROWTH_BYTES, _GROWTH_PART * first):
        findings.append(f"{name}: memory grew from {first / _MIB:.1f} to {last / _MIB:.1f} MiB")
    if descriptors[1] - descriptors[0] > _MORE_DESCRIPTORS:
        findings.append(f"{name}: descriptors grew from {descriptors[0]} to {descriptors[1]}")
    return Verdict(name, len(samples), first, last, slope, descriptors, threads, tuple(findings))


def _ends(values: list[int], quarter: int) -> tuple[int, int]:
    """The median at the beginning and at the end."""
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
