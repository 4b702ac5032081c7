"""One dead letter as text and as JSON: its source, the reason, and its content.

Its content comes from outside: unprintable characters are replaced and long content is cut.
"""

import base64
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.kafka.dead_letters import DeadLetter, NotRetriableError, Stage, message_of
from streamgauge.kafka.topics import Topics
from streamgauge.ledger import LedgerRow, UnreadableRecordError

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


def why_not_sent(topics: Topics, one: DeadLetter) -> str | None:
    """Why a dead letter cannot be sent back, as the end of a sentence; None if it can."""
    try:
        message = message_of(topics, one)
    except NotRetriableError as error:
        return "it is truncated and holds only a part of its message" if one.whole else str(error)
    try:
        if message.topic == topics.segments:
            decode_bundle(message.value)
        else:
            LedgerRow.of_json(message.value or b"")
    except (UnreadableBundle, UnreadableRecordError) as error:
        return f"this version cannot read it either ({error}): retry with a version that can"
    return None


def as_json(one: DeadLetter, *, whole: bool = False) -> dict[str, Any]:
    """The dead letter for JSON output; `cut`: it is truncated. `whole`: with key and value, in base64."""
    key_bytes, value_bytes = one.whole or (len(one.key or b""), len(one.value or b""))
    shown: dict[str, Any] = {
        "letter": one.offset,
        "at": moment(one.at_ms),
        "stage": one.stage,
        "error_class": one.error_class,
        "topic": one.source_topic,
        "partition": one.source_partition,
        "offset": one.source_offset,
        "version": one.version,
        "format": one.format_version,
        "key_bytes": key_bytes,
        "value_bytes": value_bytes,
        "cut": one.whole is not None,
    }
    if whole:
        shown |= {"key_base64": _base64(one.key), "value_base64": _base64(one.value)}
    return shown


def as_text(topics: Topics, one: DeadLetter) -> Iterator[str]:
    """The dead letter as lines of text."""
    known = one.stage if one.stage in _MEANS else None
    means = f": {_MEANS[Stage(known)]}" if known else ""
    yield f"number   {one.offset} of {topics.deadletter}, {moment(one.at_ms) or 'time unknown'}"
    partition, offset = _number(one.source_partition), _number(one.source_offset)
    yield f"from     {_word(one.source_topic)}, partition {partition}, offset {offset}"
    yield f"stage    {_word(one.stage)}{means}"
    yield f"error    {_word(one.error_class)}"
    yield f"worker   version {_word(one.version)}, reads bundle format {_word(one.format_version)}"
    reason = why_not_sent(topics, one)
    if reason is None:
        yield f"now      this version can read it: `streamgauge deadletter retry {one.offset}` sends it back"
    else:
        yield f"now      {reason}"
    yield from _content("key", one.key, one.whole and one.whole[0])
    if one.source_topic == topics.segments and reason is None:
        yield from _bundle(decode_bundle(one.value))
    yield from _content("value", one.value, one.whole and one.whole[1])


def _bundle(bundle: Bundle) -> Iterator[str]:
    segments = Counter(segment.stream for segment in bundle.segments)
    reads = sum(len(segment.reads) for segment in bundle.segments)
    yield f"bundle   number {bundle.number} of tap instance {UUID(bytes=bundle.instance)} in slot {bundle.slot}"
    yield f"         {len(bundle.segments)} segments of {len(segments)} streams, {reads} reads"
    if bundle.farewell or bundle.dead:
        dead = ", ".join(str(UUID(bytes=one)) for one in bundle.dead[:_STREAMS] if len(one) == 16)
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
    shown = content[:_DUMP_BYTES]
    for place in range(0, len(shown), 16):
        row = shown[place : place + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{place:08x}  {row.hex(' '):47}  {text}"
    if len(content) > len(shown):
        yield f"         and {len(content) - len(shown)} more bytes (--output jsonl prints all)"


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _word(text: str | None) -> str:
    """A word of a header, safe to print."""
    return "".join(char if char.isprintable() else "?" for char in (text or "unknown")[:_WORD])


def _number(number: int | None) -> str:
    return "unknown" if number is None else str(number)
