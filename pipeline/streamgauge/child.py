"""What each child process of a command does before all else."""

import signal


def leave_terminal_to_parent() -> None:
    """It ends when its parent asks, or is gone, and neither by a terminal nor by the kernel.

    Children share their parent's session (decision 23). SIGHUP also comes where the parent dies while the child is stopped,
    with a SIGCONT; SIGTTOU for a line on a terminal set to `tostop`.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
