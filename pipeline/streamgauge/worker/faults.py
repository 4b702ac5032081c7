"""Why a worker ends by itself. Each is one sentence, and an exit code of the command line's contract."""


class WorkerError(Exception):
    """The worker cannot go on; what is confirmed stays, what is not will be read again."""

    exit_code = 3


class LogMadeAnewError(WorkerError):
    """The segments topic ends below what was already applied: it is not the log that the state speaks of."""


class WriteDeniedError(WorkerError):
    """The broker takes no records, state or dead letters from us."""


class StateRefusedError(WorkerError):
    """The broker refuses an entry of the state for good."""


class FaustCrashedError(WorkerError):
    """Faust gave up: the broker refused the consumer or it lost its place for good."""


class SlotsTakenError(WorkerError):
    """More workers on one data directory than there are slots."""


class BugError(WorkerError):
    """Something that must not happen."""

    exit_code = 70
