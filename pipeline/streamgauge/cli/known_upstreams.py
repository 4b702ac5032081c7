"""The upstreams that a process knows when it starts, without a setting: those of the newest records in its ledger."""

import contextlib

import msgspec

from streamgauge.ledger import Ledger, LedgerUnavailableError
from streamgauge.metrics.prometheus import Metrics

# The records that are looked at: they are read in some 10 ms.
NEWEST = 1_000


class _Upstream(msgspec.Struct):
    upstream: str | None


def start_known_upstreams(metrics: Metrics, ledger: Ledger) -> None:
    """Lets counters of the upstreams in the newest records begin at 0, so that a burst right after a restart shows as growth.

    Does nothing if the ledger cannot be read now: that is no reason not to start.
    """
    names: set[str | None] = set()
    with contextlib.suppress(LedgerUnavailableError):
        for record in ledger.query(NEWEST, newest_first=True):
            names.add(msgspec.json.decode(record, type=_Upstream).upstream)
    for name in sorted(name for name in names if name is not None):
        metrics.start_upstream(name)
