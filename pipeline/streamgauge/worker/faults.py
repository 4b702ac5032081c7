"""The errors that end a worker. Each has one sentence as its text, and a documented exit code."""

from collections.abc import Mapping, Sequence

from streamgauge.errors import BUG, STUCK, UNAVAILABLE

# What an operator has to do about a topic that was recreated.
NEW_LOG_REMEDY = (
    "Use another --topic-prefix, or delete the state topic and the consumer group's offsets (docs/guides/partitions.md)"
)


class WorkerError(Exception):
    """The worker cannot continue. Confirmed results stay; unacknowledged messages are read again."""

    exit_code = UNAVAILABLE
    # Whether the worker leaves its group at once. A static member that returns within the session gets its earlier
    # assignment, which is empty or incomplete after the topics have changed (KIP-814).
    leaves = False


class LogRecreatedError(WorkerError):
    """The state does not belong to the present segments topic, or a topic was recreated while the worker ran."""

    leaves = True


class StateRecreatedError(WorkerError):
    """Messages are acknowledged, but the state topic holds no state of them: open streams are lost."""

    leaves = True


class TopicsChangedError(WorkerError):
    """A topic was deleted, or its number of partitions changed, while the worker ran."""

    leaves = True


class WriteDeniedError(WorkerError):
    """The broker denies this worker to write records, state or ticks."""


class NewerStateFoundError(WorkerError):
    """A later version wrote the state. Without it the worker would make different records, and overwrite the state."""


class StateRefusedError(WorkerError):
    """The broker permanently refuses a message that has no other place, such as a state entry."""


class FaustCrashedError(WorkerError):
    """Faust's consumer failed permanently, or the connection was lost at the start."""


class SlotsTakenError(WorkerError):
    """More workers use one data directory than it has slots."""


class StuckError(WorkerError):
    """The watchdog found the worker stuck; a supervisor should restart it. `stacks`: the frames of each thread and task."""

    exit_code = STUCK

    def __init__(
        self, sentence: str, stacks: Mapping[str, Sequence[str]] | None = None, *, leaves: bool = False
    ) -> None:
        super().__init__(sentence)
        self.stacks = stacks or {}
        self.leaves = leaves


class BugError(WorkerError):
    """A bug. `error`: the exception, whose traceback is logged."""

    exit_code = BUG

    def __init__(self, sentence: str, error: BaseException | None = None) -> None:
        super().__init__(sentence)
        self.error = error
