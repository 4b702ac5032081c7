"""`streamgauge replay`: recordings -> records, with the recorder and the assembler of live traffic."""

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from streamgauge import __version__
from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.parser import TABLE, Arguments
from streamgauge.cli.tables import print_records
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record, encode_record
from streamgauge.errors import DONE, FOUND, UNAVAILABLE, USAGE, Unavailable, UsageFault
from streamgauge.kafka.log_reader import LogUnreadableError, read_partition
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Job, Topics, TopicsError, segments_partitions
from streamgauge.recorder.installation_key import UnusableKeyError, installation_key
from streamgauge.recorder.request import CaptureSettings
from streamgauge.settings.declarations import Settings
from streamgauge.taps.replay import exchange
from streamgauge.taps.replay.contract import BrokenRecording, Log, Logged, Tally
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
        recordings = recordings_in(path)
        if not recordings:
            names = ", ".join(f"*{suffix}" for suffix in sorted(SUFFIXES))
            raise UsageFault(f"the directory {path} contains no recording ({names}): name the files themselves")
        return recordings
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
            yield from _records_of_topic(self._settings, self.assembled)

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
        counts = Found(records, without_event, assembler.counts["not_llm"], assembler.open_streams)
        for note in notes_on(tally, counts, broken=broken or (may_be_empty and not any(counts))):
            self._say(f"{name}: {note.text}", FOUND if note.is_fault else DONE)

    def _key(self, data_dir: Path) -> bytes:
        """The installation's key if it exists, so that digests equal those of its records; else a random key for this run."""
        try:
            if (data_dir / "key").is_file():
                return installation_key(data_dir)
        except (UnusableKeyError, OSError) as error:  # OSError: the directory or the file belongs to another user
            reason = (error.strerror or error) if isinstance(error, OSError) else error
            self._say(
                f"the digests of this run differ from those of the installation, because its key is not used: {reason}",
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


# --- the topic: the bundles of each partition are assembled as a worker does -----------------------------------------


# Assembles the records of a named log, and prints the notes on it.
Assemble = Callable[[str, Log, Tally], Iterator[Record]]


def _records_of_topic(settings: Settings, assemble: Assemble) -> Iterator[Record]:
    """The records of the segments topic, partition by partition, from its beginning to its present end.

    Raises Unavailable.
    """
    brokers = brokers_of(settings)
    # aiokafka's log lines about an unreachable broker would repeat the error message of this command.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    topic = Topics(settings.topic_prefix).segments
    try:
        for partition in range(asyncio.run(segments_partitions(brokers, settings.topic_prefix, Job.REPLAY))):
            tally = Tally()
            yield from assemble(f"{topic}/{partition}", _log(brokers, topic, partition, tally), tally)
    except (TopicsError, LogUnreadableError) as error:
        raise Unavailable(str(error)) from None


def _log(brokers: Brokers, topic: str, partition: int, tally: Tally) -> Log:
    for message in read_partition(brokers, topic, partition):
        try:
            bundle = decode_bundle(message.value)
        except UnreadableBundle:
            tally.unreadable_rows += 1  # a worker writes it to the dead letter topic
            continue
        yield Logged(message.offset, message.log_ms, bundle)


# --- notes: what was ignored, what is missing, what is damaged -------------------------------------------------------


class Note(NamedTuple):
    """One sentence. `is_fault`: something in the file has no record because it is damaged."""

    text: str
    is_fault: bool = False


class Found(NamedTuple):
    """Counts of a file's streams. `without_event`: records of event streams in which no event was found."""

    records: int
    without_event: int
    not_llm: int
    open_streams: int


NO_RECORDING = (
    "it is no recording: it has no line of server-sent events, no JSON of a model's response, no event stream of AWS and no"
    " other format that `replay` knows; --dialect NAME reads it as that format nevertheless"
)


def is_nothing(record: Record, may_be_body: bool) -> bool:
    """Whether the record of a file of no other format shows that it holds nothing of a response. `may_be_body`: whether the
    file begins like one. JSON that is whole must be a model's response, or an error; JSON that is cut off may have been one.
    """
    if record.streaming is False and record.outcome == "completed":
        return record.dialect is None and record.error is None
    return not may_be_body and not record.counts.events


def notes_on(tally: Tally, counts: Found, *, broken: bool) -> Iterator[Note]:
    """The notes on a file. `broken`: it could not be read to its end."""
    if tally.exchanges is not None:
        yield from _on_exchanges(tally, tally.exchanges, counts.not_llm, broken=broken)
    elif not any(counts) and not broken:
        yield Note("it contains no stream; a spool holds only what is not delivered yet")
    if counts.without_event:
        streams = _count(counts.without_event, "stream", "streams")
        yield Note(f"no event was found in {streams}: check that the file is a recording of server-sent events")
    if tally.unreadable_rows:
        yield Note(
            f"{_count(tally.unreadable_rows, 'row is', 'rows are')} damaged, or not a bundle of this version", True
        )
    if tally.rows_removed:
        yield Note(
            f"{_count(tally.rows_removed, 'row was', 'rows were')} delivered and removed while the file was read"
        )
    if counts.open_streams:
        streams = _count(counts.open_streams, "stream has not ended yet and has", "streams have not ended yet and have")
        yield Note(f"{streams} no record")


def _on_exchanges(tally: Tally, exchanges: int, not_llm: int, *, broken: bool) -> Iterator[Note]:
    ignored = tally.not_llm + not_llm
    if exchanges == ignored and not tally.broken_exchanges and not broken:
        others = f" ({_count(ignored, 'other exchange was', 'other exchanges were')} ignored)" if ignored else ""
        yield Note(f"it contains no LLM exchange{others}")
    elif ignored:
        yield Note(f"{_count(ignored, 'other exchange was', 'other exchanges were')} ignored: not LLM traffic")
    if tally.without_body:
        singular, plural = "response was recorded without its body", "responses were recorded without their bodies"
        yield Note(f"{_count(tally.without_body, singular, plural)}: incomplete")
    if tally.broken_exchanges:
        subject = _count(
            tally.broken_exchanges, "exchange that cannot be read has", "exchanges that cannot be read have"
        )
        yield Note(f"{subject} no record, the first at {tally.first_broken}", True)


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"
