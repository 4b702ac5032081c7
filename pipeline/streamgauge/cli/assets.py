"""`streamgauge assets`: writes the dashboards, alert rules and schemas of this version into a directory."""

import sys
from pathlib import Path

from streamgauge.cli.parser import Arguments
from streamgauge.errors import DONE, Unavailable, UsageFault
from streamgauge.settings.declarations import Settings

# The directories of the repository that come with the package (scripts/build_hook.py), and what is left out of them: the
# Python code that generates dashboards.
NAMES = ("dashboards", "schemas")
_LEFT_OUT = frozenset((".py", ".pyc"))


def run(settings: Settings, args: Arguments) -> int:
    """Writes all files, or none where one differs and --overwrite is not given. Raises UsageFault, Unavailable."""
    directory = Path(args.directory)
    root = assets_directory()
    names = asset_files(root)
    try:
        differing = [name for name in names if _differs(directory / name, root / name)]
        if differing and not args.overwrite:
            raise UsageFault(
                f"{directory / differing[0]} exists with other content: name another directory, or give --overwrite"
            )
        for name in names:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes((root / name).read_bytes())
    except OSError as error:
        raise Unavailable(f"{error.filename or directory} cannot be written: {error.strerror}") from None
    sys.stdout.write(f"{len(names)} files in {directory}: {', '.join(NAMES)}\n")
    return DONE


def assets_directory() -> Path:
    """The directory with the directories of NAMES: in an installed package, else that of the repository.

    Raises Unavailable if neither has them.
    """
    package = Path(__file__).parents[1]
    for directory in (package / "assets", package.parents[1]):
        if all((directory / name).is_dir() for name in NAMES):
            return directory
    raise Unavailable("this installation has no dashboards and schemas: install a wheel, or run in a clone")


def asset_files(root: Path) -> list[Path]:
    """The files below `root` that come with the package, as paths from there."""
    files = (path for name in NAMES for path in sorted((root / name).rglob("*")) if path.is_file())
    return [path.relative_to(root) for path in files if path.suffix not in _LEFT_OUT]


def _differs(target: Path, packaged: Path) -> bool:
    return target.exists() and target.read_bytes() != packaged.read_bytes()
