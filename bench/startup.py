"""The time of `streamgauge --version`, compared with an interpreter that only imports asyncio.

Shells and scripts run this command, and a slow import at the top of the package shows here first. The two programs run
alternately, so that other load on the machine affects both.

    python -m bench.startup [--turns N]

Prints the medians and their ratio. Exits with 1 if the ratio is above LIMIT.
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
IMPORT = ("-c", "import asyncio")


def seconds_of(arguments: Sequence[str]) -> float:
    """How long the interpreter takes for these arguments. Raises CalledProcessError if it fails."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def by_turns(turns: int) -> tuple[float, float]:
    """The median times of `streamgauge --version` and of the import (seconds)."""
    for arguments in (VERSION, IMPORT):  # the first start reads files from the disk
        seconds_of(arguments)
    times = [(seconds_of(VERSION), seconds_of(IMPORT)) for _ in range(turns)]
    version, imported = zip(*times, strict=True)
    return statistics.median(version), statistics.median(imported)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.startup", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args(arguments)
    version, imported = by_turns(given.turns)
    ratio = version / imported
    print(f"streamgauge --version: {version * 1e3:.0f} ms    python -c 'import asyncio': {imported * 1e3:.0f} ms")
    print(f"ratio {ratio:.2f}, at most {LIMIT}")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
