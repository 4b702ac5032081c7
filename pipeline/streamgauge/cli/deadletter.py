"""`streamgauge deadletter list|show|retry`: messages that workers could not process, why, and how to send them back."""

import asyncio
import base64
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.parser import JSON, TABLE, TEXT, Arguments
from streamgauge.cli.tables import JsonPrinter, print_table
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.errors import DONE, FOUND, Unavailable, UsageFault
from streamgauge.kafka.dead_letters import DeadLetter, NotRetriableError, Sender, Stage, message_of, read
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Topics, TopicsError
from streamgauge.ledger import LedgerRow, UnreadableRecordError
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import MAX_SECONDS

# Rows of one table: columns are as wide as their widest cell, so rows are held in memory until they are printed.
_PAGE = 500
# Limit of dead letters that are named individually for one reason.
_NAMED = 5

_COLUMNS = ("letter", "at", "stage", "error", "topic", "partition", "offset", "bytes", "version")


def run(settings: Settings, args: Arguments) -> int:
    """Lists, shows or sends back dead letters. Returns 1 if a dead letter that was selected was not sent back."""
    brokers = brokers_of(settings)
    # aiokafka's log lines about an unreachable broker would repeat the error message of this command.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    topic = _DeadLetterTopic(brokers, Topics(settings.topic_prefix))
    try:
        if args.action == "show":
            return asyncio.run(topic.show(args.letter, args.output))
        selection = _wanted(args)
        if args.action == "list":
            return asyncio.run(topic.list(selection, args.output, args.limit))
        return asyncio.run(topic.retry(selection, args.output, dry=args.dry_run))
    except TopicsError as error:
        raise Unavailable(str(error)) from None


