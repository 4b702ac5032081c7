"""When is a worker stuck? Judged by what each look at it found; sans-IO: times come as an argument.

    the broker does not answer                 nobody can tell: judged anew when it does
    a rebalance or a recovery goes on          so is the worker
    no partitions or no state for too long     stuck, as long as the broker answers
    partitions that no member of the group has, for too long     likewise
    all that there is is committed             nothing to do
    the offset moves                           well
    it stays, something is tried again         waits by rule: for a topic that takes nothing, for a ledger
    it stays, nothing is tried                 stuck

Too late rather than too early: who is ended for nothing hands its partitions over, and they may do the same to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

# How long an offset may stay although messages wait, and how long a worker may be without its partitions (seconds). A
# checkpoint takes 10 s at most, a rebalance 60; what the broker refuses is tried again within 40, a busy ledger within 61.
STUCK_S = 120.0
# How long an event loop may be blocked (seconds): three sessions. The longest that it has to do at once is to take over
# the state of a partition, a second or two.
BLOCKED_S = 30.0


class Cause(StrEnum):
    """Why a worker ended itself; the label of its last metric."""

    LOOP = "loop"  # an event loop does not answer, or the look itself does not come back
    COMMIT = "commit"  # messages wait, and the committed offset stays
    GROUP = "group"  # no partitions, or not their state, although the broker answers
    STOP = "stop"  # it was told to end, and does not


class Stuck(NamedTuple):
    """A verdict. `why` is a sentence."""

    cause: Cause
    why: str


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class PartitionProgress(NamedTuple):
    """Of a partition that the worker holds. `tries`: how often something that failed was tried again."""

    committed: int
    end: int
    tries: int = 0


@dataclass(frozen=True)
class Probe:
    """What one look found. `settled`: partitions are given and recovered. `moves`: differs while that goes on.

    `why`: why the broker did not answer, or why it is not settled, where that is known.
    """

    broker_answers: bool
    settled: bool = False
    moves: tuple[int, ...] = ()
    standings: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)
    why: str | None = None


class StuckDetector:
    """Tell it what each look found, and the time since the one before (seconds)."""

    def __init__(self, stuck_s: float) -> None:
        self._stuck_s = stuck_s
        self._moves: tuple[int, ...] | None = None
        self._unsettled_s = 0.0
        self._since: dict[TopicPartition, tuple[PartitionProgress, float]] = {}

    def look(self, found: Probe, elapsed_s: float) -> Stuck | None:
        """The verdict; None if all is well, or nobody can tell."""
        if not found.broker_answers or found.moves != self._moves:
            self._moves, self._unsettled_s = found.moves, 0.0
            self._since.clear()
            return None
        if not found.settled:
            self._since.clear()
            self._unsettled_s += elapsed_s
            return self._left_out(found.why) if self._unsettled_s >= self._stuck_s else None
        self._unsettled_s = 0.0
        self._since = {spot: self._aged(spot, now, elapsed_s) for spot, now in found.standings.items()}
        return next((self._stays(spot) for spot, (_, age) in self._since.items() if age >= self._stuck_s), None)

    def _aged(self, spot: TopicPartition, now: PartitionProgress, elapsed_s: float) -> tuple[PartitionProgress, float]:
        before, age = self._since.get(spot, (now, 0.0))
        moved = (now.committed, now.tries) != (before.committed, before.tries)
        idle = now.committed >= now.end
        return now, 0.0 if moved or idle or spot not in self._since else age + elapsed_s

    def _stays(self, spot: TopicPartition) -> Stuck:
        standing, age = self._since[spot]
        return Stuck(
            Cause.COMMIT,
            f"{spot.topic}/{spot.partition} has stayed at offset {standing.committed} for {age:.0f} s, although "
            f"{standing.end - standing.committed} messages wait",
        )

    def _left_out(self, why: str | None) -> Stuck:
        said = why or "the worker has no assignment, or has not recovered the state of its partitions"
        return Stuck(Cause.GROUP, f"for {self._unsettled_s:.0f} s, {said}, although the broker answers")
