"""Says which parts of Streamgauge an editable installation could not make, why, and what that means; nothing if it has all.

pip does not show what the build hook says of them.

    python -m scripts.missing_parts
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts import build_native, fetch_uplot


def missing(sources: Sequence[Path] = build_native.SOURCES, uplot: Path = fetch_uplot.PLACE) -> Iterator[str]:
    """A sentence for each missing part. It tries to build each module in C once more, for the reason."""
    absent = [source for source in sources if not build_native.module_of(source).exists()]
    faults = {source.name: fault for source in absent if (fault := build_native.build(source)) is not None}
    if faults:
        yield (
            f"{', '.join(faults)}: not built ({next(iter(faults.values()))}): everything works, with more CPU. It needs"
            " Linux, a C compiler and Python's headers (Debian, Ubuntu: apt-get install gcc libc6-dev python3-dev); then"
            " `make clean demo`"
        )
    if not fetch_uplot.is_there(uplot):
        yield "the page has tables but no charts: npm, which downloads uPlot, is missing or failed; then `make clean demo`"


if __name__ == "__main__":
    sys.stdout.writelines(f"  {sentence}\n" for sentence in missing())
