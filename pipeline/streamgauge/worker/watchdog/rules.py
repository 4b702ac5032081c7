"""The rules for when a worker is stuck, by the result of each probe. Sans-IO: times are arguments.

    the broker does not answer                               unknown: the times start again when it answers
    a rebalance or a recovery makes progress                 not stuck
    no partitions, or no state, for too long                 stuck, if the broker answers
    partitions without an owner in the group, for too long   stuck, if the broker answers
    all messages are committed                               not stuck: there is no work
    the committed offset moves                               not stuck
    the committed offset stays, and retries continue         not stuck: a topic or the ledger is unavailable
    the committed offset stays too long, without retries     stuck

Prefer late detection: killing a healthy worker moves its partitions, and may trigger the same verdict on the next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

# How long a committed offset may stay although messages wait, and how long a worker may be without its partitions
# (seconds). A checkpoint takes 10 s at most, a rebalance 60; a refused send is retried within 40, a busy ledger within 61.
STUCK_S = 120.0
# How long an event loop may be blocked (seconds): three sessions. Its longest single step, loading the state of a
# partition, takes a second or two.
BLOCKED_S = 30.0


class Cause(StrEnum):
    """Causes for which the watchdog ended a worker; also values of the metric's label."""

    LOOP = "loop"  # an event loop is blocked, or the probe does not return
    COMMIT = "commit"  # messages wait, and the committed offset stays
    GROUP = "group"  # partitions or their state are missing, although the broker answers
    STOP = "stop"  # it does not stop in time


class Stuck(NamedTuple):
    """A verdict. `why` is a sentence."""

    cause: Cause
    why: str


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class PartitionProgress(NamedTuple):
    """The progress of an assigned partition. `committed`: the committed offset. `end`: the end of its log.

    `tries`: the number of retries so far.
    """

    committed: int
    end: int
    tries: int = 0


@dataclass(frozen=True)
class Probe:
    """The result of one probe. `is_assigned`: the partitions are assigned and recovered.

    `recovery_progress`: changes with each progress of a rebalance or a recovery. `progress`: of each assigned partition.
    `why`: why the broker did not answer, or why it is not settled; None if unknown.
    """

    broker_answers: bool
    is_assigned: bool = False
    recovery_progress: tuple[int, ...] = ()
    progress: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)
    why: str | None = None


class StuckDetector:
    """Applies the rules to each probe. `stuck_s`: the time without progress after which a worker is stuck (seconds)."""

    def __init__(self, stuck_s: float) -> None:
        self._stuck_s = stuck_s
        self._recovery_progress: tuple[int, ...] | None = None
        self._unsettled_s = 0.0
        self._since: dict[TopicPartition, tuple[PartitionProgress, float]] = {}

    def apply(self, probe: Probe, elapsed_s: float) -> Stuck | None:
        """Apply one probe, `elapsed_s` seconds after the previous one. Returns None if not stuck, or unknown."""
        if not probe.broker_answers or probe.recovery_progress != self._recovery_progress:
            self._recovery_progress, self._unsettled_s = probe.recovery_progress, 0.0
            self._since.clear()
            return None
        if not probe.is_assigned:
            self._since.clear()
            self._unsettled_s += elapsed_s
            return self._unassigned(probe.why) if self._unsettled_s >= self._stuck_s else None
        self._unsettled_s = 0.0
        self._since = {partition: self._aged(partition, now, elapsed_s) for partition, now in probe.progress.items()}
        return next(
            (self._not_moving(partition) for partition, (_, age) in self._since.items() if age >= self._stuck_s), None
        )

    def _aged(
        self, partition: TopicPartition, now: PartitionProgress, elapsed_s: float
    ) -> tuple[PartitionProgress, float]:
        before, age = self._since.get(partition, (now, 0.0))
        moved = (now.committed, now.tries) != (before.committed, before.tries)
        idle = now.committed >= now.end
        return now, 0.0 if moved or idle or partition not in self._since else age + elapsed_s

    def _not_moving(self, partition: TopicPartition) -> Stuck:
        progress, age = self._since[partition]
        return Stuck(
            Cause.COMMIT,
            f"{partition.topic}/{partition.partition} has stayed at offset {progress.committed} for {age:.0f} s, although "
            f"{progress.end - progress.committed} messages wait",
        )

    def _unassigned(self, why: str | None) -> Stuck:
        reason = why or "the worker has no assignment, or has not recovered the state of its partitions"
        return Stuck(Cause.GROUP, f"for {self._unsettled_s:.0f} s, {reason}, although the broker answers")
