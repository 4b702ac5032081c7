"""The seeds of every target hold, and a target runs under atheris; `make fuzz` runs all of them."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import NAMES
from tests.fuzz.targets import TARGETS, mutate_stream

ROOT = Path(__file__).parents[2]
# Long enough to run, short enough for every test run (seconds of fuzzing; seeds to begin with).
SECONDS = 1
SEEDS = 8
# A process that imports with instrumentation on a busy machine (seconds).
PATIENCE_S = 150


@functools.cache
def seeds_of(name: str) -> list[bytes]:
    return TARGETS[name].seeds()


def test_the_names_are_repeated_without_importing_the_targets() -> None:
    assert tuple(TARGETS) == NAMES


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_holds(name: str) -> None:
    """Of the streams, which are the vectors and have tests of their own, a fourth."""
    assert seeds_of(name)
    for seed in seeds_of(name)[:: 4 if name == "stream" else 1]:
        TARGETS[name].check(seed)


def test_mutations_are_reproducible_and_change_something() -> None:
    seeds = seeds_of("stream")
    made = [mutate_stream(seed, number) for number, seed in enumerate(seeds)]
    assert made == [mutate_stream(seed, number) for number, seed in enumerate(seeds)]
    assert sum(one != seed for one, seed in zip(made, seeds, strict=True)) > len(seeds) // 2


def test_atheris_finds_nothing_in_a_moment(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed: `make check` does it, on Linux on x86-64")
    command = [sys.executable, "-m", "tests.fuzz", "stream", "--seconds", str(SECONDS), "--seeds", str(SEEDS)]
    ran = subprocess.run(
        [*command, "--corpus", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stderr.count("stat::number_of_executed_units") == 1


def test_an_unknown_target_is_refused() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "nope"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, "nope" in ran.stderr) == (2, True)
