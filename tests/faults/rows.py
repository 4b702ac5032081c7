"""The table of faults: every id, and its row. `python -m tests.faults.rows` writes the table into docs/reliability.md.

`python -m tests.faults.rows tests` prints what `make faults` runs.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults import rows_broker, rows_traffic
from tests.faults.row import Row

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "docs" / "reliability.md"
FOLDER = "tests/faults"
BEGIN = "<!-- The table of faults: generated from tests/faults/rows.py by `make generated`. -->"
END = "<!-- The end of the table of faults. -->"

# Every id, in the order of the table: of the broker (K), taps (T), workers (W), the flow (F), clocks (C), upstreams (U),
# parsers (P), HTTP (H), labels (L), security (S), dead letters (D), the audit (A), versions (V), the ledger's database (G),
# a run of all of it (R), Envoy (N), and invariant 7, which has tests of its own.
_COUNTS = {
    "K": 12, "T": 12, "W": 6, "F": 8, "C": 1, "U": 4, "P": 5, "H": 5, "L": 4, "S": 7, "D": 3, "A": 1, "V": 1, "G": 1, "R": 1,
    "N": 2,
}  # fmt: skip
IDS = (*(f"{kind}{number}" for kind, count in _COUNTS.items() for number in range(1, count + 1)), "I7")

# Ids that have no row yet, as the modules of the rows list them.
PENDING: frozenset[str] = frozenset().union(*(getattr(part, "PENDING", ()) for part in (rows_broker, rows_traffic)))
_ALL = {**rows_broker.ROWS, **rows_traffic.ROWS}
ROWS: Mapping[str, Row] = {name: _ALL[name] for name in sorted(_ALL, key=(*IDS, *_ALL).index)}


def table() -> Iterator[str]:
    """The lines of the table."""
    yield "| id | fault | what is promised | tests |"
    yield "|---|---|---|---|"
    for name, row in ROWS.items():
        yield f"| {name} | {row.case} | {row.promise} | {', '.join(map(_link, row.tests))} |"


def document() -> str:
    """docs/reliability.md with the table."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    return "\n".join([before + BEGIN, *table(), END + rest.partition(END)[2]])


def tests() -> Iterator[str]:
    """What shows all rows: the tests of this folder, and those of rows elsewhere."""
    yield FOLDER
    named = dict.fromkeys(test for row in ROWS.values() for test in row.tests)
    yield from (test for test in named if ".py" in test and not test.startswith(f"{FOLDER}/"))


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})" if name else f"`{path}`"


if __name__ == "__main__":
    if sys.argv[1:] == ["tests"]:
        print(*tests(), sep="\n")
    else:
        DOCUMENT.write_text(document(), encoding="utf-8")
