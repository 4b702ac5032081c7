"""The entry point: a path -> bundles for an assembler, for every format of a recording."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.formats.sse import BOM
from streamgauge.errors import MissingExtra
from streamgauge.recorder.request import CaptureSettings
from streamgauge.settings.attributes import Attribute
from streamgauge.taps.replay import captures, cassette, flows, har, spool_rows
from streamgauge.taps.replay.body import replay, without_base64
from streamgauge.taps.replay.contract import BrokenRecording, Log, Logged, RecordedExchange, Tally
from streamgauge.taps.replay.exchange import segments_of
from streamgauge.taps.replay.formats import (
    AMBIGUOUS,
    FIRST_BYTES,
    FORMATS_BY_SUFFIX,
    SPOOL,
    SUFFIXES,
    Format,
    format_of,
    may_be_body,
    shows_response,
)

# Limit of a HAR or a cassette (bytes). JSON is held in memory as a whole; other tools fail at smaller files.
MAX_DOCUMENT_BYTES = 1024**3

_READ_BYTES = 1024 * 1024


class ReplaySettings(msgspec.Struct, frozen=True):
    """How recordings are read. `instance`: 16 bytes that identify this replay as a tap instance; `dialect`: the operator's
    choice; `attributes`: those that are read from requests.
    """

    capture: CaptureSettings
    instance: bytes
    dialect: str | None = None
    attributes: tuple[Attribute, ...] = ()


def recordings_in(folder: Path) -> list[Path]:
    """The files below a directory that have the name of a recording, sorted by path. Raises OSError."""
    return sorted(file for file in folder.rglob("*") if _is_called_one(file) and file.is_file() and not _is_other(file))


def log_of(path: Path, how: ReplaySettings, tally: Tally) -> Log:
    """A file's bundles. Raises BrokenRecording at damage, and OSError; the bundles before it have been yielded."""
    with path.open("rb") as opened:
        first = opened.read(FIRST_BYTES)
        suffix = path.suffix.lower()
        kind = format_of(first, suffix)
        if kind in (Format.SPOOL, Format.TEXTS):
            yield from (spool_rows.logged if kind is Format.SPOOL else spool_rows.logged_texts)(path, tally)
            return
        if kind is Format.BODY and suffix in FORMATS_BY_SUFFIX:
            raise BrokenRecording(f"its content is not that of {FORMATS_BY_SUFFIX[suffix]}")
        # A text that is called .sse is taken for one, however damaged.
        if kind is Format.BODY and how.dialect is None and (suffix != ".sse" or b"\0" in first):
            tally.may_be_body = may_be_body(first)
        for number, segment in enumerate(_segments(kind, path, _WithFirstBytes(first, opened), how, tally)):
            yield Logged(number, 0, Bundle(how.instance, 0, number, 0, [segment]))


class _WithFirstBytes:
    """A file whose first bytes were read already. `read` returns them first, since a pipe cannot be read twice."""

    def __init__(self, first: bytes, file: BinaryIO) -> None:
        self._first, self._file = first, file

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty only at the end."""
        data, self._first = self._first[:size], self._first[size:]
        return data if len(data) == size else data + self._file.read(size - len(data))


class _Capped:
    """A file of at most MAX_DOCUMENT_BYTES."""

    def __init__(self, file: _WithFirstBytes) -> None:
        self._file, self._left = file, MAX_DOCUMENT_BYTES

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty only at the end. Raises BrokenRecording above MAX_DOCUMENT_BYTES."""
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise BrokenRecording(f"it is larger than {MAX_DOCUMENT_BYTES} bytes: split it")
        return data

    def whole(self) -> memoryview:
        """The whole content, without a byte order mark."""
        data = self.read(MAX_DOCUMENT_BYTES + 1)
        return memoryview(data)[len(BOM) if data.startswith(BOM) else 0 :]


def _segments(kind: Format, path: Path, file: _WithFirstBytes, how: ReplaySettings, tally: Tally) -> Iterator[Segment]:
    match kind:
        case Format.BODY:
            return replay(without_base64(_chunks(file)), how.capture, dialect=how.dialect)
        case Format.CAPTURE:
            return captures.segments_of(file, how.capture, tally, how.attributes)
        case Format.DATABASE:
            raise BrokenRecording(
                "it is an SQLite file, but not a spool: read a ledger with `streamgauge ledger query`"
            )
        case Format.PACKED:
            raise BrokenRecording("it is compressed: decompress it first")
    exchanges = _exchanges(kind, path, file, tally)
    return segments_of(exchanges, how.capture, tally, how.dialect, how.attributes)


def _chunks(file: _WithFirstBytes) -> Iterator[bytes]:
    while chunk := file.read(_READ_BYTES):
        yield chunk


def _exchanges(kind: Format, path: Path, file: _WithFirstBytes, tally: Tally) -> Iterator[RecordedExchange]:
    match kind:
        case Format.HAR:
            return har.exchanges(_Capped(file).whole(), partial(_sibling_content, path.parent), tally)
        case Format.CASSETTE_JSON:
            return cassette.exchanges(cassette.json_interactions(_Capped(file).whole()), tally)
        case Format.CASSETTE_YAML:
            try:
                from streamgauge.taps.replay.cassette_yaml import yaml_interactions
            except ModuleNotFoundError:
                raise MissingExtra("a cassette in YAML", "replay") from None
            return cassette.exchanges(yaml_interactions(_Capped(file)), tally)
        case Format.FLOWS:
            return flows.exchanges(file, tally)
    raise AssertionError(f"{kind} holds no exchanges")


def _sibling_content(folder: Path, name: str) -> bytes | None:
    """The content of a file that an archive names, in the archive's own directory only; None if there is none."""
    sibling = folder / name
    if Path(name).name != name or not sibling.is_file() or sibling.stat().st_size > MAX_DOCUMENT_BYTES:
        return None
    return sibling.read_bytes()


def _is_called_one(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES or file.name == SPOOL


def _is_other(file: Path) -> bool:
    """Whether its name is ambiguous and its content is not a recording."""
    if file.suffix.lower() not in AMBIGUOUS:
        return False
    with file.open("rb") as opened:
        first = opened.read(FIRST_BYTES)
    is_json = file.suffix.lower() == ".json"
    return format_of(first) is Format.BODY and not (is_json and shows_response(first))
