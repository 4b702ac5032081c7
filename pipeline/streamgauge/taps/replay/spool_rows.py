"""Streamgauge's own bundles from a spool, and from the texts that `up` keeps. The file is only read, and a tap may write and
empty it at the same time.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from urllib.parse import quote

from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.spool.file import BUSY_S, COLUMNS, SQLITE_FAULTS, Stored, is_intact
from streamgauge.spool.text_store import kept_streams
from streamgauge.taps.replay.contract import BrokenRecording, Log, Logged, Tally

# Rows read in one transaction: during it the tap cannot truncate its write-ahead log. At 192 KiB a row or less, a few
# MiB.
_ROWS_AT_ONCE = 64
_ROWS = f"SELECT {COLUMNS} FROM rows WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"


def logged(path: Path, tally: Tally) -> Log:
    """The bundles in a spool when the call starts, in order, as `up` reads them. Raises BrokenRecording."""
    try:
        with closing(_connect(path)) as connection:
            last, rows = connection.execute("SELECT coalesce(max(id), -1), count(*) FROM rows").fetchone()
            for row in _rows(connection, last):
                rows -= 1
                yield from _bundle(row, tally)
            tally.rows_removed += max(rows, 0)
    except SQLITE_FAULTS as error:
        raise BrokenRecording(f"it cannot be read as a spool of this version ({error})") from None


def logged_texts(path: Path, tally: Tally) -> Log:
    """The bundles of the streams whose texts are kept, one stream after the other. Raises BrokenRecording.

    Their bundles are numbered again, since each stream is read by itself. A stream that its tap did not end, since it was
    killed, ends with a farewell of that tap.
    """
    numbers: Counter[bytes] = Counter()  # the next number by tap instance
    offsets = count()

    def next_bundle(instance: bytes, tap_ns: int, *segments: Segment, farewell: bool = False) -> Logged:
        number = numbers[instance]
        numbers[instance] += 1
        return Logged(next(offsets), 0, Bundle(instance, 0, number, tap_ns, [*segments], farewell=farewell))

    try:
        with closing(_connect(path)) as connection:
            for values in kept_streams(connection):
                try:
                    bundles = [decode_bundle(value) for value in values]
                except UnreadableBundle:
                    tally.unreadable_rows += 1
                    continue
                for bundle in bundles:
                    yield next_bundle(bundle.instance, bundle.tap_ns, *bundle.segments)
                if bundles and all(segment.end is None for segment in bundles[-1].segments):
                    yield next_bundle(bundles[-1].instance, bundles[-1].tap_ns, farewell=True)
    except SQLITE_FAULTS as error:
        raise BrokenRecording(f"it cannot be read as texts of this version ({error})") from None


def _connect(path: Path) -> sqlite3.Connection:
    """Connects read-only. Without a -wal file no process has the spool open, and `immutable` creates none."""
    alone = not path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro&immutable=1" if alone else "mode=ro"
    uri = f"file:{quote(str(path.absolute()))}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.text_factory = bytes  # a damaged row may hold invalid text
    return connection


def _rows(connection: sqlite3.Connection, last: int) -> Iterator[Stored]:
    after = -1
    while rows := connection.execute(_ROWS, (after, last, _ROWS_AT_ONCE)).fetchall():
        yield from rows
        after = rows[-1][0]


def _bundle(row: Stored, tally: Tally) -> Iterator[Logged]:
    """One bundle, or none if the row is damaged or not a bundle."""
    if not is_intact(row):
        tally.unreadable_rows += 1
        return
    try:
        bundle = decode_bundle(row[-1])
    except UnreadableBundle:
        tally.unreadable_rows += 1
        return
    # The same clock as in `up`, which assembles from the spool: see worker/local.py.
    yield Logged(row[0], bundle.tap_ns // 1_000_000, bundle)
