"""`streamgauge audit fetch`: gets a provider's usage and costs of a month into files for `audit --invoice`."""

import stat
import sys
from pathlib import Path

from streamgauge.audit.fetch import Fetching, Month, Report
from streamgauge.cli.parser import Arguments
from streamgauge.cli.whole_file import whole_file
from streamgauge.errors import DONE, UsageFault
from streamgauge.settings.declarations import Settings

# Keys have some hundred characters.
_MAX_KEY = 1_000


def run(_: Settings, args: Arguments) -> int:
    """Writes a file for each report, and prints their names. Raises UsageFault, Unavailable or MissingExtra."""
    for option, value in (("--month YYYY-MM", args.month), ("--key-file FILE", args.key_file)):
        if not value:
            raise UsageFault(f"{option} is missing")
    month = Month.of(args.month)
    folder = Path(args.directory)
    if not folder.is_dir():
        raise UsageFault(f"--directory {folder} is no directory")
    fetching = Fetching(args.provider, _key(Path(args.key_file)), args.base_url, _say)
    for report in fetching.reports(month):
        path = folder / f"{args.provider}-{report.name}-{month.name}.jsonl"
        if _write(fetching, report, path):
            sys.stdout.write(f"{path}\n")
        else:
            _say(f"{report.path} has nothing of {month.name}")
    return DONE


def _write(fetching: Fetching, report: Report, path: Path) -> bool:
    """The pages of a report, one after another. The file appears when it has all of them. False: they have no row, and there
    is no file, since an audit has nothing to compare with it.
    """
    has_any = False
    with whole_file(path) as file:
        for page, has_rows in fetching.pages(report):
            has_any = has_any or has_rows
            file.write(page.strip() + b"\n")
    if not has_any:
        path.unlink()
    return has_any


def _key(path: Path) -> str:
    """The admin key in a file. Raises UsageFault, which never has it."""
    try:
        text = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageFault(f"--key-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
        mode = 0
    if not text or len(text) > _MAX_KEY or not text.isprintable() or " " in text:
        raise UsageFault(f"--key-file {path} does not hold one key and nothing else")
    if stat.S_ISREG(mode) and mode & 0o077:
        _say(f"--key-file {path} may be read by others: run chmod 600 {path}")
    return text


def _say(sentence: str) -> None:
    sys.stderr.write(f"streamgauge audit fetch: {sentence}\n")
