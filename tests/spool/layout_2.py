"""A spool as the versions before layout 3 wrote it."""

import contextlib
import sqlite3
import zlib
from pathlib import Path

import msgspec

from streamgauge.spool import NewRow

LAYOUT_2 = """
CREATE TABLE rows(id INTEGER PRIMARY KEY AUTOINCREMENT, slot INTEGER NOT NULL, reads INTEGER NOT NULL,
                  put_s INTEGER NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL);
CREATE INDEX with_reads ON rows(id) WHERE reads > 0;
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE totals(one INTEGER PRIMARY KEY CHECK (one = 1), delivered INTEGER NOT NULL, negative INTEGER NOT NULL,
                    waiting_rows INTEGER NOT NULL, waiting_reads INTEGER NOT NULL, waiting_bytes INTEGER NOT NULL,
                    taken INTEGER NOT NULL);
INSERT INTO totals VALUES (1, 70, -70, 0, 0, 0, 1001);
INSERT INTO sqlite_sequence VALUES ('rows', 2000);
PRAGMA application_id=0x53475350;
PRAGMA user_version=2;
PRAGMA journal_mode=WAL;
"""


def of_layout_2(path: Path, rows: list[NewRow]) -> None:
    """Write rows with ids from 1001 on, and two entries of `meta`. The first row was taken, and 70 reads were delivered."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA auto_vacuum=INCREMENTAL")
        file.executescript(LAYOUT_2)
        for row_id, row in enumerate(rows, 1001):
            stated = zlib.crc32(row.value, zlib.crc32(b"%d %d %d 500" % (row_id, row.slot, row.reads)))
            file.execute(
                "INSERT INTO rows VALUES (?, ?, ?, 500, ?, ?)", (row_id, row.slot, row.reads, stated, row.value)
            )
        for key, value in (("partitions", b"8"), ("clock", msgspec.msgpack.encode(("boot", 100, 900, 5000)))):
            file.execute("INSERT INTO meta VALUES (?, ?)", (key, zlib.crc32(value).to_bytes(4) + value))
        file.execute("UPDATE sqlite_sequence SET seq = 2000")
        file.commit()
