"""`python -m streamgauge` is the command `streamgauge`; so is the installed script.

Importing the command line takes some tenths of a second. A signal then, or while Python ends, exits without a traceback.
"""

import gc
import os
import signal
import sys

from streamgauge.errors import DONE, INTERRUPTED


def _leave(number: int, _: object) -> None:
    os._exit(INTERRUPTED if number == signal.SIGINT else DONE)


def main() -> int:
    """Run the command line; gives the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background a shell has it ignored
        signal.signal(signal.SIGINT, _leave)
    signal.signal(signal.SIGTERM, _leave)
    gc.disable()  # until all is imported: a seventh of a worker's start was collecting what stays
    from streamgauge.cli import main

    return main.main()


if __name__ == "__main__":
    sys.exit(main())