@dataclass(frozen=True)
class Wanted:
    """The selection of dead letters. A field that is None allows any number or value."""

    numbers: frozenset[int] | None = None
    stage: str | None = None
    error_class: str | None = None
    partition: int | None = None
    since_ms: float | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a dead letter is selected."""
        return (
            (self.numbers is None or letter.offset in self.numbers)
            and self.stage in (None, letter.stage)
            and self.error_class in (None, letter.error_class)
            and self.partition in (None, letter.source_partition)
            and (self.since_ms is None or letter.at_ms >= self.since_ms)
        )


def _wanted(args: Arguments) -> Wanted:
    """The selection that the flags describe. Raises UsageFault."""
    if args.stage is not None and args.stage not in list(Stage):
        raise UsageFault(f"--stage {args.stage} is not a stage: use one of {', '.join(Stage)}")
    if args.since is not None and not 0 <= args.since <= MAX_SECONDS:
        raise UsageFault(f"--since {args.since:g} is out of range: give 0 to {MAX_SECONDS:.0f} seconds (366 days)")
    if args.action == "list" and args.limit is not None and args.limit < 0:
        raise UsageFault(f"--limit {args.limit} is negative: give 0 or more")
    numbers = None if args.action == "list" else _numbers(args)
    since_ms = None if args.since is None else 1000 * (time.time() - args.since)
    return Wanted(numbers, args.stage, args.error_class, args.partition, since_ms)


def _numbers(args: Arguments) -> frozenset[int] | None:
    if args.letters and args.all:
        raise UsageFault("numbers and --all exclude each other: give one of them")
    if not args.letters and not args.all:
        raise UsageFault("no dead letters are selected: give their numbers, or --all for all that match the filters")
    filters = (args.stage, args.error_class, args.partition, args.since)
    if args.letters and any(value is not None for value in filters):
        raise UsageFault("filters and numbers exclude each other: give numbers alone, or filters with --all")
    return None if args.all else frozenset(args.letters)


@dataclass
class _Tally:
    """The result of a retry: messages by destination, and dead letters that were not sent, by reason."""

    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    unsent: Counter[str] = field(default_factory=Counter)
    first_unsent: dict[str, list[int]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def add_unsent(self, number: int, reason: str) -> None:
        """Count a dead letter that was not sent; keep the first _NAMED numbers of each reason."""
        self.unsent[reason] += 1
        numbers = self.first_unsent.setdefault(reason, [])
        if len(numbers) < _NAMED:
            numbers.append(number)


class _DeadLetterTopic:
    """The dead letter topic of one prefix. Each call reads up to the topic's present end."""

    def __init__(self, brokers: Brokers, topics: Topics) -> None:
        self._brokers = brokers
        self._topics = topics

    async def _letters(self, selection: Wanted) -> AsyncIterator[DeadLetter]:
        numbers = selection.numbers or frozenset([0])
        async for letter in read(self._brokers, self._topics, max(min(numbers), 0)):
            if selection.numbers is not None and letter.offset > max(selection.numbers):
                return
            if selection.matches(letter):
                yield letter

    async def list(self, selection: Wanted, output: str, limit: int | None) -> int:
        """Prints dead letters, oldest first."""
        count, rows, printed = 0, [], JsonPrinter(output)
        if limit != 0:
            async for letter in self._letters(selection):
                count += 1
                if output != TABLE:
                    printed.add(json.dumps(as_json(letter)))
                else:
                    rows.append(_row(letter))
                    if len(rows) == _PAGE:
                        print_table(_COLUMNS, rows, max_width=None)
                        rows = []
                if count == limit:
                    break
        printed.end()
        if rows:
            print_table(_COLUMNS, rows, max_width=None)
        if not count:
            sys.stderr.write(f"streamgauge deadletter: no dead letter in {self._topics.deadletter} matches\n")
        return DONE

    async def show(self, number: int, output: str) -> int:
        """Prints one dead letter."""
        async for letter in self._letters(Wanted(frozenset([number]))):
            if output == TEXT:
                sys.stdout.writelines(f"{line}\n" for line in as_text(self._topics, letter))
            else:
                sys.stdout.write(json.dumps(as_json(letter, whole=True)) + "\n")
            return DONE
        raise UsageFault(
            f"there is no dead letter {number} in {self._topics.deadletter}: run `streamgauge deadletter list` to see all"
        )

    async def retry(self, selection: Wanted, output: str, *, dry: bool) -> int:
        """Sends dead letters back in their order and prints a summary. Those that this version cannot read either are not
        sent.
        """
        tally, whole = _Tally(), False
        try:
            if dry:
                await self._send(selection, tally, None)
            else:
                async with Sender(self._brokers) as sender:
                    await self._send(selection, tally, sender)
            whole = True
        finally:
            self._print_summary(tally, selection, output, dry=dry, whole=whole)
        missing = (selection.numbers or frozenset()) - tally.seen
        return FOUND if tally.unsent or missing else DONE

    async def _send(self, selection: Wanted, tally: _Tally, sender: Sender | None) -> None:
        async for letter in self._letters(selection):
            if selection.numbers is not None:
                tally.seen.add(letter.offset)
            reason = why_not_sent(self._topics, letter)
            if reason is not None:
                tally.add_unsent(letter.offset, reason)
                continue
            message = message_of(self._topics, letter)
            if sender is not None:
                await sender.send(message)
            tally.sent[message.topic, -1 if message.partition is None else message.partition] += 1

    def _print_summary(self, tally: _Tally, selection: Wanted, output: str, *, dry: bool, whole: bool) -> None:
        """Prints the result. `whole`: all dead letters were checked; if not, it covers those before an error."""
        missing = sorted((selection.numbers or frozenset()) - tally.seen) if whole else []
        if output == JSON:
            sent = [
                {"topic": topic, "partition": None if partition < 0 else partition, "messages": count}
                for (topic, partition), count in sorted(tally.sent.items())
            ]
            unsent = [{"reason": reason, "messages": count} for reason, count in tally.unsent.items()]
            done = {"dry_run": dry, "complete": whole, "sent": sent, "not_sent": unsent, "missing": missing}
            sys.stdout.write(json.dumps(done) + "\n")
        else:
            self._print_sent(tally, dry=dry, whole=whole)
        for reason, count in tally.unsent.items():
            numbers = ", ".join(map(str, tally.first_unsent[reason])) + (", ..." if count > _NAMED else "")
            sys.stderr.write(f"streamgauge deadletter: {_messages(count)} not sent (dead letter {numbers}): {reason}\n")
        for number in missing:
            sys.stderr.write(f"streamgauge deadletter: there is no dead letter {number} in {self._topics.deadletter}\n")

    def _print_sent(self, tally: _Tally, *, dry: bool, whole: bool) -> None:
        did = "would send" if dry else "sent"
        for (topic, partition), count in sorted(tally.sent.items()):
            destination = topic if partition < 0 else f"{topic}, partition {partition}"
            sys.stdout.write(f"{did} {_messages(count)} back to {destination}\n")
        if whole and not tally.sent:
            sys.stdout.write(f"{did} nothing back\n")


def _row(letter: DeadLetter) -> list[object]:
    size = sum(letter.whole) if letter.whole is not None else len(letter.key or b"") + len(letter.value or b"")
    return [
        letter.offset,
        moment(letter.at_ms),
        letter.stage,
        letter.error_class,
        letter.source_topic,
        letter.source_partition,
        letter.source_offset,
        size,
        letter.version,
    ]


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


# --- a dead letter as text and as JSON: unprintable characters of its content are replaced, long content is cut ------


# Bytes that are printed of a key or value that cannot be read: its beginning shows what it is.
_DUMP_BYTES = 512
# Limit of a bundle's streams that are listed.
_STREAMS = 20
# A word from a header is cut to this length (characters); those that workers write have up to 20.
_WORD = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The end of the year 9999 (milliseconds): the last date of Python.
_MAX_MS = 253_402_300_799_000

