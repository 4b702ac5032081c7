"""Runs a benchmark that writes its results into its section of a document."""

from collections.abc import Callable, Sequence
from pathlib import Path


def written_section(name: str, main: Callable[[Sequence[str]], object], options: Sequence[str], folder: Path) -> str:
    """The section that `main` writes. Asserts that it replaces the old section and changes nothing else."""
    path = folder / "performance.md"
    before, after = f"before\n<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->\nafter\n"
    path.write_text(f"{before}old{after}")
    main([*options, f"--document={path}"])
    written = path.read_text()
    assert written.startswith(before)
    assert written.endswith(after)
    section = written.removeprefix(before).removesuffix(after)
    assert "old" not in section.splitlines()
    return section
