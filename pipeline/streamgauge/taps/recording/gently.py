"""Work in portions: behind each one whoever else waits for this core gets it.

The relay shares cores with its recorder. A scheduler lets whoever runs go on for some milliseconds before somebody that
woke up may run; a stream's next event would wait for that long. Nor does a lower priority help, where a kernel (Linux, with
lazy preemption) looks for who else wants to run only when a system call ends.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def gently(items: Iterable[_Item], portion: int) -> Iterator[_Item]:
    """The same items; the core is offered to others behind each `portion` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % portion == 0:
            breathe()


def breathe() -> None:
    """Amid work of more than some 30 us: whoever else waits for this core gets it. Costs 0.6 us where nobody does."""
    os.sched_yield()
