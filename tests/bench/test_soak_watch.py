"""Which series count as flat."""

import pytest
from bench.soak_watch import Sample, _judge, theil_sen

MIB = 1024 * 1024
FLAT = [60 * MIB] * 300


def run_of(memory: list[int], descriptors: list[int]) -> list[Sample]:
    return [Sample(2.0 * place, *pair, 3) for place, pair in enumerate(zip(memory, descriptors, strict=True))]


def test_flat_and_rising_series() -> None:
    wobbling = [(60 + place % 5) * MIB for place in range(300)]
    assert _judge("relay", run_of(wobbling, [20 + place % 3 for place in range(300)])).findings == ()
    warming = [min(40 + place, 60) * MIB for place in range(300)]
    assert _judge("relay", run_of(warming, [20] * 300)).findings == ()
    leaking = [60 * MIB + place * 100_000 for place in range(300)]
    verdict = _judge("relay", run_of(leaking, [20 + place // 15 for place in range(300)]))
    assert len(verdict.findings) == 2
    assert 2_900_000 < verdict.slope < 3_100_000


@pytest.mark.parametrize("place", [0, 150, 170, 298, 299])
def test_one_sample_decides_nothing(place: int) -> None:
    """A sample taken at a process's peak neither makes a finding nor hides one."""
    memory, descriptors = list(FLAT), [20] * 300
    memory[place], descriptors[place] = 100_000 * MIB, 10_000
    verdict = _judge("relay", run_of(memory, descriptors))
    assert verdict.findings == ()
    assert verdict.slope == 0
    leaking = [60 * MIB + at * 100_000 for at in range(300)]
    leaking[place] = 0
    [finding] = _judge("relay", run_of(leaking, [20] * 300)).findings
    assert "memory grew" in finding


def test_only_the_second_half_counts() -> None:
    growing_then_flat = [min(60 * MIB + place * MIB, 210 * MIB) for place in range(300)]
    assert _judge("relay", run_of(growing_then_flat, [20] * 300)).findings == ()
    flat_then_growing = [max(60 * MIB, (60 - 150 + place) * MIB) for place in range(300)]
    assert len(_judge("relay", run_of(flat_then_growing, [20] * 300)).findings) == 1


def test_the_slope_of_a_long_run() -> None:
    points = [(2.0 * place, 7.0 * place + (1e9 if place % 5 == 0 else 0)) for place in range(3_000)]
    assert theil_sen(points) == pytest.approx(3.5, rel=0.01)
    assert theil_sen([(0.0, 5.0), (1.0, 4.0), (2.0, 3.0)]) == -1
    assert theil_sen([(3.0, 5.0)]) == theil_sen([]) == 0
