"""What a worker is told, and what it is given by whoever puts the parts together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamgauge.core.assembly.assembler import ABANDON_AFTER_S
from streamgauge.core.assembly.timing import STALL_SECONDS
from streamgauge.core.record import Record
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.topics import DEFAULT_PREFIX, Topics
from streamgauge.worker.watchdog.rules import BLOCKED_S, STUCK_S


@dataclass(frozen=True)
class WorkerSettings:
    """One worker. Durations are seconds."""

    # The brokers to begin with, and how they are met; an address alone means plain text.
    bootstrap: Brokers | str
    # Where the worker keeps its identity; several workers may share it.
    data_dir: Path
    # Topics and group are named by it.
    prefix: str = DEFAULT_PREFIX
    # The shortest time between two checkpoints of a partition; the longest is ten times that.
    checkpoint_s: float = 1.0
    # Silence of a tap, by the log's time, after which its open streams are abandoned.
    abandon_after_s: float = ABANDON_AFTER_S
    # A gap between token events above this is a stall.
    stall_s: float = STALL_SECONDS
    # How long a worker that is told to stop may take to make its state durable.
    drain_timeout_s: float = 30.0
    # Wait for a broker that is away at the start, or exit with code 3.
    wait_for_broker: bool = True
    # How often a message lets time pass where streams are open and nothing comes.
    tick_s: float = 60.0
    # How long a worker that is gone keeps its partitions. Faust's default of 60 is longer than workers that come and go
    # every few seconds ever live.
    session_timeout_s: float = 10.0
    # Leave the group when told to stop, so that others take over at once; or stay in it for the session, and come back.
    leave_group: bool = True
    # The id of the segments topic that the state speaks of, by an operator's word, where the group's offsets have expired.
    segments_id: str = ""
    # How long an offset may stay although messages wait, and an event loop may be blocked, until the worker ends itself.
    stuck_s: float = STUCK_S
    blocked_s: float = BLOCKED_S

    @property
    def brokers(self) -> Brokers:
        return brokers_at(self.bootstrap)

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix)


@dataclass(frozen=True)
class Stored:
    """What became of records: new, known with the same bytes, known with other bytes; places of those that are none."""

    new: int = 0
    same: int = 0
    different: int = 0
    unreadable: Sequence[int] = ()


class RecordStore(Protocol):
    """Where records go. Called from one thread. May raise anything: the records are then given again."""

    def insert(self, records: Sequence[bytes]) -> Stored: ...


class WorkerMetrics(Protocol):
    """Where a worker says what happens; `metrics.prometheus.Metrics` is one."""

    def observe(self, record: Record) -> None: ...
    def add(self, name: str, value: float = 1, **labels: object) -> None: ...
    def set(self, name: str, value: float, **labels: object) -> None: ...
    def unset(self, name: str, **labels: object) -> None: ...
    def add_counts(self, counts: Mapping[str, int]) -> None: ...
