"""Errors that a person at the prompt can put right. Each is one or two sentences, and says what to do.

Exit codes are a contract: 0 done, 1 it ran and found what it looks for, 2 wrong usage or settings, 3 a part that it needs
is not to be had (port, broker, database), 70 a bug of ours, 75 a worker that was stuck, 130 ended by Ctrl-C before it was
done.
"""

DONE = 0
FOUND = 1
USAGE = 2
UNAVAILABLE = 3
BUG = 70
STUCK = 75  # sysexits.h calls it a temporary failure
INTERRUPTED = 130  # as a shell has it: 128 + SIGINT


class StreamgaugeError(Exception):
    """A fault with a sentence for the operator."""

    exit_code = BUG


class UsageFault(StreamgaugeError):
    """Wrong usage or settings."""

    exit_code = USAGE


class Unavailable(StreamgaugeError):
    """A part that is needed is not to be had."""

    exit_code = UNAVAILABLE
