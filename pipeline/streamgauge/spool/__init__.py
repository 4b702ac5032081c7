"""Where bundles rest until they are delivered. To use it, `Spool`; whoever changes it finds here what lies where.

| file | what it knows |
|---|---|
| spool.py | rows put, taken, done and given up; what may be dropped, and its books |
| row_clock.py | how long a row has waited, whatever the clocks do |
| connection.py | the file under two processes: opened, replaced, found damaged, written again |
| file.py | the format: pages, columns, checksums, what can be rescued of a damaged file |
| sql.py | the statements |
| reserve.py | disk space that is kept for the last rows |
"""

from streamgauge.spool.reserve import Reserve
from streamgauge.spool.spool import (
    MAX_AGE_S,
    MAX_BYTES,
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
    "MAX_AGE_S",
    "MAX_BYTES",
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
