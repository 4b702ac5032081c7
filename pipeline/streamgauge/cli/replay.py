"""`streamgauge replay`: recordings -> records, with the recorder and the assembler of live traffic."""

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from streamgauge import __version__
from streamgauge.cli.commands import Arguments
from streamgauge.cli.options import TABLE
from streamgauge.cli.replay_notes import NO_RECORDING, Found, is_nothing, notes_on
from streamgauge.cli.replay_topic import records_of_topic
from streamgauge.cli.tables import print_records
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record, encode_record
from streamgauge.errors import DONE, FOUND, UNAVAILABLE, USAGE, UsageFault
from streamgauge.recorder.installation_key import UnusableKeyError, installation_key
from streamgauge.recorder.request import CaptureSettings
from streamgauge.settings.declarations import Settings
from streamgauge.taps.replay import exchange
from streamgauge.taps.replay.contract import BrokenRecording, Log, Tally
from streamgauge.taps.replay.files import ReplaySettings, log_of, recordings_in
from streamgauge.taps.replay.formats import SUFFIXES

_KEY_BYTES = 32


def run(settings: Settings, args: Arguments) -> int:
    """Prints the records of each file, in the order of the arguments (files of a directory by path), then those of the
    topic.

    Returns 1 if a file is damaged, 2 if one may not be read, 3 if its disk fails; all other files are still replayed.
    """
    files, of_topic = recordings_of(settings, args)
    replaying = Replaying(settings, None if args.dialect == "auto" else args.dialect)
    records = replaying.records(files, of_topic=of_topic)
    if args.output == TABLE:
        whole = [encode_record(record) for record in records]
        if whole:  # no table head without a row
            print_records(whole, args.output)
    else:
        print_records((encode_record(record) for record in records), args.output)
    return replaying.exit_code


def recordings_of(settings: Settings, args: Arguments) -> tuple[list[Path], bool]:
    """The files that the arguments name, and whether the topic is to be read. Raises UsageFault."""
    # If files are named, a broker from the environment or the settings file is ignored: only --kafka counts.
    wants_topic = "kafka" in args.settings or (not args.paths and settings.kafka is not None)
    if not args.paths and not wants_topic:
        raise UsageFault(f"nothing to {args.command}: name files or directories, or a broker with --kafka")
    return [file for path in args.paths for file in _files(path)], wants_topic


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = recordings_in(path)
        if not found:
            names = ", ".join(f"*{suffix}" for suffix in sorted(SUFFIXES))
            raise UsageFault(f"the directory {path} contains no recording ({names}): name the files themselves")
        return found
    if str(path) == "-":
        return [Path("/dev/stdin")]
    if not path.exists():
        raise UsageFault(f"there is no file {path}")
    return [path]


class Replaying:
    """One run. `exit_code`: the highest code so far. The notes on a file go to stderr after its records.

    `command`: the word that notes begin with; `assembler`: makes one for each file and partition.
    """

    def __init__(
        self,
        settings: Settings,
        dialect: str | None,
        *,
        command: str = "replay",
        assembler: Callable[[Limits], Assembler] = Assembler,
    ) -> None:
        self.exit_code = DONE
        self._command, self._assembler = command, assembler
        self._settings = settings
        self._limits = settings.select(Limits)
        key = self._key(settings.data_dir)
        capture = CaptureSettings(settings.capture, __version__, key, settings.tenant_header)
        self._how = ReplaySettings(capture, secrets.token_bytes(16), dialect, settings.attribute)

    def records(self, files: Iterable[Path], *, of_topic: bool) -> Iterator[Record]:
        """The records of each file, then those of the topic. Raises Unavailable if the broker is unavailable."""
        for file in files:
            yield from self.records_of(file)
        if of_topic:
            yield from records_of_topic(self._settings, self.assembled)

    def records_of(self, file: Path) -> Iterator[Record]:
        """The records of a file, as far as it can be read."""
        tally = Tally()
        yield from self.assembled(str(file), log_of(file, self._how, tally), tally, may_be_empty=False)

    def assembled(self, name: str, log: Log, tally: Tally, *, may_be_empty: bool = True) -> Iterator[Record]:
        """The records of a log; prints the notes on it after them. `may_be_empty`: an empty log gets no note, as a topic's
        partition.
        """
        assembler, broken = self._assembler(self._limits), False
        records = without_event = 0
        try:
            for offset, log_ms, bundle in log:
                for record in assembler.apply(offset, log_ms, bundle):
                    if tally.may_be_body is not None and is_nothing(record, tally.may_be_body):
                        raise BrokenRecording(NO_RECORDING)
                    records += 1
                    without_event += bool(record.streaming and not record.counts.events and not record.counts.comments)
                    yield _renamed(record)
        except BrokenRecording as error:
            broken = True
            self._say(f"{name}: {error}", FOUND)
        except OSError as error:
            broken = True
            self._say(f"{name} cannot be read: {error.strerror or error}", _code_of(error))
        found = Found(records, without_event, assembler.counts["not_llm"], assembler.open_streams)
        for note in notes_on(tally, found, broken=broken or (may_be_empty and not any(found))):
            self._say(f"{name}: {note.text}", FOUND if note.is_fault else DONE)

    def _key(self, data_dir: Path) -> bytes:
        """The installation's key if it exists, so that digests equal those of its records; else a random key for this run."""
        try:
            if (data_dir / "key").is_file():
                return installation_key(data_dir)
        except (UnusableKeyError, OSError) as error:  # OSError: the directory or the file belongs to another user
            why = (error.strerror or error) if isinstance(error, OSError) else error
            self._say(
                f"the digests of this run differ from those of the installation, because its key is not used: {why}",
                DONE,
            )
        return secrets.token_bytes(_KEY_BYTES)

    def _say(self, sentence: str, exit_code: int) -> None:
        sys.stdout.flush()  # keeps the order if both streams go to one place
        sys.stderr.write(f"streamgauge {self._command}: {sentence}\n")
        self.exit_code = max(self.exit_code, exit_code)


def _code_of(error: OSError) -> int:
    """USAGE for a file that may not be read or is not a file; UNAVAILABLE for a fault of its disk."""
    return USAGE if isinstance(error, PermissionError | FileNotFoundError | IsADirectoryError) else UNAVAILABLE


def _renamed(record: Record) -> Record:
    return msgspec.structs.replace(record, tap="replay") if record.tap == exchange.TAP else record
