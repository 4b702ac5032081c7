"""Stores bundles on disk until they are delivered. Callers use `Spool`.

| file | contents |
|---|---|
| spool.py | putting, taking, delivering and dropping rows |
| row_clock.py | the age of a row, independent of steps of the wall clock |
| connection.py | the file while two processes use it: opened, replaced, repaired |
| file.py | the format: pages, columns, checksums; recovery of a damaged file |
| sql.py | the SQL statements |
| read_counters.py | the balance of reads: seen, delivered, dropped by reason (`DropReason`) |
| response_counters.py | the same for responses; mapped_file.py: the files of both |
| reserve.py | disk space that is kept for the last rows |
"""

from streamgauge.spool.reserve import Reserve
from streamgauge.spool.spool import (
    RESERVE,
    NewRow,
    Put,
    Room,
    Row,
    Spool,
    Waiting,
    close_balance_after_crash,
    close_balance_at_restart,
)
from streamgauge.spool.sql import Failure, Lighter, cost_of, failure_of

__all__ = [
    "RESERVE",
    "Failure",
    "Lighter",
    "NewRow",
    "Put",
    "Reserve",
    "Room",
    "Row",
    "Spool",
    "Waiting",
    "close_balance_after_crash",
    "close_balance_at_restart",
    "cost_of",
    "failure_of",
]
