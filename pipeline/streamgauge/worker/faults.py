"""Why a worker ends by itself. Each is one sentence, and an exit code of the command line's contract."""

from collections.abc import Mapping, Sequence

from streamgauge.errors import STUCK, UNAVAILABLE

# What to do about a topic that is not the one that was read before.
NEW_LOG_REMEDY = (
    "Use another --topic-prefix, or delete the state topic and the consumer group's offsets (docs/guides/partitions.md)"
)


class WorkerError(Exception):
    """The worker cannot go on; what is confirmed stays, what is not will be read again."""

    exit_code = UNAVAILABLE
    # Whether the worker leaves its group, as if told to stop. A static member that comes back within the session is given
    # what it had: of topics that are not the same any more that is nothing, or too little (KIP-814).
    leaves = False


class LogRecreatedError(WorkerError):
    """The segments topic is not the log that the state speaks of."""

    leaves = True


class StateRecreatedError(WorkerError):
    """Messages are acknowledged, and there is no state that knows of them: open streams are lost."""

    leaves = True


class TopicsChangedError(WorkerError):
    """A topic is gone, or has another number of partitions than when the worker began."""

    leaves = True


class WriteDeniedError(WorkerError):
    """The broker takes no records or state from us."""


class NewerStateFoundError(WorkerError):
    """The state was written by a later version: going on without it would make other records, and overwrite it."""


class StateRefusedError(WorkerError):
    """The broker refuses an entry of the state for good."""


class FaustCrashedError(WorkerError):
    """Faust gave up: the broker refused the consumer or it lost its place for good."""


class SlotsTakenError(WorkerError):
    """More workers on one data directory than there are slots."""


class StuckError(WorkerError):
    """The watchdog found the worker stuck. To be started again. `stacks`: what each thread and task did."""

    exit_code = STUCK

    def __init__(
        self, sentence: str, stacks: Mapping[str, Sequence[str]] | None = None, *, leaves: bool = False
    ) -> None:
        super().__init__(sentence)
        self.stacks = stacks or {}
        self.leaves = leaves


class BugError(WorkerError):
    """Something that must not happen. `error`: what was raised, whose traceback is logged."""

    exit_code = 70

    def __init__(self, sentence: str, error: BaseException | None = None) -> None:
        super().__init__(sentence)
        self.error = error
