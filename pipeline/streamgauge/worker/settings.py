"""A worker's settings, and the interface of the store of its records."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from streamgauge.core.limits import Limits
from streamgauge.kafka.security import Brokers, brokers_at
from streamgauge.kafka.topics import DEFAULT_PREFIX, Topics
from streamgauge.settings.declarations import Settings
from streamgauge.worker.watchdog.rules import BLOCKED_S, STUCK_S

# How long no bundle could be read before a partition stops at foreign messages: twelve heartbeats of a tap
# (`recorder/bundler.py`), in the log's time (seconds).
FOREIGN_ALONE_S = 60.0


@dataclass(frozen=True)
class WorkerSettings(Limits):
    """One worker, with the limits of its assemblers. Durations are seconds."""

    # The bootstrap brokers and how to connect to them; an address alone means plain text.
    bootstrap: Brokers | str
    # The directory with the worker's group member id; several workers may share it.
    data_dir: Path
    # The prefix of the topics, and the name of the consumer group.
    prefix: str = DEFAULT_PREFIX
    # The shortest time between two checkpoints of a partition; the longest is ten times that.
    checkpoint_s: float = 1.0
    # How long a worker may take to stop and to make its state durable.
    drain_timeout: float = Settings.drain_timeout
    # Whether to wait for a broker that is unreachable at the start; if not, exit with code 3.
    wait_for_broker: bool = True
    # How often a partition sends a tick while streams are open and no message arrives.
    tick_s: float = 60.0
    # How long a worker that disappeared keeps its partitions. Faust's default of 60 s is longer than the life of workers
    # that restart every few seconds.
    session_timeout_s: float = 10.0
    # On shutdown, leave the group, so that others take over at once; or stay a member for the session, for a restart.
    on_stop: Literal["leave", "stay"] = Settings.on_stop
    # A partition stops after this many messages of another format, 0 for no limit, if no bundle could be read for the second
    # number (seconds).
    dead_letter_limit: int = Settings.dead_letter_limit
    foreign_alone_s: float = FOREIGN_ALONE_S
    # If the group's offsets have expired: the id of the segments topic that the state belongs to, as the operator states.
    segments_id: str = Settings.segments_id
    # How long a committed offset may stay although messages wait, and how long an event loop may be blocked, before the
    # worker ends itself.
    stuck_s: float = STUCK_S
    blocked_s: float = BLOCKED_S

    @property
    def brokers(self) -> Brokers:
        """The brokers with their security; an address alone means plain text."""
        return brokers_at(self.bootstrap)

    @property
    def topics(self) -> Topics:
        """The topics with this prefix."""
        return Topics(self.prefix)


@dataclass(frozen=True)
class Stored:
    """The result of an insert: counts of new records, and of known ones with the same and with different bytes.

    `unreadable`: the indexes of those that are not records.
    """

    new: int = 0
    same: int = 0
    different: int = 0
    unreadable: Sequence[int] = ()


class RecordStore(Protocol):
    """Stores records. Called from one thread. `insert` may raise any Exception; it is then called again with the records."""

    def insert(self, records: Sequence[bytes]) -> Stored:
        """Store records, each the JSON of one. Nothing is stored if it raises."""
