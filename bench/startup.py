"""The time of `streamgauge --version` and `streamgauge --help`, compared with an interpreter that only imports click.

Shells and scripts run these, and a slow import at the top of the command line shows here first. The programs run
alternately, so that other load on the machine affects all of them.

    python -m bench.startup [--turns N]

Prints the medians and their ratios to the import. Exits with 1 if a ratio is above LIMIT.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

# The highest ratio.
LIMIT = 1.5
TURNS = 7
VERSION = ("-m", "streamgauge", "--version")
HELP = ("-m", "streamgauge", "--help")
IMPORT = ("-c", "import click")


def seconds_of(arguments: Sequence[str]) -> float:
    """How long the interpreter takes for these arguments. Raises CalledProcessError if it fails."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def by_turns(turns: int) -> tuple[float, float, float]:
    """The median times of `streamgauge --version`, `streamgauge --help` and of the import (seconds)."""
    for arguments in (VERSION, HELP, IMPORT):  # the first start reads files from the disk
        seconds_of(arguments)
    times = [(seconds_of(VERSION), seconds_of(HELP), seconds_of(IMPORT)) for _ in range(turns)]
    version, shown, imported = zip(*times, strict=True)
    return statistics.median(version), statistics.median(shown), statistics.median(imported)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.startup", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args(arguments)
    version, shown, imported = by_turns(given.turns)
    print(f"python -c 'import click': {imported * 1e3:.0f} ms")
    for name, took in (("--version", version), ("--help", shown)):
        print(f"streamgauge {name}: {took * 1e3:.0f} ms, ratio {took / imported:.2f}, at most {LIMIT}")
    return int(max(version, shown) / imported > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
