"""`python -m streamgauge` is the command `streamgauge`; so is the installed script.

Importing the command line takes some tenths of a second. A signal then, or while Python ends, exits without a traceback.
"""

import gc
import os
import resource
import signal
import sys

from streamgauge.errors import DONE, INTERRUPTED


def _leave(number: int, _: object) -> None:
    os._exit(INTERRUPTED if number == signal.SIGINT else DONE)


def _keep_private() -> None:
    """What this process and its children write is for this user alone, whatever library writes it; and a crash leaves no core
    file, which would hold keys and prompts.
    """
    os.umask(os.umask(0o077) | 0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def main() -> int:
    """Run the command line; gives the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background a shell has it ignored
        signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    _keep_private()
    gc.disable()  # until all is imported: a seventh of a worker's start was collecting what stays
    from streamgauge.cli import main

    return main.main()


if __name__ == "__main__":
    sys.exit(main())
