"""Writes a year of a company into a folder, and prints the commands that import and audit it."""

import sys
from pathlib import Path

from tests.audit.company.year import DAYS, FIRST, make_year
from tests.audit.world.traffic import later


def main(folder: Path) -> None:
    invoices = make_year().write(folder)
    given = " ".join(f"--invoice {name}" for name in invoices)
    print(f"cd {folder}")
    print("streamgauge ledger import records.jsonl --prices prices.toml --data-dir data")
    print(
        f"streamgauge audit --data-dir data {given} --map map.toml --rates rates.toml --scope scope.toml"
        f" --from {FIRST} --to {later(FIRST, DAYS)} --output html > report.html"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
