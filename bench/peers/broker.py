"""A broker for the peers that send to Kafka."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.kafka_broker.choice import session_broker

from bench.measure import tree


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Runs a broker and yields its address. Raises NoBrokerError.

    It runs only while its core is otherwise idle (SCHED_IDLE). In production it has its own machine; here it shares a core
    with the load, and its delays would appear as delays of the tap.
    """
    with session_broker(directory) as address:
        for pid in tree(os.getpid()):
            if b"java" in Path(f"/proc/{pid}/comm").read_bytes():
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):  # it has ended
                        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
        yield address