_MEANS = {
    Stage.DECODE: "it is not a bundle in a format that the worker reads",
    Stage.ASSEMBLE: "internal error: the assembler failed on a valid bundle",
    Stage.RECORD: "the broker rejected the record permanently",
    Stage.LEDGER: "it is not a record in a format that the worker reads",
}


def moment(at_ms: int) -> str | None:
    """A log's time in RFC 3339; None if it is out of range."""
    if not 0 <= at_ms <= _MAX_MS:
        return None
    return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%M:%SZ")


def why_not_sent(topics: Topics, letter: DeadLetter) -> str | None:
    """Why a dead letter cannot be sent back, as the end of a sentence; None if it can."""
    try:
        message = message_of(topics, letter)
    except NotRetriableError as error:
        return "it is truncated and holds only a part of its message" if letter.whole else str(error)
    try:
        if message.topic == topics.segments:
            decode_bundle(message.value)
        else:
            LedgerRow.of_json(message.value or b"")
    except (UnreadableBundle, UnreadableRecordError) as error:
        return f"this version cannot read it either ({error}): retry with a version that can"
    return None


def as_json(letter: DeadLetter, *, whole: bool = False) -> dict[str, Any]:
    """The dead letter for JSON output; `cut`: it is truncated. `whole`: with key and value, in base64."""
    key_bytes, value_bytes = letter.whole or (len(letter.key or b""), len(letter.value or b""))
    members: dict[str, Any] = {
        "letter": letter.offset,
        "at": moment(letter.at_ms),
        "stage": letter.stage,
        "error_class": letter.error_class,
        "topic": letter.source_topic,
        "partition": letter.source_partition,
        "offset": letter.source_offset,
        "version": letter.version,
        "format": letter.format_version,
        "key_bytes": key_bytes,
        "value_bytes": value_bytes,
        "cut": letter.whole is not None,
    }
    if whole:
        members |= {"key_base64": _base64(letter.key), "value_base64": _base64(letter.value)}
    return members


def as_text(topics: Topics, letter: DeadLetter) -> Iterator[str]:
    """The dead letter as lines of text."""
    stage = letter.stage if letter.stage in _MEANS else None
    means = f": {_MEANS[Stage(stage)]}" if stage else ""
    yield f"number   {letter.offset} of {topics.deadletter}, {moment(letter.at_ms) or 'time unknown'}"
    partition, offset = _number(letter.source_partition), _number(letter.source_offset)
    yield f"from     {_word(letter.source_topic)}, partition {partition}, offset {offset}"
    yield f"stage    {_word(letter.stage)}{means}"
    yield f"error    {_word(letter.error_class)}"
    yield f"worker   version {_word(letter.version)}, reads bundle format {_word(letter.format_version)}"
    reason = why_not_sent(topics, letter)
    if reason is None:
        yield f"now      this version can read it: `streamgauge deadletter retry {letter.offset}` sends it back"
    else:
        yield f"now      {reason}"
    yield from _content("key", letter.key, letter.whole and letter.whole[0])
    if letter.source_topic == topics.segments and reason is None:
        yield from _bundle(decode_bundle(letter.value))
    yield from _content("value", letter.value, letter.whole and letter.whole[1])


def _bundle(bundle: Bundle) -> Iterator[str]:
    segments = Counter(segment.stream for segment in bundle.segments)
    reads = sum(len(segment.reads) for segment in bundle.segments)
    yield f"bundle   number {bundle.number} of tap instance {UUID(bytes=bundle.instance)} in slot {bundle.slot}"
    yield f"         {len(bundle.segments)} segments of {len(segments)} streams, {reads} reads"
    if bundle.farewell or bundle.dead:
        dead = ", ".join(str(UUID(bytes=instance)) for instance in bundle.dead[:_STREAMS] if len(instance) == 16)
        yield f"         last of its instance: {'yes' if bundle.farewell else 'no'}; dead instances: {dead or 'none'}"
    for stream, count in segments.most_common(_STREAMS):
        yield f"stream   {UUID(bytes=stream)}, segments: {count}"
    if len(segments) > _STREAMS:
        yield f"         and {len(segments) - _STREAMS} more"


def _content(name: str, content: bytes | None, whole_bytes: int | None) -> Iterator[str]:
    if content is None:
        yield f"{name:8} none"
        return
    cut = "" if whole_bytes is None or whole_bytes == len(content) else f", truncated from {whole_bytes}"
    yield f"{name:8} {len(content)} bytes{cut}"
    dump = content[:_DUMP_BYTES]
    for offset in range(0, len(dump), 16):
        row = dump[offset : offset + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{offset:08x}  {row.hex(' '):47}  {text}"
    if len(content) > len(dump):
        yield f"         and {len(content) - len(dump)} more bytes (--output jsonl prints all)"


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _word(text: str | None) -> str:
    """A word of a header, safe to print."""
    return "".join(char if char.isprintable() else "?" for char in (text or "unknown")[:_WORD])


def _number(number: int | None) -> str:
    return "unknown" if number is None else str(number)
