"""`streamgauge replay`: recordings of streams' bodies -> their records, by the same recorder and assembler as live."""

import argparse
import json
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from streamgauge import __version__
from streamgauge.commands.tables import print_records
from streamgauge.config import Settings
from streamgauge.core.assembler import Assembler, Limits
from streamgauge.core.record import Record, encode_record
from streamgauge.core.segments import Bundle
from streamgauge.errors import DONE, Unavailable, UsageFault
from streamgauge.taps.recording.request import CaptureSettings
from streamgauge.taps.replay import replay

# What a directory's recordings are called; a file that is named itself may be called anything.
SUFFIX = ".sse"

_READ_BYTES = 1024 * 1024


def run(settings: Settings, args: argparse.Namespace) -> int:
    """One record for each file, in the order of the arguments, a directory's files by path."""
    files = [file for path in args.paths for file in _files(path)]
    records = _records(files, settings, None if args.dialect == "auto" else args.dialect)
    if args.output == "jsonl":
        for record in records:
            sys.stdout.write(encode_record(record).decode() + "\n")
    else:
        print_records((json.loads(encode_record(record)) for record in records), args.output)
    return DONE


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())
        if not found:
            raise UsageFault(f"there is no file *{SUFFIX} in {path}: name the recordings themselves")
        return found
    if not path.exists():
        raise UsageFault(f"there is no file {path}")
    return [path]


def _records(files: Iterable[Path], settings: Settings, dialect: str | None) -> Iterator[Record]:
    instance = secrets.token_bytes(16)
    capture = CaptureSettings(settings.capture, __version__, secrets.token_bytes(32))
    for file in files:
        yield _record(file, capture, instance, settings.stall_seconds, dialect)


def _record(file: Path, capture: CaptureSettings, instance: bytes, stall_s: float, dialect: str | None) -> Record:
    assembler = Assembler(Limits(stall_s=stall_s))
    for number, segment in enumerate(replay(_chunks(file), capture, dialect=dialect)):
        records = assembler.apply(number, 0, Bundle(instance, 0, number, 0, [segment]))
        if records:
            return records[0]
    raise AssertionError("a replay ends every stream")


def _chunks(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            while chunk := opened.read(_READ_BYTES):
                yield chunk
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error.strerror}") from None
