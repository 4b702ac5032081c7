"""Work in portions: behind each one whoever else waits for this core gets it, unless it is a bulk that comes.

The relay shares cores with its recorder. A scheduler lets whoever runs go on for some milliseconds before somebody that
woke up may run; a stream's next event would wait for that long. Processes of one session wait for less (decision 18), but
it is not everywhere that they are the only ones.

Where more comes than clients read word by word, to offer the core costs: the relay would wake up for each few events. There
it waits until the recorder's turn is over, and moves all that came meanwhile together.

A process that is always busy takes a whole turn of the scheduler, some milliseconds, each time the core is offered. So after
an offer that took some time the core is not offered again until this process ran for as long.
"""

import os
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")

# From which rate on it is a bulk (bytes a second), and over how long it is taken (ns): as the pump has it, _pump.c. 800
# streams of 20 events a second, of 250 bytes each, are 4 MiB a second; what comes as fast as it can, some 40.
_BULK_BYTES_S = 8 * 1024 * 1024
_RATE_NS = 20_000_000
# What wakes up for a stream's event needs less; from here on it was a process that is always busy (ns).
_LONG_OFFER_NS = 500_000


class BulkDetector:
    """How much comes to this process, and whether that is a bulk."""

    def __init__(self) -> None:
        self.in_bulk = False
        self._bytes, self._since_ns = 0, 0
        self._offer_again_ns = 0

    def came(self, size: int, now_ns: int) -> None:
        """So many bytes, now."""
        self._bytes += size
        took = now_ns - self._since_ns
        if took >= _RATE_NS:
            self.in_bulk = self._bytes * 1_000_000_000 > took * _BULK_BYTES_S
            self._bytes, self._since_ns = 0, now_ns

    def offer_core(self) -> None:
        """Lets other processes run that wait for this core, but for at most half of the time."""
        begun_ns = time.monotonic_ns()
        if begun_ns >= self._offer_again_ns:
            os.sched_yield()
            ended_ns = time.monotonic_ns()
            took_ns = ended_ns - begun_ns
            self._offer_again_ns = ended_ns + took_ns if took_ns > _LONG_OFFER_NS else 0


# A core is offered by a process: there is one.
pace = BulkDetector()


def yield_every(items: Iterable[_Item], portion: int) -> Iterator[_Item]:
    """The same items; the core is offered to others behind each `portion` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % portion == 0:
            yield_cpu()


def yield_cpu() -> None:
    """Amid work of more than some 30 us: whoever else waits for this core gets it. Costs 0.6 us where nobody does."""
    if not pace.in_bulk:
        pace.offer_core()
