"""Writes what a program finds when it starts, as JSON: `python -m tests.forked`. It ends when its stdin does."""

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path


async def in_a_loop() -> str:
    return await asyncio.to_thread(lambda: "ran")


def main() -> int:
    found = {
        "arguments": sys.argv[1:],
        "descriptors": sorted(int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists()),
        "leads its group": os.getpgid(0) == os.getpid(),
        "signals": {number.name: str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGUSR1)},
        "ignores SIGPIPE": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
        "wakeup": signal.set_wakeup_fd(-1),
        "threads": threading.active_count(),
        "log": (len(logging.getLogger().handlers), logging.getLogger().level),
        "garbage": (gc.isenabled(), gc.get_threshold()),
        "loop": asyncio.run(in_a_loop()),
        "main": __name__,
    }
    print(json.dumps(found), flush=True)
    return len(sys.stdin.read())


if __name__ == "__main__":
    sys.exit(main())
