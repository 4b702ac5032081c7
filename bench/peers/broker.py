"""A broker for those who ship to Kafka."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.kafka_broker.choice import session_broker

from bench.measure import tree


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Its address. Raises NoBrokerError.

    It runs when nobody else wants the core: elsewhere it has a machine of its own, here it shares the load's, and what it
    delays would look like the tap's delay.
    """
    with session_broker(directory) as address:
        for pid in tree(os.getpid()):
            if b"java" in Path(f"/proc/{pid}/comm").read_bytes():
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):  # it has ended
                        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
        yield address
