"""What all child processes of a command have in common: signals, and sentences for the operator."""

import contextlib
import signal
import sys

from streamgauge.runtime.redaction import redacted_text


def leave_terminal_to_parent() -> None:
    """It ends when its parent asks, or is gone, and neither by a terminal nor by the kernel.

    Children share their parent's session (decision 18). SIGHUP also comes where the parent dies while the child is stopped,
    with a SIGCONT; SIGTTOU for a line on a terminal set to `tostop`.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)


def say(sentence: str) -> None:
    """Write a sentence for the operator to stderr, which the child shares with its parent."""
    with contextlib.suppress(OSError, ValueError):  # nothing reads stderr any more: no reason for a child to end
        sys.stderr.write(redacted_text(f"streamgauge: {sentence}\n"))
        sys.stderr.flush()
