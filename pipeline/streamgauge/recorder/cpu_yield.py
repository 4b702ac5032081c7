"""Divides work into portions: after each one the process offers its core to other processes, except under a bulk load.

The relay shares cores with its recorder. A scheduler lets the running process continue for some milliseconds before a
process that woke up may run, and a stream's next event would wait for that long. Processes of one session wait for less
(decision 18), but other processes may use the same cores.

Under a bulk load, when more data arrives than paced streams bring, offering the core is costly: the relay would wake up for
every few events. Without the offer the relay runs when the recorder's time slice ends, and moves at once all data that has
arrived until then.

A process that is always busy uses a whole time slice, some milliseconds, each time the core is offered. So after an offer
that took long, the core is not offered again until this process has run for as long.
"""

import os
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")

# The rate above which the load is bulk (bytes a second), and the time over which it is measured (ns). The pump uses the
# same values (_pump.c). 800 streams of 20 events a second, of 250 bytes each, are 4 MiB a second; a burst that arrives
# as fast as it can is about 40 MiB a second.
_BULK_BYTES_S = 8 * 1024 * 1024
_RATE_NS = 20_000_000
# A process that wakes up for a stream's event runs for less; an offer that took longer went to a busy process (ns).
_LONG_OFFER_NS = 500_000


class BulkDetector:
    """Measures the rate of incoming bytes and decides whether the load is bulk."""

    def __init__(self) -> None:
        self.in_bulk = False
        self._bytes, self._since_ns = 0, 0
        self._offer_again_ns = 0

    def add_bytes(self, size: int, now_ns: int) -> None:
        """Count `size` bytes that arrived at `now_ns`."""
        self._bytes += size
        took = now_ns - self._since_ns
        if took >= _RATE_NS:
            self.in_bulk = self._bytes * 1_000_000_000 > took * _BULK_BYTES_S
            self._bytes, self._since_ns = 0, now_ns

    def offer_core(self) -> None:
        """Let other processes run that wait for this core, for at most half of the time."""
        begun_ns = time.monotonic_ns()
        if begun_ns >= self._offer_again_ns:
            os.sched_yield()
            ended_ns = time.monotonic_ns()
            took_ns = ended_ns - begun_ns
            self._offer_again_ns = ended_ns + took_ns if took_ns > _LONG_OFFER_NS else 0


# One for the process: the offer of a core concerns the whole process.
pace = BulkDetector()


def yield_every(items: Iterable[_Item], portion: int) -> Iterator[_Item]:
    """The same items; the core is offered to other processes after each `portion` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % portion == 0:
            yield_cpu()


def yield_cpu() -> None:
    """Offer the core to other processes, amid work of more than about 30 us. Costs 0.6 us if no process waits for it."""
    if not pace.in_bulk:
        pace.offer_core()
