"""`streamgauge ledger export`: the chosen records as JSON lines, CSV or Parquet, on stdout or in a file.

JSON lines are the records as the ledger stores them; `ledger import` reads them. CSV and Parquet have the ledger's columns.
"""

import codecs
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from streamgauge.cli.commands import Arguments
from streamgauge.cli.export_columns import COLUMNS, values_of
from streamgauge.cli.ledger import chosen_by
from streamgauge.cli.ledgers import ledger_when_needed
from streamgauge.cli.tables import print_csv
from streamgauge.errors import DONE, MissingExtra, Unavailable, UsageFault
from streamgauge.settings.declarations import Settings

# Characters of the file's name in that of the unfinished one: with all of them it may be too long.
_NAME_CHARS = 40

Write = Callable[[BinaryIO, Iterable[bytes], Mapping[str, str]], None]


def run(settings: Settings, args: Arguments) -> int:
    """Writes the chosen records, oldest first. A file appears when it is whole."""
    to_stdout = str(args.file) in ("-", "")
    if to_stdout and args.output == "parquet":
        raise UsageFault("Parquet is written into a file: give its name")
    if not to_stdout and Path(args.file).is_dir():
        raise UsageFault(f"{args.file} is a directory: give the name of a file in it")
    write = _writer(args.output)
    with ledger_when_needed(settings) as ledger:
        chosen = chosen_by(settings, args, ledger)
        if to_stdout:
            write(sys.stdout.buffer, ledger().query(None, chosen), dict(chosen.tenants))
            return DONE
        with _whole_file(Path(args.file)) as file:
            write(file, ledger().query(None, chosen), dict(chosen.tenants))
    return DONE


def _writer(output: str) -> Write:
    if output != "parquet":
        return {"jsonl": _write_lines, "csv": _write_csv}[output]
    try:
        from streamgauge.cli.parquet import write_parquet
    except ModuleNotFoundError:
        raise MissingExtra("Parquet", "parquet") from None
    except ImportError as error:
        raise Unavailable(f"pyarrow cannot be loaded ({error})") from None
    return write_parquet


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block ends well, readable by its owner alone. Raises Unavailable."""
    part = None
    try:
        # The name is random: another user of the directory cannot prepare a link or a file of that name.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:_NAME_CHARS]}.", suffix=".part", dir=path.parent)
        part = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _write_lines(file: BinaryIO, records: Iterable[bytes], _: Mapping[str, str]) -> None:
    file.writelines(b"%b\n" % record for record in records)


def _write_csv(file: BinaryIO, records: Iterable[bytes], tenants: Mapping[str, str]) -> None:
    # Unlike io.TextIOWrapper, it does not close the file if the reader of stdout leaves: the command flushes it at its end.
    text = codecs.getwriter("utf-8")(file)
    print_csv(COLUMNS, (values_of(record, tenants) for record in records), text)
