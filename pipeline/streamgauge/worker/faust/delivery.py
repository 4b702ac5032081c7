"""Finds messages of a changelog that the consumer fetched and that never reached the recovery.

Written for faust-streaming 0.12 to 0.15. No public report about changelogs;
https://github.com/faust-streaming/faust/issues/216 (closed) was such a loss in a stream.

Faust may drop fetched messages without a seek back: when a rebalance stops the flow, when it clears its queues, and when a
message that was in delivery before a seek moves the read offset past it. The recovery then continues after the lost
messages, and the state lacks their entries. Offsets alone do not show it, because a compacted changelog has gaps. So each
message is compared with the message that was fetched before it.
"""

from collections.abc import Iterable
from typing import NamedTuple

# The offset before a partition's first message.
BEFORE_ALL = -1
# The predecessor of a message that was fetched after a fetch without a result: it is larger than every offset.
_UNKNOWN = 2**63

PartitionName = tuple[str, int]  # topic and partition


class Rewind(NamedTuple):
    """The position of a recovery: `offset` is the last message that it got together with all before it.

    `is_lost`: whether later messages are lost, so that reading has to start again after `offset`. Otherwise the consumer is
    about to fetch them.
    """

    offset: int
    is_lost: bool


class _Partition:
    __slots__ = ("delivered", "fetched", "predecessors")

    def __init__(self, recovered: int) -> None:
        self.delivered = recovered
        self.fetched: int | None = None  # the last message that was fetched since the seek
        self.predecessors: dict[int, int] = {}  # of messages that were fetched since the seek, by offset


class DeliveryCheck:
    """One for each consumer. It checks the partitions that the recovery reads."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionName, _Partition] = {}

    def sought(self, partition: PartitionName, recovered: int) -> None:
        """The position was set so that what is fetched next follows `recovered`, the last message that the recovery has."""
        self._partitions[partition] = _Partition(recovered)

    def fetched(self, partition: PartitionName, offsets: Iterable[int]) -> None:
        """A fetch returned these messages, in this order."""
        if (followed := self._partitions.get(partition)) is None:
            return
        before = followed.fetched
        for offset in offsets:
            # After a step back, such as Faust's seek to the committed offset, messages are fetched once more.
            is_step_back = before is not None and offset <= before < _UNKNOWN
            followed.predecessors[offset] = BEFORE_ALL if before is None or is_step_back else before
            before = offset
        followed.fetched = before

    def fetch_failed(self, partitions: Iterable[PartitionName]) -> None:
        """A fetch ended without a result. aiokafka may have taken messages from its buffer for it."""
        for partition in partitions:
            if (followed := self._partitions.get(partition)) is not None:
                followed.fetched = _UNKNOWN

    def delivered(self, partition: PartitionName, offset: int) -> Rewind | None:
        """The recovery got a message that it did not have. None if it has all before it."""
        if (followed := self._partitions.get(partition)) is None or offset <= followed.delivered:
            return None
        predecessor = followed.predecessors.pop(offset, None)
        if predecessor is None:  # it was fetched before the seek
            return Rewind(followed.delivered, is_lost=False)
        if predecessor > followed.delivered:
            return Rewind(followed.delivered, is_lost=True)
        followed.delivered = offset
        return None
