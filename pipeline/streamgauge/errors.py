"""Errors that an operator can correct. The text of each says what is wrong, and what to do.

Exit codes are a contract: 0 done, 1 the command ran and found a problem, 2 wrong usage or settings, 3 a required service is
unavailable (port, broker, database), 70 an internal error, 75 a worker was stuck, 130 ended by Ctrl-C before it was done.
128 + the signal's number (130, 143): a second signal ended the command at once.
"""

DONE = 0
FOUND = 1
USAGE = 2
UNAVAILABLE = 3
BUG = 70
STUCK = 75  # sysexits.h calls it a temporary failure
INTERRUPTED = 130  # as shells do: 128 + SIGINT


class StreamgaugeError(Exception):
    """An error with a sentence for the operator."""

    exit_code = BUG


class UsageFault(StreamgaugeError):
    """Wrong usage or settings."""

    exit_code = USAGE


class Unavailable(StreamgaugeError):
    """A required service is unavailable."""

    exit_code = UNAVAILABLE


class MissingExtra(Unavailable):
    """A package is missing that a plain installation does not bring. `feature`: what needs it; `extra`: brings it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} requires the extra `{extra}`: run pip install 'streamgauge[{extra}]'")
