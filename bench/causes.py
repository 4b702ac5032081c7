"""How often an audit names the true cause: in many worlds of a company's traffic, whose truth is known.

Each world has 300 or 3,000 calls a day over five days, with refused, aborted, broken and retried streams, completed ones
without usage, batch and midnights; and one plant, two or none. `tests/audit/world` says which of them evidence can decide.

    python -m bench.causes [--worlds N] [--only SEED ...] [--document FILE]
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.audit.world.cases import HARD_EXPORTS, Case, audited, cases
from tests.audit.world.hard_plants import ODD
from tests.audit.world.verdicts import WITH_ODD, Tally

from bench.document import replace_section, table, when_and_where

# What became of a cause: the head of a column, and the words of `Tally`.
_COLUMNS = (
    ("named, and right", ("right",)),
    ("with odd tokens", (WITH_ODD,)),
    ("named, and wrong", ("invented", "mixed")),
    ("undecided", ("undecided",)),
    ("wrong alternatives", ("not among",)),
    ("unexplained", ("unexplained",)),
    ("missed", ("missed",)),
)


def _row(name: str, tallies: Iterable[Counter[tuple[str, str]]], causes: Sequence[str] = ()) -> list[str]:
    sums: Counter[str] = Counter()
    for counts in tallies:
        for (cause, what), count in counts.items():
            if (not causes and cause != ODD) or cause in causes:
                sums[what] += count
    return [name, *(str(sum(sums[word] for word in words)) for _, words in _COLUMNS)]


def main(words: Sequence[str] | None = None) -> None:
    """Audit the worlds, print each, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=200, help="how many")
    parser.add_argument("--only", type=int, nargs="+", default=(), help="only the worlds with these seeds")
    parser.add_argument("--document", type=Path, help="write the tables into this file, between its markers")
    options = parser.parse_args(words)
    found: list[tuple[Case, Tally, float]] = []
    for case in cases(options.worlds):
        if options.only and case.seed not in options.only:
            continue
        with TemporaryDirectory() as folder:
            tally, _, seconds = audited(case, Path(folder))
        found.append((case, tally, seconds))
        print(f"{seconds:6.1f} s  {case}", *tally.faults, sep="\n    ", flush=True)
    text = _tables(found)
    print(text)
    if options.document is not None:
        replace_section(options.document, "causes", text)


def _tables(found: Sequence[tuple[Case, Tally, float]]) -> str:
    columns = [head for head, _ in _COLUMNS]
    exports = [["export", *columns, "seconds, 300 a day", "seconds, 3,000 a day"]]
    for name in HARD_EXPORTS:
        own = [one for one in found if one[0].export == name]
        times = ([one[2] for one in own if one[0].per_day == size] for size in (300, 3_000))
        row = _row(f"{name} ({len(own)})", [one[1].counts for one in own])
        exports.append([*row, *(f"{median(some):.1f}" if some else "" for some in times)])
    counts = [one[1].counts for one in found]
    names = sorted({cause for one in counts for cause, what in one if what != "not among"})
    causes = [
        ["cause", *columns],
        *(_row("none (odd tokens)" if name == ODD else name, counts, [name]) for name in names),
    ]
    return f"{table(exports)}\n\n{table(causes)}\n\n{when_and_where()}"


if __name__ == "__main__":
    main()
