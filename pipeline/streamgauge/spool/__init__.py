"""Stores bundles on disk until they are delivered. Callers use `Spool`.

| file | contents |
|---|---|
| spool.py | putting, taking, delivering and dropping rows |
| file.py | the format: tables, checksums; files of an older layout, damaged files |
| row_clock.py | the age of a row, independent of steps of the wall clock |
| read_counters.py | the balance of reads: seen, delivered, dropped by reason (`DropReason`) |
| response_counters.py | the same for responses; mapped_file.py: the files of both |
| reserve.py | disk space that is kept for the last rows |
| text_store.py | the text of streams that is kept for a recount, beside the spool |
"""

from streamgauge.spool.reserve import Reserve
from streamgauge.spool.spool import (
    RESERVE,
    Failure,
    NewRow,
    Put,
    Row,
    Spool,
    Waiting,
    close_balance_after_crash,
    close_balance_at_restart,
    failure_of,
)

__all__ = [
    "RESERVE",
    "Failure",
    "NewRow",
    "Put",
    "Reserve",
    "Row",
    "Spool",
    "Waiting",
    "close_balance_after_crash",
    "close_balance_at_restart",
    "failure_of",
]
